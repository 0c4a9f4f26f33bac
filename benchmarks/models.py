"""Retrieval after a migration between two published models, in both directions, on two BEIR sets.

    python benchmarks/models.py DATA [--mpnet FOLDER] [--e5 FILE] [--api] [--view] [--pairs 1000] [--seeds 0 1 2]

DATA is as for `benchmarks/retrieval.py`, with `pairs/SET.mpnet.npz` (all-mpnet-base-v2) and `pairs/SET.minilm.npz`
(all-MiniLM-L6-v2). The target's own token embeddings are read where it is MiniLM, and where it is mpnet if `--mpnet`
names a folder of that model, as sentence-transformers writes it; without, that direction is as if the target were
behind an API. With `--e5 FILE`, `SET.e5.npz` as `benchmarks/e5_vectors.py` writes it, multilingual-e5-small is moved to
and from the two, on that set and the documents of the file alone; its tokens are not at hand.

Printed are retention of nDCG@10 and overlap@10 on the held-out collection, as `retrieval.py` has them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from retrieval import AUTO, SETS, STAYING, TARGET_MODEL, TOGETHER, VECTORS, ReadSet, judge_cell, print_cells, read_set

from migrate.embedders import load_embedder
from migrate.embedders.base import TokenTable

MINILM, MPNET, E5 = "minilm", "mpnet", "e5"
TOKENS_READ = 254
"""Of a text, for the vectors in DATA; the model itself reads 382."""

DIRECTIONS = ((MPNET, MINILM), (MINILM, MPNET))
STITCHES = (STAYING, "procrustes", "ridge", "text", "ridge+text", VECTORS, AUTO, TOGETHER)


def token_tables(mpnet: Path | None) -> dict[str, TokenTable | None]:
    """The token embeddings of each target, where they are at hand."""
    found: dict[str, TokenTable | None] = {MINILM: load_embedder(TARGET_MODEL).token_table(), MPNET: None, E5: None}
    table = None if mpnet is None else load_embedder(f"sentence-transformers:{mpnet}").token_table()
    if table is not None:
        found[MPNET] = replace(table, limit=TOKENS_READ)
    return found


def space_name(space: str) -> str:
    """The short name of a space in DATA or in a file."""
    return E5 if space.endswith(f".{E5}.npz") else space


def set_of(file: Path) -> tuple[str, set[str]]:
    """The set of a file of vectors, and the ids of its documents."""
    with np.load(file) as arrays:
        return file.name.partition(".")[0], set(arrays["doc_ids"].tolist())


def read_e5(data: Path, file: Path, tokens: Mapping[str, TokenTable | None]) -> dict[tuple[str, str, str], ReadSet]:
    """The set of the file, by the set, the old space and the new one."""
    path, found = str(file), {}
    name, only = set_of(file)
    for other in (MINILM, MPNET):
        found[name, path, other] = read_set(data, name, [path], tokens[other], other, only)
        found[name, other, path] = read_set(data, name, [other], tokens[E5], path, only)
    return found


def main() -> None:
    """Print the tables of each number of pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--mpnet", type=Path, help="folder of all-mpnet-base-v2, for its token embeddings")
    parser.add_argument("--e5", type=Path, help="vectors of multilingual-e5-small, to move to and from that instead")
    parser.add_argument("--view", action="store_true", help="read the texts through the vectors of --e5")
    parser.add_argument("--api", action="store_true", help="read the token embeddings of the other model")
    parser.add_argument("--no-tokens", action="store_true", help="read no token embeddings")
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--stitches", nargs="+", default=list(STITCHES))
    arguments = parser.parse_args()
    tokens = token_tables(arguments.mpnet)
    if arguments.api or arguments.no_tokens:
        other = dict(DIRECTIONS) if arguments.api else {}
        tokens = {space: tokens[other[space]] if space in other else None for space in tokens}
    if arguments.e5 is None:
        read = {
            (name, old, new): read_set(arguments.data, name, [old], tokens[new], new)
            for name in SETS
            for old, new in DIRECTIONS
        }
    elif arguments.view:
        name, only = set_of(arguments.e5)
        read = {
            (name, old, new): read_set(arguments.data, name, [old], tokens[new], new, only, str(arguments.e5))
            for old, new in DIRECTIONS
        }
    else:
        read = read_e5(arguments.data, arguments.e5, tokens)
    for pairs in arguments.pairs:
        cells = {
            (name, f"{space_name(old)} -> {space_name(new)}"): judge_cell(
                one, old, pairs, arguments.seeds, arguments.stitches
            )
            for (name, old, new), one in read.items()
        }
        print_cells(cells, arguments.stitches)
        read_from = " and ".join(name for name, table in tokens.items() if table is not None) or "none"
        whose = "the other model" if arguments.api else "the target"
        print(f"\n{pairs:,} pairs, seeds {arguments.seeds}; tokens of {whose} where the target is {read_from}")


if __name__ == "__main__":
    main()
