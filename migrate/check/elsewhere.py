"""Looks for vectors in other rows than those of their texts: what a store looks like whose ids are out of step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from migrate.check.comparison import Comparison, agree, spread
from migrate.stores.base import Store
from migrate.vectors import Progress, unit_rows

_TEXTS = 256


def rows_elsewhere(
    store: Store, compared: Comparison, progress: Progress
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """At most 256 of the sampled texts, and the row of the store that holds the vector of each, -1 where none does.

    One pass over the store's vectors.
    """
    some = spread(len(compared), _TEXTS)
    fresh = compared.fresh[some]
    queries = unit_rows(fresh)
    best = np.full(len(queries), -np.inf, np.float32)
    rows = np.full(len(queries), -1, np.int64)
    first = 0
    for batch in store.batches():
        scores = queries @ unit_rows(batch.vectors).T
        places = scores.argmax(axis=1)
        found = scores[np.arange(len(queries)), places]
        better = found > best
        best[better], rows[better] = found[better], first + places[better]
        first += len(batch)
        progress("look in other rows", first, store.info.count)
    stored = store.take(np.maximum(rows, 0)).vectors
    rows[~agree(stored, fresh, compared.tolerance)] = -1
    return some, rows
