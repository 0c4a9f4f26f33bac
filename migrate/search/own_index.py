"""Rankings by the own search of a store: what its users get, whatever its index misses.

Exact search over all vectors is in `migrate.search.runs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from migrate.search.runs import Rankings
from migrate.stores.base import Hits, SearchSetting, Store, StoreSearcher
from migrate.vectors import Vectors

MOST_ASKED = 16_384
"""No store is asked for more rows a query: Milvus refuses, and others take long."""

_ROWS_AT_ONCE = 1 << 22
"""Rows that are asked for at once, over all queries."""

Judged = Callable[[Sequence[str]], Sequence[str | None]]
"""Returns the document that each of some ids is judged as; None for one that is left out."""

_Ranking = dict[str, float]
"""Documents with their scores, best first."""


def own_index(store: Store) -> StoreSearcher | None:
    """Return the search by a store's own index; None where it has none, or one that finds what exact search does."""
    searcher = store.searcher()
    return searcher if searcher is not None and searcher.has_own_index else None


def setting_of_index(store: Store) -> SearchSetting | None:
    """Return the setting of a store's own index; None where there is none."""
    index = own_index(store)
    return None if index is None else index.setting


def rank_by_index(
    searcher: StoreSearcher,
    query_ids: Sequence[str],
    queries: Vectors,
    judged: Judged,
    *,
    depths: Sequence[int],
    effort: int | None = None,
) -> Rankings:
    """Rank the documents of a store for each query vector, (q, dim), by its own search.

    The first `depths[0]` documents are those of a search for so many, the next ones those of a search for `depths[1]`,
    and so on. Where several rows
    are judged as one document, or some are left out, it is asked for more rows until there are enough documents, or no
    more rows; `effort` is the value of the store's setting, the stored one for None. Equal scores are in the order of
    the documents.
    """
    rankings: list[_Ranking] = [{} for _ in query_ids]
    # Whoever asks a graph for ten gets other ten than are first of a hundred, so each depth is a search of its own
    for depth in depths:
        for ranking, deeper in zip(rankings, _ranked_to(searcher, queries, judged, depth, effort), strict=True):
            for document, score in deeper.items():
                if len(ranking) == depth:
                    break
                ranking.setdefault(document, score)
    return Rankings(
        {query_id: tuple(ranking) for query_id, ranking in zip(query_ids, rankings, strict=True)},
        {query_id: tuple(ranking.values()) for query_id, ranking in zip(query_ids, rankings, strict=True)},
    )


def _ranked_to(
    searcher: StoreSearcher, queries: Vectors, judged: Judged, depth: int, effort: int | None
) -> list[_Ranking]:
    """Return the first documents of each query, `depth` where the store finds so many."""
    rankings: list[_Ranking] = [{} for _ in queries]
    most = min(searcher.info.count, MOST_ASKED)
    unanswered = np.arange(len(queries))
    n_rows = min(depth, most)
    while len(unanswered) and n_rows:
        still: list[int] = []
        step = max(_ROWS_AT_ONCE // n_rows, 1)
        for first in range(0, len(unanswered), step):
            block = unanswered[first : first + step]
            all_hits = searcher.search_index(queries[block], n_rows, effort)
            for query, hits, documents in zip(block.tolist(), all_hits, _judged_hits(all_hits, judged), strict=True):
                rankings[query] = _ranking(hits, documents)
                if len(rankings[query]) < depth and len(hits.ids) >= n_rows:
                    still.append(query)
        if n_rows == most:
            break
        unanswered = np.array(still, dtype=np.int64)
        n_rows = min(2 * n_rows, most)
    return rankings


def _judged_hits(all_hits: Sequence[Hits], judged: Judged) -> list[Sequence[str | None]]:
    """Return the documents of all hits, query by query."""
    documents = judged([doc_id for hits in all_hits for doc_id in hits.ids])
    ends = np.cumsum([len(hits.ids) for hits in all_hits]).tolist()
    return [documents[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _ranking(hits: Hits, documents: Sequence[str | None]) -> _Ranking:
    """Return each document once, with its best score."""
    ranking: _Ranking = {}
    for row in _order(hits.scores, documents):
        document = documents[row]
        if document is not None:
            ranking.setdefault(document, float(hits.scores[row]))
    return ranking


def _order(scores: NDArray[np.floating], documents: Sequence[str | None]) -> Sequence[int]:
    """Return the order of the hits, in which documents of equal scores are sorted."""
    is_next = scores[1:] != scores[:-1]
    if is_next.all():
        return range(len(scores))
    groups = np.cumsum(np.r_[0, is_next]).tolist()
    return sorted(range(len(scores)), key=lambda row: (groups[row], documents[row] or ""))
