"""Jobs of a guarded process that crash, hang, or answer nonsense; `put_in_place_of` makes one of them the answer."""

import os
import time

from migrate.stores import child


def die(job, pipe):
    os.kill(os.getpid(), job["signal"])


def hang(job, pipe):
    time.sleep(60)


def answer(job, pipe):
    pipe.write(bytes.fromhex(job["bytes"]))


def measure(job, pipe):
    raise RuntimeError(f"the filler has {len(job['filler'])} characters")


def put_in_place_of(monkeypatch, real, do, **arguments):
    """Let the server do one of these jobs where it is asked for a real one."""
    start = child._start

    def start_hostile(job):
        return start({**job, "do": f"{__name__}:{do}", **arguments} if job["do"] == real else job)

    monkeypatch.setattr(child, "_start", start_hostile)
