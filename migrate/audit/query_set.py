"""The queries of an audit.

Queries are those of a BEIR set, with judgements; those in a file, without; or synthetic ones, made from the store.

Queries that chose documents do not judge: the one rule of `audit` and `run`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrate.audit.bounds import FEWEST_QUERIES, UNGROUPED, Grouping
from migrate.audit.keys import PARENT_FIELD, key_of
from migrate.audit.measures import Qrels, Scores
from migrate.audit.results import AGREEMENT, NDCG
from migrate.datasets.beir import load_beir
from migrate.datasets.download import resolve_beir
from migrate.datasets.records import read_lines, read_query_log
from migrate.datasets.synthetic import make_queries
from migrate.display import counted
from migrate.errors import DatasetError, InconclusiveError, StoreError, UsageError
from migrate.removed import removal
from migrate.selection import random_order
from migrate.selection.choosers import digest_of, is_chooser
from migrate.stores.base import Store
from migrate.vectors import Progress, Query, folded, no_progress, query_key

_NEARLY_AS_MANY = 0.9
"""Share of different values, 0-1, from which on a field is that of each query rather than of some together."""

_FEW_VALUES = 2
"""Values up to which a field groups nothing: all queries would be an observation or two."""

_READ_AT_ONCE = 1_000
"""Documents that are read at a time to make queries from."""

SYNTHETIC_QUERIES = 300
"""Enough for a verdict; `docs/statistics.md` has the power of so many."""


@dataclass(frozen=True)
class QuerySet:
    """Queries, their judgements if there are any, and the name of the set.

    `exclude_self` drops a document with the query's own id from every run, for sets whose queries are their documents.
    `notes` are what a reader of the report should know of the set, `made_from` what synthetic queries are made from;
    it is empty where users asked them.
    `group_field` is the metadata field of a query that says which ones are not independent, besides those that their
    vectors show, None for none; `groups` are the numbers of the groups by query id, once the queries are embedded, and
    `alike` those that vectors alone show (`migrate.audit.query_groups`).

    Queries of one text (`migrate.vectors.query_key`) are one observation, however often they are repeated and
    whatever their judgements: each is answered and measured, and their mean counts once. `distinct` are the first
    query of each text, in the order of all score arrays, `texts` the place of each query's among these, (q,), and
    `relevant` the documents that are relevant to any query.
    """

    queries: Sequence[Query]
    qrels: Qrels | None
    name: str
    exclude_self: bool = False
    notes: tuple[str, ...] = ()
    made_from: str = ""
    group_field: str | None = None
    groups: Mapping[str, int] | None = None
    alike: Mapping[str, int] | None = None
    distinct: tuple[Query, ...] = field(init=False, repr=False, compare=False)
    relevant: frozenset[str] = field(init=False, repr=False, compare=False)
    texts: NDArray[np.int64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Find out which queries share a text, as every score asks for that."""
        position_of: dict[str, int] = {}
        keys = [query_key(query.text) for query in self.queries]
        texts = [position_of.setdefault(key, len(position_of)) for key in keys]
        firsts: dict[int, Query] = {}
        for position, query in zip(texts, self.queries, strict=True):
            firsts.setdefault(position, query)
        object.__setattr__(self, "texts", np.array(texts, dtype=int))
        object.__setattr__(self, "distinct", tuple(firsts.values()))
        relevant = frozenset().union(*(self.relevant_to(query_id) for query_id in self.qrels or {}))
        object.__setattr__(self, "relevant", relevant)

    @property
    def query_ids(self) -> tuple[str, ...]:
        """Ids of all queries."""
        return tuple(query.id for query in self.queries)

    def merged(self, scores: Scores) -> Scores:
        """Return one value for each text, (c,), from one for each query, (q,): the mean of those that share it."""
        if not len(scores):
            return scores
        merged: Scores = np.bincount(self.texts, weights=scores) / np.bincount(self.texts)
        return merged

    def grades(self, query_id: str) -> Mapping[str, int]:
        """Return the judgements of a query, by document."""
        if self.qrels is None:
            return {}
        return self.qrels.get(query_id, {})

    def relevant_to(self, query_id: str) -> set[str]:
        """Return the documents that are relevant to a query."""
        return {doc_id for doc_id, grade in self.grades(query_id).items() if grade > 0}

    @property
    def is_judged(self) -> bool:
        """False where agreement with the full re-embed has to decide, for want of judgements."""
        return self.qrels is not None

    @property
    def measure(self) -> str:
        """The measure that a verdict rests on: nDCG@10, or agreement@10 (`migrate.audit.unjudged`)."""
        if self.is_judged:
            return NDCG
        return AGREEMENT

    @property
    def grouping(self) -> Grouping:
        """The grouping of the distinct texts, (c,), by what is one observation."""
        if self.groups is None:
            return UNGROUPED
        return Grouping(np.array([self.groups[query.id] for query in self.distinct], dtype=np.int64))

    def group_of(self, query: Query) -> str | None:
        """Return what the field that groups queries says of one; None where it says nothing."""
        if self.group_field is None:
            return None
        value = query.metadata.get(self.group_field)
        if value is None or isinstance(value, str):
            return value
        return json.dumps(value, sort_keys=True)


