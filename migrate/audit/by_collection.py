"""The verdict on each collection of a store that is several: no arm is SAFE on the whole that harms one of them.

All collections are searched together. A query counts for the collection of the document that it is about, and what
decides there is what decides on the whole, with bounds that hold for all collections at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from migrate.audit.measures import Scores
from migrate.audit.results import FULL, STAY, TRANSLATED
from migrate.audit.retrieval import Retriever
from migrate.audit.rules import Rules
from migrate.audit.verdict import CONFIDENCE, FEWEST_QUERIES, Finding, Outcome, Verdict, decide


@dataclass(frozen=True, slots=True)
class CollectionVerdict:
    """The verdict on one collection, by the queries that are about its `documents`."""

    name: str
    documents: int
    verdict: Verdict

    @property
    def harm(self) -> str:
        """The figures of a collection that is NOT SAFE, for the verdict on the whole."""
        return f"NOT SAFE in {self.name}: {self.verdict.sentence}"


def judge_collections(
    retriever: Retriever, rules: Rules, scores: Mapping[str, Scores], arms: Iterable[str], findings: Sequence[Finding]
) -> Mapping[str, tuple[CollectionVerdict, ...]]:
    """Return the verdicts on some arms, the worst collection first; none for a store that is one.

    `scores` are by the deciding measure, (c,) for each arm.
    """
    documents = retriever.stores[TRANSLATED].collections()
    if not documents:
        return {}
    queries, full, stay = queries_of(retriever, documents), scores[FULL], scores.get(STAY)
    if not retriever.query_set.is_judged:
        stay = None

    def judge(name: str, arm: Scores, confidence: float) -> CollectionVerdict:
        rows = queries[name]
        verdict = decide(
            arm[rows],
            full[rows],
            None if stay is None else stay[rows],
            margin=rules.settings.margin,
            provisional=not rules.query_set.is_judged,
            n_documents=len(documents[name]),
            bootstrap=rules.at(rows, confidence),
        )
        return CollectionVerdict(name, len(documents[name]), verdict.doubted(findings))

    judged = sum(judge(name, full, CONFIDENCE).verdict.has_enough for name in documents)
    confidence = 1 - (1 - CONFIDENCE) / max(judged, 1)
    return {
        arm: tuple(sorted((judge(name, scores[arm], confidence) for name in documents), key=_badness)) for arm in arms
    }


def queries_of(retriever: Retriever, documents: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[np.int64]]:
    """Return the places of the distinct queries that are about some `documents`, by their collection.

    A synthetic query is about the document that it was made of.
    """
    subjects, query_set = retriever.subjects, retriever.query_set
    ids = query_set.query_ids if query_set.exclude_self else ()
    documents_asking = retriever.keys[TRANSLATED].documents.present(ids)
    about = [query.id if query.id in documents_asking else subjects.get(query.id, "") for query in query_set.distinct]
    row_of = retriever.rows(TRANSLATED, about)
    collection_of = np.full(retriever.stores[TRANSLATED].info.count, -1, np.int64)
    for number, rows in enumerate(documents.values()):
        collection_of[rows] = number
    numbers = np.array([collection_of[row_of[key]] if key in row_of else -1 for key in about], np.int64)
    return {name: np.flatnonzero(numbers == number) for number, name in enumerate(documents)}


def _badness(collection: CollectionVerdict) -> tuple[int, float, str]:
    """Return where a collection stands: first those with a verdict, and of these the ones that keep least."""
    verdict = collection.verdict
    order = (Outcome.NOT_SAFE, Outcome.INCONCLUSIVE, Outcome.SAFE)
    rank = order.index(verdict.outcome) if verdict.has_enough else len(order)
    return rank, verdict.retention.estimate if verdict.n_queries else np.inf, collection.name


def harmed(verdict: Verdict, collections: Sequence[CollectionVerdict]) -> Verdict:
    """Return the verdict on the whole: NOT SAFE where it is that in one collection."""
    worst = next((it for it in collections if it.verdict.outcome is Outcome.NOT_SAFE), None)
    if worst is None or verdict.outcome is Outcome.NOT_SAFE:
        return verdict
    return replace(verdict, outcome=Outcome.NOT_SAFE, harm=worst.harm, queries_needed=None)


def collections_sentence(collections: Sequence[CollectionVerdict]) -> str:
    """Return how many collections there are of each outcome, and what the worst keeps, in words."""
    judged = [it for it in collections if it.verdict.has_enough]
    outcomes = Counter(it.verdict.outcome for it in judged)
    counts = [f"{outcomes[outcome]:,} {outcome}" for outcome in Outcome if outcomes[outcome]]
    if few := len(collections) - len(judged):
        counts.append(f"{few:,} with fewer than {FEWEST_QUERIES} queries, INCONCLUSIVE by themselves")
    sentence = f"{len(collections):,} collections: {', '.join(counts)}"
    if not judged:
        return sentence
    worst = judged[0]
    return f"{sentence}; the worst is {worst.name}, {worst.verdict.outcome}: {worst.verdict.sentence}"
