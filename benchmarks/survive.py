"""Kills runs at random and counts whether the output is, in the end, the one of a run that nobody killed.

    python benchmarks/survive.py [--kills 30] [--rows 20000] [--seed 0] [--kind flat ...]

For each kind of store a small one is translated (or a corpus embedded) once undisturbed. Then runs of the same command
are killed with SIGKILL at random moments, each going on where the last one was killed, until there were so many kills.
Whenever one gets through, every file of its output, manifest included, is compared with the undisturbed one, and the
next starts anew. Parts are made small, so that a run has many. Ends with exit code 1 if anything differed, if the
source changed, or if embedding cost more than one part for each kill.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from victims import KINDS, PART_DOCUMENTS, digest, job_of, make_parts_small, prepare

_DIED_BY_ITSELF = 137


@dataclass
class Tally:
    """What happened to one kind."""

    kills: int = 0
    midway: int = 0
    finished: int = 0
    identical: int = 0
    source_same: bool = True
    extra_texts: int = 0

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost, changed or paid twice."""
        affordable = self.extra_texts <= self.kills * PART_DOCUMENTS
        return self.identical == self.finished > 0 and self.source_same and affordable


def run_child(job: Callable[[], object], delay_s: float | None = None) -> bool:
    """Run a job in a process of its own, killed after some time; whether it got through to the end.

    The process is forked: this one has imported everything, and keeps away from threads and from linear algebra.
    """
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)  # workers whose parent was killed say so
        try:
            job()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if delay_s is not None:
        time.sleep(delay_s)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if status not in (0, signal.SIGKILL, _DIED_BY_ITSELF << 8):
        raise SystemExit(f"a run failed by itself: status {status}")
    return status == 0


def survive(kind: str, folder: Path, *, kills: int, rows: int, rng: random.Random) -> Tally:
    """Kill runs of one kind until there were `kills`."""
    tally, output, expected, bill = Tally(), folder / "output", folder / "expected", folder / "bill"
    state = folder / ".output.work" / "work.json"
    run_child(partial(prepare, kind, folder, rows))
    job = job_of(kind, folder, rows)
    source = digest(folder / "source")
    started = time.perf_counter()
    run_child(partial(job, expected))
    whole_s = time.perf_counter() - started
    pass_texts, passes = _size(bill), 1
    while tally.kills < kills or state.exists() or not tally.finished:
        delay_s = rng.uniform(0, 1.2 * whole_s) if tally.kills < kills else None
        got_through = run_child(partial(job, output), delay_s)
        tally.kills += not got_through
        tally.midway += state.exists()
        if got_through or (output.exists() and not state.exists()):
            passes += 1
            tally.finished += 1
            tally.identical += digest(output) == digest(expected) and not state.exists()
            shutil.rmtree(output)
    tally.source_same = digest(folder / "source") == source
    tally.extra_texts = _size(bill) - passes * pass_texts
    return tally


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def main() -> None:
    """Print a line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30, help="for each kind")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS, nargs="*", default=KINDS)
    arguments = parser.parse_args()
    make_parts_small()
    rng = random.Random(arguments.seed)
    good = True
    print("kind        kills  with work left  finished  identical  source  texts paid twice")
    for kind in arguments.kind:
        with tempfile.TemporaryDirectory() as folder:
            tally = survive(kind, Path(folder), kills=arguments.kills, rows=arguments.rows, rng=rng)
        same = "same" if tally.source_same else "CHANGED"
        print(
            f"{kind:10} {tally.kills:6} {tally.midway:15} {tally.finished:9} {tally.identical:10}  {same:>6} "
            f"{tally.extra_texts:17}"
        )
        good = good and tally.is_good
    print("every output is identical to that of an undisturbed run" if good else "SOMETHING WAS LOST")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
