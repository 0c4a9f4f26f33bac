"""A look over a store through a stitch: what is paid for, how sure the stitch is, and what a query log would find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.search.runs import Run, TopK
from migrate.stitch.fitted import FittedStitch
from migrate.stores.base import Store
from migrate.translate import batch_rows, translated_batches
from migrate.vectors import Progress, Vectors, no_progress

_QUERY_BLOCK = 500


@dataclass(frozen=True, eq=False)
class Survey:
    """What is known of the n documents of a store, by row.

    Attributes
    ----------
    paid : (n,) bool, whether the stitch has the true vector, of the document or of another with the same text
    confidence : (n,) float32, the cosine to expect, NaN where the stitch knows none or nobody looked
    hits : for each query of the log the rows nearest to it in the translated store, best first
    """

    paid: NDArray[np.bool_]
    confidence: Vectors
    hits: Sequence[Sequence[int]] = ()


def paid_rows(store: Store, fitted: FittedStitch) -> NDArray[np.bool_]:
    """Whether the stitch has the true vector of each document of a store, (n,)."""
    paid = np.zeros(store.info.count, dtype=bool)
    done = 0
    for batch in store.batches():
        paid[done + fitted.sample.positions(batch.ids)[0]] = True
        done += len(batch)
    return paid


def survey_store(
    store: Store, fitted: FittedStitch, queries: Vectors | None = None, *, progress: Progress = no_progress
) -> Survey:
    """Translate the store, keeping no vectors, and search it for the queries of a log, (m, q), by the target model.

    Queries and documents meet in the target's space, where they will meet later: the old vectors and the words find
    other documents than the new model is going to.

    Raises
    ------
    VectorError
        A vector is zero or not finite.
    """
    asked = np.empty((0, fitted.dim), dtype=np.float32) if queries is None else queries
    blocks = [asked[start : start + _QUERY_BLOCK] for start in range(0, len(asked), _QUERY_BLOCK)]
    tops = [TopK([str(row) for row in range(len(block))], block, metric=store.info.metric) for block in blocks]
    paid = np.zeros(store.info.count, dtype=bool)
    confidence = np.empty(store.info.count, dtype=np.float32)
    done = 0
    for batch in translated_batches(store, fitted, batch_rows(max(store.info.dim, fitted.dim))):
        progress("look over the store", done, store.info.count)
        end = done + len(batch)
        paid[done + fitted.sample.positions(batch.ids)[0]] = True
        confidence[done:end] = batch.confidence
        keys = [_key(row) for row in range(done, end)]
        for top in tops:
            top.add(keys, batch.vectors)
        done = end
    return Survey(paid, confidence, [rows for top in tops for rows in _rows(top.run())])


def _key(row: int) -> str:
    """A row as the documents of a run are named; these sort as the rows do."""
    return f"{row:015}"


def _rows(run: Run) -> list[list[int]]:
    return [[int(key) for key in keys] for keys in run.rankings.values()]
