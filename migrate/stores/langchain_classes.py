"""The classes a LangChain docstore is made of, as stand-ins that can do nothing, and the few harmless ones beside them.

LangChain itself is never imported: a pickle names classes by module and name, and these names are all it takes.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any, Final, Self


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


CURRENT_DOCSTORE: Final = ("langchain_community.docstore.in_memory", "InMemoryDocstore")
CURRENT_DOCUMENT: Final = ("langchain_core.documents.base", "Document")

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
