"""Reads the docstore of a LangChain FAISS folder from its pickle without executing anything.

The pickle is a tuple of a docstore {id: document} and a dictionary {row: id}. It is loaded whole, as LangChain itself
does; its bytes are given back as they are used, and pickles that are the same are held once, as those of a store and
its translation are. LangChain is never imported: a pickle names classes by module and name, and each name is mapped to
a stub that can do nothing, or to one of a few harmless classes.
"""

from __future__ import annotations

import datetime
import decimal
import gc
import hashlib
import mmap
import os
import pickle
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, Self
from weakref import WeakValueDictionary

from migrate.errors import StoreError
from migrate.files import sha256_file
from migrate.stores.binary_reader import malformed, read_errors, shown
from migrate.stores.documents.pickle_scan import scan_pickle

CURRENT_DOCSTORE: Final = ("langchain_community.docstore.in_memory", "InMemoryDocstore")
CURRENT_DOCUMENT: Final = ("langchain_core.documents.base", "Document")

_LONGEST_REASON = 200
_USED_BYTES: Final = 1 << 22
_STATE_KEY_OF_PYDANTIC_2 = "__pydantic_fields_set__"


class DocstoreStub:
    """Stands for `InMemoryDocstore`; holds the state it was pickled with."""

    __slots__ = ("state",)

    state: Any

    def __new__(cls) -> Self:
        """Unpickling calls no `__init__`."""
        made = super().__new__(cls)
        made.state = None
        return made

    def __getstate__(self) -> Any:
        return self.state

    def __setstate__(self, state: Any) -> None:
        self.state = state


class DocumentStub(DocstoreStub):
    """Stands for `Document`; holds the state it was pickled with."""

    __slots__ = ()


class UuidStub(uuid.UUID):
    """Stands for `UUID` until it gets its state, and is one from then on: unpickling itself takes any value for one."""

    __slots__ = ()

    def __new__(cls) -> Self:
        """Unpickling calls no `__init__`."""
        made = super().__new__(cls)
        object.__setattr__(made, "int", 0)
        object.__setattr__(made, "is_safe", uuid.SafeUUID.unknown)
        return made

    def __setstate__(self, state: dict[str, Any]) -> None:
        number = state["int"]
        if type(number) is not int or not 0 <= number < 1 << 128:
            raise ValueError("a UUID that is no number of 128 bits")
        object.__setattr__(self, "int", number)
        object.__setattr__(self, "__class__", uuid.UUID)


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
        (module, "Document"): DocumentStub
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
    ("uuid", "UUID"): UuidStub,
}
"""Immutable values that metadata holds; making one runs no code but its own."""

