"""Documents of a LangChain FAISS folder, by row; writes them as a pickle that current LangChain opens.

LangChain itself is never imported, and the pickle is loaded in a guarded process alone, see `unpickle.py`: it writes
each document as a line of JSON, and these lie in a temporary file here.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import os
import pickle
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.files import copy_file, output_errors
from migrate.stores.binary_reader import read_errors
from migrate.stores.child import run_job, temporary_file, write_all
from migrate.stores.documents.base import DocumentSource, Labels, Rows, label_values
from migrate.stores.documents.unpickle import (
    CURRENT_DOCSTORE,
    CURRENT_DOCUMENT,
    HARMLESS,
    TAG,
    DocstoreStub,
    DocumentStub,
)
from migrate.stores.frames import FACTS, IDS, TEXT
from migrate.vectors import Document

_PROTOCOL: Final = 4
_JOB: Final = "migrate.stores.documents.unpickle:unpickle"
_SPARE_BYTES: Final = 1 << 28
_MEMORY_PER_BYTE: Final = 32
_LEAST_S: Final = 3
_BYTES_PER_S: Final = 4 << 20
_TEXTS_IN_MEMORY: Final = 64
_CURRENT_NAMES: Final[dict[type, tuple[str, str]]] = {
    DocstoreStub: CURRENT_DOCSTORE,
    DocumentStub: CURRENT_DOCUMENT,
    **{kind: name for name, kind in HARMLESS.items()},
}
"""What each class is called in a pickle that the present LangChain opens."""


def current_state(fields: Mapping[str, Any], fields_set: frozenset[str]) -> dict[str, Any]:
    """The state of a `Document` of pydantic 2 with these fields."""
    values = {
        "id": fields.get("id"),
        "metadata": fields.get("metadata", {}),
        "page_content": fields["page_content"],
        "type": "Document",
    }
    return {
        "__dict__": values,
        "__pydantic_extra__": None,
        "__pydantic_fields_set__": set(fields_set),
        "__pydantic_private__": None,
    }


def write_docstore(path: Path, states: Mapping[str, dict[str, Any]], row_ids: Mapping[int, str]) -> None:
    """Write a LangChain pickle, durably.

    Parameters
    ----------
    path
        Created, or replaced.
    states
        The state of each document by id, see `current_state`.
    row_ids
        The id of each row.
    """
    docstore = DocstoreStub({"_dict": {doc_id: DocumentStub(state) for doc_id, state in states.items()}})
    with output_errors(path), path.open("wb") as file:
        try:
            _DocstorePickler(file, path).dump((docstore, dict(row_ids)))
        except (pickle.PicklingError, RecursionError, TypeError, AttributeError) as error:
            raise StoreError(f"{path}: the metadata cannot be pickled ({error}); simplify it") from error
        file.flush()
        os.fsync(file.fileno())


class _DocstorePickler(pickle._Pickler):
    """Writes stubs under the names of the classes they stand for.

    The C pickler insists on importing every class it names, so this is the Python one.
    """

    # what the base class has and its type stub lacks
    save: Callable[[Any], None]
    write: Callable[[bytes], Any]
    memoize: Callable[[Any], None]
    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)

    def __init__(self, file: Any, path: Path) -> None:
        super().__init__(file, _PROTOCOL)
        self._path = path

    def save_global(self, obj: Any, name: str | None = None) -> None:
        if obj not in _CURRENT_NAMES:
            raise StoreError(
                f"{self._path}: metadata hold {obj!r}, but may only hold text, numbers, lists or dates; simplify it"
            )
        module, qualified_name = _CURRENT_NAMES[obj]
        self.save(module)
        self.save(qualified_name)
        self.write(pickle.STACK_GLOBAL)
        self.memoize(obj)

    def save_set(self, values: set[Any]) -> None:
        """Write the members in a fixed order: that of a set of texts differs from process to process."""
        self.write(pickle.EMPTY_SET)
        self.memoize(values)
        self.write(pickle.MARK)
        for value in sorted(values, key=repr):
            self.save(value)
        self.write(pickle.ADDITEMS)

    dispatch[set] = save_set


class LangchainDocuments(DocumentSource):
    """A docstore pickle beside an index; ids are held in memory, texts are in a temporary file.

    Parameters
    ----------
    path
        The pickle.
    labels
        The label of each row of the index.
    count
        How many rows the index has.
    """

    format = "langchain"

    def __init__(self, path: Path, labels: Labels, count: int) -> None:
        if labels is not None and not np.array_equal(np.sort(labels), np.arange(count)):
            raise StoreError(
                f"{path}: the labels of the index are not 0 to {count - 1}, which LangChain needs; save the index with "
                "them"
            )
        self.file = path
        self._path = path
        self._labels = labels
        self._ids: list[str] = []
        self._facts: dict[str, Any] = {}
        self._lines = self._load(count)
        self._texts: dict[int, str] = {}
        self.kind = self._facts["layout"]
        self.has_texts = self._facts["has_texts"]
        self.notes = tuple(self._remarks(count))

    def _load(self, count: int) -> Lines:
        with read_errors(self._path):
            size = self._path.stat().st_size
        job = {
            "do": _JOB,
            "path": str(self._path),
            "count": count,
            "memory_bytes": _SPARE_BYTES + _MEMORY_PER_BYTE * size,
            "cpu_s": _LEAST_S + size // _BYTES_PER_S,
        }
        lines = Lines(self._path, size)
        remedy = "copy the file again, or save the store again with LangChain"
        for tag, content in run_job(self._path, job, file_bytes=size, reader="the unpickler", remedy=remedy):
            if tag == FACTS:
                self._facts = json.loads(content)
            elif tag == IDS:
                self._ids += json.loads(content)
            elif tag == TEXT:
                lines.append(content)
        lines.finish()
        if len(self._ids) != count or len(lines.documents) != self._facts.get("documents"):
            raise StoreError(f"{self._path}: the unpickler did not return all documents; copy the file again")
        return lines

    def _remarks(self, count: int) -> Iterator[str]:
        if orphans := self._facts["documents"] - count:
            yield f"{orphans} documents in {self._path.name} belong to no vector; they are kept as they are"
        if not self._facts["is_current"]:
            yield f"{self._path.name} has an old layout; a new store is written in the present one"

    def ids(self, rows: Rows) -> list[str]:
        """The docstore ids of some rows."""
        if self._labels is None and isinstance(rows, range):
            return self._ids[rows.start : rows.stop]
        return [self._ids[label] for label in label_values(self._labels, rows).tolist()]

    def documents(self, rows: Rows) -> Iterator[Document]:
        """The documents of some rows."""
        if not self.has_texts:
            raise StoreError(f"{self._path}: all texts are empty; save the store with its texts")
        return (
            Document(*self._line(int(self._lines.documents[label]))[:3])
            for label in label_values(self._labels, rows).tolist()
        )

    def _line(self, number: int) -> Any:
        """The value of a line: a document as a list, or a long text of its metadata."""
        return json.loads(self._lines[number], object_hook=self._revive)

    def _revive(self, fields: dict[str, Any]) -> Any:
        """A value that JSON lacks, from the object that stands for it."""
        if TAG not in fields:
            return fields
        kind, content = fields[TAG]
        return self._long_text(content) if kind == "text" else _MAKERS[kind](content)

    def _long_text(self, number: int) -> str:
        """A text that documents share, which is in memory once while they are read in turn."""
        if number not in self._texts:
            if len(self._texts) >= _TEXTS_IN_MEMORY:
                self._texts.clear()
            self._texts[number] = self._line(number)
        return self._texts[number]

    def write(self, folder: Path) -> None:
        """Copy the pickle byte for byte if the present LangChain opens it, else write it in the present layout."""
        target = folder / self._path.name
        if self._facts["is_current"]:
            with output_errors(target):
                copy_file(self._path, target)
            return
        states = {}
        for number in self._lines.documents.tolist():
            doc_id, text, metadata, own_id, given = self._line(number)
            fields = {"id": own_id, "metadata": metadata, "page_content": text}
            states[doc_id] = current_state(fields, frozenset(filter(None, given.split(","))))
        write_docstore(target, states, dict(enumerate(self._ids)))


_MAKERS: Final[dict[str, Callable[[Any], Any]]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "bytes": base64.b64decode,
    "bytearray": lambda content: bytearray(base64.b64decode(content)),
    "UUID": uuid.UUID,
    "Decimal": decimal.Decimal,
    "date": lambda content: datetime.date(*content),
    "timedelta": lambda content: datetime.timedelta(*content),
    "timezone": lambda content: datetime.timezone(*content),
    "time": lambda content: datetime.time(*content[:-1], fold=content[-1]),
    "datetime": lambda content: datetime.datetime(*content[:-1], fold=content[-1]),
}
"""How values are made that JSON lacks, see `unpickle._Records`."""


class Lines:
    """Lines of text in a temporary file.

    Parameters
    ----------
    path
        The file that they are read from, named in errors.
    size
        About how many bytes they take.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._file = temporary_file(path, size)
        weakref.finalize(self, self._file.close)
        self._ends: list[NDArray[np.int64]] = []
        self._is_document: list[NDArray[np.bool_]] = []
        self._size, self._is_whole = 0, True

    def append(self, content: bytes) -> None:
        """Append some bytes, which may end within a line."""
        characters = np.frombuffer(content, np.uint8)
        ends = np.flatnonzero(characters == ord("\n")) + 1
        starts = np.concatenate([np.zeros(int(self._is_whole), np.int64), ends[ends < len(content)]])
        self._is_document.append(characters[starts] == ord("["))
        self._ends.append(ends + self._size)
        self._size += len(content)
        self._is_whole = content.endswith(b"\n")
        write_all(self._file, content)

    def finish(self) -> None:
        """Make the lines readable."""
        self._bounds = np.concatenate([np.zeros(1, np.int64), *self._ends])
        self.documents = np.flatnonzero(np.concatenate([np.zeros(0, bool), *self._is_document]))

    def __getitem__(self, number: int) -> bytes:
        """A line."""
        start, end = int(self._bounds[number]), int(self._bounds[number + 1])
        return os.pread(self._file.fileno(), end - start, start)
