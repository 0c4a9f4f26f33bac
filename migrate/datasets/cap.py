"""Which documents stay when a corpus is capped: the relevant ones, then a random sample of the rest."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

import numpy as np

from migrate.documents import Document
from migrate.errors import UsageError


def rows_under_cap(
    documents: Iterable[Document], qrels: Mapping[str, Mapping[str, int]], max_docs: int, seed: int
) -> frozenset[int]:
    """Positions of at most `max_docs` documents: every relevant one, then a uniform sample without replacement.

    Raises
    ------
    UsageError
        `max_docs` is below 1, or leaves no room for the relevant documents.
    """
    if max_docs < 1:
        raise UsageError(f"max_docs: expected at least 1, found {max_docs}; raise it")
    relevant = {doc_id for grades in qrels.values() for doc_id, grade in grades.items() if grade > 0}
    kept: list[int] = []
    rest = array("q")  # eight bytes a document: the largest sets have millions
    for row, document in enumerate(documents):
        (kept if document.id in relevant else rest).append(row)
    if len(kept) > max_docs:
        raise UsageError(f"max_docs: expected room for the {len(kept)} relevant documents, found {max_docs}; raise it")
    room = min(max_docs - len(kept), len(rest))
    drawn = np.random.default_rng(seed).choice(len(rest), size=room, replace=False)
    return frozenset(kept).union(rest[position] for position in drawn)
