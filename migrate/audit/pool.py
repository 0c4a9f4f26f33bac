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
from migrate.audit.measures import CUT, Scores
from migrate.audit.outside import (
    SAMPLED,
    ErrorTail,
    Lately,
    Outside,
    Rows,
    Surroundings,
    look_around,
    rank_rows,
    ratio_of_losses,
    score_rows,
)
from migrate.audit.query_set import QuerySet
from migrate.audit.reference import prove_pool
from migrate.audit.results import FULL, STAY, TOGETHER, TRANSLATED, TWO_STAGE
from migrate.audit.retrieval import Retriever
from migrate.audit.rules import Rules
from migrate.audit.verdict import Verdict
from migrate.cost import usd_of
from migrate.cost.estimate import dollars, token_count
from migrate.display import percent
from migrate.embedders.abilities import needs_texts
from migrate.embedders.cache import is_kept, with_choosers
from migrate.errors import SpendingError, StoreError, UsageError
from migrate.search.runs import DEPTH
from migrate.selection.choosers import digests_of
from migrate.selection.matches import ASKED_AGAIN, SPOT_CHECKS, Claim, matches
from migrate.selection.sample import known_documents
from migrate.stores.base import BATCH_SIZE, Store, StoreInfo, StoreWriter
from migrate.stores.confidence import true_rows
from migrate.stores.serving import as_compared
from migrate.vectors import Batch, Document, Vectors