def only(query_set: QuerySet, queries: Sequence[Query], note: str) -> QuerySet:
    """Return the query set with some of its queries, and a note."""
    ids = {query.id for query in queries}
    qrels = query_set.qrels
    if qrels is not None:
        qrels = {query_id: grades for query_id, grades in qrels.items() if query_id in ids}
    return replace(query_set, queries=queries, qrels=qrels, notes=(*query_set.notes, note))


def load_questions(location: str, *, progress: Progress = no_progress) -> QuerySet:
    """Return queries and judgements of a BEIR folder, or of a set by name, which is fetched."""
    if Path(location).is_file():
        raise DatasetError(
            f"{location} is a file, where --judged takes a BEIR folder; {removal('judging by a graded file')}"
        )
    folder, split = split_of(location)
    loaded = load_beir(resolve_beir(folder, progress=progress), split=split)
    if loaded.qrels is None:
        raise DatasetError(
            f"{folder} has no judgements in qrels/{split}.tsv; add them, or give queries without judgements by "
            f"--queries {Path(folder) / 'queries.jsonl'}"
        )
    notes = []
    if loaded.unknown_query_ids:
        notes.append(
            f"{len(loaded.unknown_query_ids):,} judged queries have no text in {loaded.name}; they are left out"
        )
    if loaded.queries_without_relevant:
        notes.append(f"{len(loaded.queries_without_relevant):,} queries have no relevant document; every arm scores 0")
    # Their queries are their documents
    exclude_self = loaded.name in ("arguana", "quora")
    return QuerySet(loaded.queries, loaded.qrels, loaded.name, exclude_self=exclude_self, notes=tuple(notes))


def split_of(location: str, split: str = "test") -> tuple[str, str]:
    """Return a BEIR folder or set, and the split that stands after it, or else the one that is given.

    >>> split_of("msmarco:dev"), split_of("my-beir")
    (('msmarco', 'dev'), ('my-beir', 'test'))
    """
    folder, colon, named = location.rpartition(":")
    # A path may have a colon too
    if colon and named and not Path(location).exists():
        return folder, named
    return location, split


def load_unjudged(path: Path) -> QuerySet:
    """Return queries without judgements, as `migrate.datasets.records.read_query_log` reads them, each text once."""
    if path.is_dir():
        raise DatasetError(f"{path} is a folder, not a file of queries; one in the form of BEIR is for --judged")
    # Read as lines, such a value would be a list of queries like "{" and "["
    first = next((line.strip() for _, line in read_lines(path)), "")
    if first in ("{", "[") or first.startswith("[{"):
        raise DatasetError(f"{path} holds one JSON value; write a query, or a JSON object, on each line")
    queries = read_query_log(path)
    twice = next((query_id for query_id, times in Counter(q.id for q in queries).items() if times > 1), None)
    if twice is not None:
        texts = " and ".join(repr(query.text[:60]) for query in [q for q in queries if q.id == twice][:2])
        raise DatasetError(f"{path}: duplicate query id {twice!r} for {texts}; rename one")
    query_set = QuerySet(queries, None, path.name)
    if len(query_set.distinct) < FEWEST_QUERIES:
        raise InconclusiveError(
            f"INCONCLUSIVE: {path} has {len(query_set.distinct):,} different queries, and a verdict needs "
            f"{FEWEST_QUERIES}; add some, or make them from the documents with --queries synthetic"
        )
    return query_set


