"""The labels FAISS knows rows by, and the document ids that are these labels written out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import overload

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError

Labels = NDArray[np.int64] | None
"""The label of each row; None where labels are row numbers, as in most stores."""

Rows = range | NDArray[np.int64]
"""Row numbers, in any order."""


def check_labels(labels: Labels, path: Path) -> Labels:
    """The labels, or None where they are the row numbers after all.

    Raises
    ------
    StoreError
        Two rows share a label.
    """
    if labels is None or np.array_equal(labels, np.arange(labels.size)):
        return None
    ordered = np.sort(labels)
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if twice.size:
        raise StoreError(
            f"{path}: expected a different id for each vector, found id {ordered[twice[0]]} twice "
            f"({twice.size} repetitions); remove the stale vectors and save the index again"
        )
    return labels


def label_values(labels: Labels, rows: Rows) -> NDArray[np.int64]:
    """The labels of some rows."""
    if isinstance(rows, range):
        return np.arange(rows.start, rows.stop) if labels is None else labels[rows.start : rows.stop]
    return rows if labels is None else labels[rows]


def label_ids(labels: Labels, rows: Rows) -> list[str]:
    """The labels of some rows, written out."""
    if labels is None and isinstance(rows, range):
        return list(map(str, rows))
    return list(map(str, label_values(labels, rows).tolist()))


class LazyIds(Sequence[str]):
    """Document ids of known number that are read when somebody looks at them; translating a store never does.

    Parameters
    ----------
    count
        How many ids there are.
    load
        Reads them; called at most once.
    """

    def __init__(self, count: int, load: Callable[[], list[str]]) -> None:
        self._count = count
        self._load: Callable[[], list[str]] | None = load
        self._ids: list[str] = []

    def _loaded(self) -> list[str]:
        if self._load is not None:
            self._ids = self._load()
            self._load = None
        return self._ids

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self._loaded()[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) or not isinstance(other, Sequence):
            return NotImplemented
        return self._loaded() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._loaded())
