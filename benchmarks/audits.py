"""Audits of SciFact from every source space, by the command line, as a user runs it.

    python benchmarks/audits.py DATA -o FOLDER

DATA holds `scifact/` in BEIR layout and `pairs/scifact.SPACE.npz`. `lead-migrate run` is run from each space with 1,000
pairs, to all-MiniLM-L6-v2; FOLDER gets a folder for each, with `report.html` and `report.json`. That model's own
vectors move to a file of the same vectors by another name, as a store of the target's name has nothing to migrate.
Prints the verdicts and the exit codes; takes some minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from migrate.report.terminal import table

SPACES = ("tfidf:256", "wordpieces", "layer3-cls", "layer4-mean", "layer5-mean", "minilm")
TARGET = "minilm"
COMMAND = (sys.executable, "-c", "from migrate.cli.main import main; main()")


def lead_migrate(*arguments: object) -> int:
    """Run the command line as a process of its own; its exit code."""
    return subprocess.run([*COMMAND, *map(str, arguments)], stdout=subprocess.DEVNULL, check=False).returncode


def spec_of(data: Path, space: str) -> str:
    """The model spec of a space."""
    return space if ":" in space else f"file:{data / 'pairs' / f'scifact.{space}.npz'}"


def renamed(data: Path, folder: Path) -> str:
    """The model spec of the target's vectors in a file of another name and other bytes."""
    path = folder / f"{TARGET}-renamed.npz"
    with np.load(data / "pairs" / f"scifact.{TARGET}.npz") as arrays:
        np.savez(path, **arrays)
    return f"file:{path}"


def audit_space(data: Path, space: str, folder: Path, pairs: int) -> list[str]:
    """One migration and its audit: a row of the table."""
    store, out = folder / f"{space}-store", folder / space
    old, new = spec_of(data, space), renamed(data, folder) if space == TARGET else spec_of(data, TARGET)
    lead_migrate("embed", data / "scifact", "--model", old, "--no-chunks", "-o", store, "--force", "-q")
    code = lead_migrate(
        "run", store, "--target", new, "--source-model", old, "--judged", data / "scifact", "--sample", pairs,
        "-o", out, "--force", "-q",
    )  # fmt: skip
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    verdict, kept = report["verdict"], report["verdict"]["retention"]
    stay = next(arm for arm in report["arms"] if arm["name"] == "stay")["against"]["retention"]["estimate"]
    held_out = report["held_out"]["verdict"]["retention"]["estimate"] if report["held_out"] else float("nan")
    bounds = f"{kept['lower']:.3f}..{kept['upper']:.3f}"
    page = (out / "report.html").stat().st_size
    return [
        space, f"{kept['estimate']:.3f}", bounds, f"{held_out:.3f}", f"{stay:.3f}", verdict["outcome"], str(code),
        f"{page / 1e3:.0f}",
    ]  # fmt: skip


def main() -> int:
    """Print a table of verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--spaces", nargs="+", default=list(SPACES))
    parser.add_argument("--pairs", type=int, default=1_000)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    rows = [audit_space(arguments.data, space, arguments.output, arguments.pairs) for space in arguments.spaces]
    head = ["source", "retention", "bounds", "held out", "stay", "verdict", "exit code", "page kB"]
    print(table([head, *rows]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
