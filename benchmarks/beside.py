"""What a change of length does to true vectors beside translated ones in one index.

    python benchmarks/beside.py DATA [--pairs 1000] [--seed 0]

DATA is as for `benchmarks/retrieval.py`. In a translated store the documents of the sample have true vectors, the
others translated ones, all of one length. In an index of inner products a longer vector ranks higher, so that their
balance could be changed: by a factor on the true ones, or by shortening each translated one to its confidence to some
power. Printed is nDCG@10 against that of a full re-embed, over the whole collection, for each way; `chosen` is the way
that is best inside the sample, where half of the documents are held-out predictions, and each document asks for its ten
nearest neighbours. It is what a tool could do without queries.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from retrieval import AUTO, SETS, SPACES, TARGET_MODEL, HeldOut, ReadSet, read_set, run_over

from migrate.audit.measures import ndcg
from migrate.embedders import load_embedder
from migrate.report.terminal import table
from migrate.stitch.base import cross_predict
from migrate.stitch.select import Selection
from migrate.vectors import Vectors, unit_rows

WAYS = {
    "as they are": (1.0, 0.0),
    "true x 0.97": (0.97, 0.0),
    "true x 1.03": (1.03, 0.0),
    "true x 1.06": (1.06, 0.0),
    "confidence^0.25": (1.0, 0.25),
    "confidence^0.5": (1.0, 0.5),
    "confidence^1": (1.0, 1.0),
}
"""The factor on true vectors, and the power of the confidence on translated ones."""


def mixed(truth: Vectors, translated: Vectors, confidence: Vectors, is_true: NDArray[np.bool_], way: str) -> Vectors:
    """The rows of an index, (n, d): true where `is_true`, (n,), else translated; `confidence` is (n,)."""
    factor, power = WAYS[way]
    shortened = translated * (confidence.clip(0.05, 1) ** power)[:, None]
    return np.where(is_true[:, None], truth * factor, shortened).astype(np.float32)


def choose(held_out: HeldOut, selection: Selection) -> str:
    """The way with the best overlap@10 inside the sample."""
    assert selection.stitch is not None and selection.confidence is not None
    pairs = held_out.pairing
    found = cross_predict(selection.stitch, pairs)
    truth, confidence = unit_rows(pairs.target), selection.confidence.of(found)
    is_true = np.random.default_rng(held_out.seed).random(len(pairs)) < 0.5
    rows = {way: mixed(truth, unit_rows(found.vectors), confidence, is_true, way) for way in WAYS}
    neighbours = nearest(truth, truth)
    shares = {way: overlap_of(neighbours, nearest(truth, index)) for way, index in rows.items()}
    return max(shares, key=lambda way: shares[way])


def nearest(queries: Vectors, index: Vectors) -> NDArray[np.int64]:
    """The ten rows of the index, (n, d), with the largest inner product with each query, (n, d), but not its own."""
    scores = queries @ index.T
    np.fill_diagonal(scores, -np.inf)
    return np.argsort(-scores, axis=1)[:, :10]


def overlap_of(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """The mean share of ten neighbours that two lists have in common."""
    return float(np.mean([len(np.intersect1d(a, b)) for a, b in zip(one, other, strict=True)])) / 10


def judge(read: ReadSet, space: str, pairs: int, seed: int) -> dict[str, float]:
    """Retention of each way, and of the chosen one."""
    held_out = HeldOut(read.collection, read.sources[space], read.target, read.texts, pairs, seed)
    selection = held_out.select(AUTO)
    assert selection.stitch is not None and selection.confidence is not None
    fitted = held_out.pairing.fit(selection.stitch)
    predicted = fitted.predict(read.sources[space].documents, read.texts if fitted.reads_texts else None)
    confidence = selection.confidence.of(predicted)
    truth, translated = unit_rows(read.target.documents), unit_rows(predicted.vectors)
    is_true = np.zeros(len(truth), dtype=bool)
    is_true[held_out.rows[0]] = True
    every, ids = np.arange(len(truth)), read.collection.query_ids

    def quality(rows: Vectors) -> float:
        run = run_over(read.collection, every, rows, read.target.queries)
        return float(ndcg(run, read.collection.qrels, ids, 10).mean())

    full = quality(truth)
    found = {way: quality(mixed(truth, translated, confidence, is_true, way)) / full for way in WAYS}
    return {**found, "chosen": found[choose(held_out, selection)]}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    tokens, rows = load_embedder(TARGET_MODEL).token_table(), []
    for name in SETS:
        read = read_set(arguments.data, name, SPACES, tokens)
        for space in SPACES:
            found = judge(read, space, arguments.pairs, arguments.seed)
            rows.append((f"{name} {space}", found))
    ways = list(rows[0][1])
    shown = [[cell, *(f"{found[way]:.3f}" for way in ways)] for cell, found in rows]
    means = [f"{np.mean([found[way] for _, found in rows]):.3f}" for way in ways]
    print("\nretention of nDCG@10, whole collection, true vectors for the sample\n")
    print(table([["set and source", *ways], *shown, ["mean", *means]]))
    print(f"\n{arguments.pairs:,} pairs, seed {arguments.seed}, with the target's tokens")


if __name__ == "__main__":
    main()
