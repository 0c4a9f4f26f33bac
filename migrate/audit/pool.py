"""An audit without a full re-embed: true vectors for a pool of documents, which grows until the verdict is settled.

The pool has the translated store's first documents for every query, those that are nearest and those that its own index
finds, some of each other arm, and all judged ones. Among them the full re-embed's nDCG@10 is no lower than among all,
and that of the arm is the same, in whatever way it ranks: retention is no higher, and whatever is SAFE in the pool is
SAFE (docs/statistics.md has the proof). Without judgements agreement@10 is no lower in the pool, so that what is
NOT SAFE there is NOT SAFE. For the other verdict, `migrate.audit.outside` says what documents outside may take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.audit.arms import family_of
from migrate.audit.bootstrap import Bootstrap
from migrate.audit.bounds import Outcome
from migrate.audit.costs import Costs
from migrate.audit.evidence import Evidence
from migrate.audit.experiment import Experiment, Searchable, depths_asked, depths_reached, rules_of
from migrate.audit.keys import Keys
from migrate.audit.measures import CUT, Scores
from migrate.audit.outside import (
    SAMPLED,
    ErrorTail,
    Lately,
    Outside,
    Ranked,
    Rows,
    Surroundings,
    look_around,
    rank_rows,
    ratio_of_losses,
    score_rows,
)
from migrate.audit.query_set import QuerySet
from migrate.audit.reference_proof import ReferenceProof, prove_pool
from migrate.audit.results import FULL, STAY, TRANSLATED, TWO_STAGE
from migrate.audit.retrieval import (
    Runs,
    asks_index,
    candidate_rows,
    fuse,
    fuse_stores,
    rerank,
    with_reference,
)
from migrate.audit.scoring import agreement_temperature
from migrate.audit.verdict import Verdict
from migrate.cost import usd_of
from migrate.cost.estimate import token_count
from migrate.display import dollars, percent
from migrate.embedders.abilities import needs_texts
from migrate.embedders.base import Embedder
from migrate.embedders.cache import is_kept, with_choosers
from migrate.errors import SpendingError, StoreError, UsageError
from migrate.search.runs import DEPTH, Rankings
from migrate.selection.choosers import digests_of
from migrate.selection.model_match import ASKED_AGAIN, SPOT_CHECKS, Claim, matches
from migrate.selection.sample import known_documents
from migrate.stores.base import BATCH_SIZE, Store, StoreInfo, StoreWriter
from migrate.stores.confidence import true_rows
from migrate.stores.serving import as_compared
from migrate.vectors import Batch, Document, Vectors

DEPTHS: Final = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
"""How many documents of the translated store the pool has for a query, step by step."""

_FEWEST_UNJUDGED: Final = 2 * CUT
"""The first ten of the arm have to be there, and as many others, which say what more may bring."""

_MATTERS: Final = 1e-3
"""The loss of a query's score outside the pool from which on it is worth a deeper one."""

_SAMPLED_AT_FIRST: Final = 3 * SAMPLED
"""About how many documents a first step draws at random."""

_STAGES: Final = 50
"""To this depth a pool goes for every query where nothing is SAFE yet: what it embeds is kept for whatever follows."""


