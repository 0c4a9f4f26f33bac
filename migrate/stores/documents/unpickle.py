"""Loads the docstore of a LangChain FAISS folder from its pickle. Runs in a guarded process only, see `child.py`.

A pickle names classes by module and name. Each name of a docstore is mapped to a stub that can do nothing, or to one of
a few harmless classes; any other is refused, so nothing is imported or executed. What else a hostile pickle can do,
such as take memory and time or crash the interpreter, the limits of the process stop.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import gc
import json
import pickle
import sys
import uuid
from array import array
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import numpy as np

from migrate.files import open_file
from migrate.stores.binary_reader import shown
from migrate.stores.frames import DONE, FACTS, PLACES, TEXT, RefusedError, send, send_array, send_facts

CURRENT_DOCSTORE: Final = ("langchain_community.docstore.in_memory", "InMemoryDocstore")
CURRENT_DOCUMENT: Final = ("langchain_core.documents.base", "Document")
MAX_DEPTH: Final = 100
"""The depth to which metadata may be nested, so that code may walk them by recursion."""

TAG: Final = "$"
"""The only key of a JSON object that stands for a value which JSON lacks: a list of its kind and its content."""

_FRAME_BYTES: Final = 1 << 20
_SAVE_AGAIN: Final = "save the store again with plain metadata (text, numbers, lists, dates)"


class DocstoreStub:
    """Stands for `InMemoryDocstore`; holds the state it was pickled with."""

    __slots__ = ("state",)

    state: Any

    def __new__(cls, state: Any = None) -> Self:
        """Set a state at once: unpickling calls no `__init__`."""
        stub = super().__new__(cls)
        stub.state = state
        return stub

    def __getstate__(self) -> Any:
        return self.state

    def __setstate__(self, state: Any) -> None:
        self.state = state


class DocumentStub(DocstoreStub):
    """Stands for `Document` where one is written; holds the state it is pickled with."""

    __slots__ = ()


class Fields:
    """Stands for `Document` where one is read; holds its fields, and empties the dictionaries that they came in.

    The unpickler remembers those until its end, and they would take as much memory as short texts.
    """

    __slots__ = ("given", "id", "metadata", "text")

    text: Any
    metadata: Any
    id: Any
    given: str
    """The names of the fields that were given, and "2" if pydantic 2 wrote the document."""

    def __new__(cls) -> Self:
        """Set the fields of a document without a state: unpickling calls no `__init__`."""
        document = super().__new__(cls)
        document.text = document.metadata = document.id = None
        document.given = ""
        return document

    def __setstate__(self, state: Any) -> None:
        fields = state.get("__dict__") if type(state) is dict else None
        if type(fields) is not dict:
            return
        self.text, self.metadata, self.id = fields.get("page_content"), fields.get("metadata", {}), fields.get("id")
        names = state.get("__pydantic_fields_set__", state.get("__fields_set__"))
        names_set = (
            {"metadata", "page_content"} if type(names) is not set else names & {"id", "metadata", "page_content"}
        )
        version = {"2"} if "__pydantic_fields_set__" in state else set[str]()
        self.given = sys.intern(",".join(sorted(names_set | version)))  # one for all, or memory would not do
        fields.clear()
        state.clear()


_STUBS: Final[dict[tuple[str, str], type]] = {
    CURRENT_DOCSTORE: DocstoreStub,
    ("langchain.docstore.in_memory", "InMemoryDocstore"): DocstoreStub,
    ("langchain_classic.docstore.in_memory", "InMemoryDocstore"): DocstoreStub,
    CURRENT_DOCUMENT: Fields,
    ("langchain_core.documents", "Document"): Fields,
    ("langchain.schema", "Document"): Fields,
    ("langchain.schema.document", "Document"): Fields,
    ("langchain.docstore.document", "Document"): Fields,
}

HARMLESS: Final[dict[tuple[str, str], type]] = {
    ("datetime", "datetime"): datetime.datetime,
    ("datetime", "date"): datetime.date,
    ("datetime", "time"): datetime.time,
    ("datetime", "timedelta"): datetime.timedelta,
    ("datetime", "timezone"): datetime.timezone,
    ("decimal", "Decimal"): decimal.Decimal,
    ("uuid", "UUID"): uuid.UUID,
}
"""Immutable values that metadata hold; making one runs no code but its own."""


class _DocstoreUnpickler(pickle.Unpickler):
    """Knows the classes of docstores, as stubs, and nothing else."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.stubs_seen: set[tuple[str, str]] = set()

    def find_class(self, module: str, name: str) -> type:
        stub = _STUBS.get((module, name))
        if stub is not None:
            self.stubs_seen.add((module, name))
            return stub
        if (module, name) in HARMLESS:
            return HARMLESS[module, name]
        raise RefusedError(
            f"the pickle holds the class {f'{module}.{name}'[:200]}, which is not part of a LangChain docstore; "
            f"nothing was executed: if you trust the file, {_SAVE_AGAIN}"
        )

    def persistent_load(self, pid: Any) -> Any:
        raise RefusedError(f"the pickle refers to an object outside of it; {_SAVE_AGAIN}")


