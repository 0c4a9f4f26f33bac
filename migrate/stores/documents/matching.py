"""Finds the ways in which the documents of a file may belong to rows of vectors: by their order, or by numbers.

Vectors are added to an index in some order, and FAISS numbers them in that order unless they are given labels. A file
has its documents in some order, and many ids are such numbers too, or hold them. `migrate/stores/pairing.py` decides
where the two ways give rows different documents.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError

Labels = NDArray[np.int64] | None
"""The label of each row; None where labels are row numbers, as in most stores."""

ROWS_OPTION: Final = "rows"
"""The option of a location that says how documents belong to rows: `ORDER` or `ID`."""

ORDER: Final = "order"
ID: Final = "id"
_FAISS_ID: Final = "faiss_id"
LABEL: Final = "label"
_POSITION: Final = "position"

_MOST_NUMBERS: Final = 8
"""Numbers in an id; one with more is a hash, or a text."""

_DIGITS: Final = "[0-9]{1,20}"
"""Those of an int64, and more."""


@dataclass(frozen=True, slots=True, eq=False)
class Numbering:
    """Numbers of the rows of vectors.

    Attributes
    ----------
    labels : the label of each row; None where that is its number
    added : the place of each row in the order in which vectors were added; None where that is its number
    count : the number of rows
    is_index : whether there are labels at all; an array has none
    """

    labels: Labels
    added: Labels
    count: int
    is_index: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One way to match documents to rows.

    `positions` has the position of each row's document in the file, None where row i is document i; `by` is what they
    are matched by, in one word.
    """

    positions: Labels
    by: str


class IdNumbers:
    """The numbers that ids hold, as 17 in "17", "00017", "doc17" and "2024/doc-17.txt".

    An id holds a number where all ids are the same but for it. `are_labels` is true while each id is such a number and
    no more, written as `str` would write it.
    """

    def __init__(self) -> None:
        self.are_labels = True
        self._is_empty = True
        self._pattern: re.Pattern[str] | None = None
        self._columns: list[array[int]] = []

    def add(self, doc_id: str) -> None:
        """Look at the next id."""
        if self._is_empty:
            self._is_empty = False
            self._pattern = _pattern_of(doc_id)
            self._columns = [array("q") for _ in range(self._pattern.groups if self._pattern else 0)]
        match = self._pattern and self._pattern.fullmatch(doc_id)
        if not match:
            self._give_up()
            return
        self.are_labels = self.are_labels and _is_label(doc_id)
        try:
            for column, digits in zip(self._columns, match.groups(), strict=True):
                column.append(int(digits))
        except OverflowError:  # it is no int64
            self._give_up()

    def _give_up(self) -> None:
        self.are_labels = False
        self._pattern = None
        self._columns = []

    def values(self) -> NDArray[np.int64] | None:
        """Return the number of each id; None where they hold none."""
        columns = [np.array(column, np.int64) for column in self._columns]
        varying = [column for column in columns if (column != column[0]).any()]
        if len(varying) == 1:
            return varying[0]
        if len(columns) != 1:
            return None
        return columns[0]


def _is_label(doc_id: str) -> bool:
    """Return whether an id is a number as `str` would write it."""
    return re.fullmatch(r"0|-?[1-9][0-9]*", doc_id) is not None


def _pattern_of(doc_id: str) -> re.Pattern[str] | None:
    """Return the pattern of ids that differ from one in their numbers alone, with a group for each."""
    if _is_label(doc_id):
        return re.compile(f"(-?{_DIGITS})")
    text_parts = re.split("[0-9]+", doc_id)
    if not 1 < len(text_parts) <= _MOST_NUMBERS + 1:
        return None
    return re.compile(f"({_DIGITS})".join(map(re.escape, text_parts)))


def has_digit(doc_id: str) -> bool:
    """Return whether an id may hold a number, if others are like it."""
    return re.search("[0-9]", doc_id) is not None


