"""Retrieval after a migration between two published models, in both directions, on two BEIR sets.

    python benchmarks/models.py DATA [--pairs 1000] [--seeds 0 1 2]

DATA is as for `benchmarks/retrieval.py`, with `pairs/SET.mpnet.npz` (all-mpnet-base-v2) and `pairs/SET.minilm.npz`
(all-MiniLM-L6-v2). The target's own token embeddings are read where it is MiniLM; those of mpnet are not at hand, so
that direction is as if the target were behind an API.

Printed are retention of nDCG@10 and overlap@10 on the held-out collection, as `retrieval.py` has them. `staying` is
the old model, asked in its own space.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from retrieval import (
    AUTO,
    SETS,
    TARGET_MODEL,
    VECTORS,
    HeldOut,
    ReadSet,
    Result,
    print_cells,
    read_set,
    results,
)

from migrate.embedders import load_embedder
from migrate.vectors import unit_rows

MINILM, MPNET = "minilm", "mpnet"
DIRECTIONS = ((MPNET, MINILM), (MINILM, MPNET))
STITCHES = ("procrustes", "ridge", "text", "ridge+text", VECTORS, AUTO)
STAYING = "staying"


def stay(held_out: HeldOut) -> Result:
    """The old model on what is left."""
    old = held_out.source
    return held_out.compare(unit_rows(old.documents[held_out.rows[1]]), unit_rows(old.queries))


def judge_direction(
    read: ReadSet, old: str, pairs: int, seeds: Sequence[int], stitches: Sequence[str]
) -> dict[str, list[Result]]:
    """Staying and every stitch, a result a seed."""
    started, found = time.perf_counter(), dict[str, list[Result]]()
    for seed in seeds:
        held_out = HeldOut(read.collection, read.sources[old], read.target, read.texts, pairs, seed)
        found.setdefault(STAYING, []).append(stay(held_out))
        for stitch, result in results(held_out, stitches):
            found.setdefault(stitch, []).append(result)
    print(f"  {read.name} from {old}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Print the tables of each number of pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--stitches", nargs="+", default=list(STITCHES))
    arguments = parser.parse_args()
    tokens = {MINILM: load_embedder(TARGET_MODEL).token_table(), MPNET: None}
    read = {
        (name, old, new): read_set(arguments.data, name, [old], tokens[new], new)
        for name in SETS
        for old, new in DIRECTIONS
    }
    for pairs in arguments.pairs:
        cells = {
            (name, f"{old} -> {new}"): judge_direction(one, old, pairs, arguments.seeds, arguments.stitches)
            for (name, old, new), one in read.items()
        }
        print_cells(cells, [STAYING, *arguments.stitches])
        print(f"\n{pairs:,} pairs, seeds {arguments.seeds}; tokens of the target where it is {MINILM}")


if __name__ == "__main__":
    main()
