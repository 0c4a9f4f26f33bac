"""Documents of a LangChain FAISS folder, by row; writes them as a pickle that current LangChain opens.

LangChain itself is never imported, and the pickle is loaded in a guarded process alone, see `unpickle.py`: it writes
each document as a line of JSON, and these lie in a temporary file here.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import weakref
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.files import output_errors
from migrate.stores.binary_reader import read_errors
from migrate.stores.child import run_job, temporary_file, write_all
from migrate.stores.documents.base import DocumentsInfo, DocumentSource, check_numbered, note_of_orphans
from migrate.stores.documents.matching import Labels
from migrate.stores.documents.unpickle import (
    CURRENT_DOCSTORE,
    CURRENT_DOCUMENT,
    HARMLESS,
    TAG,
    DocstoreStub,
    DocumentStub,
)
from migrate.stores.frames import FACTS, PLACES, TEXT
from migrate.vectors import Document

# Arbitrary: they have to end a hostile pickle, and are never to meet a sound one.
_SPARE_BYTES: Final = 1 << 28
_BYTES_PER_PICKLED_BYTE: Final = 32
_SPARE_CPU_S: Final = 3
_BYTES_PER_CPU_S: Final = 4 << 20
_CURRENT_NAMES: Final[dict[type, tuple[str, str]]] = {
    DocstoreStub: CURRENT_DOCSTORE,
    DocumentStub: CURRENT_DOCUMENT,
    **{kind: name for name, kind in HARMLESS.items()},
}
"""The name of each class in a pickle that the present LangChain opens."""

_KINDS: Final[dict[str, type]] = {
    kind.__name__: kind for kind in (tuple, set, frozenset, dict, bytes, bytearray, *HARMLESS.values())
}


def current_state(text: str, metadata: Mapping[str, Any], own_id: str | None) -> dict[str, Any]:
    """Return the state of a `Document` of pydantic 2 with these fields."""
    values = {"id": own_id, "metadata": metadata, "page_content": text, "type": "Document"}
    fields_set = {"metadata", "page_content"} | ({"id"} if own_id is not None else set())
    return {
        "__dict__": values,
        "__pydantic_extra__": None,
        "__pydantic_fields_set__": fields_set,
        "__pydantic_private__": None,
    }


def write_docstore(path: Path, states: Mapping[str, dict[str, Any]], row_ids: Mapping[int, str]) -> None:
    """Write a LangChain pickle, durably: states by id, as `current_state` returns them, and the id of each row."""
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
        # The first with STACK_GLOBAL, which `save_global` writes.
        super().__init__(file, protocol=4)
        self._path = path

    def save_global(self, obj: Any, name: str | None = None) -> None:
        if obj not in _CURRENT_NAMES:
            raise StoreError(
                f"{self._path}: metadata hold {obj!r}, but may hold only text, numbers, lists, dates and paths; "
                "simplify it"
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
    """A docstore pickle beside an index; its documents are in a temporary file."""

    def __init__(self, path: Path, labels: Labels, count: int) -> None:
        self._path = path
        self.positions = check_numbered(path, labels, count, "LangChain needs")
        self._count = count
        self._load(count)
        self._texts: dict[int, str] = {}
        is_current = self._facts["is_current"]
        old: tuple[str, ...]
        if is_current:
            old = ()
        else:
            old = (f"{path.name} has an old layout; a new store is written in the present one",)
        self.info = DocumentsInfo(
            self._facts["layout"],
            file=path,
            copied=(path,) if is_current else (),
            format="langchain",
            no_texts="" if self._facts["has_texts"] else f"{path}: all texts are empty; save the store with its texts",
            notes=(*note_of_orphans(self._facts["documents"] - count, "document", path), *old),
        )

    def _load(self, count: int) -> None:
        """Fill `_facts`, the file of documents, and `_places`: first byte, and sizes of the id and of the rest."""
        with read_errors(self._path):
            size = self._path.stat().st_size
        job = {
            "do": "migrate.stores.documents.unpickle:unpickle",
            "path": str(self._path),
            "count": count,
            "memory_bytes": _SPARE_BYTES + _BYTES_PER_PICKLED_BYTE * size,
            "cpu_s": _SPARE_CPU_S + size // _BYTES_PER_CPU_S,
        }
        self._facts: dict[str, Any] = {}
        self._documents = temporary_file(self._path, size)
        weakref.finalize(self, self._documents.close)
        index = b""
        remedy = "copy the file again, or save the store again with LangChain"
        for tag, content in run_job(self._path, job, file_bytes=size, reader="the unpickler", remedy=remedy):
            if tag == FACTS:
                self._facts = json.loads(content)
            elif tag == TEXT:
                write_all(self._documents, content)
            elif tag == PLACES:
                index += content
        self._places = np.frombuffer(index, np.int64).reshape(-1, 3)
        if not count <= len(self._places) == self._facts.get("documents"):
            raise StoreError(f"{self._path}: the unpickler did not return all documents; copy the file again")

    def _ids_at(self, positions: NDArray[np.int64]) -> list[str]:
        return [self._value(start, id_size) for start, id_size, _ in self._places[positions].tolist()]

    def _documents_at(self, positions: NDArray[np.int64]) -> Iterator[Document]:
        for position in positions.tolist():
            start, id_size, size = self._places[position].tolist()
            text, metadata, _ = self._value(start + id_size, size)
            yield Document(self._value(start, id_size), text, metadata)

    def _value(self, start: int, size: int) -> Any:
        """Return an id, the rest of a document as a list, or a long text of its metadata."""
        return json.loads(os.pread(self._documents.fileno(), size, start), object_hook=self._revive)

    def _revive(self, fields: dict[str, Any]) -> Any:
        """Return a value that JSON lacks, from the object that stands for it; see `unpickle._Sender`."""
        if TAG not in fields:
            return fields
        name, content = fields[TAG]
        # documents may share it: it is in memory once while they are read in turn
        if name == "text":
            start, size = content
            if start not in self._texts:
                # Arbitrary: enough for documents that share one and follow each other; any other is read again.
                if len(self._texts) >= 64:
                    self._texts.clear()
                self._texts[start] = self._value(start, size)
            return self._texts[start]
        kind = _KINDS[name]
        if kind in (bytes, bytearray):
            return kind(base64.b64decode(content))
        if kind in HARMLESS.values():
            return kind(*content)
        return kind(content)

    def write(self, folder: Path) -> None:
        """Copy the pickle byte for byte if the present LangChain opens it, else write it in the present layout."""
        super().write(folder)
        if self._facts["is_current"]:
            return
        states = {}
        for start, id_size, size in self._places.tolist():
            states[self._value(start, id_size)] = current_state(*self._value(start + id_size, size))
        write_docstore(folder / self._path.name, states, dict(enumerate(islice(states, self._count))))
