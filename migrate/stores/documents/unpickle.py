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
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

from migrate.stores.binary_reader import shown
from migrate.stores.frames import DONE, FACTS, IDS, TEXT, RefusedError, send, send_facts

CURRENT_DOCSTORE: Final = ("langchain_community.docstore.in_memory", "InMemoryDocstore")
CURRENT_DOCUMENT: Final = ("langchain_core.documents.base", "Document")
MAX_DEPTH: Final = 100
"""How deeply metadata may be nested, so that code may walk them by recursion."""

TAG: Final = "$"
"""The only key of a JSON object that stands for a value which JSON lacks: a list of its kind and its content."""

_MAX_BYTES: Final = 1 << 28
_MAX_VALUES: Final = 1 << 18
"""How much the metadata of a document may be where all that they share is written out, beside the size of the file."""

_LONG_TEXT: Final = 1 << 10
_FRAME_BYTES: Final = 1 << 20
_IDS_PER_FRAME: Final = 1 << 14
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

    __slots__ = ("given", "id", "is_pydantic_2", "metadata", "text")

    text: Any
    metadata: Any

    def __new__(cls) -> Self:
        """Set what a document without a state has: unpickling calls no `__init__`."""
        document = super().__new__(cls)
        document.text = document.metadata = None
        return document

    def __setstate__(self, state: Any) -> None:
        fields = state.get("__dict__") if type(state) is dict else None
        if type(fields) is not dict:
            return
        self.text, self.metadata = fields.get("page_content"), fields.get("metadata", {})
        self.is_pydantic_2 = "__pydantic_fields_set__" in state
        names = state.get("__pydantic_fields_set__", state.get("__fields_set__"))
        given = {"metadata", "page_content"} if type(names) is not set else names & {"id", "metadata", "page_content"}
        self.given = ",".join(sorted(given))
        self.id = fields.get("id")
        fields.clear()
        state.clear()

    def check(self, doc_id: str) -> None:
        """Make sure that the document has a text and metadata."""
        if type(self.text) is not str or type(self.metadata) is not dict:
            raise RefusedError(f"the document {shown(doc_id)} lacks a text or metadata; save the store again")


