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
from migrate.check.rows import list_rows, require_rows
from migrate.cost.count import tally_of
from migrate.cost.meter import SpendingCap
from migrate.cost.spending import PlannedModel, estimate_of
from migrate.embedders import facts_of
from migrate.embedders.base import Embedder
from migrate.files import refuse_file
from migrate.manifest import today
from migrate.search.runs import Rankings, search, without_self
from migrate.selection.model_match import ASKED_AGAIN, needs_proof
from migrate.steps.opening import model_at, store_of
from migrate.stitch.base import Pairing
from migrate.stitch.linear import Procrustes, Ridge
from migrate.stitch.scores import Sphere, error_of_share, standard_error
from migrate.stitch.select import LARGEST_JUDGED, tune
from migrate.stores.base import Store
from migrate.vectors import Batch, Document, Progress, Vectors, summarize_norms, unit_rows

FEWEST_DOCUMENTS = 2 * CUT
"""Up to so many documents, the first ten of a ranking are most of them, and show nothing."""

_ASKING = 1_000
"""Documents that ask for their neighbours at most; a larger sample has at least as many."""

_BATCH = 4_096
"""Vectors that are searched at a time: few enough for any number of queries."""

_CONFIDENCE_95 = 1.96
"""Standard errors on either side of a mean that hold 95 % of a normal distribution."""


def check_named(
    store: Store | str | Path,
    model: Embedder | str,
    judged: QuerySet | str | Path | None,
    *,
    sample: int | str | None,
    manifest: ManifestUse,
    seed: int,
    rows: Path | None,
    max_cost: float | None,
    force: bool,
    progress: Progress,
) -> Compatibility:
    """Open what is named, and check the store within `max_cost`, as `check_with_cost` does; with `rows` write these."""
    questions = judged
    if questions is not None and not isinstance(questions, QuerySet):
        questions = load_questions(str(questions), progress=progress)
    opened = store_of(store)
    embedder = model_at(model)
    size = sample_size(sample, opened)
    if rows is not None:
        refuse_file(rows, force=force)
    cap = SpendingCap()
    embedder = cap.meter(embedder)
    if rows is not None:
        require_rows(opened)
    if max_cost is not None and cap.meter_of(embedder) is not None:
        has_rows = rows is not None
        plans = planned_models(opened, embedder, cap, size=size, manifest=manifest, seed=seed, has_rows=has_rows)
        estimate_of(plans).refuse_beyond(max_cost)
    cap.cap_usd = max_cost
    result = check_with_cost(opened, embedder, questions, size=size, manifest=manifest, seed=seed, progress=progress)
    if rows is None:
        return result
    return list_rows(opened, embedder, result, rows, force=force, progress=progress)


def planned_models(
    store: Store, embedder: Embedder, cap: SpendingCap, *, size: int, manifest: ManifestUse, seed: int, has_rows: bool
) -> tuple[PlannedModel, ...]:
    """Return the model of a check, for the texts that it is asked for at first: the sample, or all to list rows.

    None where nothing is embedded. Raises StoreError where rows tell nothing.
    """
    if has_rows:
        require_rows(store)

        def documents() -> Iterator[Document]:
            return (document for document in store.documents() if document.text.strip())

        return (PlannedModel(embedder, cap, documents=documents, again=ASKED_AGAIN),)
    texts = planned_texts(store, embedder, sample=size, manifest=manifest, seed=seed)
    if not texts:
        return ()
    n_past_cache = 0
    if needs_proof(embedder):
        n_past_cache = ASKED_AGAIN
    return (PlannedModel(embedder, cap, documents=lambda: texts, again=n_past_cache),)


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
    measure = partial(retrieval_cost, store, embedder, requested=size, questions=questions, seed=seed)
    result = check_store(store, embedder, sample=size, manifest=manifest, seed=seed, progress=progress, measure=measure)
    notes = list(result.notes)
    entry = facts_of(result.model.spec, result.model.revision)
    if entry is not None and (warning := entry.going_away(today())):
        notes.append(warning)
    if questions is not None and size <= FEWEST_DOCUMENTS:
        notes.append(f"the judged queries were not asked: take a --sample of more than {FEWEST_DOCUMENTS}")
    return replace(result, notes=tuple(notes))


def retrieval_cost(
    store: Store,
    embedder: Embedder,
    compared: Reembedded,
    *,
    requested: int,
    questions: QuerySet | None = None,
    seed: int = 0,
) -> RetrievalCost | None:
    """Measure the cost of stored vectors by sampled documents; None for too few. Only judged queries are embedded.

    Where fewer documents were sampled than `requested`, the store has no more different texts.
    """
    count = len(compared)
    if count <= FEWEST_DOCUMENTS:
        return None
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(count)[:LARGEST_JUDGED])
    ranked = _Ranked(store, [compared.documents[row].id for row in rows], _as_stored(compared)[rows], seed)
    vectors = compared.match.claim.vectors[rows]
    stored = ranked.overlap(vectors)
    repair = None
    if len(rows) >= FEWEST_PAIRS:
        repair = _try_stitches(vectors, ranked, stored)
    judged = None
    if questions is not None:
        judged = _retention(store, embedder, compared, questions, seed)
    larger = None
    if count >= requested:
        larger = _larger(store, embedder, compared)
    by_chance = CUT / (len(rows) - 1)
    return RetrievalCost(len(rows), store.info.count, _share(stored), by_chance, judged, repair, larger)


