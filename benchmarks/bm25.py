"""BM25 by rank-bm25, by this package, and by bm25s: seconds on SciFact, and whether the rankings are the same.

pip install bm25s
python benchmarks/bm25.py DATA
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrate.datasets.beir import load_beir
from migrate.search.bm25 import bm25_run, words
from migrate.vectors import Document, Query

DEPTH = 100
ROUNDS = 3
"""Of each but rank-bm25, which reads every text for every word, and has one."""

Rankings = list[tuple[str, ...]]
Method = Callable[[Sequence[Document], Sequence[Query]], Rankings]


def _first(scores: NDArray[np.float64], ids: NDArray[np.str_]) -> tuple[str, ...]:
    """The best documents that share a word with the query, ties by id, as `bm25_run` ranks them."""
    hits = np.flatnonzero(scores)
    best: list[str] = ids[hits[np.lexsort((ids[hits], -scores[hits]))[:DEPTH]]].tolist()
    return tuple(best)


def by_rank_bm25(documents: Sequence[Document], queries: Sequence[Query]) -> Rankings:
    """rank-bm25 as it comes."""
    from rank_bm25 import BM25Okapi

    index = BM25Okapi([words(document.text) for document in documents])
    ids = np.array([document.id for document in documents])
    return [_first(index.get_scores(words(query.text)), ids) for query in queries]


def by_this_package(documents: Sequence[Document], queries: Sequence[Query]) -> Rankings:
    """What the audit's arm does: rank-bm25's weights, each text read once."""

    def names_of(rows: range) -> list[str]:
        return [document.id for document in documents[rows.start : rows.stop]]

    texts = (document.text for document in documents)
    return list(bm25_run(texts, queries, names_of=names_of, depth=DEPTH).rankings.values())


def by_bm25s(documents: Sequence[Document], queries: Sequence[Query]) -> Rankings:
    """bm25s, with the variant that is nearest to rank-bm25's: its term weights, and its idf but for frequent words."""
    import bm25s

    index = bm25s.BM25(k1=1.5, b=0.75, method="atire", idf_method="robertson", dtype="float64")
    index.index([words(document.text) for document in documents], show_progress=False)
    ids = np.array([document.id for document in documents])
    return [_first(index.get_scores([w for w in words(query.text) if w in index.vocab_dict]), ids) for query in queries]


def measured(
    method: Method, documents: Sequence[Document], queries: Sequence[Query], rounds: int
) -> tuple[float, Rankings]:
    """Median processor seconds of some rounds, and the rankings."""
    times = []
    for _ in range(rounds):
        started = time.process_time()
        rankings = method(documents, queries)
        times.append(time.process_time() - started)
    return statistics.median(times), rankings


def main(data: Path) -> None:
    """Print a line for each."""
    beir = load_beir(data / "scifact")
    documents, queries = list(beir.documents()), beir.queries
    print(f"SciFact: {len(documents):,} documents, {len(queries):,} queries, the first {DEPTH}")
    methods = {"rank-bm25": by_rank_bm25, "this package": by_this_package, "bm25s": by_bm25s}
    base_s, truth = measured(by_this_package, documents, queries, ROUNDS)
    for name, method in methods.items():
        seconds, rankings = measured(method, documents, queries, 1 if method is by_rank_bm25 else ROUNDS)
        same = np.mean([a == b for a, b in zip(truth, rankings, strict=True)])
        top = np.mean([len({*a[:10]} & {*b[:10]}) / max(len(a[:10]), 1) for a, b in zip(truth, rankings, strict=True)])
        print(f"{name:12} {seconds / base_s:6.2f} times this package's seconds; "
              f"same ranking for {same:.1%} of queries, overlap@10 {top:.3f}")  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