class PoolStore(Store):
    """The pool as a store: some `rows` of the translated store, ascending, with their true `vectors`, in memory."""

    def __init__(self, translated: Store, ids: Sequence[str], rows: Rows, vectors: Vectors) -> None:
        self._translated = translated
        self._ids = ids
        self._rows = rows
        self._vectors = vectors
        self.info = StoreInfo(
            location="pool",
            kind="pool",
            index_type="float32",
            count=len(ids),
            dim=vectors.shape[1],
            metric=translated.info.metric,
            exact=True,
            has_texts=translated.info.has_texts,
        )

    def scan(self, start: int = 0, stop: int | None = None, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
        """Return the vectors with their ids."""
        end = len(self._ids)
        if stop is not None:
            end = min(stop, end)
        for first in range(start, end, batch_size):
            last = min(first + batch_size, end)
            yield Batch(self._ids[first:last], self._vectors[first:last])

    def get(self, rows: Rows) -> Batch:
        """Return the vectors and ids of some rows."""
        return Batch(self.ids(rows), self._vectors[rows])

    def ids(self, rows: range | Rows) -> list[str]:
        """Return the ids of some rows."""
        return [self._ids[row] for row in rows]

    def documents(self, rows: Rows | None = None) -> Iterator[Document]:
        """Return the documents, as the translated store has them."""
        if rows is None:
            return self._translated.documents(self._rows)
        return self._translated.documents(self._rows[rows])

    def destination(self, location: Path, dim: int) -> StoreWriter:
        """Refuse to write a store like it."""
        raise StoreError(f"{location}: the pool of an audit writes no store like itself; name a store")


@dataclass(frozen=True, slots=True)
class PoolStep:
    """One step: the documents that it embeds, `sampled` of them at random, to a `depth` for some `queries`.

    `tokens` and `usd` are their price without a cache, None where it is not known.
    """

    depth: int
    queries: int
    documents: int
    sampled: int
    tokens: int | None
    usd: float | None

    @property
    def sentence(self) -> str:
        """For a person."""
        sentence = f"pool, the first {self.depth} documents for {self.queries:,} queries: {self.documents:,} to embed"
        if self.tokens is None:
            return sentence
        return f"{sentence}, {_price(self.tokens, self.usd)}"


@dataclass(frozen=True, slots=True)
class PoolSummary:
    """The facts of a pool: true vectors of `documents` of the store's `count`, `sampled` of them at random.

    `depth` is how far the pool goes for a query where it goes furthest. `tokens` and `usd` are their price without a
    cache, `full_tokens` and `full_usd` that of a full re-embed; None where it is not known. `stopped` is why the pool
    did not grow on, where something forbade it. `is_exact` says that the pool is the whole store, `provisional` that
    nothing is judged. `true_outside` are documents whose true vectors the translated store has, and the pool has not.
    """

    depth: int
    documents: int
    count: int
    sampled: int
    tokens: int | None
    usd: float | None
    full_tokens: int | None
    full_usd: float | None
    steps: tuple[PoolStep, ...]
    stopped: str | None = None
    provisional: bool = False
    true_outside: int = 0

    @property
    def is_exact(self) -> bool:
        """True where every document has a true vector."""
        return self.documents == self.count

    @property
    def share(self) -> float:
        """The share, 0-1, of the documents that have true vectors."""
        return self.documents / self.count

    @property
    def _extent(self) -> str:
        if self.is_exact:
            return f"all {self.count:,} documents"
        return f"{self.documents:,} of {self.count:,} documents ({percent(self.share)})"

    @property
    def sentences(self) -> tuple[str, ...]:
        """The documents that were embedded, and the worth of the figures, for a person."""
        embedded = f"pool: true vectors of {self._extent}"
        if self.tokens is not None:
            embedded += f", {_price(self.tokens, self.usd)}"
        if self.full_tokens is not None and not self.is_exact:
            embedded += f"; a full re-embed takes {_price(self.full_tokens, self.full_usd)}"
        sentences = [embedded]
        if not self.is_exact:
            sentences += self._worth
        if self.stopped:
            sentences.append(f"the pool did not grow further: {self.stopped}")
        return tuple(sentences)

    @property
    def _worth(self) -> tuple[str, str]:
        """The figures that hold whatever lies outside the pool, and those that rest on a sample of it."""
        by = f"by {self.sampled:,} documents drawn at random outside the pool"
        if self.provisional:
            guaranteed = (
                "guaranteed, where scores are measured by their spread in the pool: upper bounds of agreement@10, so "
                "that NOT SAFE is what a full re-embed would say; what each arm scores is the most that it can"
            )
            return guaranteed, f"estimated: agreement@10 of the verdict, its lower bounds and with them SAFE, {by}"
        guaranteed = (
            "guaranteed: lower bounds of retention, what all other arms score, and every comparison with staying; the "
            "full re-embed is shown as it scores in the pool, which is the most it can, and so are wins and losses "
            "against it"
        )
        return guaranteed, f"estimated: retention, its upper bounds and the slices, {by}"


def _price(tokens: int, usd: float | None) -> str:
    if usd is None:
        return token_count(tokens)
    return f"{token_count(tokens)} ({dollars(usd)})"


@dataclass(frozen=True, eq=False)
class Pool:
    """The documents with true vectors so far.

    `depths` are how many of the translated store's first documents each query has, (q,). `pooled` and `sampled` say of
    each row if it is in the pool, or drawn from outside it, (n,); `vector_row` is where its vector is among the
    `vectors`, -1 where it has none, (n,).
    """

    depths: Rows
    pooled: NDArray[np.bool_]
    sampled: NDArray[np.bool_]
    vector_row: Rows
    vectors: Vectors
    steps: tuple[PoolStep, ...] = ()

    @property
    def rows(self) -> Rows:
        """The rows with a true vector, ascending."""
        return np.flatnonzero(self.vector_row >= 0)

    def vectors_of(self, rows: Rows) -> Vectors:
        """Return the true vectors of some rows that have one."""
        return self.vectors[self.vector_row[rows]]


@dataclass(frozen=True, eq=False)
class GrownPool:
    """A pool after a step: what the full re-embed scores in it, and what follows.

    `evidence` has the pool in the place of the full re-embed; `arm` and `full` are scores by the deciding measure,
    (c,). `matters` says which queries may gain by a deeper pool, (q,), and `inputs` are what it grew from.
    """

    evidence: Evidence
    summary: PoolSummary
    arm: Scores
    full: Scores
    verdict: Verdict
    matters: NDArray[np.bool_]
    inputs: PoolInputs
    pool: Pool

    @property
    def is_settled(self) -> bool:
        """True where no deeper pool can change the verdict: it is made, or it is for want of queries or documents."""
        return self.verdict.outcome is not Outcome.INCONCLUSIVE or not self._may_change

    @property
    def _may_change(self) -> bool:
        """True where either verdict would come about if documents outside took nothing, or as much as they may."""
        floor = self.evidence.rules.floor
        if floor is None or self.verdict.observations.lacks_documents:
            return False
        # Both ends of what documents outside may take: where neither gives a verdict, a deeper pool gives none
        rules = replace(self.evidence.rules, floor=None)
        scores = ((self.arm, self.full), floor.extreme(self.arm, self.full))
        return {rules.verdict(arm, full).outcome for arm, full in scores} != {Outcome.INCONCLUSIVE}

    @property
    def remedy(self) -> str | None:
        """A way to settle an inconclusive verdict, where that is not queries."""
        if self.is_settled:
            return None
        return (
            "a deeper pool may settle it (`--reference pool:N`, `--max-cost`), a full re-embed does as far as "
            "the queries allow (`--reference build`)"
        )


def first_depth(query_set: QuerySet, stages: Sequence[int] | None) -> int:
    """Return how many of the translated store's first documents a pool has at least; more for two stages."""
    has_no_stages = stages is not None and not stages
    if query_set.is_judged and has_no_stages:
        return DEPTHS[0]
    return _FEWEST_UNJUDGED


def _others_depth(query_set: QuerySet) -> int:
    """Return how many of any other arm's first documents a pool has."""
    if query_set.is_judged:
        return CUT // 2
    # The score of an unjudged query is of all these
    return CUT


def judged_documents(query_set: QuerySet) -> set[str]:
    """Return the documents that are judged for any of the queries."""
    return {doc_id for query_id in query_set.query_ids for doc_id in query_set.grades(query_id)}


def expected_documents(
    translated: Store,
    query_set: QuerySet,
    arms: int,
    *,
    stages: Sequence[int] | None = None,
    together: bool = False,
    ranked: int | None = None,
    seed: int,
) -> Iterator[Document]:
    """Yield about what a pool embeds for every query, for an estimate of its cost: as many documents, drawn at random.

    `arms` is of how many arms the pool has the first documents, and where the old store is searched `together` with the
    new one, it has as many of both. Where not all queries are `ranked`, it has those of so many, and some of others.
    They are taken to lie anywhere: in a small store some come up again.
    """
    count = expected_count(translated.info.count, query_set, arms, stages=stages, together=together, ranked=ranked)
    rows = np.sort(np.random.default_rng(seed).permutation(translated.info.count)[:count]).astype(np.int64)
    return known_documents(translated, rows)


def expected_count(
    count: int,
    query_set: QuerySet,
    arms: int,
    *,
    stages: Sequence[int] | None = None,
    together: bool = False,
    ranked: int | None = None,
) -> int:
    """Return about how many of the `count` documents of a store a pool embeds.

    The other parameters are those of `expected_documents`.
    """
    deepest_stage = max(stages or (0,))
    depth = max(first_depth(query_set, stages), deepest_stage)
    if together:
        depth += deepest_stage
    n_queries = len(query_set.queries)
    n_ranked = min(ranked or n_queries, n_queries)
    near = (depth + arms * _others_depth(query_set)) * n_ranked
    # Of others only those that an arm may lose: about one in twelve, to the depth of the first steps
    near += (n_queries - n_ranked) * _FEWEST_UNJUDGED // 12
    judged = len(judged_documents(query_set)) * n_ranked // n_queries
    drawn = judged + near + _SAMPLED_AT_FIRST
    # Of so many draws with replacement, the different ones: 1 - (1 - 1 / count) ** drawn of all, nearly
    different = count * -math.expm1(-drawn / count)
    return min(math.ceil(different), count)


@dataclass(frozen=True, eq=False)
class PoolInputs:
    """The inputs of every step of a pool.

    `ranked` are the translated store's nearest rows for each query, `other_runs` those of other arms: they bring the
    pool nearer to the full re-embed, and carry no guarantee. `true_rows` have true vectors in the translated store.
    """

    experiment: Experiment
    runs: Runs
    costs: Costs
    embedder: Embedder
    announce: Callable[[PoolStep], None] | None
    ranked: Ranked
    other_runs: Sequence[Rankings]
    true_rows: Rows

    @property
    def translated(self) -> Searchable:
        """The translated store."""
        return self.experiment.stores[TRANSLATED]

    @property
    def count(self) -> int:
        """The number of its rows."""
        return self.translated.store.info.count


def grow_pool(
    experiment: Experiment,
    runs: Runs,
    costs: Costs,
    embedder: Embedder,
    *,
    announce: Callable[[PoolStep], None] | None = None,
) -> GrownPool:
    """Embed a pool, and deepen it until the verdict is settled, nothing is left to learn, or the money is spent.

    `experiment` has every store but the full re-embed, and `runs` what they answer. Each step is announced before its
    documents are embedded. What is embedded goes through the cache of the target model: the same call after one that
    broke off embeds the rest. It fails where the first step costs more than may be spent.
    """
    settings = experiment.settings
    most = settings.pool_depth
    if most is None:
        most = DEPTHS[-1]
    _check(experiment, embedder, most)
    inputs = _pool_inputs(experiment, runs, costs, embedder, most, announce)
    first = min(first_depth(experiment.query_set, settings.stages), most)
    stages: Sequence[int] = ()
    if settings.stages is not None:
        stages = [depth for depth in depths_asked(experiment) if depth <= most]
    deepest_stage = max(stages, default=0)
    pool, state = _deepened(inputs, _empty_pool(inputs), first)
    stopped = None
    try:
        # Two stages are asked about for every query, whatever the verdict
        if deepest_stage > first:
            pool, state = _deepened(inputs, pool, deepest_stage)
        for depth in sorted({*DEPTHS, most}):
            is_deeper = max(first, deepest_stage) < depth <= most and not _is_for_stages(experiment)
            if is_deeper and not state.is_settled and state.matters.any():
                pool, state = _deepened(inputs, pool, depth, state.matters)
        if is_kept(embedder) and _may_serve(state):
            pool, state = _deepened(inputs, pool, _STAGES)
    except SpendingError as error:
        stopped = str(error)
    prove_answers(inputs, pool)
    return replace(state, summary=replace(state.summary, stopped=stopped))


def _check(experiment: Experiment, embedder: Embedder, most: int) -> None:
    info = experiment.stores[TRANSLATED].store.info
    if experiment.query_set.is_judged:
        least = 2
        reason = ""
    else:
        least = _FEWEST_UNJUDGED
        reason = ", as nothing is judged"
    if most < least:
        raise UsageError(f"--reference pool:{most} is too few documents a query; give pool:{least} or more{reason}")
    if not info.has_texts and needs_texts(embedder):
        raise StoreError(
            f"{info.location} has no texts to embed for a pool; {info.way_to_texts}, or name a file of vectors with "
            "--target file:PATH"
        )


def _pool_inputs(
    experiment: Experiment,
    runs: Runs,
    costs: Costs,
    embedder: Embedder,
    most: int,
    announce: Callable[[PoolStep], None] | None,
) -> PoolInputs:
    translated = experiment.stores[TRANSLATED]
    ranked = rank_rows(translated.store, translated.queries, most, progress=experiment.progress)
    # They bring the pool nearer to the full re-embed, and carry no guarantee: SAFE rests on the translated store's own
    # documents
    other_runs = [timed.run for name, timed in runs.by_store.items() if name != TRANSLATED]
    if STAY in experiment.stores:
        other_runs.append(fuse_stores(experiment, runs).run)
    if experiment.ranks_words and runs.bm25 is not None:
        other_runs += [runs.bm25.run, fuse(experiment, runs.by_store[TRANSLATED], runs.bm25).run]
    is_true = np.flatnonzero(true_rows(translated.store))
    return PoolInputs(experiment, runs, costs, embedder, announce, ranked, other_runs, is_true)


def _empty_pool(inputs: PoolInputs) -> Pool:
    """Return a pool without documents."""
    return Pool(
        depths=np.zeros(len(inputs.translated.queries), dtype=np.int64),
        pooled=np.zeros(inputs.count, dtype=bool),
        sampled=np.zeros(inputs.count, dtype=bool),
        vector_row=np.full(inputs.count, -1, dtype=np.int64),
        vectors=np.empty((0, inputs.translated.store.info.dim), dtype=np.float32),
    )


def _deepened(
    inputs: PoolInputs, pool: Pool, depth: int, matters: NDArray[np.bool_] | None = None
) -> tuple[Pool, GrownPool]:
    """Deepen a pool for the queries that matter, (q,), or for all, embed what that needs, and judge.

    Fails where that costs more than is left of what may be spent.
    """
    translated = inputs.translated
    other_depth = depth // 2
    if matters is None:
        other_depth = _others_depth(inputs.experiment.query_set)
        if _is_for_stages(inputs.experiment):
            other_depth = 0
        matters = np.ones(len(pool.depths), dtype=bool)
    depths = np.where(matters, min(depth, inputs.count), pool.depths)
    pooled = pool.pooled.copy()
    pooled[_documents_wanted(inputs, depths, matters, other_depth, is_first=not pool.steps)] = True
    surroundings = None
    sampled = np.zeros_like(pooled)
    if not pooled.all():
        surroundings = look_around(
            translated.store,
            translated.queries,
            inputs.ranked,
            ~pooled,
            seed=inputs.experiment.settings.seed,
            progress=inputs.experiment.progress,
            sampled=_sampled(inputs.experiment),
        )
        sampled[surroundings.rows] = True
        if (pooled | sampled).all():  # nothing is left outside
            pooled = pooled | sampled
            sampled = np.zeros_like(pooled)
            surroundings = None
    new = np.flatnonzero((pooled | sampled) & (pool.vector_row < 0))
    step = _step(inputs, depth, int(matters.sum()), new, sampled)
    if inputs.announce is not None:
        inputs.announce(step)
    # A few vectors of true rows first: they show whether the store was translated for this very model
    if not pool.steps and len(proof := _proof_rows(inputs)):
        pool = with_vectors(inputs, pool, proof)
        # Before more is spent on what may be another model: the proof refuses it
        reference_in(inputs, pool)
        new = np.setdiff1d(new, proof)
    pool = with_vectors(inputs, pool, new)
    pool = replace(pool, depths=depths, pooled=pooled, sampled=pool.sampled | sampled, steps=(*pool.steps, step))
    return pool, _judged(inputs, pool, surroundings)


def embed_step(inputs: PoolInputs, pool: Pool, rows: Rows, depth: int, n_queries: int) -> Pool:
    """Return the pool with the vectors of some rows, for so many queries to a depth; announced before it is paid."""
    new = rows[pool.vector_row[rows] < 0]
    if not len(new):
        return pool
    step = _step(inputs, depth, n_queries, new, pool.sampled)
    if inputs.announce is not None:
        inputs.announce(step)
    pooled = pool.pooled.copy()
    pooled[rows] = True
    return replace(with_vectors(inputs, pool, new), pooled=pooled, steps=(*pool.steps, step))


def _is_for_stages(experiment: Experiment) -> bool:
    """Return whether arms that rank again are judged by all queries: more would be for the translated store alone."""
    return experiment.settings.ranked_queries is not None and bool(experiment.settings.stages)


def _sampled(experiment: Experiment) -> int:
    """Return how many errors are measured in each band."""
    if experiment.settings.ranked_queries is None:
        return SAMPLED
    # For figures that judge nothing then, one for each query
    return len(experiment.query_set.queries)


def _step(inputs: PoolInputs, depth: int, n_queries: int, new: Rows, sampled: NDArray[np.bool_]) -> PoolStep:
    store = inputs.translated.store
    tokens = usd = None
    if store.info.has_texts:
        cost = inputs.costs.tally.cost(store.documents(new))
        tokens = cost.tokens
        usd = cost.usd
    return PoolStep(depth, n_queries, len(new), int(sampled[new].sum()), tokens, usd)


def _documents_wanted(
    inputs: PoolInputs, depths: Rows, matters: NDArray[np.bool_], other_depth: int, *, is_first: bool
) -> Rows:
    """Return the rows of the translated store's first documents for each query, of other arms', and judged ones.

    Other arms are asked for the queries that matter alone.
    """
    query_set = inputs.experiment.query_set
    keys = inputs.translated.keys
    arm = inputs.runs.by_store[TRANSLATED].run
    documents: set[str] = set()
    proof = np.empty(0, dtype=np.int64)
    if is_first:
        documents = judged_documents(query_set)
        proof = _proof_rows(inputs)
    reranked: set[str] = set()
    for candidates in inputs.runs.candidates.values():
        for first, depth in zip(candidates, depths.tolist(), strict=True):
            # Ranked alike, but for ties
            reranked.update(first[:depth])
    for query, query_id in enumerate(query_set.query_ids):
        if matters[query]:
            documents.update(*(run.top(query_id, min(other_depth, DEPTH)) for run in inputs.other_runs))
        if asks_index(inputs.experiment, TRANSLATED):  # which may find others than are nearest
            documents.update(arm.top(query_id, min(int(depths[query]), DEPTH)))
        if is_first and not query_set.is_judged:
            documents.update(arm.top(query_id, CUT))  # all chunks of them
            documents.update(inputs.runs.exact[TRANSLATED].run.top(query_id, CUT))
    near = [inputs.ranked.rows[query, :depth] for query, depth in enumerate(depths.tolist())]
    rows = (keys.documents.all_rows_of(documents), keys.ids.all_rows_of(reranked))
    return np.unique(np.concatenate([*rows, proof, *near]))


def _proof_rows(inputs: PoolInputs) -> Rows:
    """Return some rows with true vectors: they show that the store was translated for this model."""
    return np.random.default_rng(inputs.experiment.settings.seed).permutation(inputs.true_rows)[:SPOT_CHECKS]


def with_vectors(inputs: PoolInputs, pool: Pool, rows: Rows) -> Pool:
    """Return the pool with the vectors of further rows, embedded now."""
    if not len(rows):
        return pool
    # Kept beside the vectors in the cache: these queries may not judge a store that is filled in from it
    embedder = with_choosers(inputs.embedder, digests_of(inputs.experiment.query_set.queries))
    documents = list(known_documents(inputs.translated.store, rows))
    vectors = embedder.embed_documents(documents, progress=inputs.experiment.progress)
    vector_row = pool.vector_row.copy()
    vector_row[rows] = len(pool.vectors) + np.arange(len(rows))
    return replace(pool, vector_row=vector_row, vectors=np.concatenate([pool.vectors, vectors]))


def prove_answers(inputs: PoolInputs, pool: Pool) -> None:
    """Make sure that the model gives the vectors of the pool, asked again; raises as `embed_again` does."""
    store = inputs.translated.store
    # At the end, so that a server which began to mix up its texts meanwhile is found out before there is a verdict
    sample = np.random.default_rng(inputs.experiment.settings.seed).permutation(pool.rows)[:ASKED_AGAIN]
    claim = Claim(list(known_documents(store, sample)), pool.vectors_of(sample))
    matches(claim, inputs.embedder, past_cache=True).require(store.info.location)


def reference_in(inputs: PoolInputs, pool: Pool) -> tuple[Searchable, ReferenceProof]:
    """Return the pool as the store that stands for the full re-embed, and how it was shown to do so."""
    translated = inputs.translated
    rows = pool.rows
    keys = translated.keys.some(rows)
    store = PoolStore(translated.store, translated.keys.ids.take(rows), rows, pool.vectors_of(rows))
    both: tuple[Keys, Keys] = (translated.keys, keys)
    proof = prove_pool(translated.store, store, inputs.embedder, both, seed=inputs.experiment.settings.seed)
    return Searchable(store, keys, translated.queries, share=1.0), proof


def _judged(inputs: PoolInputs, pool: Pool, surroundings: Surroundings | None) -> GrownPool:
    """Put the queries to the pool as it is now, and judge by it."""
    reference, proof = reference_in(inputs, pool)
    is_whole = surroundings is None
    depth = None
    if not is_whole:
        depth = int(pool.depths.min())
    stores = {**inputs.experiment.stores, FULL: reference}
    experiment = replace(inputs.experiment, stores=stores, pool_depth=depth, same_ids=is_whole)
    runs = with_reference(inputs.runs, experiment)
    query_set = experiment.query_set
    outside = None
    floor = None
    losses = np.zeros(len(pool.depths))
    if surroundings is not None:
        outside = _outside(inputs, pool, surroundings, experiment, runs.full)
        losses = outside.losses(runs.full, query_set)
        floor = outside.floor(runs.full, query_set, losses)
    evidence = Evidence(experiment, runs, rules_of(experiment, floor), proof, outside)
    arm = evidence.scores(runs.by_store[TRANSLATED].run)
    full = evidence.scores(runs.full)
    stay = None
    if query_set.is_judged and STAY in runs.by_store:
        stay = evidence.scores(runs.by_store[STAY].run)
    verdict = evidence.rules.verdict(arm, full, stay)
    return GrownPool(evidence, summary_of(inputs, pool), arm, full, verdict, losses > _MATTERS, inputs, pool)


def _may_serve(state: GrownPool) -> bool:
    """Return whether nothing is SAFE yet, and two stages of a deeper pool may be, for less than the whole store."""
    evidence = state.evidence
    experiment = evidence.experiment
    settings = experiment.settings
    is_open = settings.stages is None and experiment.query_set.is_judged and evidence.rules.floor is not None
    if not is_open or state.verdict.outcome is Outcome.SAFE or (experiment.pool_depth or _STAGES) >= _STAGES:
        return False
    if (settings.pool_depth or 0) < _STAGES or not experiment.stores[FULL].store.info.has_texts:
        return False
    scores = {}
    for depth in depths_reached(experiment):
        rows = candidate_rows(experiment, evidence.runs, TWO_STAGE, depth)
        scores[f"{TWO_STAGE} {depth}"] = evidence.scores(rerank(experiment, rows, depth).run)
    family = family_of(experiment, evidence.runs.full, evidence.rules, scores)
    return not any(bounds.lower >= settings.margin for bounds in family.values())


def _outside(
    inputs: PoolInputs, pool: Pool, surroundings: Surroundings, experiment: Experiment, run: Rankings
) -> Outside:
    """Return what lies outside, now that the sample of it is embedded; `experiment` has the pool, and `run` is its."""
    query_set = experiment.query_set
    settings = experiment.settings
    translated = inputs.translated
    metric = translated.store.info.metric
    extra = np.flatnonzero((pool.vector_row >= 0) & ~pool.pooled)
    near = as_compared(translated.store.info, translated.store.get(extra).vectors)
    unseen = surroundings.without(score_rows(translated.queries, near, metric))
    errors = [_true_scores(inputs, pool, drawn.queries, drawn.rows) - drawn.scores for drawn in surroundings.drawn]
    # A band that the pool covers ends inside a bin of the next one, whose errors stand for it
    for band in reversed(range(len(errors) - 1)):
        if not len(errors[band]):
            errors[band] = errors[band + 1]
    position_of = {query_id: position for position, query_id in enumerate(query_set.query_ids)}
    recent = [_recent(inputs, pool, query) for query in range(len(pool.depths))]
    temperature = None
    if not query_set.is_judged:
        temperature = agreement_temperature(experiment, run)
    bootstrap = Bootstrap(seed=settings.seed)
    ratio, most = ratio_of_losses(run, recent, query_set, metric, temperature, bootstrap)
    tails = [ErrorTail.of(drawn) for drawn in errors]
    return Outside(unseen, tails, metric, position_of, ratio, most, temperature)


def _true_scores(inputs: PoolInputs, pool: Pool, queries: Rows, rows: Rows) -> NDArray[np.float64]:
    """Return the true scores of pairs of a query and a row, (n,), in the order of the queries."""
    translated = inputs.translated
    info = translated.store.info
    scores = np.empty(len(queries))
    ends = np.searchsorted(queries, np.arange(len(translated.queries) + 1))
    for query in np.unique(queries):
        span = slice(ends[query], ends[query + 1])
        vectors = as_compared(info, pool.vectors_of(rows[span]))
        scores[span] = score_rows(translated.queries[query : query + 1], vectors, info.metric)[0]
    return scores


def _recent(inputs: PoolInputs, pool: Pool, query: int) -> Lately:
    """Return the later half of the translated store's documents that a query has in the pool, without judged ones.

    Nor are the arm's first ten among them where nothing is judged, nor the query's own document.
    """
    query_set = inputs.experiment.query_set
    documents = inputs.translated.keys.documents
    ranked = inputs.ranked
    depth = int(pool.depths[query])
    query_id = query_set.query_ids[query]
    # The later half was embedded because of its translated rank alone, as what lies outside would be next
    former = ranked.rows[query, : depth // 2]
    half = slice(depth // 2, depth)
    left_out = set(query_set.grades(query_id))
    if not query_set.is_judged:
        left_out = set(inputs.runs.by_store[TRANSLATED].run.top(query_id, CUT))
        if query_set.exclude_self:
            left_out.add(query_id)
    rows = ranked.rows[query, half]
    is_left = np.array([document not in left_out for document in documents.take(rows)], dtype=bool)
    rows = rows[is_left]
    true = _true_scores(inputs, pool, np.full(len(rows), query), rows)
    names = frozenset(documents.take(rows)).difference(documents.take(former))
    return Lately(ranked.scores[query, half][is_left], true, names)


def summary_of(inputs: PoolInputs, pool: Pool) -> PoolSummary:
    """Return the facts of a pool."""
    counted = [step.tokens for step in pool.steps if step.tokens is not None]
    tokens = None
    usd = None
    if counted:
        tokens = sum(counted)
        usd = usd_of(tokens, inputs.costs.tally.price)
    full = inputs.costs.of_share(1)
    full_tokens = None
    if full.tokens is not None:
        full_tokens = round(full.tokens)
    return PoolSummary(
        depth=int(pool.depths.max()),
        documents=len(pool.rows),
        count=inputs.count,
        sampled=int((pool.sampled & ~pool.pooled).sum()),
        tokens=tokens,
        usd=usd,
        full_tokens=full_tokens,
        full_usd=full.usd,
        steps=pool.steps,
        provisional=not inputs.experiment.query_set.is_judged,
        true_outside=int((pool.vector_row[inputs.true_rows] < 0).sum()),
    )