DEPTHS: Final = (10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
"""How many documents of the translated store the pool has for a query, step by step."""

_FEWEST_UNJUDGED: Final = 2 * CUT
"""The first ten of the arm have to be there, and as many others, which say what more may bring."""

_STAGES: Final = 50
"""To this depth a pool goes for every query where nothing is SAFE yet: what it embeds is kept for whatever follows."""


class PoolStore(Store):
    """The pool as a store: some `rows` of the translated store, ascending, with their true `vectors`, in memory."""

    def __init__(self, translated: Store, ids: Sequence[str], rows: Rows, vectors: Vectors) -> None:
        self._translated, self._ids, self._rows, self._vectors = translated, ids, rows, vectors
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
        end = len(self._ids) if stop is None else min(stop, len(self._ids))
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
        return self._translated.documents(self._rows if rows is None else self._rows[rows])

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
        return (
            f"pool, the first {self.depth} documents for {self.queries:,} queries: {self.documents:,} to embed"
            f"{'' if self.tokens is None else f', {_price(self.tokens, self.usd)}'}"
        )


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
        full = ""
        if self.full_tokens is not None and not self.is_exact:
            full = f"; a full re-embed takes {_price(self.full_tokens, self.full_usd)}"
        embedded = (
            f"pool: true vectors of {self._extent}"
            f"{'' if self.tokens is None else f', {_price(self.tokens, self.usd)}'}{full}"
        )
        stopped = (f"the pool did not grow further: {self.stopped}",) if self.stopped else ()
        if self.is_exact:
            return (embedded, *stopped)
        guaranteed = (
            "guaranteed: lower bounds of retention, what all other arms score, and every comparison with staying; the "
            "full re-embed is shown as it scores in the pool, which is the most it can, and so are wins and losses "
            "against it"
        )
        estimated = "retention, its upper bounds and the slices"
        if self.provisional:
            guaranteed = (
                "guaranteed, where scores are measured by their spread in the pool: upper bounds of agreement@10, so "
                "that NOT SAFE is what a full re-embed would say; what each arm scores is the most that it can"
            )
            estimated = "agreement@10 of the verdict, its lower bounds and with them SAFE"
        by = f"by {self.sampled:,} documents drawn at random outside the pool"
        return (embedded, guaranteed, f"estimated: {estimated}, {by}", *stopped)


def _price(tokens: int, usd: float | None) -> str:
    return token_count(tokens) + ("" if usd is None else f" ({dollars(usd)})")


@dataclass(frozen=True, eq=False)
class GrownPool:
    """A pool after a step: what the full re-embed scores in it, and what follows.

    `retriever` has the pool in the place of the full re-embed, and `rules` the floor of it; `arm` and `full` are scores
    by the deciding measure, (c,). `outside` is what lies around the pool, None where nothing does. `matters` says which
    queries may gain by a deeper pool, (q,).
    """

    retriever: Retriever
    rules: Rules
    summary: PoolSummary
    arm: Scores
    full: Scores
    outside: Outside | None
    verdict: Verdict
    matters: NDArray[np.bool_]

    @property
    def is_settled(self) -> bool:
        """True where no deeper pool can change the verdict: it is made, or it is for want of queries or documents."""
        return self.verdict.outcome is not Outcome.INCONCLUSIVE or not self._may_change

    @property
    def _may_change(self) -> bool:
        """True where either verdict would come about if documents outside took nothing, or as much as they may."""
        floor = self.rules.floor
        if floor is None or self.verdict.lacks_documents:
            return False
        rules, scores = replace(self.rules, floor=None), ((self.arm, self.full), floor.extreme(self.arm, self.full))
        return {rules.verdict(arm, full).outcome for arm, full in scores} != {Outcome.INCONCLUSIVE}

    @property
    def remedy(self) -> str | None:
        """A way to settle an inconclusive verdict, where that is not queries."""
        if self.is_settled:
            return None
        return (
            "a deeper pool may settle it (pool_depth of migrate.audit, --max-cost), a full re-embed does as far as "
            "the queries allow (`--reference build`)"
        )

    @property
    def may_serve(self) -> bool:
        """True where nothing is SAFE yet, and two stages of a deeper pool may be, for less than the whole store."""
        retriever, rules, settings = self.retriever, self.rules, self.retriever.settings
        is_open = settings.stages is None and retriever.query_set.is_judged and rules.floor is not None
        if not is_open or self.verdict.outcome is Outcome.SAFE or (retriever.pool_depth or _STAGES) >= _STAGES:
            return False
        if (settings.most_deep or 0) < _STAGES or not retriever.stores[FULL].info.has_texts:
            return False
        runs = {f"{TWO_STAGE} {depth}": retriever.rerank(depth, TWO_STAGE).run for depth in retriever.rerank_depths}
        scores = {name: retriever.deciding_scores(run) for name, run in runs.items()}
        return not any(bounds.lower >= settings.margin for bounds in family_of(retriever, rules, scores).values())


def first_depth(query_set: QuerySet, stages: Sequence[int] | None) -> int:
    """Return how many of the translated store's first documents a pool has at least; more for two stages."""
    return DEPTHS[0] if query_set.is_judged and stages is not None and not stages else _FEWEST_UNJUDGED


def _others_depth(query_set: QuerySet) -> int:
    """Return how many of any other arm's first documents it has: without judgements, all that its score is of."""
    return CUT // 2 if query_set.is_judged else CUT


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
    seed: int,
) -> Iterator[Document]:
    """Yield about what a pool embeds for every query, for an estimate of its cost: as many documents, drawn at random.

    `arms` is of how many arms the pool has the first documents, and where the old store is searched `together` with the
    new one, it has as many of both. They are taken to lie anywhere: in a small store some come up again.
    """
    count = expected_count(translated.info.count, query_set, arms, stages=stages, together=together)
    rows = np.sort(np.random.default_rng(seed).permutation(translated.info.count)[:count]).astype(np.int64)
    return known_documents(translated, rows)


def expected_count(
    all_of_them: int, query_set: QuerySet, arms: int, *, stages: Sequence[int] | None = None, together: bool = False
) -> int:
    """Return about how many documents of a store a pool embeds; the parameters are those of `expected_documents`."""
    depth = max(first_depth(query_set, stages), *(stages or ()), 0)
    depth += max(stages or (0,)) if together else 0
    near = (depth + arms * _others_depth(query_set)) * len(query_set.queries)
    drawn = len(judged_documents(query_set)) + near + 3 * SAMPLED  # about how many a first step draws at random
    return min(math.ceil(all_of_them * -math.expm1(-drawn / all_of_them)), all_of_them)


