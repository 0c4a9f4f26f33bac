"""The texts that travel: documents and queries. Reading them from disk is done on the floor above."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


class Text(Protocol):
    """What an embedder needs of a document or a query: an id and a text."""

    @property
    def id(self) -> str:
        """The id, unique among its kind."""

    @property
    def text(self) -> str:
        """The text as it was read, without any model's prefix."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document, or one chunk of one: `id` is the store's own id, kept to the byte."""

    id: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a BEIR set or a query log."""

    id: str
    text: str


def query_key(text: str) -> str:
    r"""What two queries share that ask the same: the text without regard to case and white space.

    >>> query_key("  How  do I ask?\n") == query_key("how do i ask?")
    True
    """
    return " ".join(unicodedata.normalize("NFC", text.casefold()).split())
