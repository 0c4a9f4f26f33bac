"""The verdict without the documents that have true vectors: what the stitch alone keeps.

A sample that is relevant to the queries flatters a translation: these documents were embedded for real. Without them,
in the stores and in the judgements, only translated documents are found and judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from migrate.audit.evidence import Evidence
from migrate.audit.experiment import Experiment, Searchable
from migrate.audit.measures import Qrels
from migrate.audit.query_set import QuerySet
from migrate.audit.results import FULL, TRANSLATED
from migrate.audit.retrieval import search_store
from migrate.audit.rules import Rules
from migrate.audit.scoring import deciding_scores
from migrate.audit.verdict import Finding, Verdict
from migrate.selection.choosers import WHOLE, Choosers
from migrate.selection.model_match import pairwise
from migrate.stores.confidence import true_rows


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The verdict without `documents` that have true vectors, `relevant` of them to some query.

    `queries` is how many are left, each text once: those whose only relevant documents are gone do not count.
    """

    documents: int
    relevant: int
    queries: int
    verdict: Verdict

    @property
    def sentence(self) -> str:
        """For a person."""
        verdict = self.verdict
        bounds = verdict.retention
        scale = verdict.scale
        remaining = f"{self.queries:,} queries left"
        if not scale.provisional:
            remaining = f"{self.relevant:,} of them relevant; {remaining}"
        sentence = (
            f"without the {self.documents:,} documents that have true vectors ({remaining}): {verdict.outcome.value}, "
            f"{scale.measured} {scale.figure(bounds.estimate)} (95 % bounds: {scale.span(bounds)})"
        )
        if verdict.observations.lacks_documents:
            count = verdict.observations.documents
            sentence += f", the first 10 of the {count} documents left are hardly a selection"
        return sentence


def unexplained_documents(experiment: Experiment, choosers: Choosers) -> frozenset[str]:
    """Return the documents that have a true vector of which nothing says who chose it.

    A vector is true where `confidence.npy` says so, or where the full re-embed, or the pool, has the same one.
    """
    candidates = choosers.unexplained
    if candidates is None or not candidates.any():
        return frozenset()
    translated = experiment.stores[TRANSLATED].store
    keys = experiment.stores[TRANSLATED].keys
    full = experiment.stores[FULL].store
    is_recorded = true_rows(translated)
    full_rows = keys.ids.matches(experiment.stores[FULL].keys.ids)
    is_unexplained = np.zeros(len(keys.ids), dtype=bool)
    start = 0
    for batch in translated.scan():
        rows = slice(start, start + len(batch))
        is_true = is_recorded[rows].copy()
        # Not all true vectors are recorded: one that equals the full re-embed's is true, whoever put it there
        both = np.flatnonzero(full_rows[rows] >= 0)
        if len(both):
            true = full.get(full_rows[rows][both]).vectors
            is_true[both] |= pairwise(batch.vectors[both], true) >= choosers.equal
        is_unexplained[rows] = is_true & candidates[rows]
        start += len(batch)
    documents = set(keys.documents.take(np.flatnonzero(is_unexplained)))
    # Nobody has chosen who has taken all
    if len(documents) >= WHOLE * experiment.n_documents:
        return frozenset()
    return frozenset(documents)


def true_documents(translated: Searchable) -> frozenset[str]:
    """Return the documents with a true vector among those of their chunks, as `confidence.npy` has them."""
    return frozenset(translated.keys.documents.take(np.flatnonzero(true_rows(translated.store))))


def audit_held_out(evidence: Evidence, excluded: frozenset[str], findings: Iterable[Finding]) -> HeldOut | None:
    """Search the translated store and the reference without the documents that have true vectors, and compare.

    These are the `excluded` ones. None where no document has a true vector, where all have, or where no query is left;
    and in a pool without judgements, which may lack what is first then.
    """
    experiment = evidence.experiment
    outside = evidence.outside
    query_set = experiment.query_set
    if outside is not None and not query_set.is_judged:
        return None
    if not excluded or len(excluded) == experiment.n_documents:
        return None
    # Queries whose only relevant documents are gone could not be answered by any arm
    remaining, rows = _without(query_set, excluded)
    if not len(rows):
        return None
    stores = {
        name: replace(experiment.stores[name], queries=experiment.stores[name].queries[rows])
        for name in (TRANSLATED, FULL)
    }
    reduced = replace(experiment, query_set=remaining, stores=stores)
    arm = search_store(reduced, TRANSLATED, excluded).run
    full = search_store(reduced, FULL, excluded).run
    floor = None
    if outside is not None:
        floor = outside.floor(full, remaining, outside.losses(full, remaining))
    scores = (deciding_scores(reduced, full, run) for run in (arm, full))
    rules = Rules(remaining, experiment.settings, experiment.n_documents - len(excluded), floor)
    verdict = rules.verdict(*scores).doubted(findings)
    return HeldOut(len(excluded), len(excluded & query_set.relevant), verdict.observations.queries, verdict)


def _without(query_set: QuerySet, excluded: frozenset[str]) -> tuple[QuerySet, np.ndarray]:
    """Return the queries that still have a relevant document, and their rows."""
    if query_set.qrels is None:
        return query_set, np.arange(len(query_set.queries))
    qrels: Qrels = {
        query_id: {doc_id: max(grade, 0) for doc_id, grade in grades.items() if doc_id not in excluded}
        for query_id, grades in query_set.qrels.items()
    }
    rows = [row for row, query in enumerate(query_set.queries) if any(qrels.get(query.id, {}).values())]
    return replace(query_set, queries=[query_set.queries[row] for row in rows], qrels=qrels), np.array(rows, dtype=int)