def grow_pool(retriever: Retriever, most: int, *, announce: Callable[[PoolStep], None] | None = None) -> GrownPool:
    """Embed a pool, and deepen it until the verdict is settled, nothing is left to learn, or the money is spent.

    `retriever` has every store but the full re-embed. The pool has `most` documents of the translated store for a query
    at most, and each step is announced before its documents are embedded. What is embedded goes through the cache of
    the target model: the same call after one that broke off embeds the rest. It fails where the first step costs more
    than may be spent.
    """
    stages = retriever.settings.stages
    _check(retriever, most)
    pool = _Pool(retriever, most, announce)
    first = min(first_depth(retriever.query_set, stages), most)
    depths = [] if stages is None else retriever.asked_depths  # for every query
    depth_asked = max((depth for depth in depths if depth <= most), default=0)
    state, stopped = pool.step(first), None
    try:
        if depth_asked > first:
            state = pool.step(depth_asked)
        for depth in sorted({*DEPTHS, most}):
            if max(first, depth_asked) < depth <= most and not state.is_settled and state.matters.any():
                state = pool.step(depth, state.matters)
        if is_kept(retriever.embedder) and state.may_serve:
            state = pool.step(_STAGES)
    except SpendingError as error:
        stopped = str(error)
    pool.prove_answers()
    return replace(state, summary=replace(state.summary, stopped=stopped))


def _check(retriever: Retriever, most: int) -> None:
    translated, is_judged = retriever.stores[TRANSLATED], retriever.query_set.is_judged
    least = 2 if is_judged else _FEWEST_UNJUDGED
    if most < least:
        reason = "" if is_judged else ", as nothing is judged"
        raise UsageError(f"pool_depth={most} is too few documents a query; give {least} or more{reason}")
    if not translated.info.has_texts and needs_texts(retriever.embedder):
        raise StoreError(
            f"{translated.info.location} has no texts to embed for a pool; {translated.info.way_to_texts}, or "
            "name a file of vectors with --target file:PATH"
        )


