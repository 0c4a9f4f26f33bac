"""Queries that are stored documents do not judge, whole or nearly: a text finds itself, however many vectors are wrong.

By words, a copy has a long part of a document, `COPIED` runs of twelve letters, in one go or in pieces, whatever
stands before, between or after them. Or it has `MOST` of a document's runs of four letters, which is what stays where
words are in another order, or a good `PART` of them and little else, where many are gone. Of a short document it has
nearly all, and hardly anything else where that document is as short as what people repeat in a question. Runs that many
documents have in common do not count: they tell none of these from another. Case, accents, punctuation and hyphens make
no difference.

Names, titles and phrases are shorter than that: who types one looks for its document, and judges. But a set in which
many queries have a whole line of a document, or are a piece of one, or have hardly a word that the document lacks, as
lists of its keywords do, was made from documents, as was what is left of a set of copies: nothing is SAFE by these.
`benchmarks/independence.py` prints how far queries of people are from all of it.

By vectors, such a query is many times nearer to its document than to any other. That shows with true vectors alone,
which a pool embeds after its queries were chosen, so that it is a doubt (`migrate.audit.findings`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import replace
from enum import IntEnum
from functools import cache
from typing import Final

import numpy as np

from migrate.audit.bounds import FEWEST_QUERIES
from migrate.audit.experiment import Experiment
from migrate.audit.keys import PARENT_FIELD, Keys, document_keys
from migrate.audit.measures import CUT
from migrate.audit.query_set import QuerySet, only
from migrate.audit.results import TRANSLATED
from migrate.audit.retrieval import search_store
from migrate.audit.verdict import Finding, doubt
from migrate.errors import DocumentQueriesError, InputError
from migrate.search.bm25 import bm25_run
from migrate.search.runs import DEPTH
from migrate.stores.base import Store
from migrate.vectors import Query, folded, query_key

COPIED: Final = 84
"""Different long runs that a copy has from one document: 95 letters in one go, or some 17 words."""

QUOTED: Final = 49
"""And a quoted line: 60 letters in one go, or some 11 words."""

PIECE: Final = 5
"""Words of a query from which on it quotes a document that has all of it in one go: fewer are there by chance."""

FEWEST_WORDS: Final = 6
"""Different words of a query from which on it quotes a document that has `NEARLY_ALL` of them; a title has fewer."""

MOST: Final = 0.5
"""Share of a document's short runs, 0-1, that make a query of it: with 2 of 5 words changed it has more."""

PART: Final = 0.25
"""Share that does where `DRAWN` of the query's own are among them, and `ENOUGH` in all: every second word is left."""

DRAWN: Final = 0.4

ENOUGH: Final = 100

SHORT: Final = 100
"""Short runs of a document, some 20 words, below which `NEARLY_ALL` of them do."""

NEARLY_ALL: Final = 0.9

REPEATED: Final = 40
"""Short runs, some 8 words, up to which people may repeat a document: half of the query's have to be of it then."""

LONG_RUN: Final = 12
"""Letters of a long run, some two words: longer ones are rare where every third word is another."""

SHORT_RUN: Final = 4

_LINE = QUOTED + LONG_RUN - 1
"""Letters of a line."""

_COMMON = 0.1
"""Share of the compared documents above which they have a run in common, if more than `_FEW` have it."""

_FEW = 5

_MANY_COPIES = 0.5
_MANY_QUOTES = 0.1
"""Share of queries above which the set was made from documents; of those of people one in twenty quotes one."""

_WORD = re.compile(r"[^\W_]{4,}")
"""A word that says something: shorter ones are in most documents."""


class Likeness(IntEnum):
    """Likeness of a query to a document."""

    NONE = 0
    QUOTE = 1
    COPY = 2


def without_documents(experiment: Experiment) -> tuple[Experiment, list[Finding]]:
    """Return the experiment without the queries that are documents, ones they are judged by, or find; and findings.

    Where most queries are, or many of the others quote documents, there is a doubt. Sets whose queries are documents by
    design leave each query's own one out of what it finds, and stay as they are.

    Raises DocumentQueriesError: too few queries are left.
    """
    query_set = experiment.query_set
    translated = experiment.stores[TRANSLATED]
    if query_set.exclude_self or not translated.store.info.has_texts:
        return experiment, []
    likeness = _likeness(query_set, translated.store, translated.keys, _own_documents(experiment))
    judging = _judging(query_set, likeness)
    is_judge = np.array([likeness[query.id] < Likeness.COPY for query in query_set.queries])
    judges = judging.queries
    n_quotes = sum(likeness[query.id] == Likeness.QUOTE for query in judges)
    n_copies = len(query_set.queries) - len(judges)
    findings = []
    if n_quotes > _MANY_QUOTES * len(judges):
        findings.append(doubt(_told_of_quotes(n_quotes, len(judges))))
    if not n_copies:
        return experiment, findings
    findings.append(Finding("note", judging.notes[-1]))
    if n_copies > _MANY_COPIES * len(query_set.queries):
        findings.append(doubt(_told_of_copies(n_copies, len(query_set.queries))))
    stores = {
        name: replace(searched, queries=searched.queries[is_judge]) for name, searched in experiment.stores.items()
    }
    return replace(experiment, query_set=judging, stores=stores), findings


