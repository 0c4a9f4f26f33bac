"""Time of `lead-migrate --help` as a whole process, beside a bare interpreter's.

python benchmarks/startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path


def median_s(command: list[str], runs: int = 11) -> float:
    """Median wall seconds of a command over several runs, after one that is not counted."""
    times = []
    for _ in range(runs + 1):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def main() -> None:
    """Print both medians and their ratio."""
    tool = Path(sys.executable).with_name("lead-migrate")
    own, bare = median_s([str(tool), "--help"]), median_s([sys.executable, "-c", "pass"])
    print(f"lead-migrate --help: {own:.3f} s; python -c pass: {bare:.3f} s; ratio {own / bare:.1f}")


if __name__ == "__main__":
    main()