def synthetic_queries(
    store: Store, *, count: int = SYNTHETIC_QUERIES, parent_field: str = PARENT_FIELD, seed: int = 0
) -> QuerySet:
    """Return up to `count` queries, of documents drawn at random: their titles, or first sentences.

    Every model finds a text by its own words, so a query's own document is left out of every ranking: its id is that
    of the document, and `exclude_self` is set.
    """
    location = store.info.location
    if not store.info.has_texts:
        raise StoreError(f"{location} has no texts to make queries from; give queries: --queries FILE")
    order = random_order(store, seed, 3)
    # Blocks, as the first few documents mostly give queries enough, and texts of a block are read at once
    blocks = (order[start : start + _READ_AT_ONCE] for start in range(0, len(order), _READ_AT_ONCE))
    drawn = (document for rows in blocks for document in store.documents(rows))
    asked_of = list(islice(make_queries(drawn, lambda document: key_of(document, parent_field)), count))
    queries = [Query(doc_id, query.text) for doc_id, query in asked_of]
    counts = Counter(query.origin for _, query in asked_of)
    if len(queries) < FEWEST_QUERIES:
        raise InconclusiveError(
            f"INCONCLUSIVE: {location} has {len(queries)} documents with a title or a first sentence to make queries "
            f"from, and {FEWEST_QUERIES} are needed; give queries: --queries FILE"
        )
    made_from = " and ".join(f"{times:,} {kind}s" for kind, times in counts.most_common())
    note = (
        f"the {len(queries):,} queries are synthetic: {made_from} of the store's documents, drawn at random, each "
        "without its own document among the answers; users may ask otherwise"
    )
    name = f"synthetic queries of {store.info.name}"
    return QuerySet(queries, None, name, exclude_self=True, notes=(note,), made_from=made_from)


SYNTHETIC = "synthetic"
"""In the place of a file: queries made from the store's documents."""


def by_field(query_set: QuerySet, group_field: str) -> QuerySet:
    """Return the query set with the metadata field that says which queries are not independent of each other."""
    grouped = replace(query_set, group_field=group_field)
    values = [value for query in grouped.distinct if (value := grouped.group_of(query)) is not None]
    if not values:
        raise UsageError(
            f"{query_set.name}: no query has {group_field!r} in its metadata to group it by; name another field, or "
            "leave --group-field out"
        )
    n_values = len(set(values))
    if n_values <= _FEW_VALUES and n_values + len(grouped.distinct) - len(values) < FEWEST_QUERIES:
        raise UsageError(
            f"{query_set.name}: {group_field!r} has {counted(n_values, 'value', 'values')} in {len(values):,} queries, "
            "so that it cannot group them: queries of one value count as one observation; name a field that tells "
            "users or topics apart, or leave --group-field out"
        )
    # A field such as an id of the query groups nothing, and gives bounds as narrow as without it
    if n_values >= _NEARLY_AS_MANY * len(values):
        raise UsageError(
            f"{query_set.name}: {group_field!r} has {n_values:,} different values in {len(values):,} queries, "
            "which groups next to nothing; name a field that queries share, such as their user or topic, or leave "
            "--group-field out"
        )
    return grouped