def refuse_queries(query_set: QuerySet, store: Store, parent_field: str = PARENT_FIELD) -> None:
    """Make sure, before anything is embedded, that queries can judge a store.

    Some document that they are judged by is in it, and enough of them are no documents: ones they are judged by, or
    find. Of queries without judgements the words say what they find; by vectors they are looked at again later.

    Raises InputError: no judged document is in the store. DocumentQueriesError: too few queries are left.
    """
    keys = document_keys(store, parent_field)
    refuse_unknown(query_set, keys)
    if query_set.exclude_self or not store.info.has_texts:
        return
    if query_set.is_judged:
        documents_of = _judged_documents(query_set)
    else:
        documents_of = _by_words(query_set, store, keys)
    _judging(query_set, _likeness(query_set, store, keys, documents_of))


def refuse_unknown(query_set: QuerySet, keys: Keys) -> None:
    """Make sure that judgements say of some stored document that it is relevant; raises an InputError."""
    if not query_set.is_judged:
        return
    relevant = query_set.relevant
    if not relevant:
        raise InputError(
            f"{query_set.name}: none of the judgements of {len(query_set.qrels or {}):,} queries is above 0; give "
            "judgements by which some document is relevant"
        )
    if not keys.documents.present(relevant):
        example = next(iter(keys.documents.take(range(len(keys.documents))[:1])), "nothing")
        raise InputError(
            f"{query_set.name}: none of the judged documents is in the stores ({min(relevant)!r} is relevant, the "
            f"stores have {example!r}); is it the right BEIR set, and --parent-field the right field?"
        )


def _judged_documents(query_set: QuerySet) -> Callable[[Query], Iterable[str]]:
    """Return what says which documents a query is judged by."""
    return lambda query: query_set.relevant_to(query.id)


def _by_words(query_set: QuerySet, store: Store, keys: Keys) -> Callable[[Query], Iterable[str]]:
    """Return what says which documents a query finds by its words."""
    texts = (document.text for document in store.documents())
    run = bm25_run(texts, query_set.queries, names_of=keys.documents.take)
    return lambda query: run.top(query.id, _depth(query))


def _depth(query: Query) -> int:
    """Return how many of the documents that a query without judgements finds it is compared with."""
    if len(query_key(query.text)) < _LINE:
        return CUT
    # What stands around a part of a document may bring it far down; few queries are as long as a line
    return DEPTH


def _judging(query_set: QuerySet, likeness: Mapping[str, Likeness]) -> QuerySet:
    """Return the query set without copies, with a note of how many those are; the same one where there are none."""
    judges = [query for query in query_set.queries if likeness[query.id] < Likeness.COPY]
    n_copies = len(query_set.queries) - len(judges)
    if not n_copies:
        return query_set
    note = (
        f"{n_copies:,} of {len(query_set.queries):,} queries are a stored document, whole or nearly, which every "
        "model finds; they do not judge"
    )
    judging = only(query_set, judges, note)
    if len(judging.distinct) < FEWEST_QUERIES:
        raise DocumentQueriesError(
            f"INCONCLUSIVE: {query_set.name}: {note}, {len(judging.distinct)} others are left, and a verdict needs at "
            f"least {FEWEST_QUERIES}: use queries that users ask (--queries FILE or other ones by --judged), or "
            "--queries synthetic, which leaves each query's own document out"
        )
    return judging


def _told_of_copies(n_copies: int, count: int) -> str:
    return (
        f"{n_copies:,} of {count:,} queries are a stored document, whole or nearly, so that the others may be made "
        "from documents too: if users asked these, give them alone"
    )


def _told_of_quotes(n_quotes: int, count: int) -> str:
    return (
        f"{n_quotes:,} of {count:,} queries are a piece of the document that they look for, word for word, or have "
        f"{_LINE} letters or more of it, or hardly a word that it lacks, which every model finds: use queries that "
        "users ask"
    )


def _likeness(
    query_set: QuerySet, store: Store, keys: Keys, documents_of: Callable[[Query], Iterable[str]]
) -> Mapping[str, Likeness]:
    """Return what each query has of one of its documents."""
    queries_of: dict[str, list[str]] = {}
    for query in query_set.queries:
        for document in documents_of(query):
            queries_of.setdefault(document, []).append(query.id)
    rows = keys.documents.all_rows_of(queries_of)
    stored = zip(keys.documents.take(rows), store.documents(rows), strict=True)
    texts = ((document.text, queries_of[name]) for name, document in stored)
    return likeness({query.id: query.text for query in query_set.queries}, texts)