def unpickle(job: dict[str, Any], pipe: BinaryIO) -> None:
    """Send facts of a docstore, and its documents with their places: those of the rows in order, then those of none."""
    path, count = Path(job["path"]), job["count"]
    # Millions of new values, and none of them garbage; the process ends before that matters.
    gc.disable()
    with open_file(path) as file:
        unpickler = _DocstoreUnpickler(file)
        loaded = unpickler.load()
        if file.read(1):
            raise RefusedError("there are bytes after the end of the pickle; copy it again")
    classes = unpickler.stubs_seen
    del unpickler  # which remembers every value
    documents, row_ids = _split(loaded)
    ids = _ids_of_rows(documents, row_ids, count)
    for doc_id, document in documents.items():
        if type(document) is not Fields:
            raise RefusedError(f"{shown(doc_id)} is a {type(document).__name__}, not a document; save the store again")
        if type(document.text) is not str or type(document.metadata) is not dict:
            raise RefusedError(f"the document {shown(doc_id)} lacks a text or metadata; save the store again")
    is_pydantic_2 = all(document.given.startswith("2") for document in documents.values())
    modules = " + ".join(sorted(f"{module}.{name}" for module, name in classes))
    layout = {
        "documents": len(documents),
        "has_texts": any(document.text for document in documents.values()),
        "layout": f"{modules} (pydantic {2 if is_pydantic_2 else 1})",
        "is_current": is_pydantic_2 and classes <= {CURRENT_DOCSTORE, CURRENT_DOCUMENT},
    }
    send_facts(pipe, FACTS, layout)
    sender = _Sender(pipe, path.stat().st_size)
    of_rows = set(ids)
    orphans = [doc_id for doc_id in documents if doc_id not in of_rows]
    for doc_id in (*ids, *orphans):
        sender.put(documents.pop(doc_id), doc_id)
    sender.send()
    send_array(pipe, PLACES, np.array(sender.places, np.int64))
    send_facts(pipe, DONE, {})


