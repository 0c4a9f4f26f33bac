"""Where a query lives: the one document that says what the query is about, to tell queries apart by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from migrate.audit.arms import FULL
from migrate.audit.ground import Ground
from migrate.audit.measures import Qrels
from migrate.search.runs import Run
from migrate.stores.base import Store


def home_documents(ground: Ground, full: Run) -> Mapping[str, str]:
    """The home of each query: of its relevant documents the one that the full re-embed finds first.

    Where it finds none of them, the relevant one of the highest grade; where nothing is judged, what it finds first.
    A query without relevant documents has no home.
    """
    known = set(ground.keys[FULL].values())
    homes = {q: _home(q, ground.questions.qrels, full, known) for q in ground.questions.query_ids}
    return {query_id: home for query_id, home in homes.items() if home is not None}


def _home(query_id: str, qrels: Qrels | None, full: Run, known: set[str]) -> str | None:
    found = full.rankings.get(query_id, ())
    if qrels is None:
        return found[0] if found else None
    grades = {d: grade for d, grade in qrels.get(query_id, {}).items() if grade > 0 and d in known}
    first = next((doc_id for doc_id in found if doc_id in grades), None)
    return first or max(sorted(grades), key=grades.__getitem__, default=None)


def rows_of(keys: Mapping[str, str], wanted: Sequence[str]) -> Mapping[str, int]:
    """The first row of each wanted document, in a store whose ids `keys` has in its order."""
    left = set(wanted)
    rows: dict[str, int] = {}
    for row, key in enumerate(keys.values()):
        if key in left:
            rows[key] = row
            left.discard(key)
    return rows


def texts_of(store: Store, rows: Mapping[str, int]) -> Mapping[str, str]:
    """The texts of documents by their rows; none where the store has none."""
    if not store.info.has_texts or not rows:
        return {}
    order = np.array(list(rows.values()), dtype=np.int64)
    return dict(zip(rows, (document.text for document in store.documents(order)), strict=True))
