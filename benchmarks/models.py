"""Retrieval after a migration between two published models, in both directions, on two BEIR sets.

    python benchmarks/models.py DATA [--mpnet FOLDER] [--api] [--outputs] [--words 10000] [--pairs 1000]
        [--seeds 0 1 2]

DATA is as for `benchmarks/retrieval.py`, with `pairs/SET.mpnet.npz` (all-mpnet-base-v2) and `pairs/SET.minilm.npz`
(all-MiniLM-L6-v2). The target's own token embeddings are read where it is MiniLM, and where it is mpnet if `--mpnet`
names a folder of that model, as sentence-transformers writes it; without, that direction is as if the target were
behind an API. With `--words N` the target embeds the N most frequent words of each set too, as `fit` has it do;
together with `--no-tokens` that is a target behind an API. `--cache FILE` keeps what it makes of them.

Printed are retention of nDCG@10 and overlap@10 on the held-out collection, as `retrieval.py` has them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from retrieval import AUTO, SETS, STAYING, TARGET_MODEL, TOGETHER, VECTORS, Extend, judge_cell, print_cells, read_set

from migrate.embedders import load_embedder
from migrate.embedders.abilities import TokenTable, token_table_of
from migrate.steps.fit.words import frequent_words
from migrate.stitch.text_reader import TextReader
from migrate.vectors import Document

MINILM, MPNET = "minilm", "mpnet"
TOKENS_READ = 254
"""Of a text, for the vectors in DATA; the model itself reads 382."""

DIRECTIONS = ((MPNET, MINILM), (MINILM, MPNET))
STITCHES = (STAYING, "procrustes", "ridge", "text", "ridge+text", VECTORS, AUTO, TOGETHER)


def token_tables(mpnet: Path | None, *, outputs: bool = False) -> dict[str, TokenTable | None]:
    """The token embeddings of each target, where they are at hand: input vectors, or what the model makes of each."""
    found: dict[str, TokenTable | None] = {MINILM: token_table_of(load_embedder(TARGET_MODEL)), MPNET: None}
    table = None if mpnet is None else token_table_of(load_embedder(f"sentence-transformers:{mpnet}"))
    if table is not None:
        found[MPNET] = replace(table, limit=TOKENS_READ)
    if outputs:
        return found
    return {space: None if table is None else replace(table, outputs=None) for space, table in found.items()}


def add_words(model: str, cache: Path | None, most: int) -> Extend:
    """Have the texts read by what the target makes of their most frequent words; prints what these cost."""

    def extend(reader: TextReader, texts: Sequence[str]) -> TextReader:
        embedder = load_embedder(model, cache=cache)
        words = frequent_words(texts, most)
        tokens = int(embedder.profile.read(words.texts).sum())
        documents = [Document(str(row), text) for row, text in enumerate(texts)]
        share = words.cost_in_pairs(embedder.profile, documents)
        print(f"{len(words):,} words are {tokens:,} tokens, those of {share:,.0f} documents")
        return words.read_by(reader, embedder)

    return extend


def main() -> None:
    """Print the tables of each number of pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--mpnet", type=Path, help="folder of all-mpnet-base-v2, for its token embeddings")
    parser.add_argument("--api", action="store_true", help="read the token embeddings of the other model")
    parser.add_argument("--outputs", action="store_true", help="read what a model makes of each token alone")
    parser.add_argument("--no-tokens", action="store_true", help="read no token embeddings")
    parser.add_argument("--words", type=int, default=0, help="words of the set that the target embeds")
    parser.add_argument("--cache", type=Path, help="file that keeps the vectors of the words")
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--stitches", nargs="+", default=list(STITCHES))
    arguments = parser.parse_args()
    tokens = token_tables(arguments.mpnet, outputs=arguments.outputs)
    if arguments.api or arguments.no_tokens:
        other = dict(DIRECTIONS) if arguments.api else {}
        tokens = {space: tokens[other[space]] if space in other else None for space in tokens}
    extensions: dict[str, Extend | None] = {MINILM: None, MPNET: None}
    if arguments.words:
        extensions[MINILM] = add_words(TARGET_MODEL, arguments.cache, arguments.words)
        if arguments.mpnet is not None:
            model = f"length:{TOKENS_READ + 2}:sentence-transformers:{arguments.mpnet}"
            extensions[MPNET] = add_words(model, arguments.cache, arguments.words)
    read = {
        (name, old, new): read_set(arguments.data, name, [old], tokens[new], new, extensions[new])
        for name in SETS
        for old, new in DIRECTIONS
    }
    for pairs in arguments.pairs:
        cells = {
            (name, f"{old} -> {new}"): judge_cell(one, old, pairs, arguments.seeds, arguments.stitches)
            for (name, old, new), one in read.items()
        }
        print_cells(cells, arguments.stitches)
        read_from = " and ".join(name for name, table in tokens.items() if table is not None) or "none"
        whose = "the other model" if arguments.api else "the target"
        print(f"\n{pairs:,} pairs, seeds {arguments.seeds}; tokens of {whose} where the target is {read_from}")


if __name__ == "__main__":
    main()
