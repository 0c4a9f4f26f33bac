"""Writes a docstore as the pickle that the present LangChain opens, without importing LangChain."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from migrate.errors import StoreError
from migrate.files import output_errors
from migrate.stores.langchain_classes import CURRENT_NAMES, DocstoreStub, DocumentStub

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

    Raises
    ------
    StoreError
        Metadata holds a class that is not read back.
    OutputError
        The operating system refused.
    """
    docstore = DocstoreStub()
    docstore.state = {"_dict": {doc_id: _stub(state) for doc_id, state in states.items()}}
    with output_errors(path), path.open("wb") as file:
        try:
            _DocstorePickler(file, path).dump((docstore, dict(row_ids)))
        except (pickle.PicklingError, RecursionError, TypeError, AttributeError) as error:
            raise StoreError(
                f"{path}: expected metadata that can be pickled, found other ({error}); simplify it"
            ) from error
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
                f"{self._path}: expected metadata of text, numbers, lists or dates, found {obj!r}; simplify it"
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
