"""The corpus of the demo: docstrings of the standard library, and two models' vectors, which come with the package.

A document is a module, class or function: its qualified name and the body of its docstring. A query is the first line
of the docstring, which was removed from the document; that document alone is relevant to it. The texts are those of
one Python version, so that they are the same everywhere. The vectors are of most documents, and of some of the
queries. `benchmarks/demo_store.py` has made all of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from migrate.errors import UsageError
from migrate.vectors import Document, Query

_QUERY = "q:"
FOLDER = Path(__file__).with_name("docstrings")
TEXTS = "docstrings.jsonl"
SMALL = "all-MiniLM-L6-v2"
LARGE = "all-mpnet-base-v2"
"""The models whose vectors come with the package."""


def vectors_of(model: str) -> Path:
    """Return the file with a model's vectors, as `file:` reads it."""
    return FOLDER / f"{model}.npz"


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring: the qualified name of what it is of, its first line, and all below that."""

    name: str
    summary: str
    body: str


@dataclass(frozen=True, slots=True)
class DemoSet:
    """A BEIR set in memory: the query `q:ID` is answered by the document ID."""

    documents: tuple[Document, ...]
    queries: tuple[Query, ...]

    @property
    def qrels(self) -> Mapping[str, Mapping[str, int]]:
        """query_id -> doc_id -> 1."""
        return {query.id: {query.id.removeprefix(_QUERY): 1} for query in self.queries}


def as_beir(docstrings: Iterable[Docstring]) -> DemoSet:
    """Return documents and queries of docstrings, in the same order."""
    docstrings = list(docstrings)
    return DemoSet(
        documents=tuple(Document(each.name, f"{each.name}\n{each.body}") for each in docstrings),
        queries=tuple(Query(f"{_QUERY}{each.name}", each.summary) for each in docstrings),
    )


def stdlib_beir(*, max_docs: int | None = None, seed: int = 0, with_vectors: bool = False) -> DemoSet:
    """Return documents and queries from the docstrings that come with the package.

    At most `max_docs` documents, 1 or more, are drawn by the seed; they keep the order of their names. `with_vectors`
    takes only what the package has vectors of.
    """
    if max_docs is not None and max_docs < 1:
        raise UsageError(f"max_docs: {max_docs} is too few; give at least 1")
    lines = (FOLDER / TEXTS).read_text(encoding="utf-8").splitlines()
    docstrings = [Docstring(**json.loads(line)) for line in lines]
    query_ids = {f"{_QUERY}{docstring.name}" for docstring in docstrings}
    if with_vectors:
        with np.load(vectors_of(SMALL)) as arrays:
            embedded, query_ids = (set(arrays[name].tolist()) for name in ("doc_ids", "query_ids"))
        docstrings = [docstring for docstring in docstrings if docstring.name in embedded]
    if max_docs is None:
        size = len(docstrings)
    else:
        size = min(max_docs, len(docstrings))
    drawn = np.random.default_rng(seed).choice(len(docstrings), size=size, replace=False)
    whole = as_beir(docstrings[row] for row in sorted(drawn))
    return replace(whole, queries=tuple(query for query in whole.queries if query.id in query_ids))
