"""Translates a small store in many parts, in a process that dies at $DIES_AT: FOLDER OUTPUT RUNNER [--shards X]."""

import os
import sys
from pathlib import Path

sys.path.extend(str(Path(__file__).parents[2] / name) for name in ("benchmarks", "tests/faults"))

import victims
from dying import die_at

import migrate
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.work.runner import runner_of

if __name__ == "__main__":
    folder, output, runner, *shards = sys.argv[1:]
    victims.make_parts_small()
    die_at(os.environ["DIES_AT"])
    store, stitch = open_store(Path(folder) / "source"), load_stitch(Path(folder) / "stitch")
    migrate.translate(store, stitch, Path(output), runner=runner_of(runner, shards=shards[1] if shards else None))
