"""Queries made from documents, for whoever has none: a title, or the first sentence.

What a document says of itself is not what users ask: such queries are longer, use the words of the documents, and
each has at least one document that is all about it. They are for want of better ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from migrate.vectors import Document, query_key


@dataclass(frozen=True, slots=True)
class SyntheticQuery:
    """A query for a document, and the part of the document that it is."""

    text: str
    origin: Literal["title", "first sentence"]


def make_queries(documents: Iterable[Document], key: Callable[[Document], str]) -> Iterator[tuple[str, SyntheticQuery]]:
    """Yield a query for each document that has one, no text and no key twice; `key` is what the document is judged as.

    The title in the metadata; where there is none, or another document has it too, the first sentence with some words.

    >>> list(make_queries([Document("d", "Abstract. Green tea lowers blood pressure.")], key=lambda document: "d"))
    [('d', SyntheticQuery(text='Green tea lowers blood pressure.', origin='first sentence'))]
    """
    keys: set[str] = set()
    texts: set[str] = set()
    for document in documents:
        document_key = key(document)
        query = next((candidate for candidate in _candidates(document) if query_key(candidate.text) not in texts), None)
        if query is not None and document_key not in keys:
            keys.add(document_key)
            texts.add(query_key(query.text))
            yield document_key, query


def _candidates(document: Document) -> Iterator[SyntheticQuery]:
    title = _usable([str(document.metadata.get("title") or "")])
    if title is not None:
        yield SyntheticQuery(title, "title")
    # Lines too, as a heading ends without a full stop.
    sentence = _usable(re.split(r"(?<=[.!?])\s+|\n+", document.text))
    if sentence is not None:
        yield SyntheticQuery(sentence, "first sentence")


def _usable(texts: Iterable[str]) -> str | None:
    """Return the first text with enough words, cut after the fifteenth: a question may be no longer."""
    for text in texts:
        words = text.split()
        # Arbitrary: headings such as "Abstract." and names are mostly shorter, and ask nothing.
        if sum(any(map(str.isalpha, word)) for word in words) >= 3:
            return " ".join(words[:15])
    return None
