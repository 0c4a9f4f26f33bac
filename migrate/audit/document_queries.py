"""Queries that are stored documents do not judge, whole or nearly: a text finds itself, however many vectors are wrong.

By words, such a query has the document's letters: of a document's runs of four letters it has `MOST`, whatever stands
before or after it, is left out or was changed. Of a short document, which a question may well repeat, it has nearly all
and hardly anything else. A title or a sentence of a document is not the document. `benchmarks/independence.py` prints
how far queries of people are from that.

By vectors, such a query is many times nearer to its document than to any other. That shows with true vectors alone,
which a pool embeds after its queries were chosen, so that it is a doubt (`migrate.audit.findings`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import replace
from typing import Final

import numpy as np

from migrate.audit.query_set import QuerySet, only
from migrate.audit.results import TRANSLATED
from migrate.audit.retrieval import Retriever
from migrate.audit.verdict import FEWEST_QUERIES, Finding
from migrate.errors import InconclusiveError
from migrate.vectors import query_key

MOST: Final = 0.5
"""Share of a document's runs of letters, 0-1, that make a query of it: with 2 of 5 words changed it has more."""

SHORT: Final = 100
"""Runs of letters of a document, some 20 words, below which `NEARLY_ALL` of them do, and half of the query's."""

NEARLY_ALL: Final = 0.9

_RUN = 4
_FIRST = 3
"""Documents of the translated store among which an unjudged query's own would be: it is lost if it is none of them."""


def without_documents(retriever: Retriever) -> Retriever:
    """Return the retriever without the queries that are documents: ones they are judged by, or find first.

    Sets whose queries are documents by design leave each query's own one out of what it finds, and stay as they are.

    Raises InconclusiveError: too few queries are left.
    """
    query_set = retriever.query_set
    if query_set.exclude_self or not retriever.stores[TRANSLATED].info.has_texts:
        return retriever
    copies = _copies(retriever)
    if not copies:
        return retriever
    rows = [row for row, query in enumerate(query_set.queries) if query.id not in copies]
    note = (
        f"{len(copies):,} of {len(query_set.queries):,} queries are a stored document, whole or nearly, which every "
        "model finds; they do not judge"
    )
    judges = only(query_set, [query_set.queries[row] for row in rows], note)
    if len(judges.distinct) < FEWEST_QUERIES:
        raise InconclusiveError(
            f"INCONCLUSIVE: {query_set.name}: {note}, {len(judges.distinct)} others are left, and a verdict needs at "
            f"least {FEWEST_QUERIES}: use queries that users ask (--queries FILE or other ones by --judged), or "
            "--queries synthetic, which leaves each query's own document out"
        )
    vectors = {name: of_queries[np.array(rows)] for name, of_queries in retriever.vectors.items()}
    findings = (*retriever.findings, Finding("note", note))
    return replace(retriever, query_set=judges, vectors=vectors, findings=findings)


def _copies(retriever: Retriever) -> Set[str]:
    """Return the ids of the queries that are one of their documents."""
    query_set, keys, store = retriever.query_set, retriever.keys[TRANSLATED], retriever.stores[TRANSLATED]
    queries_of: dict[str, list[str]] = {}
    for query_id in query_set.query_ids:
        for document in _own_documents(retriever, query_id):
            queries_of.setdefault(document, []).append(query_id)
    letters = {query.id: query_key(query.text) for query in query_set.queries}
    rows = keys.documents.all_rows_of(queries_of)
    copies: set[str] = set()
    for name, stored in zip(keys.documents.take(rows), store.documents(rows), strict=True):
        copies.update(_that_are(query_key(stored.text), queries_of[name], letters))
    return copies


def _own_documents(retriever: Retriever, query_id: str) -> Iterable[str]:
    query_set: QuerySet = retriever.query_set
    if query_set.is_judged:
        return query_set.relevant_to(query_id)
    return retriever.search(TRANSLATED).run.top(query_id, _FIRST)


def _that_are(document: str, query_ids: Iterable[str], letters: dict[str, str]) -> Iterator[str]:
    """Yield the queries that a document is, by the letters of both."""
    of_document = runs(document)
    for query_id in query_ids:
        if len(letters[query_id]) >= MOST * len(of_document) and is_copy(runs(letters[query_id]), of_document):
            yield query_id


def is_copy(query: Set[str], document: Set[str]) -> bool:
    """Return whether a query is a document, whole or nearly, by the runs of letters of both."""
    shared = len(query & document)
    if len(document) < SHORT:
        return shared >= NEARLY_ALL * len(document) and shared >= MOST * len(query)
    return shared >= MOST * len(document)


def runs(letters: str) -> frozenset[str]:
    """Return the runs of four letters of a text, by its letters (`query_key`); of a shorter one, itself."""
    return frozenset(letters[start : start + _RUN] for start in range(max(len(letters) - _RUN + 1, 1)))