def match_rows(
    path: Path,
    rows: Numbering,
    ids: IdNumbers,
    faiss_ids: NDArray[np.int64] | None,
) -> dict[str, Reading]:
    """Return the ways in which documents may belong to rows, by the values of `ROWS_OPTION`; the likeliest is first.

    `ids` are the numbers that ids hold, and `faiss_ids` the labels that documents name, where every document has one.
    Where documents name the labels of the index, these alone count.

    Raises a StoreError where there is none.
    """
    numbers = ids.values()
    # An array has no labels: what its documents call one can only be the number of a row.
    if not rows.is_index:
        if faiss_ids is not None:
            numbers = faiss_ids
        faiss_ids = None
    labels = _or_positions(rows.labels, rows.count)
    in_order = _or_positions(rows.added, rows.count)
    if faiss_ids is not None and (positions := places_of(labels, faiss_ids)) is not None:
        return {_FAISS_ID: Reading(positions, _FAISS_ID)}
    if faiss_ids is not None and not ids.are_labels:
        numbers = None
    by_number = _positions_by_number(labels, numbers)
    is_numbered = faiss_ids is None and _is_range(labels, first=0)
    readings = {}
    if by_number is not None:
        readings[ID] = Reading(by_number, ID)
    elif is_numbered and not np.array_equal(labels, in_order):
        readings[ID] = Reading(labels, LABEL)
    # Labels that documents name and the index lacks are of another index: then their order proves nothing either.
    may_be_in_order = is_numbered or (readings and faiss_ids is None and _is_range(labels))
    if may_be_in_order and _is_range(in_order, first=0):
        by_order = {ORDER: Reading(rows.added, _POSITION)}
        number_is_likelier = by_number is not None and ids.are_labels
        readings = {**readings, **by_order} if number_is_likelier else {**by_order, **readings}
    if readings:
        return readings
    why = "ids are not its labels, which are not 0 to n-1 either"
    if faiss_ids is not None:
        why = "faiss_id differs from the labels of the index"
    raise StoreError(
        f"{path}: the {rows.count} documents do not match the labels of the index, as their {why}; give each document "
        'the label of its vector as "faiss_id"'
    )


def differing_rows(readings: Mapping[str, Reading]) -> NDArray[np.int64]:
    """Return the rows whose document depends on the reading, ascending."""
    if len(readings) < 2:
        return np.arange(0)
    by_order = readings[ORDER].positions
    by_id = readings[ID].positions
    size = max(0 if positions is None else positions.size for positions in (by_order, by_id))
    in_order = np.arange(size)
    return np.flatnonzero((in_order if by_order is None else by_order) != (in_order if by_id is None else by_id))


def _positions_by_number(labels: NDArray[np.int64], numbers: NDArray[np.int64] | None) -> Labels:
    """Return the position of each row's document by numbers that are labels, or count on from another than 0."""
    if numbers is None:
        return None
    positions = places_of(labels, numbers)
    if positions is None and numbers.size and _is_range(labels, first=0):
        positions = places_of(labels, numbers - numbers.min())
    return positions


def _or_positions(numbers: NDArray[np.int64] | None, count: int) -> NDArray[np.int64]:
    """Return the numbers of rows; 0 to count - 1 where rows have none."""
    if numbers is None:
        return np.arange(count)
    return numbers


def _is_range(values: NDArray[np.int64], first: int | None = None) -> bool:
    """Return whether values are, in any order, those from `first` on, or from any number on, without a gap."""
    if not values.size:
        return True
    if first is None:
        start = int(values.min())
    else:
        start = first
    return bool(np.array_equal(np.sort(values) - start, np.arange(values.size)))


def places_of(expected: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return the position of each expected value in `values`, or None unless both hold the same ones."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    if not np.array_equal(np.sort(expected), ordered):
        return None
    positions: NDArray[np.int64] = order[np.searchsorted(ordered, expected)]
    return positions