def independent(query_set: QuerySet, choosers: Collection[str]) -> QuerySet:
    """Return the query set without the `choosers` (`migrate.selection.choosers`), with a note of how many those are."""
    if not choosers:
        return query_set
    judges = [query for query in query_set.queries if not is_chooser(query, choosers)]
    n_excluded = len(query_set.queries) - len(judges)
    if not n_excluded:
        return query_set
    excluded = f"{n_excluded:,} of {len(query_set.queries):,} queries chose documents that have true vectors"
    judging = only(query_set, judges, f"{excluded}; they do not judge")
    if len(judging.distinct) < FEWEST_QUERIES:
        raise InconclusiveError(
            f"INCONCLUSIVE: {query_set.name}: {excluded}; they do not judge, {len(judging.distinct)} others are left, "
            f"and a verdict needs at least {FEWEST_QUERIES}: give other queries, and next time --hold-out 50%"
        )
    return judging


def near_texts(queries: Iterable[Query]) -> dict[str, str]:
    """Return for each query, by its digest, the digest of the first one that it shares most of its words with.

    Of two texts more than half of the words, each counted once, are common to both (Jaccard 1912). Words that more than
    a tenth of the texts have find no others.
    """
    words_of = {digest_of(query): frozenset(folded(query.text).split()) for query in queries}
    times = Counter(word for text_words in words_of.values() for word in text_words)
    leaders: dict[str, list[str]] = {}
    first_of: dict[str, str] = {}
    # Their order is that of their digests, not of the file
    for text in sorted(words_of):
        telling = [word for word in words_of[text] if times[word] <= max(0.1 * len(words_of), 2)]
        candidates = sorted({leader for word in telling for leader in leaders.get(word, ())})
        first_of[text] = next((leader for leader in candidates if _jaccard(words_of, leader, text) > 0.5), text)
        if first_of[text] == text:
            for word in telling:
                leaders.setdefault(word, []).append(text)
    return first_of


def _jaccard(words_of: Mapping[str, frozenset[str]], first: str, second: str) -> float:
    """Return the share of the words of two texts that both have; 0 where neither has any."""
    either = words_of[first] | words_of[second]
    if not either:
        return 0.0
    return len(words_of[first] & words_of[second]) / len(either)


def share_of(text: str) -> float:
    """Return the share of queries, 0-1, that is typed as a percentage.

    >>> share_of("50%")
    0.5
    """
    number = text.strip().removesuffix("%")
    share = 0.0
    if number.replace(".", "", 1).isdecimal() and number.isascii():
        share = float(number) / 100
    if not (0 < share < 1 and text.strip().endswith("%")):
        raise UsageError(f"--hold-out: {text!r} is not a share of the queries; give one such as 50%")
    return share


def hold_out(query_set: QuerySet, share: float) -> QuerySet:
    """Return the queries that choose and judge now, where a `share`, 0-1, of all is kept to judge later.

    What is embedded for the audit of a pool is never chosen by queries that were held out: they can judge a store that
    it was filled into. Which ones they are depends on their texts alone. Queries of one group, by their field or else
    by words that more than half of them share, are on one side.
    """
    # By their texts alone, so that the same ones are held out whatever else is in the file
    units = near_texts(query_set.queries)
    units |= {
        digest_of(query): group for query in query_set.queries if (group := query_set.group_of(query)) is not None
    }
    drawn = sorted(set(units.values()), key=lambda unit: digest_of(Query("unit", unit)))
    held_units = set(drawn[: round(share * len(drawn))])
    held = {text for text, unit in units.items() if unit in held_units}
    queries = [query for query in query_set.queries if digest_of(query) not in held]
    if min(len(held), len(units) - len(held)) < FEWEST_QUERIES:
        raise InconclusiveError(
            f"INCONCLUSIVE: {query_set.name}: {len(units):,} different queries are too few to hold {share:.0%} out: "
            f"{len(units) - len(held):,} would judge now and {len(held):,} later, at least {FEWEST_QUERIES} are needed "
            "for each; give more queries, or leave out --hold-out"
        )
    note = (
        f"{len(held):,} of {len(units):,} different queries are held out: they choose nothing, and can judge a store "
        "that is filled in by this audit"
    )
    return only(query_set, queries, note)
