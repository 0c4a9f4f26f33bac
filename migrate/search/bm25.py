"""BM25 over texts: ranking by words alone, without an embedding."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from migrate.search.runs import DEPTH, DocKey, Rankings
from migrate.vectors import Document, Query

if TYPE_CHECKING:
    from rank_bm25 import BM25Okapi


def words(text: str) -> list[str]:
    """Return lower-cased runs of letters, digits and underscores.

    >>> words("BM25, said Robertson.")
    ['bm25', 'said', 'robertson']
    """
    return re.findall(r"\w+", text.lower())


def bm25_run(
    documents: Sequence[Document], queries: Sequence[Query], *, key: DocKey = str, depth: int = DEPTH
) -> Rankings:
    """Rank by Okapi BM25 (rank-bm25's defaults, k1 = 1.5, b = 0.75); a document sharing no word is not ranked."""
    from rank_bm25 import BM25Okapi

    texts = [words(document.text) for document in documents]
    if not any(texts):  # rank-bm25 divides by the mean length
        return Rankings({query.id: () for query in queries})
    asked = {query.id: words(query.text) for query in queries}
    weights = _weights(BM25Okapi(texts), set(chain.from_iterable(asked.values())))
    keys = [key(document.id) for document in documents]
    names = sorted(set(keys))  # ties break by doc_id: number documents in that order
    number = {name: position for position, name in enumerate(names)}
    document_of = np.array([number[name] for name in keys], dtype=np.int64)
    rankings = {}
    for query_id, query_words in asked.items():
        scores, hit = np.zeros(len(texts)), np.zeros(len(texts), dtype=bool)  # even a word that weighs nothing hits
        for word in query_words:
            rows, weight = weights[word]
            scores[rows] += weight
            hit[rows] = True
        best = np.full(len(names), -np.inf)
        np.maximum.at(best, document_of[hit], scores[hit])
        scored = np.flatnonzero(best > -np.inf)
        order = scored[np.argsort(-best[scored], kind="stable")[:depth]].tolist()
        rankings[query_id] = tuple(names[position] for position in order)
    return Rankings(rankings)


def _weights(index: BM25Okapi, query_words: Iterable[str]) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Return, for each word of the queries, the texts that contain it and its contribution to the score of each.

    rank-bm25 looks up every word of every query in every text; here each text is read once. The arithmetic is that of
    rank-bm25, step by step, so the scores are the same.
    """
    occurrences: dict[str, list[tuple[int, int]]] = {word: [] for word in query_words}
    for row, frequencies in enumerate(index.doc_freqs):
        for word in frequencies.keys() & occurrences.keys():
            occurrences[word].append((row, frequencies[word]))
    lengths = index.k1 * (1 - index.b + index.b * np.array(index.doc_len) / index.avgdl)
    weights = {}
    for word, count in occurrences.items():
        rows, times = np.array(count, dtype=np.int64).reshape(-1, 2).T
        weights[word] = rows, index.idf.get(word, 0) * (times * (index.k1 + 1) / (times + lengths[rows]))
    return weights
