"""A Dask scheduler and workers as processes of their own, which whoever started them may kill."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_START_S = 120


class Processes:
    """`scheduler` and `workers`; `file` is the scheduler's file, which runner and workers find it by."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.environment = {**os.environ, **ENVIRONMENT, **(environment or {})}
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    def start_scheduler(self) -> None:
        """Start one, and wait until it can be found."""
        self.file.unlink(missing_ok=True)
        self.scheduler = self._start("scheduler", "--port", "0", "--no-show")
        deadline = time.monotonic() + _START_S
        while not (self.file.exists() and self.file.read_text().rstrip().endswith("}")):
            if self.scheduler.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the scheduler did not start; see {self.folder}/scheduler.log")
            time.sleep(0.05)

    def start_worker(self, *options: str) -> subprocess.Popen[bytes]:
        """Start one more; without a nanny, so that a worker that is killed is gone."""
        settings = ("--nthreads", "1", "--no-nanny", "--memory-limit", "0", "--death-timeout", "20")
        worker = self._start("worker", *settings, "--local-directory", str(self.folder), *options)
        self.workers.append(worker)
        return worker

    def kill_all(self) -> None:
        """End everything that was started here."""
        for process in [*self.workers, self.scheduler]:
            if process is not None:
                kill(process)
        self.workers = []

    def _start(self, kind: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", kind, "--scheduler-file", str(self.file), "--no-dashboard", *options]
        with (self.folder / f"{kind}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=self.environment, cwd=self.folder)


def kill(process: subprocess.Popen[bytes]) -> None:
    """As `kill -9` does."""
    process.kill()
    process.wait()


@contextmanager
def processes(folder: Path, workers: int = 2, environment: Mapping[str, str] | None = None) -> Iterator[Processes]:
    """A scheduler with some workers."""
    started = Processes(folder, environment)
    try:
        started.start_scheduler()
        for _ in range(workers):
            started.start_worker()
        yield started
    finally:
        started.kill_all()
