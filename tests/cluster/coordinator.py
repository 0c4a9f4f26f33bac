"""Translates a small store in many parts, in a process that a failpoint may kill: FOLDER OUTPUT RUNNER [--shards X]."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import victims

import migrate
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.work.runner import runner_of

if __name__ == "__main__":
    folder, output, runner, *shards = sys.argv[1:]
    victims.make_parts_small()
    store, stitch = open_store(Path(folder) / "source"), load_stitch(Path(folder) / "stitch")
    migrate.translate(store, stitch, Path(output), runner=runner_of(runner, shards=shards[1] if shards else None))