STUBS: Final[dict[tuple[str, str], type]] = {
    **{
        (module, "InMemoryDocstore"): DocstoreStub
        for module in (
            CURRENT_DOCSTORE[0],
            "langchain.docstore.in_memory",
            "langchain_classic.docstore.in_memory",
        )
    },
    **{
        (module, "Document"): Fields
        for module in (
            CURRENT_DOCUMENT[0],
            "langchain_core.documents",
            "langchain.schema",
            "langchain.schema.document",
            "langchain.docstore.document",
        )
    },
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
        stub = STUBS.get((module, name))
        if stub is not None:
            self.stubs_seen.add((module, name))
            return stub
        if (module, name) in HARMLESS:
            return HARMLESS[module, name]
        raise RefusedError(
            f"the pickle holds the class {f'{module}.{name}'[:200]}, which is no part of a LangChain docstore; nothing "
            f"was executed: if you trust the file, {_SAVE_AGAIN}"
        )

    def persistent_load(self, pid: Any) -> Any:
        raise RefusedError(f"the pickle refers to an object outside of it; {_SAVE_AGAIN}")


def prepare() -> None:
    """Nothing to load."""


def unpickle(job: dict[str, Any], pipe: BinaryIO) -> None:
    """Send what a docstore is, the id of each row, and the documents: those of the rows, then those of none."""
    path, count = Path(job["path"]), job["count"]
    # Millions of new values, and none of them garbage; the process ends before that matters.
    gc.disable()
    with path.open("rb") as file:
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
            raise RefusedError(f"{shown(doc_id)} is no document but a {type(document).__name__}; save the store again")
        document.check(doc_id)
    is_pydantic_2 = all(fields.is_pydantic_2 for fields in documents.values())
    modules = " + ".join(sorted(f"{module}.{name}" for module, name in classes))
    facts = {
        "documents": len(documents),
        "has_texts": any(fields.text for fields in documents.values()),
        "layout": f"{modules} (pydantic {2 if is_pydantic_2 else 1})",
        "is_current": is_pydantic_2 and classes <= {CURRENT_DOCSTORE, CURRENT_DOCUMENT},
    }
    send_facts(pipe, FACTS, facts)
    for first in range(0, count, _IDS_PER_FRAME):
        send(pipe, IDS, json.dumps(ids[first : first + _IDS_PER_FRAME]).encode())
    records = _Records(path.stat().st_size)
    of_rows = set(ids)
    orphans = [doc_id for doc_id in documents if doc_id not in of_rows]
    content = bytearray()
    for doc_id in (*ids, *orphans):
        for line in records.of(documents.pop(doc_id), doc_id):
            content += line
        if len(content) >= _FRAME_BYTES:
            _send_all(pipe, content)
    _send_all(pipe, content)
    send_facts(pipe, DONE, {})


def _send_all(pipe: BinaryIO, content: bytearray) -> None:
    for first in range(0, len(content), _FRAME_BYTES):
        send(pipe, TEXT, content[first : first + _FRAME_BYTES])
    content.clear()


def _split(loaded: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
    found = type(loaded).__name__
    if type(loaded) is tuple and len(loaded) == 2 and type(loaded[1]) is dict:
        docstore, row_ids = loaded
        state = docstore.state if type(docstore) is DocstoreStub else None
        documents = state.get("_dict") if type(state) is dict else None
        if type(documents) is dict:
            return documents, row_ids
        found = f"a {type(docstore).__name__}"
    raise RefusedError(f"the pickle holds no docstore of LangChain but {found}; give the folder of FAISS.save_local")


def _ids_of_rows(documents: dict[Any, Any], row_ids: dict[Any, Any], count: int) -> list[str]:
    for doc_id in documents:
        if type(doc_id) is not str:
            raise RefusedError(f"an id is no text but {shown(doc_id)}; save the store again with text ids")
        if not _is_unicode(doc_id):
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


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Records:
    """Documents as lines of JSON.

    A document is a list: its id, text, metadata, the field `id`, and the names of the fields that were given. A long
    text in metadata is a line of its own before the first document that has it, and in documents its number: many
    documents may share it.
    """

    def __init__(self, file_bytes: int) -> None:
        self._most_bytes = _MAX_BYTES + 8 * file_bytes
        self._most_values = _MAX_VALUES + file_bytes
        self._long: dict[int, tuple[int, str]] = {}  # holds the text, too, so that no other gets its identity
        self._lines = 0

    def of(self, fields: Fields, doc_id: str) -> Iterator[bytes]:
        """The lines of a document."""
        self._bytes = self._values = 0
        self._new: list[str] = []
        try:
            metadata = self._plain(fields.metadata, 0)
            own_id = fields.id if type(fields.id) is str else None
            record = [doc_id, fields.text, metadata, own_id, fields.given]
            lines = [json.dumps(value, ensure_ascii=False).encode() for value in (*self._new, record)]
        except UnicodeEncodeError as error:
            raise RefusedError(f"the document {shown(doc_id)} holds half a character; save it again") from error
        except ValueError as error:  # a number of more digits than Python writes
            raise RefusedError(f"the document {shown(doc_id)} cannot be written ({error}); {_SAVE_AGAIN}") from error
        self._lines += 1
        return (line + b"\n" for line in lines)

    def _plain(self, value: Any, depth: int) -> Any:
        """A value as JSON holds it."""
        kind = type(value)
        self._values += 1
        self._bytes += len(value) if kind in (str, bytes, bytearray) else 0
        if self._values > self._most_values or self._bytes > self._most_bytes:
            raise RefusedError(f"metadata refer to their own parts so often that they have no end; {_SAVE_AGAIN}")
        if depth > MAX_DEPTH:
            raise RefusedError(f"metadata are nested more than {MAX_DEPTH} deep, or hold themselves; {_SAVE_AGAIN}")
        if kind is str:
            return value if len(value) < _LONG_TEXT else {TAG: ["text", self._number_of(value)]}
        if kind in (int, float, bool, type(None)):
            return value
        if kind is list:
            return [self._plain(item, depth + 1) for item in value]
        if kind is dict and TAG not in value and all(type(key) is str for key in value):
            return {key: self._plain(item, depth + 1) for key, item in value.items()}
        return {TAG: [kind.__name__, self._content(value, kind, depth + 1)]}

    def _content(self, value: Any, kind: type, depth: int) -> Any:
        if kind in (tuple, set, frozenset):
            return [self._plain(item, depth) for item in value]
        if kind is dict:
            return [[self._plain(key, depth), self._plain(item, depth)] for key, item in value.items()]
        if kind in (bytes, bytearray):
            return base64.b64encode(value).decode()
        if kind is uuid.UUID and type(value.int) is int and 0 <= value.int < 1 << 128:
            return value.hex
        if kind is decimal.Decimal:
            return str(value)
        if kind is datetime.timedelta:
            return [value.days, value.seconds, value.microseconds]
        if kind is datetime.timezone:
            return [self._plain(value.utcoffset(None), depth), value.tzname(None)]
        if kind is datetime.date:
            return [value.year, value.month, value.day]
        if kind is datetime.time or kind is datetime.datetime:
            date = [value.year, value.month, value.day] if kind is datetime.datetime else []
            clock = [value.hour, value.minute, value.second, value.microsecond]
            return [*date, *clock, self._plain(value.tzinfo, depth), value.fold]
        raise RefusedError(f"metadata hold a {kind.__name__[:40]}; {_SAVE_AGAIN}")

    def _number_of(self, text: str) -> int:
        known = self._long.get(id(text))
        if known is None:
            known = self._long[id(text)] = self._lines, text
            self._new.append(text)
            self._lines += 1
        return known[0]
