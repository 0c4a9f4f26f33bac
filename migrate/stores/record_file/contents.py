"""Reads records with their vectors from a file, and writes the same file with other vectors: a class for each format.

A vector is a list of numbers, or the text of one, as in a cell of a table. What else the records hold, and what stands
beside them, is written as it was read; only spaces and line ends may differ.
"""

from __future__ import annotations

import base64
import binascii
import csv
import json
import os
import re
import secrets
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, TextIO

import numpy as np
from numpy.typing import NDArray

from migrate.files import open_file, output_errors
from migrate.reading import MalformedError, read_json
from migrate.stores.binary_reader import malformed, read_errors, shown
from migrate.stores.documents.base import MOST_BYTES, json_errors
from migrate.stores.documents.json_shapes import KEY, records_in
from migrate.stores.documents.own_file import Record, cells_of, delimiter_of, records_of
from migrate.stores.records import Distance
from migrate.vectors import Vectors
from migrate.work.rows import Rows

JSON: Final = (".json",)
LINES: Final = (".jsonl", ".ndjson")
TABLES: Final = (".csv", ".tsv")

_VECTOR: Final = "vector"
"""The field of a vector in records that are nothing else, or are vectors by id."""

_FEWEST_NUMBERS: Final = 5
"""Numbers in a list that is taken for a vector without being asked: a place on a page has four."""

HEAD_BYTES: Final = 1 << 18
"""What is looked at to tell whether there are vectors: far more than the first record takes."""

_NUMBER: Final = rb"-?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
_LIST: Final = re.compile(rb"\[\s*(?:%b[,\s]+){%d}" % (_NUMBER, _FEWEST_NUMBERS - 1))
_NANO: Final = re.compile(rb'\s*\{\s*"embedding_dim"\s*:')


def has_list(head: bytes) -> bool:
    """Return whether there is a list of numbers in the beginning of a file."""
    return _LIST.search(head) is not None


def begins_as_nano(head: bytes) -> bool:
    """Return whether a file begins as those of nano-vectordb."""
    return _NANO.match(head) is not None


def numbers_of(value: object) -> NDArray[np.float32] | None:
    """Return the vector in a value of a record, (dim,); None where it is no list of two numbers or more."""
    if isinstance(value, np.ndarray):
        with np.errstate(over="ignore"):
            return value.astype(np.float32)
    if isinstance(value, str):
        value = _listed(value)
    if not isinstance(value, list) or len(value) < 2:
        return None
    # By the type itself, as `true` is an `int` to Python, and NumPy would make a 1 of it.
    if not all(type(number) in (float, int) for number in value):
        return None
    # what is too large becomes infinite, and is refused as that
    with np.errstate(over="ignore"):
        return np.array(value, np.float64).astype(np.float32)


def _listed(text: str) -> list[float] | None:
    """Return the numbers of a list that is written as JSON, or as NumPy prints an array, without commas."""
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        return [float(number) for number in text[1:-1].replace(",", " ").split()]
    except ValueError:
        return None


