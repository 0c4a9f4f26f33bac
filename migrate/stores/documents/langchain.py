"""Documents of a LangChain FAISS folder, by row; writes them as a pickle that current LangChain opens.

LangChain itself is never imported.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from migrate.errors import StoreError
from migrate.files import copy_file, output_errors
from migrate.stores.binary_reader import shown
from migrate.stores.documents.base import DocumentSource, Labels, Rows, label_values
from migrate.stores.documents.langchain_pickle import CURRENT_NAMES, Docstore, DocstoreStub, DocumentStub, read_docstore
from migrate.vectors import Document

_PROTOCOL: Final = 4


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
    docstore = DocstoreStub()
    docstore.state = {"_dict": {doc_id: _stub(state) for doc_id, state in states.items()}}
    with output_errors(path), path.open("wb") as file:
        try:
            _DocstorePickler(file, path).dump((docstore, dict(row_ids)))
        except (pickle.PicklingError, RecursionError, TypeError, AttributeError) as error:
            raise StoreError(f"{path}: the metadata cannot be pickled ({error}); simplify it") from error
        file.flush()
        os.fsync(file.fileno())


def _stub(state: dict[str, Any]) -> DocumentStub:
    document = DocumentStub()
    document.state = state
    return document


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
        if obj not in CURRENT_NAMES:
            raise StoreError(
                f"{self._path}: metadata hold {obj!r}, but may only hold text, numbers, lists or dates; simplify it"
            )
        module, qualified_name = CURRENT_NAMES[obj]
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
    """A docstore pickle beside an index; held in memory.

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
        self.file = path
        self._path = path
        self._labels = labels
        self._docstore = read_docstore(path)
        _check_rows(self._docstore, labels, count, path)
        self._ids = [self._docstore.row_ids[row] for row in range(count)]
        self.kind = self._docstore.layout
        self.has_texts = any(fields["page_content"] for fields in self._docstore.documents.values())
        self.notes = tuple(self._remarks(count))

    def _remarks(self, count: int) -> Iterator[str]:
        orphans = len(self._docstore.documents) - count
        if orphans:
            yield f"{orphans} documents in {self._path.name} belong to no vector; they are kept as they are"
        if not self._docstore.is_current:
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
        return (self._document(doc_id) for doc_id in self.ids(rows))

    def _document(self, doc_id: str) -> Document:
        fields = self._docstore.documents[doc_id]
        return Document(doc_id, fields["page_content"], fields.get("metadata", {}))

    def write(self, folder: Path) -> None:
        """Copy the pickle byte for byte if the present LangChain opens it, else write it in the present layout."""
        target = folder / self._path.name
        if self._docstore.is_current:
            with output_errors(target):
                copy_file(self._path, target)
            return
        fields_set = self._docstore.fields_set
        states = {
            doc_id: current_state(fields, fields_set[doc_id]) for doc_id, fields in self._docstore.documents.items()
        }
        write_docstore(target, states, self._docstore.row_ids)


def _check_rows(docstore: Docstore, labels: Labels, count: int, path: Path) -> None:
    if labels is not None and not np.array_equal(np.sort(labels), np.arange(count)):
        raise StoreError(
            f"{path}: the labels of the index are not 0 to {count - 1}, which LangChain needs; save the index with them"
        )
    rows = docstore.row_ids
    if len(rows) != count or not all(type(row) is int and 0 <= row < count for row in rows):
        raise StoreError(
            f"{path}: its {len(rows)} ids are not those of the rows 0 to {count - 1} of the index; the "
            "pickle and the index are not of the same store"
        )
    missing = [doc_id for doc_id in rows.values() if not (isinstance(doc_id, str) and doc_id in docstore.documents)]
    if missing:
        raise StoreError(
            f"{path}: a vector has no document, for example {shown(missing[0])} ({len(missing)} missing); "
            "save the store again"
        )
    if len(set(rows.values())) != count:
        raise StoreError(
            f"{path}: ids are repeated ({count - len(set(rows.values()))} repetitions); save the store "
            "again with unique ids"
        )
