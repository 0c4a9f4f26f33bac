"""BM25 over texts: ranking by words alone, without an embedding."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from migrate.search.runs import DEPTH, DocKey, Run
from migrate.vectors import Document, Query

if TYPE_CHECKING:
    from rank_bm25 import BM25Okapi

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Lower-cased runs of letters, digits and underscores.

    >>> words("BM25, said Robertson.")
    ['bm25', 'said', 'robertson']
    """
    return _WORD.findall(text.lower())


def bm25_run(documents: Sequence[Document], queries: Sequence[Query], *, key: DocKey = str, depth: int = DEPTH) -> Run:
    """Rank by Okapi BM25 (rank-bm25's defaults, k1 = 1.5, b = 0.75); a document sharing no word is not ranked."""
    from rank_bm25 import BM25Okapi

    texts = [words(document.text) for document in documents]
    if not any(texts):  # rank-bm25 divides by the mean length
        return Run({query.id: () for query in queries})
    weights = _Weights(BM25Okapi(texts), {word for query in queries for word in words(query.text)})
    keys = [key(document.id) for document in documents]
    names = sorted(set(keys))  # ties break by doc_id: number documents in that order
    number = {name: place for place, name in enumerate(names)}
    ranked = _Ranked(np.array([number[name] for name in keys], dtype=np.int64), len(names), depth)
    return Run({query.id: tuple(names[i] for i in ranked.of(*weights.scores(words(query.text)))) for query in queries})


class _Weights:
    """The contribution of each word of the queries to the score of each text that contains it.

    rank-bm25 looks up every word of every query in every text; here each text is read once. The arithmetic is that of
    rank-bm25, step by step, so the scores are the same.
    """

    def __init__(self, index: BM25Okapi, query_words: Iterable[str]) -> None:
        self.count = int(index.corpus_size)
        lengths = index.k1 * (1 - index.b + index.b * np.array(index.doc_len) / index.avgdl)
        self._of: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}
        for word, occurrences in _occurrences(index.doc_freqs, query_words).items():
            rows, times = np.array(occurrences, dtype=np.int64).reshape(-1, 2).T
            share = times * (index.k1 + 1) / (times + lengths[rows])
            self._of[word] = rows, index.idf.get(word, 0) * share

    def scores(self, query_words: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The rows that share a word with `query_words`, even one that weighs nothing, and their scores."""
        scores, hit = np.zeros(self.count), np.zeros(self.count, dtype=bool)
        for word in query_words:
            rows, weights = self._of[word]
            scores[rows] += weights
            hit[rows] = True
        rows = np.flatnonzero(hit)
        return rows, scores[rows]


def _occurrences(texts: Sequence[Mapping[str, int]], query_words: Iterable[str]) -> dict[str, list[tuple[int, int]]]:
    """Where each word occurs: rows, ascending, and how often there."""
    occurrences: dict[str, list[tuple[int, int]]] = {word: [] for word in query_words}
    for row, frequencies in enumerate(texts):
        for word in frequencies.keys() & occurrences.keys():
            occurrences[word].append((row, frequencies[word]))
    return occurrences


class _Ranked:
    """Ranks documents by their best rows: `document_of`, (n,), numbers the document of each row below `count`."""

    def __init__(self, document_of: NDArray[np.int64], count: int, depth: int) -> None:
        self.document_of = document_of
        self.count = count
        self.depth = depth

    def of(self, rows: NDArray[np.int64], scores: NDArray[np.float64]) -> list[int]:
        """The numbers of the best documents, best first, ties by number."""
        best = np.full(self.count, -np.inf)
        np.maximum.at(best, self.document_of[rows], scores)
        hits = np.flatnonzero(best > -np.inf)
        order: list[int] = hits[np.argsort(-best[hits], kind="stable")[: self.depth]].tolist()
        return order