class _Pool:
    """The documents with true vectors so far, and what every step needs."""

    def __init__(self, retriever: Retriever, most: int, announce: Callable[[PoolStep], None] | None) -> None:
        self.retriever, self.query_set, self.embedder = retriever, retriever.query_set, retriever.embedder
        self.seed, self.progress, self.announce = retriever.settings.seed, retriever.progress, announce
        self.translated, self.queries = retriever.stores[TRANSLATED], retriever.vectors[TRANSLATED]
        self.metric = self.translated.info.metric
        self.keys, self.count = retriever.keys[TRANSLATED], self.translated.info.count
        self.ranked = rank_rows(self.translated, self.queries, most, progress=self.progress)
        self.arm_run = retriever.search(TRANSLATED).run
        # The other arms bring the pool nearer to the full re-embed, and carry no guarantee
        self.others = [retriever.search(name).run for name in retriever.stores if name not in (FULL, TRANSLATED)]
        if STAY in retriever.stores:
            self.others.append(retriever.together().run)
        if retriever.ranks_words:
            by_words = retriever.bm25
            self.others += [by_words.run, retriever.fuse(retriever.search(TRANSLATED), by_words).run]
        self.true_rows = np.flatnonzero(true_rows(self.translated))
        self.depths = np.zeros(len(self.queries), dtype=np.int64)
        self.pooled = np.zeros(self.count, dtype=bool)
        self.sampled = np.zeros(self.count, dtype=bool)
        self.vector_row = np.full(self.count, -1, dtype=np.int64)
        self.vectors = np.empty((0, self.translated.info.dim), dtype=np.float32)
        self.steps: list[PoolStep] = []
        in_play = self.query_set.is_judged and STAY in retriever.stores
        self.stay = retriever.deciding_scores(retriever.search(STAY).run) if in_play else None

    def step(self, depth: int, matters: NDArray[np.bool_] | None = None) -> GrownPool:
        """Deepen the pool for the queries that matter, (q,), or for all, embed what that needs, and judge.

        Where that costs more than is left of what may be spent, the pool stays as it was.
        """
        other_depth = _others_depth(self.query_set) if matters is None else depth // 2
        matters = np.ones(len(self.queries), dtype=bool) if matters is None else matters
        depths = np.where(matters, min(depth, self.count), self.depths)
        pooled = self.pooled.copy()
        pooled[self._documents_wanted(depths, matters, other_depth)] = True
        surroundings, sampled = None, np.zeros_like(pooled)
        if not pooled.all():
            surroundings = look_around(
                self.translated,
                self.queries,
                self.ranked,
                ~pooled,
                seed=self.seed,
                progress=self.progress,
            )
            sampled[surroundings.rows] = True
            if (pooled | sampled).all():  # nothing is left outside
                pooled, sampled, surroundings = pooled | sampled, np.zeros_like(pooled), None
        new = np.flatnonzero((pooled | sampled) & (self.vector_row < 0))
        has_texts = self.translated.info.has_texts
        cost = self.retriever.tally.cost(self.translated.documents(new)) if has_texts else None
        price = (None, None) if cost is None else (cost.tokens, cost.usd)
        step = PoolStep(depth, int(matters.sum()), len(new), int(sampled[new].sum()), *price)
        if self.announce is not None:
            self.announce(step)
        if not self.steps and len(proof := self._proof_rows()):
            self._embed(proof)
            self._prepared(in_pool=True)  # before more is spent on another model
            new = np.setdiff1d(new, proof)
        self._embed(new)
        self.steps.append(step)
        self.depths, self.pooled, self.sampled = depths, pooled, self.sampled | sampled
        return self._judged(surroundings)

    def _documents_wanted(self, depths: Rows, matters: NDArray[np.bool_], other_depth: int) -> Rows:
        """Return the rows of the translated store's first documents for each query, of other arms', and judged ones.

        Other arms are asked for the queries that matter alone.
        """
        is_first = not self.steps
        documents = judged_documents(self.query_set) if is_first else set()
        reranked: set[str] = set()
        for name in (TWO_STAGE, TOGETHER) if self.retriever.reranks_together else (TWO_STAGE,):
            for first, depth in zip(self.retriever.candidates(name), depths.tolist(), strict=True):
                reranked.update(first[:depth])  # ranked alike, but for ties
        for query, query_id in enumerate(self.query_set.query_ids):
            if matters[query]:
                documents.update(*(run.top(query_id, min(other_depth, DEPTH)) for run in self.others))
            if self.retriever.asks_index(TRANSLATED):  # which may find others than are nearest
                documents.update(self.arm_run.top(query_id, min(int(depths[query]), DEPTH)))
            if is_first and not self.query_set.is_judged:
                documents.update(self.arm_run.top(query_id, CUT))  # all chunks of them
                documents.update(self.retriever.exactly(TRANSLATED).run.top(query_id, CUT))
        rows = self.keys.documents.all_rows_of(documents), self.keys.ids.all_rows_of(reranked)
        near = [self.ranked.rows[query, :depth] for query, depth in enumerate(depths.tolist())]
        proof = self._proof_rows() if is_first else np.empty(0, dtype=np.int64)
        return np.unique(np.concatenate([*rows, proof, *near]))

    def _proof_rows(self) -> Rows:
        """Return some rows with true vectors: they show that the store was translated for this model."""
        return np.random.default_rng(self.seed).permutation(self.true_rows)[:SPOT_CHECKS]

    def _embed(self, rows: Rows) -> None:
        if not len(rows):
            return
        embedder = with_choosers(self.embedder, digests_of(self.query_set.queries))
        documents = list(known_documents(self.translated, rows))
        vectors = embedder.embed_documents(documents, progress=self.progress)
        self.vector_row[rows] = len(self.vectors) + np.arange(len(rows))
        self.vectors = np.concatenate([self.vectors, vectors])

    def prove_answers(self) -> None:
        """Make sure that the model gives the vectors of the pool, asked again; raises as `embed_again` does."""
        rows = np.flatnonzero(self.vector_row >= 0)
        sample = np.random.default_rng(self.seed).permutation(rows)[:ASKED_AGAIN]
        documents = list(known_documents(self.translated, sample))
        claim = Claim(documents, self.vectors[self.vector_row[sample]])
        matches(claim, self.embedder, past_cache=True).require(self.translated.info.location)

    def _prepared(self, *, in_pool: bool) -> Retriever:
        """Return the retriever with the pool in the place of the full re-embed, after it was proven."""
        retriever, rows = self.retriever, np.flatnonzero(self.vector_row >= 0)
        keys = self.keys.some(rows)
        store = PoolStore(self.translated, self.keys.ids.take(rows), rows, self.vectors[self.vector_row[rows]])
        proof = prove_pool(self.translated, store, self.embedder, (self.keys, keys), seed=self.seed)
        depth = int(self.depths.min()) if in_pool else self.count
        return retriever.in_a_pool(store, keys, proof, depth, is_whole=not in_pool)

    def _judged(self, surroundings: Surroundings | None) -> GrownPool:
        """Return the pool as it is now."""
        retriever = self._prepared(in_pool=surroundings is not None)
        run = retriever.search(FULL).run
        outside, losses, floor = None, np.zeros(len(self.queries)), None
        if surroundings is not None:
            outside = self._outside(surroundings, retriever)
            losses = outside.losses(run, self.query_set)
            floor = outside.floor(run, self.query_set, losses)
        rules = retriever.rules(floor)
        arm, full = (retriever.deciding_scores(ranking) for ranking in (self.arm_run, run))
        verdict = rules.verdict(arm, full, self.stay)
        return GrownPool(retriever, rules, self._summary(), arm, full, outside, verdict, losses > 1e-3)

    def _outside(self, surroundings: Surroundings, retriever: Retriever) -> Outside:
        """Return what lies outside, now that the sample of it is embedded; `retriever` has the pool."""
        query_set, run, seed = self.query_set, retriever.search(FULL).run, self.seed
        extra = np.flatnonzero((self.vector_row >= 0) & ~self.pooled)
        near = as_compared(self.translated.info, self.translated.get(extra).vectors)
        unseen = surroundings.without(score_rows(self.queries, near, self.metric))
        errors = [self._true_scores(drawn.queries, drawn.rows) - drawn.scores for drawn in surroundings.drawn]
        for band in reversed(range(len(errors) - 1)):  # one that the pool covers ends inside a bin of the next
            errors[band] = errors[band] if len(errors[band]) else errors[band + 1]
        position_of = {query_id: position for position, query_id in enumerate(query_set.query_ids)}
        recent = [self._recent(query) for query in range(len(self.queries))]
        temperature = None if query_set.is_judged else retriever.temperature
        bootstrap = Bootstrap(seed=seed, resamples=retriever.settings.resamples)
        ratios = ratio_of_losses(run, recent, query_set, self.metric, temperature, bootstrap)
        return Outside(
            unseen, [ErrorTail.of(drawn) for drawn in errors], self.metric, position_of, *ratios, temperature
        )

    def _true_scores(self, queries: Rows, rows: Rows) -> NDArray[np.float64]:
        """Return the true scores of pairs of a query and a row, (n,), in the order of the queries."""
        scores = np.empty(len(queries))
        ends = np.searchsorted(queries, np.arange(len(self.queries) + 1))
        for query in np.unique(queries):
            span = slice(ends[query], ends[query + 1])
            vectors = as_compared(self.translated.info, self.vectors[self.vector_row[rows[span]]])
            scores[span] = score_rows(self.queries[query : query + 1], vectors, self.metric)[0]
        return scores

    def _recent(self, query: int) -> Lately:
        """Return the later half of the translated store's documents that a query has in the pool, without judged ones.

        Nor are the arm's first ten among them where nothing is judged, nor the query's own document.
        """
        query_set, depth = self.query_set, int(self.depths[query])
        query_id = query_set.query_ids[query]
        former, half = self.ranked.rows[query, : depth // 2], slice(depth // 2, depth)
        left_out = set(query_set.grades(query_id))
        if not query_set.is_judged:
            left_out = {*self.arm_run.top(query_id, CUT), *([query_id] if query_set.exclude_self else [])}
        rows = self.ranked.rows[query, half]
        documents = self.keys.documents
        is_left = np.array([document not in left_out for document in documents.take(rows)], dtype=bool)
        rows = rows[is_left]
        true = self._true_scores(np.full(len(rows), query), rows)
        names = frozenset(documents.take(rows)).difference(documents.take(former))
        return Lately(self.ranked.scores[query, half][is_left], true, names)

    def _summary(self) -> PoolSummary:
        retriever = self.retriever
        tokens = [step.tokens for step in self.steps if step.tokens is not None]
        full = retriever.cost_of_share(1)
        return PoolSummary(
            int(self.depths.max()),
            int((self.vector_row >= 0).sum()),
            self.count,
            int((self.sampled & ~self.pooled).sum()),
            sum(tokens) if tokens else None,
            usd_of(sum(tokens), retriever.tally.price) if tokens else None,
            None if full.tokens is None else round(full.tokens),
            full.usd,
            tuple(self.steps),
            provisional=not self.query_set.is_judged,
            true_outside=int((self.vector_row[self.true_rows] < 0).sum()),
        )
