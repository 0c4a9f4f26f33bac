"""Recall of an index against exact search, so that nobody blames the stitch for it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrate.files import output_errors
from migrate.stores.base import Store
from migrate.stores.child import run_job
from migrate.stores.faiss.reader import read_job
from migrate.stores.faiss.store import FaissStore
from migrate.stores.frames import LABELS
from migrate.stores.neighbours import NEIGHBOURS, QUERIES, query_rows, share_found, tenth_scores
from migrate.vectors import Vectors


def index_recall(store: Store, *, queries: int = QUERIES) -> float | None:
    """Measure recall@10 of the index of a store, with rows of its own as queries.

    The truth is exact search over the vectors as they are read back. Where these are approximate, what coding lost is
    not in the figure: the originals are not there to compare with.

    Parameters
    ----------
    store
        A store with a FAISS index.
    queries
        How many rows, spread evenly, are looked up; at most as many as there are.

    Returns
    -------
    float or None
        Between 0 and 1; None for a flat index, whose search is exact, and for stores of other kinds.

    Raises
    ------
    StoreError
        FAISS cannot search the index.
    """
    info = store.info
    if (
        not isinstance(store, FaissStore)
        or not info.count
        or info.details["factory"] in ("Flat", "IDMap,Flat", "IDMap2,Flat")
    ):
        return None
    asked = store.get(query_rows(info.count, queries)).vectors
    inner = info.metric == "ip"
    tenth = tenth_scores(asked, (batch.vectors for batch in store.scan()), inner_product=inner)
    rows = store.rows_of(_search(store.index_path, asked, info.count))
    known = rows >= 0
    found = np.zeros((*rows.shape, info.dim), np.float32)
    found[known] = store.get(rows[known]).vectors
    return share_found(asked, found, known, tenth, inner_product=inner)


def _search(path: Path, queries: Vectors, count: int) -> NDArray[np.int64]:
    """Return the labels that the index itself finds, (n, k)."""
    k = min(NEIGHBOURS, count)
    with output_errors(Path(tempfile.gettempdir())), tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file, queries)
        file.flush()
        job = read_job("search", path, queries=file.name, k=k)
        frames = dict(run_job(path, job, file_bytes=path.stat().st_size))
    return np.frombuffer(frames[LABELS], "<i8").reshape(len(queries), k).astype(np.int64)
