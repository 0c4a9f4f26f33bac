"""Pickles that no `pickle.dumps` makes, put together instruction by instruction, and what is wrong with each.

Each is a LangChain docstore of one document with something hostile in its metadata, unless its name says otherwise. In
a reader that believes them they crash the process, take all memory, or do not end.
"""

from __future__ import annotations

import decimal
import pickle
import struct
from typing import Final

DEEP: Final = 200_000
DOUBLINGS: Final = 60


def text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(raw)) + raw


def name(module: str, qualified: str) -> bytes:
    return text(module) + text(qualified) + b"\x93"


def docstore(metadata: bytes, *, doc_id: bytes = b"", row_id: bytes = b"", page: bytes = b"") -> bytes:
    """A pickle in which the instructions `metadata` push the metadata of the only document."""
    fields = b"}(" + text("page_content") + (page or text("text")) + text("metadata") + metadata + b"u"
    state = b"}(" + text("__dict__") + fields + text("__pydantic_fields_set__") + b"\x8f" + b"u"
    document = name("langchain_core.documents.base", "Document") + b")\x81" + state + b"b"
    documents = b"}(" + (doc_id or text("a")) + document + b"u"
    store = name("langchain_community.docstore.in_memory", "InMemoryDocstore") + b")\x81"
    store += b"}(" + text("_dict") + documents + b"ub"
    return b"\x80\x04" + store + b"}(K\x00" + (row_id or text("a")) + b"u\x86."


def under(value: bytes) -> bytes:
    return b"}(" + text("field") + value + b"u"


def put(place: int) -> bytes:
    return b"r" + struct.pack("<I", place)


def get(place: int) -> bytes:
    return b"j" + struct.pack("<I", place)


def doubled(first: bytes, join: bytes) -> bytes:
    """A value that holds the same value twice, which holds the same value twice ..."""
    return first + put(0) + b"".join(get(n) + join + put(n + 1) for n in range(DOUBLINGS))


def doubled_lists() -> bytes:
    return b"(]" + put(0) + b"".join(b"]" + put(n + 1) + b"(" + get(n) * 2 + b"e" for n in range(DOUBLINGS)) + b"t"


def laughs() -> bytes:
    return b"](" + text("ha" * 500_000) + put(0) + get(0) * 1_000_000 + b"e"


def colliding_numbers() -> bytes:
    """Keys that all have the hash 0."""
    modulus = (1 << 61) - 1
    numbers = (pickle.encode_long(n * modulus) for n in range(1, 60_000))
    return b"}(" + b"".join(b"\x8a" + bytes([len(raw)]) + raw + b"N" for raw in numbers) + b"u"


def long(size: int) -> bytes:
    return b"\x8b" + struct.pack("<I", size) + b"\x7f" * size


NESTED: Final = "nested more than 100 deep, or hold themselves"
SHARED: Final = "refer to their own parts so often that they have no end"
CRASH: Final = "its process ended by SIGSEGV"
ENDLESS: Final = "it takes longer than its size explains"
MEMORY: Final = "it asks for more memory than its size explains"
NO_DOCUMENT: Final = "none of the vectors has a document"
FOREIGN: Final = "the pickle holds a Fields instead of a docstore of LangChain"

