"""Finds files beside an index that have an entry for each of its rows, and are not read as its documents.

Metadata or ids that lie apart from the texts are such files. Nothing in them says what they mean, so they are named,
and copied into a new store as they are.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from migrate.errors import InputError, OutputError
from migrate.files import open_file
from migrate.reading import MalformedError, read_json
from migrate.stores.documents.base import is_faiss, sidecar_files
from migrate.stores.documents.jsonl import lines_of
from migrate.stores.documents.own_file import cells_of
from migrate.stores.switching import BESIDE

_PATTERNS: Final = ("*.json", "*.jsonl", "*.csv", "*.tsv", "*.txt", "*.npy")
_INDEXES: Final = ("*.faiss", "*.index", "*.bin")
_PICKLES: Final = ("*.pkl", "*.pickle")
# Arbitrary: to count its entries each file is read, maybe to its end, whenever the store is opened.
_MOST_FILES: Final = 20


def files_by_row(index: Path, count: int, read: Collection[Path | None]) -> tuple[Path, ...]:
    """Return the files beside an index with `count` entries, but those that are `read` or belong to another index."""
    if not count:
        return ()
    # What is called as another index belongs to that, even if it has as many entries.
    stems = {file.stem for file in sidecar_files(index, *_INDEXES) if is_faiss(file)}
    candidates = (
        file
        for file in sidecar_files(index, *_PATTERNS)
        if file not in read and file.name not in BESIDE and file.stem not in stems
    )
    return tuple(file for file in islice(candidates, _MOST_FILES) if _has_entries(file, count))


def notes_beside(index: Path, by_row: Iterable[Path], read: Collection[Path | None]) -> Iterator[str]:
    """Yield notes on files beside an index that are not read: those with an entry a row, and pickles."""
    if names := ", ".join(file.name for file in by_row):
        yield f"{names}: with an entry for each row, but not read; a new folder of this kind gets a copy"
    if names := ", ".join(file.name for file in sidecar_files(index, *_PICKLES) if file not in read):
        yield f"{names}: a pickle, which is not read, and not in a new store; write what it holds as JSON or a table"


def _has_entries(file: Path, count: int) -> bool:
    """Return whether a file has so many entries; one that cannot be read has none."""
    counters = {".json": _values, ".npy": _elements, ".csv": _cells, ".tsv": _cells}
    try:
        return count in counters.get(file.suffix, _lines)(file, count)
    except (InputError, OutputError, OSError, ValueError, csv.Error):  # one of NumPy and Unicode is a ValueError
        return False


def _values(file: Path, count: int) -> Iterator[int]:  # noqa: ARG001
    """Yield how many entries a file of JSON has: those of a list or an object, or of lists of one length."""
    value = read_json(file)
    if not isinstance(value, list | dict):
        raise MalformedError("neither a list nor an object")
    yield len(value)
    if isinstance(value, dict) and all(isinstance(column, list) for column in value.values()):
        lengths = {len(column) for column in value.values()}
        yield from lengths if len(lengths) == 1 else ()


def _elements(file: Path, count: int) -> Iterator[int]:  # noqa: ARG001
    """Yield the length of an array; vectors in rows belong to another store."""
    with open_file(file) as opened:
        np.lib.format.read_magic(opened)
        shape, _, dtype = np.lib.format.read_array_header_1_0(opened)
    if shape and not (len(shape) == 2 and dtype.kind == "f"):
        yield shape[0]


def _cells(file: Path, count: int) -> Iterator[int]:
    """Yield the number of rows of a table, without the header and with it."""
    with open_file(file, buffering=1 << 20) as opened:
        # One more than could fit says enough: the rest of a large file is not read.
        rows = sum(1 for _ in islice(cells_of(file, opened), count + 2))
    yield from (rows - 1, rows)


def _lines(file: Path, count: int) -> Iterator[int]:
    """Yield the number of lines that are not blank."""
    with open_file(file, buffering=1 << 20) as opened:
        yield sum(1 for _ in islice(lines_of(opened, file), count + 1))
