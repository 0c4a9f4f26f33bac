"""BM25 over texts: what words alone find, and no embedding."""

from __future__ import annotations

import re
from collections.abc import Sequence

from migrate.documents import Document, Query
from migrate.search.runs import DEPTH, DocKey, Run, rank

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
    index = BM25Okapi(texts)
    keys = [key(document.id) for document in documents]
    rows_of: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        for word in set(text):
            rows_of.setdefault(word, []).append(row)

    def one(query: Query) -> tuple[str, ...]:
        asked = words(query.text)
        scores = index.get_scores(asked)
        hits = {row for word in set(asked) for row in rows_of.get(word, ())}  # a shared word may weigh nothing
        return tuple(doc_id for doc_id, _ in rank(((keys[row], float(scores[row])) for row in hits), depth))

    return Run({query.id: one(query) for query in queries})