def _split(loaded: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    type_name = type(loaded).__name__
    if type(loaded) is tuple and len(loaded) == 2 and type(loaded[1]) is dict:
        docstore, row_ids = loaded
        state = docstore.state if type(docstore) is DocstoreStub else None
        documents = state.get("_dict") if type(state) is dict else None
        if type(documents) is dict:
            return documents, row_ids
        type_name = f"a {type(docstore).__name__}"
    raise RefusedError(
        f"the pickle holds {type_name} instead of a docstore of LangChain; give the folder of FAISS.save_local"
    )


def _ids_of_rows(documents: dict[Any, Any], row_ids: dict[Any, Any], count: int) -> list[str]:
    for doc_id in documents:
        if type(doc_id) is not str:
            raise RefusedError(f"an id is {shown(doc_id)}, not text; save the store again with text ids")
        if doc_id.encode(errors="replace").decode() != doc_id:
            raise RefusedError(f"the id {shown(doc_id)} holds half a character; give the document another id")
    if len(row_ids) != count or not all(type(row) is int and 0 <= row < count for row in row_ids):
        raise RefusedError(
            f"its {len(row_ids)} ids are not those of the rows 0 to {count - 1} of the index; the pickle and the index "
            "are not of the same store"
        )
    ids = [row_ids[row] for row in range(count)]
    missing = [doc_id for doc_id in ids if not (type(doc_id) is str and doc_id in documents)]
    if missing:
        raise RefusedError(
            f"a vector has no document, for example {shown(missing[0])} ({len(missing)} missing); save the store again"
        )
    if repetitions := count - len(set(ids)):
        raise RefusedError(f"ids are repeated ({repetitions} repetitions); save the store again with unique ids")
    return ids


class _Sender:
    """Sends documents as JSON, one after another.

    A document is its id, and a list of its text, metadata, the field `id`, and the names of the fields that were given.
    A long text in metadata is sent alone before the first document that has it, and documents have its place: many may
    share it. `places` are the first byte of each document, the size of its id, and that of its list.
    """

    def __init__(self, pipe: BinaryIO, file_bytes: int) -> None:
        self._pipe = pipe
        # of the metadata of a document, with all that they share written out
        self._most_bytes = (1 << 28) + 8 * file_bytes
        self._most_values = (1 << 18) + file_bytes
        # holds the text, too, so that no other gets its identity
        self._long: dict[int, tuple[tuple[int, int], str]] = {}
        self._waiting = bytearray()
        self._size = 0
        self.places = array("q")

    def put(self, fields: Fields, doc_id: str) -> None:
        """Send a document."""
        self._bytes = self._values = 0
        try:
            metadata = self._plain(fields.metadata, 0)
            own_id = fields.id if type(fields.id) is str else None
            start, id_size = self._put(doc_id)
            _, size = self._put([fields.text, metadata, own_id, fields.given.lstrip("2,")])
            self.places.extend((start, id_size, size))
        except UnicodeEncodeError as error:
            raise RefusedError(f"the document {shown(doc_id)} holds half a character; save it again") from error
        except ValueError as error:  # a number of more digits than Python writes
            raise RefusedError(f"the document {shown(doc_id)} cannot be written ({error}); {_SAVE_AGAIN}") from error
        if len(self._waiting) >= _FRAME_BYTES:
            self.send()

    def _put(self, value: Any) -> tuple[int, int]:
        content, start = json.dumps(value, ensure_ascii=False).encode(), self._size
        self._waiting += content
        self._size += len(content)
        return start, len(content)

    def send(self) -> None:
        """Send what waits."""
        for first in range(0, len(self._waiting), _FRAME_BYTES):
            send(self._pipe, TEXT, self._waiting[first : first + _FRAME_BYTES])
        self._waiting.clear()

    def _plain(self, value: Any, depth: int) -> Any:
        """Return a value as JSON holds it."""
        kind = type(value)
        self._values += 1
        self._bytes += len(value) if kind in (str, bytes, bytearray) else 0
        if self._values > self._most_values or self._bytes > self._most_bytes:
            raise RefusedError(f"metadata refer to their own parts so often that they have no end; {_SAVE_AGAIN}")
        if depth > MAX_DEPTH:
            raise RefusedError(f"metadata are nested more than {MAX_DEPTH} deep, or hold themselves; {_SAVE_AGAIN}")
        if kind is str and len(value) >= 1 << 10:
            if id(value) not in self._long:
                self._long[id(value)] = self._put(value), value
            return {TAG: ["text", self._long[id(value)][0]]}
        if kind in (str, int, float, bool, type(None)):
            return value
        if kind is list:
            return [self._plain(item, depth + 1) for item in value]
        if kind is dict and TAG not in value and all(type(key) is str for key in value):
            return {key: self._plain(item, depth + 1) for key, item in value.items()}
        return {TAG: [kind.__name__, self._content(value, kind, depth + 1)]}

    def _content(self, value: Any, kind: type, depth: int) -> Any:
        if kind in (bytes, bytearray):
            return base64.b64encode(value).decode()
        if kind is uuid.UUID and type(value.int) is int and 0 <= value.int < 1 << 128:
            return [value.hex]
        items = value
        if kind in HARMLESS.values() and kind is not uuid.UUID:
            items = value.__reduce_ex__(4)[1]
        elif kind is dict:
            items = value.items()
        elif kind not in (tuple, set, frozenset):
            raise RefusedError(f"metadata hold a {kind.__name__[:40]}; {_SAVE_AGAIN}")
        return [self._plain(item, depth) for item in items]
