"""Loads the docstore of a LangChain FAISS folder from its pickle. Runs in a guarded process only, see `child.py`.

A pickle names classes by module and name. Each name of a docstore is mapped to a stub that can do nothing, or to one of
a few harmless classes; any other is refused, so nothing is imported or executed. Scalars of NumPy, which loaders of
data frames leave in metadata, are read by a function here, and become plain values of Python. What else a hostile
pickle can do, such as take memory and time or crash the interpreter, the limits of the process stop.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import gc
import json
import pathlib
import pickle
import re
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
_LONG_TEXT: Final = 1 << 10
"""Characters from which on a text is sent once, however many documents have it."""
_UUIDS: Final = 1 << 128
# Arbitrary: beyond what the file itself explains, so that metadata which share their parts may be written out.
_SPARE_BYTES: Final = 1 << 28
_SPARE_VALUES: Final = 1 << 18
_ROWS_LISTED: Final = 10
"""Rows that a message lists."""

_SAVE_AGAIN: Final = "save the store again with plain metadata (text, numbers, lists, dates, paths)"


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

    __slots__ = ("id", "is_current", "metadata", "text")

    text: Any
    metadata: Any
    id: Any
    is_current: bool
    """True if pydantic 2 wrote the document."""

    def __new__(cls) -> Self:
        """Set the fields of a document without a state: unpickling calls no `__init__`."""
        document = super().__new__(cls)
        document.text = document.metadata = document.id = None
        document.is_current = False
        return document

    def __setstate__(self, state: Any) -> None:
        if type(state) is not dict:
            fields = None
        else:
            fields = state.get("__dict__")
        if type(fields) is not dict:
            return
        self.text = fields.get("page_content")
        self.metadata = fields.get("metadata", {})
        self.id = fields.get("id")
        self.is_current = "__pydantic_fields_set__" in state
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
    ("pathlib", "PosixPath"): pathlib.PosixPath,
    ("pathlib", "PurePosixPath"): pathlib.PurePosixPath,
    ("pathlib", "PureWindowsPath"): pathlib.PureWindowsPath,
}
"""Immutable values that metadata hold; making one runs no code but its own."""

_OTHER_NAMES: Final[dict[tuple[str, str], type]] = {
    # there is no such object on another system; it equals this one
    ("pathlib", "WindowsPath"): pathlib.PureWindowsPath,
    # as Python 3.13 names them
    ("pathlib._local", "PosixPath"): pathlib.PosixPath,
    ("pathlib._local", "PurePosixPath"): pathlib.PurePosixPath,
    ("pathlib._local", "PureWindowsPath"): pathlib.PureWindowsPath,
    ("pathlib._local", "WindowsPath"): pathlib.PureWindowsPath,
}
"""Further names of harmless values; those that are written have the names of `HARMLESS`."""


class NumpyType:
    """Stands for `numpy.dtype`; holds its code, such as `f4`, and its byte order."""

    __slots__ = ("code", "order")

    code: Any
    order: Any

    def __new__(cls, code: Any = None, *_: Any) -> Self:
        """Take the code; `align` and `copy` come after it."""
        stub = super().__new__(cls)
        stub.code = code
        stub.order = "="
        return stub

    def __setstate__(self, state: Any) -> None:
        if type(state) is tuple and len(state) > 1:
            self.order = state[1]
        else:
            self.order = None


_CHARACTER_BYTES: Final = 4
_PLAIN_TYPE: Final = re.compile(r"b1|[iu][1248]|f[248]|U[0-9]{1,9}")
"""Types of NumPy whose scalars are plain values of Python: truth values, numbers and texts."""


def numpy_scalar(kind: Any, content: Any = None) -> Any:
    """Return a scalar of NumPy as the plain value of Python that it equals; stands for `numpy.core.multiarray.scalar`.

    Raises a RefusedError where there is no such value.
    """
    is_plain = type(kind) is NumpyType and type(kind.code) is str and _PLAIN_TYPE.fullmatch(kind.code)
    if not is_plain or kind.order not in ("<", ">", "|", "=") or type(content) is not bytes:
        if type(kind) is NumpyType:
            code = kind.code
        else:
            code = kind
        raise RefusedError(f"metadata hold a scalar of NumPy of the type {shown(code)}; {_SAVE_AGAIN}")
    size = int(kind.code[1:]) * (_CHARACTER_BYTES if kind.code.startswith("U") else 1)
    if len(content) != size:
        raise RefusedError(f"a scalar of NumPy has {len(content)} bytes in place of {size}; copy the file again")
    # an array of no bytes has no item
    if not content:
        return ""
    return np.frombuffer(content, f"{kind.order}{kind.code}")[0].item()


_NUMPY: Final[dict[tuple[str, str], Any]] = {
    ("numpy", "dtype"): NumpyType,
    ("numpy.core.multiarray", "scalar"): numpy_scalar,
    ("numpy._core.multiarray", "scalar"): numpy_scalar,
}


class _DocstoreUnpickler(pickle.Unpickler):
    """Knows the classes of docstores, as stubs, and nothing else."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.stubs_seen: set[tuple[str, str]] = set()

    def find_class(self, module: str, name: str) -> Any:
        stub = _STUBS.get((module, name))
        if stub is not None:
            self.stubs_seen.add((module, name))
            return stub
        for table in (HARMLESS, _OTHER_NAMES, _NUMPY):
            if (module, name) in table:
                return table[module, name]
        raise RefusedError(
            f"the pickle holds the class {f'{module}.{name}'[:200]}, which is not part of a LangChain docstore; "
            f"nothing was executed: if you trust the file, {_SAVE_AGAIN}"
        )

    def persistent_load(self, pid: Any) -> Any:
        raise RefusedError(f"the pickle refers to an object outside of it; {_SAVE_AGAIN}")