class Content(ABC):
    """A file of records with vectors."""

    index_type: ClassVar[str]
    """What a person calls the file."""
    distance: ClassVar[Distance | None] = None
    """How its program compares; None where the file belongs to no program."""
    reads_texts: ClassVar[bool] = True
    """True if a vector may be the text of a list."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def records(self) -> Iterator[Record]:
        """Yield the records with their vectors; raises a StoreError where one is none."""

    @abstractmethod
    def save(self, target: Path, field: str, rows: Rows) -> None:
        """Write the same records with other vectors in a field, in the order of those that have one, durably."""


class TextContent(Content):
    """A file of text."""

    def save(self, target: Path, field: str, rows: Rows) -> None:
        """Write the same text with other vectors."""
        with output_errors(target), target.open("w", encoding="utf-8", newline="") as file:
            self.write(file, field, rows)
            file.flush()
            os.fsync(file.fileno())

    @abstractmethod
    def write(self, target: TextIO, field: str, rows: Rows) -> None:
        """Write it to a file that is open."""


class _Next:
    """The next vector of some rows, as the text of a list, each time that it is asked for."""

    def __init__(self, rows: Rows) -> None:
        self._vectors = (vector for _, vectors in rows.batches() for vector in vectors)

    def vector(self) -> Vectors:
        return next(self._vectors)

    def text(self) -> str:
        return json.dumps(self.vector().tolist())


class LinesContent(TextContent):
    """A record a line."""

    index_type = "lines of JSON"

    def records(self) -> Iterator[Record]:
        """Yield the records."""
        return records_of(self.path)

    def write(self, target: TextIO, field: str, rows: Rows) -> None:
        """Write a line for each record."""
        following = _Next(rows)
        for record in self.records():
            target.write(_Template([record.get(field)], record).text(following))
            target.write("\n")


class TableContent(TextContent):
    """A record a row, below a row of names."""

    index_type = "table of text"

    def records(self) -> Iterator[Record]:
        """Yield the records."""
        return records_of(self.path)

    def write(self, target: TextIO, field: str, rows: Rows) -> None:
        """Write a row for each record, divided as they were."""
        following = _Next(rows)
        with read_errors(self.path), open_file(self.path, buffering=1 << 20) as file:
            delimiter = delimiter_of(self.path, file)
            cells = cells_of(self.path, file)
            header = next(cells)
            table = csv.writer(target, delimiter=delimiter, lineterminator="\n")
            table.writerow(header)
            column = header.index(field)
            for row in cells:
                if numbers_of(row[column]) is not None:
                    row[column] = following.text()
                table.writerow(row)


class JsonContent(TextContent):
    """One value of JSON, with the records in any of the usual shapes; it is held in memory while it is read."""

    index_type = "JSON"

    def records(self) -> Iterator[Record]:
        """Yield the records."""
        return iter(self._records(self._value))

    @cached_property
    def _value(self) -> Any:
        with json_errors(self.path):
            return read_json(self.path, MOST_BYTES)

    def _records(self, value: Any) -> list[Record]:
        """Return the records of a value; their vectors are those in it, not copies."""
        if isinstance(value, list) and value and all(numbers_of(entry) is not None for entry in value):
            return [{_VECTOR: entry} for entry in value]
        if isinstance(value, dict) and value and all(numbers_of(entry) is not None for entry in value.values()):
            return [{KEY: key, _VECTOR: entry} for key, entry in value.items()]
        records = []
        for number, record in enumerate(records_in(self.path, value), start=1):
            if not isinstance(record, dict):
                raise malformed(self.path, f"record {number} is {shown(record)}, no object", "correct the file")
            records.append(record)
        return records

    def write(self, target: TextIO, field: str, rows: Rows) -> None:
        """Write the same value with other vectors."""
        value = self._value
        vectors = [record.get(field) for record in self._records(value)]
        target.write(_Template(vectors, value).text(_Next(rows)))


class NanoContent(TextContent):
    """A file of nano-vectordb: vectors in one block of base64, and the records in a list.

    LightRAG keeps each vector once more in its record, in half precision and packed.

    References
    ----------
    `NanoVectorDB.save` of https://github.com/gusye1234/nano-vectordb, and `NanoVectorDBStorage.upsert` of
    https://github.com/HKUDS/LightRAG.
    """

    index_type = "nano-vectordb"
    distance = "cosine"
    _PACKED: ClassVar = "vector"

    def records(self) -> Iterator[Record]:
        """Yield the records, each with its row of the block."""
        value = self._value
        for record, vector in zip(value["data"], self._matrix, strict=True):
            others = {name: entry for name, entry in record.items() if name not in ("__id__", self._PACKED)}
            yield {KEY: record["__id__"], **others, _VECTOR: vector.tolist()}

    @cached_property
    def _value(self) -> dict[str, Any]:
        with json_errors(self.path):
            value = read_json(self.path, MOST_BYTES)
            if not isinstance(value, dict) or not isinstance(value.get("data"), list):
                raise MalformedError("it has no list of records, 'data'")
            for record in value["data"]:
                if not isinstance(record, dict) or not isinstance(record.get("__id__"), str):
                    raise MalformedError(f"{shown(record)} is no record with an '__id__'")
            return value

    @cached_property
    def _matrix(self) -> NDArray[np.float32]:
        value = self._value
        dim = value.get("embedding_dim")
        with json_errors(self.path):
            if type(dim) is not int or dim < 1:
                raise MalformedError(f"'embedding_dim' is {shown(dim)}")
            try:
                block = base64.b64decode(value.get("matrix", ""), validate=True)
            except (binascii.Error, TypeError, ValueError) as error:
                raise MalformedError(f"'matrix' is not base64 ({error})") from error
            expected = len(value["data"]) * dim * 4
            if len(block) != expected:
                raise MalformedError(f"'matrix' has {len(block)} bytes in place of {expected}")
            return np.frombuffer(block, "<f4").reshape(-1, dim)

    def write(self, target: TextIO, field: str, rows: Rows) -> None:
        """Write the same records around another block, and in them other copies where they have one."""
        block = bytearray()
        records = []
        following = _Next(rows)
        for record in self._value["data"]:
            vector = following.vector()
            block += vector.astype("<f4").tobytes()
            if isinstance(record.get(self._PACKED), str):
                packed = base64.b64encode(zlib.compress(vector.astype(np.float16).tobytes())).decode()
                record = {**record, self._PACKED: packed}
            records.append(record)
        changed = {"embedding_dim": rows.dim, "data": records, "matrix": base64.b64encode(block).decode()}
        json.dump(self._value | changed, target, ensure_ascii=False)


class _Template:
    """A value of JSON with a mark in the place of each vector: `json` needs no vector as Python's numbers then."""

    def __init__(self, vectors: Sequence[object], value: Any) -> None:
        self._mark = secrets.token_hex(16)
        # by identity: it is told apart from a list elsewhere that has the same numbers
        self._vectors = {id(vector) for vector in vectors if numbers_of(vector) is not None}
        self._value = self._marked(value)

    def _marked(self, value: Any) -> Any:
        if id(value) in self._vectors:
            return f"{self._mark}{'s' if isinstance(value, str) else 'l'}"
        if isinstance(value, dict):
            return {name: self._marked(entry) for name, entry in value.items()}
        if isinstance(value, list):
            return [self._marked(entry) for entry in value]
        return value

    def text(self, following: _Next) -> str:
        """Return the text of the value, with the next vectors in their places."""
        parts = re.split(f'"{self._mark}([sl])"', json.dumps(self._value, ensure_ascii=False))
        for place in range(1, len(parts), 2):
            # a list that was a text stays one
            parts[place] = f'"{following.text()}"' if parts[place] == "s" else following.text()
        return "".join(parts)
