"""A Dask scheduler and workers as processes of their own, which a test may kill."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "DASK_DISTRIBUTED__ADMIN__LOG_LENGTH": "0",
}


class Processes:
    """`scheduler` and `workers`; `file` is the scheduler's file, which runner and workers find it by."""

    def __init__(self, folder, environment=None):
        self.folder = Path(folder)
        self.file = self.folder / "scheduler.json"
        self.environment = ENVIRONMENT | (environment or {})
        self.scheduler = None
        self.workers = []
        self.port = 0

    def start_scheduler(self):
        """Start it, at the port of an earlier one."""
        self.file.unlink(missing_ok=True)
        self.scheduler = self._start(
            "scheduler", "--port", str(self.port), "--no-dashboard", "--no-show", "--scheduler-file", str(self.file)
        )
        deadline = time.monotonic() + 60
        while not (self.file.exists() and self.file.read_text().rstrip().endswith("}")):
            assert self.scheduler.poll() is None and time.monotonic() < deadline, "the scheduler did not start"
            time.sleep(0.05)

    def start_worker(self, *options):
        """Start one more; the nanny is left out, so that a killed worker is gone."""
        worker = self._start(
            "worker", "--scheduler-file", str(self.file), "--nthreads", "1", "--no-nanny", "--no-dashboard",
            "--memory-limit", "0", "--local-directory", str(self.folder), "--death-timeout", "20", *options,
        )  # fmt: skip
        self.workers.append(worker)
        return worker

    def kill_all(self):
        """End everything that was started here."""
        for process in [*self.workers, self.scheduler]:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
        self.workers = []

    def _start(self, *command):
        with (self.folder / f"{command[0]}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", *command], stdout=log, stderr=log, env=self.environment, cwd=self.folder
            )


@contextmanager
def processes(folder, workers=2, **options):
    """A scheduler with some workers."""
    started = Processes(folder, **options)
    try:
        started.start_scheduler()
        for _ in range(workers):
            started.start_worker()
        yield started
    finally:
        started.kill_all()