def _own_documents(experiment: Experiment) -> Callable[[Query], Iterable[str]]:
    """Return what says which documents a query can gain by; of a long one without judgements all that it finds."""
    if experiment.query_set.is_judged:
        return _judged_documents(experiment.query_set)
    run = search_store(experiment, TRANSLATED).run
    return lambda query: run.top(query.id, _depth(query))


def likeness(queries: Mapping[str, str], documents: Iterable[tuple[str, Collection[str]]]) -> Mapping[str, Likeness]:
    """Return what each query has of a document, the most of several.

    `queries` are texts by id, `documents` texts with the ids of the queries to compare with each.
    """
    query_letters = {query_id: query_key(text) for query_id, text in queries.items()}
    pieces = {query_id for query_id, text in queries.items() if len(text.split()) >= PIECE}
    query_words = {query_id: words_of(text) for query_id, text in queries.items()}
    compared = []
    document_words = []
    for text, query_ids in documents:
        compared.append((query_key(text), query_ids))
        document_words.append(words_of(text))
    # Queries of less than a line have no long runs to count, and most of what people ask is as short.
    long_runs = {query_id: runs(text, LONG_RUN) for query_id, text in query_letters.items() if len(text) >= _LINE}
    of_any_query = frozenset[str]().union(*long_runs.values())
    shared = [of_any_query] * len(compared)
    # Else the runs of all documents would be cut for nothing
    if of_any_query:
        shared = [runs(text, LONG_RUN) & of_any_query for text, _ in compared]
    common = _common(shared)
    all_short_runs = (runs(text, SHORT_RUN) for text, _ in compared)
    common_in_short = _common([short_runs for short_runs in all_short_runs if len(short_runs) < SHORT])
    common_words = _common(document_words)
    likest = dict.fromkeys(queries, Likeness.NONE)
    # Each query is compared with several documents
    short_runs_of = cache(lambda query_id: runs(query_letters[query_id], SHORT_RUN))
    for (text, query_ids), of_queries, of_document in zip(compared, shared, document_words, strict=True):
        short_runs = runs(text, SHORT_RUN)
        # Runs that many of the compared documents have, such as a header, tell none of them from another
        own_runs = of_queries - common
        for query_id in query_ids:
            n_shared = len(own_runs & long_runs.get(query_id, frozenset()))
            is_long = len(query_letters[query_id]) >= PART * len(short_runs)
            if n_shared >= COPIED or (is_long and _is_nearly(short_runs_of(query_id), short_runs, common_in_short)):
                likest[query_id] = Likeness.COPY
            elif (
                n_shared >= QUOTED
                or (query_id in pieces and query_letters[query_id] in text)
                or _has_nearly_all(query_words[query_id] - common_words, of_document)
            ):
                likest[query_id] = max(likest[query_id], Likeness.QUOTE)
    return likest


def _common(runs_of_documents: Collection[Set[str]]) -> Set[str]:
    """Return the runs, or words, that many documents have."""
    least = max(_COMMON * len(runs_of_documents), _FEW)
    times = Counter(run for runs_of_one in runs_of_documents for run in runs_of_one)
    return frozenset(run for run, n_documents in times.items() if n_documents > least)


def _is_nearly(query: Set[str], document: Set[str], common: Set[str]) -> bool:
    """Return whether a query is nearly a document, both in short runs, whatever their order.

    A short document has to be there with what tells it from others, too: with all but what is `common`.
    """
    n_shared = len(query & document)
    if len(document) >= SHORT:
        is_drawn = n_shared >= max(PART * len(document), DRAWN * len(query), ENOUGH)
        return is_drawn or n_shared >= MOST * len(document)
    if len(document) < REPEATED and n_shared < MOST * len(query):
        return False
    distinctive = document - common
    return n_shared >= NEARLY_ALL * len(document) and len(query & distinctive) >= NEARLY_ALL * len(distinctive)


def _has_nearly_all(query: Set[str], document: Set[str]) -> bool:
    """Return whether a document has nearly all words of a query that has enough of them."""
    return len(query) >= FEWEST_WORDS and len(query & document) >= NEARLY_ALL * len(query)


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text that say something."""
    return frozenset(_WORD.findall(folded(text)))


def runs(text: str, length: int) -> frozenset[str]:
    """Return the runs of so many letters of a text; of a shorter one, itself."""
    return frozenset([text[start : start + length] for start in range(max(len(text) - length + 1, 1))])