def unpickle(job: dict[str, Any], pipe: BinaryIO) -> None:
    """Send facts of a docstore, and its documents with their places: those of the rows in order, then those of none."""
    path = Path(job["path"])
    count = job["count"]
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
    is_pydantic_2 = all(document.is_current for document in documents.values())
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
        if type(docstore) is not DocstoreStub:
            state = None
        else:
            state = docstore.state
        if type(state) is not dict:
            documents = None
        else:
            documents = state.get("_dict")
        if type(documents) is dict:
            return documents, row_ids
        type_name = f"a {type(docstore).__name__}"
    raise RefusedError(
        f"the pickle holds {type_name} instead of a docstore of LangChain; give the folder of FAISS.save_local, or, if "
        "the texts are in a pickle of your own, write them as JSON beside the index and move the pickle elsewhere"
    )


def _ids_of_rows(documents: dict[Any, Any], row_ids: dict[Any, Any], count: int) -> list[str]:
    for doc_id in documents:
        if type(doc_id) is not str:
            raise RefusedError(f"an id is {shown(doc_id)}, not text; save the store again with text ids")
        if doc_id.encode(errors="replace").decode() != doc_id:
            raise RefusedError(f"the id {shown(doc_id)} holds half a character; give the document another id")
    if len(row_ids) > count or not all(type(row) is int and 0 <= row < count for row in row_ids):
        raise RefusedError(
            f"its {len(row_ids)} ids are not those of the rows 0 to {count - 1} of the index; the pickle and the index "
            "are not of the same store"
        )
    ids: list[Any] = [row_ids.get(row) for row in range(count)]
    without = [row for row, doc_id in enumerate(ids) if not (type(doc_id) is str and doc_id in documents)]
    if len(without) == count and count:
        raise RefusedError("none of the vectors has a document; the pickle and the index are not of the same store")
    if without:
        raise RefusedError(_rows_without_document(without, count))
    if repetitions := count - len(set(ids)):
        raise RefusedError(f"ids are repeated ({repetitions} repetitions); save the store again with unique ids")
    return [row_ids[row] for row in range(count)]


def _rows_without_document(rows: list[int], count: int) -> str:
    """Return the message for vectors whose documents are not there, with the statements that drop these vectors."""
    listed = ", ".join(map(str, rows[:_ROWS_LISTED])) + (", ..." if len(rows) > _ROWS_LISTED else "")
    return (
        f"{len(rows)} of {count} vectors have no document (rows {listed}), as where documents were deleted from the "
        "docstore alone; open the store with LangChain's FAISS.load_local, and drop these vectors: "
        "kept = {row: i for row, i in store.index_to_docstore_id.items() if i in store.docstore._dict}; "
        "store.index.remove_ids(numpy.setdiff1d(range(store.index.ntotal), list(kept))); "
        "store.index_to_docstore_id = dict(enumerate(kept[row] for row in sorted(kept))); store.save_local(FOLDER)"
    )


class _Sender:
    """Sends documents as JSON, one after another.

    A document is its id, and a list of its text, its metadata, and its field `id`.
    A long text in metadata is sent alone before the first document that has it, and documents have its place: many may
    share it. `places` are the first byte of each document, the size of its id, and that of its list.
    """

    def __init__(self, pipe: BinaryIO, file_bytes: int) -> None:
        self._pipe = pipe
        # of the metadata of a document, with all that they share written out
        self._most_bytes = _SPARE_BYTES + 8 * file_bytes
        self._most_values = _SPARE_VALUES + file_bytes
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
            if type(fields.id) is not str:
                own_id = None
            else:
                own_id = fields.id
            start, id_size = self._put(doc_id)
            _, size = self._put([fields.text, metadata, own_id])
            self.places.extend((start, id_size, size))
        except UnicodeEncodeError as error:
            raise RefusedError(f"the document {shown(doc_id)} holds half a character; save it again") from error
        except ValueError as error:  # a number of more digits than Python writes
            raise RefusedError(f"the document {shown(doc_id)} cannot be written ({error}); {_SAVE_AGAIN}") from error
        if len(self._waiting) >= _FRAME_BYTES:
            self.send()

    def _put(self, value: Any) -> tuple[int, int]:
        content = json.dumps(value, ensure_ascii=False).encode()
        start = self._size
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
        if kind is str and len(value) >= _LONG_TEXT:
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
        if kind is uuid.UUID and type(value.int) is int and 0 <= value.int < _UUIDS:
            return [value.hex]
        items = value
        # a pickle may have set anything inside a path
        if issubclass(kind, pathlib.PurePath) and all(type(part) is str for part in value.parts):
            items = value.parts
        elif kind in HARMLESS.values() and not issubclass(kind, uuid.UUID | pathlib.PurePath):
            items = value.__reduce_ex__(4)[1]
        elif kind is dict:
            items = value.items()
        elif kind not in (tuple, set, frozenset):
            raise RefusedError(f"metadata hold a {kind.__name__[:40]}; {_SAVE_AGAIN}")
        return [self._plain(item, depth) for item in items]