CURRENT_NAMES: Final[dict[type, tuple[str, str]]] = {
    DocstoreStub: CURRENT_DOCSTORE,
    DocumentStub: CURRENT_DOCUMENT,
    **{kind: name for name, kind in HARMLESS.items() if kind is not UuidStub},
    uuid.UUID: ("uuid", "UUID"),
}
"""What each class is called in a pickle that the present LangChain opens."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Docstore:
    """The content of a LangChain pickle.

    `documents` maps ids to the fields of documents (`page_content`, `metadata` ...), `fields_set` to the names of those
    that were given; `row_ids` maps rows to ids. `layout` is for a person, `is_current` says whether the present
    LangChain opens the pickle as it is.
    """

    documents: Mapping[str, Mapping[str, Any]]
    fields_set: Mapping[str, frozenset[str]]
    row_ids: Mapping[int, str]
    layout: str
    is_current: bool


class _UsedUp:
    """A copy of some bytes to read once; memory that has been read is given back every few megabytes."""

    def __init__(self, content: bytes) -> None:
        self._memory = mmap.mmap(-1, len(content), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.write(content)
        self._memory.seek(0)
        self._given_back = 0

    def read(self, size: int) -> bytes:
        """The next `size` bytes."""
        data = self._memory.read(size)
        used = self._memory.tell() - self._given_back
        if used >= _USED_BYTES:
            used -= used % mmap.PAGESIZE
            self._memory.madvise(mmap.MADV_DONTNEED, self._given_back, used)
            self._given_back += used
        return data

    def readline(self) -> bytes:
        """Up to the end of the line."""
        return self._memory.readline()


class _DocstoreUnpickler(pickle.Unpickler):
    """Knows the classes of docstores, as stubs, and nothing else."""

    def __init__(self, content: _UsedUp, path: Path) -> None:
        super().__init__(content)
        self._path = path
        self.stubs_seen: set[tuple[str, str]] = set()

    def find_class(self, module: str, name: str) -> type:
        stub = STUBS.get((module, name))
        if stub is not None:
            self.stubs_seen.add((module, name))
            return stub
        if (module, name) in HARMLESS:
            return HARMLESS[module, name]
        full_name = f"{module}.{name}"[:_LONGEST_REASON]
        raise StoreError(
            f"{self._path}: the pickle holds the class {full_name}, which is no part of a LangChain "
            "docstore; nothing was executed: if you trust the file, save the store again with plain "
            "metadata (text, numbers, lists, dates)"
        )

    def persistent_load(self, pid: Any) -> NoReturn:
        raise StoreError(
            f"{self._path}: the pickle refers to an object outside of it; save the store again with plain metadata"
        )


def read_docstore(path: Path) -> Docstore:
    """Read a LangChain pickle; one that is in use already, byte for byte, is not read again."""
    if len(_docstores) and (in_use := _docstores.get(_sha256(path))) is not None:
        return in_use
    with _without_gc():
        content = _read_content(path)
        if problem := scan_pickle(content, _memory_bytes()):
            raise malformed(path, "a pickle written by LangChain", problem)
        digest = hashlib.sha256(content).hexdigest()
        unpickler = _DocstoreUnpickler(_UsedUp(content), path)
        del content
        loaded, classes = _load(unpickler, path), unpickler.stubs_seen
        del unpickler  # which remembers every value
        docstore = _docstores[digest] = _interpret(loaded, classes, path)
        return docstore


def _sha256(path: Path) -> str:
    with read_errors(path):
        return sha256_file(path)


_docstores: WeakValueDictionary[str, Docstore] = WeakValueDictionary()
"""Those in use, by the SHA-256 of their pickles."""


@contextmanager
def _without_gc() -> Iterator[None]:
    """Millions of new values, and none of them garbage: looking for it over and over takes a fifth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _load(unpickler: _DocstoreUnpickler, path: Path) -> Any:
    try:
        return unpickler.load()
    except (StoreError, MemoryError):
        raise
    # What a hostile pickle can raise has no common base below Exception; no foreign error may leave.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:_LONGEST_REASON]
        raise malformed(path, "a pickle written by LangChain", f"one that does not load ({reason})") from error


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _read_content(path: Path) -> bytes:
    memory = _memory_bytes()
    with read_errors(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > memory // 2:
            advice = "use a machine with more memory"
            raise malformed(path, f"a pickle of at most half the memory ({memory} bytes)", f"{size} bytes", advice)
        return file.read()


def _interpret(loaded: Any, classes: set[tuple[str, str]], path: Path) -> Docstore:
    expected = "a pickled (docstore, {row: id}) of LangChain"
    if not (isinstance(loaded, tuple) and len(loaded) == 2 and isinstance(loaded[1], dict)):
        raise malformed(path, expected, type(loaded).__name__, "give the folder that FAISS.save_local wrote")
    docstore, row_ids = loaded
    state = docstore.state if type(docstore) is DocstoreStub else None
    documents = state.get("_dict") if isinstance(state, dict) else None
    if not isinstance(documents, dict):
        raise malformed(path, expected, f"a {type(docstore).__name__}", "give the folder that FAISS.save_local wrote")
    fields_set: dict[str, frozenset[str]] = {}
    names: dict[frozenset[str], frozenset[str]] = {}  # there are a few
    is_pydantic_2 = True
    for doc_id, document in documents.items():
        # in its place, so that what is not needed goes at once
        documents[_text_id(doc_id, path)] = _document_fields(doc_id, document, path)
        is_pydantic_2 = is_pydantic_2 and _STATE_KEY_OF_PYDANTIC_2 in document.state
        given = _fields_set(document.state)
        fields_set[doc_id] = names.setdefault(given, given)
    modules = " + ".join(sorted(f"{module}.{name}" for module, name in classes))
    is_current = is_pydantic_2 and classes <= {CURRENT_DOCSTORE, CURRENT_DOCUMENT}
    layout = f"{modules} (pydantic {2 if is_pydantic_2 else 1})"
    return Docstore(documents, fields_set, row_ids, layout, is_current)


def _text_id(doc_id: Any, path: Path) -> str:
    if not isinstance(doc_id, str):
        raise malformed(path, "ids that are text", shown(doc_id), "save the store again with text ids")
    try:
        doc_id.encode()
    except UnicodeEncodeError as error:
        half = f"half a character in {shown(doc_id)}"
        raise malformed(path, "ids that are text", half, "give it another id") from error
    return doc_id


def _document_fields(doc_id: str, document: Any, path: Path) -> Mapping[str, Any]:
    state = document.state if type(document) is DocumentStub else None
    fields = state.get("__dict__") if isinstance(state, dict) else None
    if not isinstance(fields, dict):
        raise malformed(path, f"a document for id {shown(doc_id)}", type(document).__name__, "save the store again")
    if not isinstance(fields.get("page_content"), str) or not isinstance(fields.get("metadata", {}), dict):
        raise malformed(path, f"a text and metadata for id {shown(doc_id)}", "something else", "save the store again")
    return fields


def _fields_set(state: Mapping[str, Any]) -> frozenset[str]:
    names = state.get(_STATE_KEY_OF_PYDANTIC_2, state.get("__fields_set__"))
    field_names = {"id", "metadata", "page_content"}
    return frozenset(field_names & names) if isinstance(names, set) else frozenset(field_names - {"id"})
