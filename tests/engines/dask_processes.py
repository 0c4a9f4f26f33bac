"""A Dask scheduler and workers as processes of their own, which whoever started them may kill."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager

START_S = 120


@contextmanager
def dask_processes(folder, workers=2, environment=None):
    """Yield the address of a scheduler, and the processes of its workers; those that are killed stay away."""
    file = folder / "scheduler.json"
    settings = ("--nthreads", "1", "--no-nanny", "--memory-limit", "0", "--local-directory", str(folder))

    def start(kind, *options):
        command = [sys.executable, "-m", "dask", kind, "--scheduler-file", str(file), "--no-dashboard", *options]
        with (folder / f"{kind}.log").open("ab") as log:
            surroundings = {**os.environ, **(environment or {})}
            return subprocess.Popen(command, stdout=log, stderr=log, env=surroundings, cwd=folder)

    started = [start("scheduler", "--port", "0", "--no-show")]
    try:
        end = time.monotonic() + START_S
        while not (file.exists() and file.read_text().rstrip().endswith("}")):
            assert started[0].poll() is None and time.monotonic() < end, (folder / "scheduler.log").read_text()
            time.sleep(0.05)
        started += [start("worker", *settings) for _ in range(workers)]
        yield address_in(file), started[1:]
    finally:
        for process in started:
            process.kill()
            process.wait()


def address_in(file):
    """The address that a scheduler has written to its file."""
    return file.read_text().split('"address": "')[1].split('"')[0]
