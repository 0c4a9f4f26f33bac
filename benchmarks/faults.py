"""Kills a translation at random moments and takes its disk away, and counts what became of the outputs.

    python benchmarks/faults.py [--kills 50] [--limits 10] [--rows 200000]

A flat store of ROWS x 384 is translated once undisturbed, by the command line. Then, each time in a folder of its own:
the command is killed with SIGKILL after a random share of that time, or runs under a file-size limit that ends it
(RLIMIT_FSIZE, which the system reports as it does a full disk); the same command is then run again without harm.
*Survived*: after the harm there was nothing under the final name, or all of it, and in the end every file is that of
the undisturbed run. *Lost*: the second run failed. *Corrupted*: anything else. Ends with exit code 1 unless all
survived.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from speed import make_stitch, write_index

TOOL = [sys.executable, "-c", "from migrate.cli.main import main; main()"]
ENVIRONMENT = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}


def digests(folder: Path) -> dict[str, str]:
    """Hash of each file of a folder, by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def command(place: Path, output: Path) -> list[str]:
    """The translation."""
    return [*TOOL, "translate", str(place / "source" / "index.faiss"), str(place / "stitch"), "-o", str(output), "-q"]


def kill_after(delay_s: float) -> Callable[[list[str]], None]:
    """Run a command and kill it."""

    def harm(arguments: list[str]) -> None:
        process = subprocess.Popen(arguments, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        process.wait()

    return harm


def limit_files(size: int) -> Callable[[list[str]], None]:
    """Run a command that may write no file beyond a size; it must say so and exit with 5."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    def harm(arguments: list[str]) -> None:
        done = subprocess.run(arguments, env=ENVIRONMENT, preexec_fn=limit, capture_output=True, text=True, check=False)
        if done.returncode != 5 or len(done.stderr.splitlines()) != 1:
            print(f"  a limit of {size:,} bytes: exit code {done.returncode}, {done.stderr.strip()!r}")
            raise SystemExit(1)

    return harm


def outcome(place: Path, output: Path, good: dict[str, str], harm: Callable[[list[str]], None]) -> str:
    """What became of one output that came to harm and was made again."""
    harm(command(place, output))
    if output.exists() and digests(output) != good:
        return "corrupted"
    if not output.exists():
        again = subprocess.run(command(place, output), env=ENVIRONMENT, capture_output=True, check=False)
        if again.returncode:
            return "lost"
    found = "survived" if digests(output) == good else "corrupted"
    shutil.rmtree(output)
    return found


def main() -> None:
    """Print the tally."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--limits", type=int, default=10)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "source").mkdir()
        write_index(place / "source" / "index.faiss", arguments.rows)
        make_stitch(place / "source" / "index.faiss", place / "stitch")
        before = digests(place / "source")
        started = time.perf_counter()
        subprocess.run(command(place, place / "good"), env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)
        whole_s = time.perf_counter() - started
        good = digests(place / "good")
        size = (place / "good" / "index.faiss").stat().st_size
        harms = [kill_after(chance.uniform(0, whole_s)) for _ in range(arguments.kills)]
        harms += [limit_files(int(size * (number + 0.5) / arguments.limits)) for number in range(arguments.limits)]
        tally = Counter(outcome(place, place / f"out-{n}", good, harm) for n, harm in enumerate(harms))
        if digests(place / "source") != before:
            tally["corrupted"] += 1
    print(f"{arguments.kills} kills within {whole_s:.1f} s, {arguments.limits} file-size limits up to {size:,} bytes")
    print(f"survived / lost / corrupted = {tally['survived']} / {tally['lost']} / {tally['corrupted']}")
    raise SystemExit(tally["survived"] != len(harms))


if __name__ == "__main__":
    main()