class _Ranked:
    """Sampled documents, each of which asks for the ten nearest others: `truth`, (n, dim), says which these are."""

    def __init__(self, store: Store, ids: list[str], truth: Vectors, seed: int) -> None:
        self.metric = store.info.metric
        self.ids = ids
        self.truth = truth
        self.seed = seed
        self.asking = np.sort(np.random.default_rng(seed).permutation(len(ids))[:_ASKING])
        self.query_ids = [ids[row] for row in self.asking]
        self.reference = self.run(truth)

    def run(self, vectors: Vectors) -> Rankings:
        """Rank the documents by vectors, (n, dim), for those that ask."""
        queries = self.truth[self.asking]
        batches = _batches(self.ids, vectors)
        # One more than is compared, as each document finds itself first
        run = search(batches, self.query_ids, queries, metric=self.metric, depth=CUT + 1)
        return without_self(run)

    def overlap(self, vectors: Vectors) -> Scores:
        """Return the share of the true ten that vectors find, for each document that asks."""
        return overlap(self.run(vectors), self.reference, self.query_ids, CUT)


def _batches(ids: Sequence[str], vectors: Vectors) -> Iterator[Batch]:
    """Yield vectors, (n, dim), with their ids."""
    for start in range(0, len(ids), _BATCH):
        stop = start + _BATCH
        yield Batch(ids[start:stop], vectors[start:stop])


def _as_stored(compared: Reembedded) -> Vectors:
    """Return the model's vectors at unit length where the stored ones are, as in a store made with them now."""
    match = compared.match
    if summarize_norms(match.claim.vectors).is_unit:
        return unit_rows(match.vectors)
    return match.vectors


def _share(scores: Scores) -> Share:
    """Return a mean with 95 % bounds by its standard error."""
    mean = float(scores.mean())
    half_width = _CONFIDENCE_95 * error_of_share(scores)
    return Share(mean, max(mean - half_width, 0.0), min(mean + half_width, 1.0))


def _try_stitches(stored: Vectors, ranked: _Ranked, shared: Scores) -> Repair:
    """Cross-validate the linear stitches, and judge the better one, the simpler first.

    `shared` is the overlap that the `stored` vectors have with the true ones, for each document that asks.
    """
    truth = ranked.truth
    # A prediction that is not sure of itself lies nearer to the mean of true vectors than these do
    sphere = Sphere.fit(truth)
    norm = summarize_norms(truth).mean
    overlaps: dict[str, Scores] = {}
    for kind in (Procrustes.kind, Ridge.kind):
        predicted = tune(kind, Pairing(stored, truth, seed=ranked.seed))[1]
        overlaps[kind] = ranked.overlap(sphere.of(predicted, norm=norm))
    best = max(overlaps, key=lambda kind: overlaps[kind].mean())
    gain = overlaps[best] - shared
    missing = 1 - shared.mean()
    repaired = _share(overlaps[best])
    # Two standard errors: the better of two stitches gains a little by luck
    if gain.mean() <= 2 * standard_error(gain):
        return Repair(best, repaired, "none")
    if 2 * gain.mean() >= missing:
        return Repair(best, repaired, "most")
    return Repair(best, repaired, "some")


def _retention(
    store: Store, embedder: Embedder, compared: Reembedded, questions: QuerySet, seed: int
) -> JudgedRetention:
    """Embed the queries that sampled documents answer, and return the share of nDCG@10 that is retained."""
    keys = [key_of(document) for document in compared.documents]
    answered = _answered(questions, frozenset(keys))
    if len(answered.distinct) < FEWEST_QUERIES:
        return JudgedRetention(len(answered.distinct))
    queries = embedder.embed_queries(answered.queries)
    qrels = answered.qrels or {}
    ids = answered.query_ids
    answered = with_groups(answered, queries)

    def score(vectors: Vectors) -> Scores:
        run = search(_batches(keys, vectors), ids, queries, metric=store.info.metric)
        if answered.exclude_self:
            run = without_self(run)
        return answered.merged(ndcg(run, qrels, ids, CUT))

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
    size = min(max(_ASKING, store.info.dim), LARGEST_JUDGED, store.info.count)
    n_new = size - len(compared)
    if n_new <= 0:
        return None
    tally = tally_of(embedder)
    times_this = n_new / len(compared)
    cost = tally.cost(compared.documents)
    usd = None
    if tally.target.is_paid is False:
        usd = 0.0
    elif cost.usd is not None:
        usd = cost.usd * times_this
    return LargerSample(size, n_new, round(cost.tokens * times_this), usd)
