"""Measures what it costs in retrieval that stored vectors are near a model's, but not the same.

Another host, quantised weights or another revision give such vectors. The documents of a check are ranked twice for
queries by the model as it is named: by its own vectors, and by the stored ones. A stitch is tried on the same
documents, each predicted by one that was fitted without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from migrate.audit.bootstrap import Bootstrap
from migrate.audit.bounds import FEWEST_QUERIES
from migrate.audit.keys import key_of
from migrate.audit.measures import CUT, Scores, ndcg, overlap
from migrate.audit.query_groups import with_groups
from migrate.audit.query_set import QuerySet, load_questions
from migrate.check.check import ManifestUse, check_store, planned_texts, sample_size
from migrate.check.comparison import Reembedded, Share
from migrate.check.model import Compatibility
from migrate.check.retrieval import FEWEST_PAIRS, JudgedRetention, LargerSample, Repair, RetrievalCost
from migrate.cost.count import tally_of
from migrate.cost.meter import SpendingCap
from migrate.cost.spending import PlannedModel
from migrate.embedders import facts_of
from migrate.embedders.base import Embedder
from migrate.manifest import today
from migrate.search.runs import Rankings, search, without_self
from migrate.selection.matches import ASKED_AGAIN, needs_proof
from migrate.steps.opening import model_at, store_of
from migrate.stitch.base import Pairing
from migrate.stitch.linear import Procrustes, Ridge
from migrate.stitch.scores import Sphere, error_of_share, standard_error
from migrate.stitch.select import LARGEST_JUDGED, tune
from migrate.stores.base import Store
from migrate.vectors import Batch, Progress, Vectors, summarize_norms, unit_rows

FEWEST_DOCUMENTS = 2 * CUT
"""Of fewer documents, the first ten are most."""

_MEASURED = 1_000
"""Documents that ask at most, and that a larger sample has at least."""


def check_named(
    store: Store | str | Path,
    model: Embedder | str,
    judged: QuerySet | str | Path | None,
    *,
    sample: int | str | None,
    manifest: ManifestUse,
    seed: int,
    progress: Progress,
) -> Compatibility:
    """Open what is named, and check the store, as `check_with_cost` does."""
    questions = judged
    if questions is not None and not isinstance(questions, QuerySet):
        questions = load_questions(str(questions), progress=progress)
    opened, embedder = store_of(store), model_at(model)
    size = sample_size(sample, opened)
    return check_with_cost(opened, embedder, questions, size=size, manifest=manifest, seed=seed, progress=progress)


def check_with_cost(
    store: Store,
    embedder: Embedder,
    questions: QuerySet | None,
    *,
    size: int,
    manifest: ManifestUse,
    seed: int,
    progress: Progress,
) -> Compatibility:
    """Check a store by a sample of `size`, as `check_store` does, and measure what a difference costs."""
    measure = partial(retrieval_cost, store, embedder, asked=size, questions=questions, seed=seed)
    result = check_store(store, embedder, sample=size, manifest=manifest, seed=seed, progress=progress, measure=measure)
    notes = list(result.notes)
    entry = facts_of(result.model.spec, result.model.revision)
    if entry is not None and (warning := entry.going_away(today())):
        notes.append(warning)
    if questions is not None and size <= FEWEST_DOCUMENTS:
        notes.append(f"the judged queries were not asked: take a --sample of more than {FEWEST_DOCUMENTS}")
    return replace(result, notes=tuple(notes))


def planned_models(
    store: Store, embedder: Embedder, *, size: int, manifest: ManifestUse, seed: int
) -> tuple[PlannedModel, ...]:
    """Return the model of a check, for the texts that it is asked for at first."""
    texts = planned_texts(store, embedder, sample=size, manifest=manifest, seed=seed)
    again = ASKED_AGAIN if needs_proof(embedder) else 0
    return (PlannedModel(embedder, SpendingCap(), documents=lambda: texts, again=again),)


def retrieval_cost(
    store: Store,
    embedder: Embedder,
    compared: Reembedded,
    *,
    asked: int,
    questions: QuerySet | None = None,
    seed: int = 0,
) -> RetrievalCost | None:
    """Measure the cost of stored vectors by sampled documents; None for too few. Only judged queries are embedded.

    Where fewer documents were sampled than `asked` for, the store has no more different texts.
    """
    count = len(compared)
    if count <= FEWEST_DOCUMENTS:
        return None
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(count)[:LARGEST_JUDGED])
    ranked = _Ranked(store, [compared.documents[row].id for row in rows], _as_stored(compared)[rows], seed)
    vectors = compared.match.claim.vectors[rows]
    stored = ranked.overlap(vectors)
    repair = _try_stitches(vectors, ranked, stored) if len(rows) >= FEWEST_PAIRS else None
    return RetrievalCost(
        len(rows),
        store.info.count,
        _share(stored),
        CUT / (len(rows) - 1),
        None if questions is None else _retention(store, embedder, compared, questions, seed),
        repair,
        _larger(store, embedder, compared) if count >= asked else None,
    )


class _Ranked:
    """Sampled documents, each of which asks for the ten nearest others: `truth`, (n, dim), says which these are."""

    def __init__(self, store: Store, ids: list[str], truth: Vectors, seed: int) -> None:
        self.metric, self.ids, self.truth, self.seed = store.info.metric, ids, truth, seed
        self.asking = np.sort(np.random.default_rng(seed).permutation(len(ids))[:_MEASURED])
        self.query_ids = [ids[row] for row in self.asking]
        self.reference = self.run(truth)

    def run(self, vectors: Vectors) -> Rankings:
        """Rank the documents by vectors, (n, dim), for those that ask."""
        queries = self.truth[self.asking]
        found = search(_batches(self.ids, vectors), self.query_ids, queries, metric=self.metric, depth=CUT + 1)
        return without_self(found)

    def overlap(self, vectors: Vectors) -> Scores:
        """Return the share of the true ten that vectors find, for each document that asks."""
        return overlap(self.run(vectors), self.reference, self.query_ids, CUT)


def _batches(ids: Sequence[str], vectors: Vectors) -> Iterator[Batch]:
    """Yield vectors, (n, dim), with their ids, few enough at a time for any number of queries."""
    for start in range(0, len(ids), 4_096):
        yield Batch(ids[start : start + 4_096], vectors[start : start + 4_096])


def _as_stored(compared: Reembedded) -> Vectors:
    """Return the model's vectors at unit length where the stored ones are, as in a store made with them now."""
    match = compared.match
    return unit_rows(match.vectors) if summarize_norms(match.claim.vectors).is_unit else match.vectors