HOSTILE: Final[dict[str, tuple[bytes, str]]] = {
    "deep lists": (docstore(under(b"]" * DEEP + b"a" * (DEEP - 1))), NESTED),
    "deep tuples": (docstore(under(b"N" + b"\x85" * DEEP)), NESTED),
    "deep dictionaries": (docstore(under((b"}" + text("k")) * DEEP + b"N" + b"s" * DEEP)), NESTED),
    "a deep tuple as a key": (docstore(b"}N" + b"\x85" * DEEP + b"Ns"), CRASH),
    "a deep frozen set": (docstore(under(b"(" * DEEP + b"\x91" * DEEP)), NESTED),
    "a deep tuple as an id": (docstore(b"}", doc_id=b"N" + b"\x85" * DEEP), CRASH),
    "a deep tuple as a row's id": (docstore(b"}", row_id=b"N" + b"\x85" * DEEP), NO_DOCUMENT),
    "doubled tuples as a key": (docstore(b"}" + doubled(b"N\x85", b"\x86") + b"Ns"), ENDLESS),
    "doubled tuples in a set": (docstore(under(b"\x8f(" + doubled(b"N\x85", b"\x86") + b"\x90")), ENDLESS),
    "doubled tuples as an id": (docstore(b"}", doc_id=doubled(b"N\x85", b"\x86")), ENDLESS),
    "doubled tuples as a row's id": (docstore(b"}", row_id=doubled(b"N\x85", b"\x86")), NO_DOCUMENT),
    "doubled tuples as a value": (docstore(under(doubled(b"N\x85", b"\x86"))), SHARED),
    "doubled tuples as a text": (docstore(b"}", page=doubled(b"N\x85", b"\x86")), "lacks a text"),
    "doubled lists": (docstore(under(doubled_lists())), SHARED),
    "a million texts of a million bytes": (docstore(under(laughs())), SHARED),
    "doubled arguments of a call": (
        docstore(under(name("decimal", "Decimal") + doubled(b"N\x85", b"\x86") + b"R")), "must be a context"),
    "a list that holds itself": (docstore(under(b"]" + put(0) + get(0) + b"a")), NESTED),
    "a dictionary that holds itself": (docstore(b"}" + put(0) + text("me") + get(0) + b"s"), NESTED),
    "a tuple that holds itself": (docstore(under(b"](" + b"]" + put(0) + get(0) + b"\x85a" + b"e")), NESTED),
    "a document in itself": (
        b"\x80\x04" + name("langchain_core.documents.base", "Document") + b")\x81" + put(0)
        + b"}" + text("__dict__") + get(0) + b"sb}\x86.", FOREIGN),
    "documents in documents": (
        b"\x80\x04" + (name("langchain_core.documents.base", "Document") + b")\x81") * 5 + b"}" + b"b" * 5 + b"}\x86.",
        FOREIGN),
    "numbers of one hash": (docstore(colliding_numbers()), ENDLESS),
    "an integer of 5,000 digits": (docstore(under(long(2080))), "4300 digits"),
    "an integer of a million digits": (docstore(under(long(420_000))), "4300 digits"),
    "an integer of a million digits as an id": (docstore(b"}", doc_id=long(420_000)), "4300 digits"),
    "a number that claims 2 GB": (docstore(under(b"\x8b\xff\xff\xff\x7f")), MEMORY),
    "a text that claims 2^62 bytes": (docstore(under(b"\x8d" + struct.pack("<Q", 1 << 62))), MEMORY),
    "bytes that claim 2^40 bytes": (docstore(under(b"\x96" + struct.pack("<Q", 1 << 40))), MEMORY),
    "a frame that claims 2^40 bytes": (docstore(under(b"\x95" + struct.pack("<Q", 1 << 40) + b"N")), MEMORY),
    "a place in the memo beyond 2^31": (docstore(under(b"N" + put((1 << 32) - 1))), MEMORY),
    "an extension": (docstore(under(b"\x82\x01")), "unregistered extension code"),
    "an extension by four bytes": (docstore(under(b"\x84\x01\x01\x01\x01")), "unregistered extension code"),
    "refers to an object outside": (docstore(under(b"Pid\n")), "refers to an object outside of it"),
    "a buffer from outside": (docstore(under(b"\x97")), "out-of-band data"),
    "a duplicate": (docstore(under(b"]2a")), NESTED),
    "a call of a text": (docstore(under(text("os.system") + b")R")), "not callable"),
    "a state for a class": (docstore(under(name("uuid", "UUID") + b"}b")), "missing 1 required"),
    "a UUID that is a text": (
        docstore(under(name("uuid", "UUID") + b")\x81}" + text("int") + text("x") + b"sb")), "metadata hold a UUID"),
    "a name within a class": (
        docstore(under(name("datetime", "datetime.now") + b")R")), "the class datetime.datetime.now"),
    "a class with a long name": (docstore(under(name("x" * 1_000_000, "y"))), "the class xxx"),
    "half a character in a text": (docstore(b"}", page=text("a\ud800")), "half a character"),
    "half a character in the metadata": (docstore(under(text("\udfff"))), "half a character"),
}  # fmt: skip

ODD: Final[dict[str, tuple[bytes, object]]] = {
    "a list that grows later": (docstore(under(b"](]" + put(0) + get(0) + b"Na" + b"e")), [[None], [None]]),
    "a place in the memo that fits the file": (docstore(under(b"N" + put(100))), None),
    "a value that is taken off": (docstore(under(b"]N0")), []),
    "a call by keywords": (docstore(under(name("decimal", "Decimal") + b")}\x92")), decimal.Decimal(0)),
}
"""No pickler writes these, but they do no harm: what the metadata field holds."""
