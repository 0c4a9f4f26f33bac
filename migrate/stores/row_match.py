"""Matches the documents of a file to the labels of an index."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.stores.labels import Labels


def match_rows(
    path: Path, labels: Labels, count: int, values: NDArray[np.int64] | None, faiss_ids: NDArray[np.int64] | None
) -> tuple[Labels, str]:
    """Find the document of each row.

    The first of these that fits decides:

    1. every document has an integer `faiss_id`, and these are the labels: by that;
    2. the ids are the labels, written out: by value;
    3. the labels are 0 to n-1: document i belongs to label i.

    Parameters
    ----------
    path
        Named in errors.
    labels
        The label of each row.
    count
        How many rows and how many documents there are.
    values
        The ids as integers, where every id is one.
    faiss_ids
        The labels that the documents name, where every document does.

    Returns
    -------
    The position of each row's document in the file, None where row i is document i; and how they were matched.

    Raises
    ------
    StoreError
        Nothing fits.
    """
    wanted = np.arange(count) if labels is None else labels
    for integers, how in ((faiss_ids, "matched by faiss_id"), (values, "matched by id")):
        if integers is not None and (places := _places_of(wanted, integers)) is not None:
            return places, how
    if faiss_ids is not None and count:
        raise _mismatch(path, count, "faiss_id differs from the labels of the index")
    if np.array_equal(np.sort(wanted), np.arange(count)):
        return labels, "matched by position"
    raise _mismatch(path, count, "the labels of the index are neither their ids nor 0 to n-1")


def _places_of(wanted: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """For each wanted value the position it has in `values`, or None unless both hold the same ones."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    if not np.array_equal(np.sort(wanted), ordered):
        return None
    places: NDArray[np.int64] = order[np.searchsorted(ordered, wanted)]
    return places


def _mismatch(path: Path, count: int, why: str) -> StoreError:
    return StoreError(
        f"{path}: expected {count} documents that match the labels of the index, found {count} whose {why}; "
        'give each document the label of its vector as "faiss_id"'
    )