def _share(scores: Scores) -> Share:
    """Return a mean with 95 % bounds by its standard error."""
    mean, half_width = float(scores.mean()), 1.96 * error_of_share(scores)
    return Share(mean, max(mean - half_width, 0.0), min(mean + half_width, 1.0))


def _try_stitches(stored: Vectors, ranked: _Ranked, before: Scores) -> Repair:
    """Cross-validate the linear stitches, and judge the better one, the simpler first."""
    truth, after = ranked.truth, dict[str, Scores]()
    sphere, norm = Sphere.fit(truth), summarize_norms(truth).mean
    for kind in (Procrustes.kind, Ridge.kind):
        predicted = tune(kind, Pairing(stored, truth, seed=ranked.seed))[1]
        after[kind] = ranked.overlap(sphere.of(predicted, norm=norm))
    best = max(after, key=lambda kind: after[kind].mean())
    gain = after[best] - before
    if gain.mean() <= 2 * standard_error(gain):
        return Repair(best, _share(after[best]), "none")
    return Repair(best, _share(after[best]), "most" if 2 * gain.mean() >= 1 - before.mean() else "some")


def _retention(
    store: Store, embedder: Embedder, compared: Reembedded, questions: QuerySet, seed: int
) -> JudgedRetention:
    """Embed the queries that sampled documents answer, and return the share of nDCG@10 that is retained."""
    keys = [key_of(document) for document in compared.documents]
    answered = _answered(questions, frozenset(keys))
    if len(answered.distinct) < FEWEST_QUERIES:
        return JudgedRetention(len(answered.distinct))
    queries, qrels, ids = embedder.embed_queries(answered.queries), answered.qrels or {}, answered.query_ids
    answered = with_groups(answered, queries)

    def score(vectors: Vectors) -> Scores:
        run = search(_batches(keys, vectors), ids, queries, metric=store.info.metric)
        return answered.merged(ndcg(without_self(run) if answered.exclude_self else run, qrels, ids, CUT))

    stored = score(compared.match.claim.vectors)
    bounds = Bootstrap(answered.grouping, seed).retention(stored, score(_as_stored(compared)))
    return JudgedRetention(len(answered.distinct), Share(bounds.estimate, bounds.lower, bounds.upper))


def _answered(questions: QuerySet, sampled: frozenset[str]) -> QuerySet:
    """Return the queries that sampled documents are relevant to, with the judgements of these documents alone."""
    queries = [query for query in questions.queries if questions.relevant_to(query.id) & sampled]
    qrels = {
        query.id: {doc_id: grade for doc_id, grade in questions.grades(query.id).items() if doc_id in sampled}
        for query in queries
    }
    return replace(questions, queries=queries, qrels=qrels)


def _larger(store: Store, embedder: Embedder, compared: Reembedded) -> LargerSample | None:
    """Return a sample as large as a stitch learns from, and its cost by the tokens of this one; None for no larger."""
    size = min(max(_MEASURED, store.info.dim), LARGEST_JUDGED, store.info.count)
    if size <= len(compared):
        return None
    tally, share = tally_of(embedder), (size - len(compared)) / len(compared)
    cost = tally.cost(compared.documents)
    usd = 0.0 if tally.target.is_paid is False else None if cost.usd is None else cost.usd * share
    return LargerSample(size, size - len(compared), round(cost.tokens * share), usd)
