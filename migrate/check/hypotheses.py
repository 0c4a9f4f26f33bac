"""The ways in which the same texts may have been embedded by the same model: what `diagnose` tries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from migrate.check.model import Cause
from migrate.documents import Document
from migrate.embedders import known_models
from migrate.embedders.base import Embedder
from migrate.vectors import Vectors

_FURTHER_PREFIXES: Final = (
    "search_document: ",
    "search_query: ",
    "title: none | text: ",
    "task: search result | query: ",
)
"""Of models that are not in the registry: nomic-embed-text, embeddinggemma."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A way of embedding. `meaning` completes the sentence "the documents were embedded ..."."""

    cause: Cause
    meaning: str
    embed: Callable[[Sequence[Document]], Vectors]


def hypotheses(embedder: Embedder, documents: Sequence[Document], *, texts_may_differ: bool) -> Iterator[Hypothesis]:
    """Every other way that can matter to these documents, the most usual mistakes first; set up when asked for.

    A prefix or another form of the text moves a vector a little, so where vectors are at chance, they are left out.
    """
    if texts_may_differ:
        yield from _prefixes(embedder)
        for meaning, change in _FORMS:
            if any(change(document) != document.text for document in documents):
                yield Hypothesis(Cause.TEXT_FORM, meaning, _changed(embedder, change))
    causes = {"pooling": Cause.POOLING, "length": Cause.LENGTH}
    longest = max(len(document.text) for document in documents)
    for variant in embedder.variants():
        if longest >= variant.fewest_characters:
            yield Hypothesis(causes[variant.kind], variant.meaning, variant.embed)


def _prefixes(embedder: Embedder) -> Iterator[Hypothesis]:
    identity = embedder.identity
    own, query = identity.document_prefix, identity.query_prefix
    tried = {own}
    for prefix, cause, meaning in (
        ("", Cause.MISSING_PREFIX, f"without the prefix {own!r}"),
        (own + own, Cause.DOUBLED_PREFIX, f"with the prefix {own!r} twice"),
        (query, Cause.QUERY_PREFIX, f"with {query!r}, the prefix of queries"),
        *((other, Cause.OTHER_PREFIX, f"with the prefix {other!r}") for other in _usual_prefixes()),
    ):
        other = None if prefix in tried else embedder.with_prefixes(prefix, query)
        if other is not None:
            yield Hypothesis(cause, meaning, other.embed_documents)
        tried.add(prefix)


def _usual_prefixes() -> list[str]:
    known = [prefix for facts in known_models() for prefix in (facts.document_prefix, facts.query_prefix)]
    return list(dict.fromkeys([*filter(None, known), *_FURTHER_PREFIXES]))


def _changed(embedder: Embedder, change: Callable[[Document], str]) -> Callable[[Sequence[Document]], Vectors]:
    return lambda documents: embedder.embed_documents([replace(doc, text=change(doc)) for doc in documents])


def _titled(separator: str) -> Callable[[Document], str]:
    def change(document: Document) -> str:
        title = document.metadata.get("title")
        return f"{title}{separator}{document.text}" if title else document.text

    return change


_FORMS: Final[tuple[tuple[str, Callable[[Document], str]], ...]] = (
    ("with line breaks replaced by spaces", lambda document: document.text.replace("\n", " ")),
    ("with white space squeezed", lambda document: " ".join(document.text.split())),
    ("with the title and a space before", _titled(" ")),
    ("with the title and a line break before", _titled("\n")),
    ("in lower case", lambda document: document.text.lower()),
)
