"""The arms of an audit: each is one way of answering the queries, and one function.

To add one, write a function and put it into `ARMS`: `audit_store` walks that list, and the reports show whatever is in
it, in its order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from migrate.audit.bounds import Bounds
from migrate.audit.measures import Scores, judged, ndcg, overlap, rank_biased_overlap, recall, reciprocal_rank
from migrate.audit.query_set import QuerySet
from migrate.audit.results import (
    BM25,
    BRIDGE,
    FULL,
    HYBRID,
    HYBRID_FULL,
    MEAN,
    NDCG,
    NO_BRIDGE,
    NO_OLD_STORE,
    RANDOM,
    STAY,
    TOGETHER,
    TRANSLATED,
    TWO_STAGE,
    TWO_STAGE_DEPTHS,
    ArmCost,
    ArmResult,
    find_plan,
    rerank_depths,
)
from migrate.audit.retrieval import Retriever, TimedRun
from migrate.audit.rules import Rules
from migrate.audited.records import Comparison
from migrate.cost import usd_of
from migrate.display import percent
from migrate.search.runs import Rankings

WITHOUT_TWO_STAGE = "needs a reference with texts and of the same ids as the translated store"


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of answering the queries of an audit.

    `meaning` is the arm in a sentence, `cost` what the target model must embed of documents, and `standard` the name of
    the arm that it is compared with. An alternative could serve instead of the translated store.
    """

    name: str
    meaning: str
    retrieve: Callable[[], TimedRun]
    cost: Callable[[], ArmCost]
    standard: str = FULL
    is_alternative: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """An arm that the inputs do not allow, and what is missing, as the end of the sentence "ARM needs ..."."""

    name: str
    need: str


Choices = Iterable[Arm | Skipped]


def _full_reembed(retriever: Retriever) -> Choices:
    meaning = "every document embedded by the target model: the standard"
    if retriever.in_pool:
        meaning = "the documents of the pool embedded by the target model: what a full re-embed scores at most"
    yield Arm(FULL, meaning, partial(retriever.search, FULL), partial(retriever.cost_of_share, 1))


def _translated(retriever: Retriever) -> Choices:
    meaning = "the translated store, queries embedded by the target model"
    cost = partial(retriever.cost_of_share, retriever.true_share)
    yield Arm(TRANSLATED, meaning, partial(retriever.search, TRANSLATED), cost)


def _stay(retriever: Retriever) -> Choices:
    if STAY not in retriever.stores:
        yield Skipped(STAY, NO_OLD_STORE)
        return
    meaning = "the source store, queries embedded by the source model: doing nothing"
    yield Arm(STAY, meaning, partial(retriever.search, STAY), partial(retriever.cost_of_share, 0))


def _bridge(retriever: Retriever) -> Choices:
    """Return the arm of Drift-Adapter (EMNLP 2025): what can be answered before anything is translated."""
    if BRIDGE not in retriever.stores:
        yield Skipped(BRIDGE, NO_BRIDGE)
        return
    meaning = "the source store, queries embedded by the target model and mapped back by a stitch"
    cost = partial(retriever.cost_of_share, retriever.n_bridged / retriever.stores[TRANSLATED].info.count)
    yield Arm(BRIDGE, meaning, partial(retriever.search, BRIDGE), cost, is_alternative=True)


def _bm25_arms(retriever: Retriever) -> Choices:
    """Yield words alone, and fused with vectors; words must not hide what vectors lost, so hybrid has its own standard.

    In a pool that standard is missing: fused ranks may rise or fall where documents are left out.
    """
    if not retriever.ranks_words:
        has_texts = retriever.stores[TRANSLATED].info.has_texts
        yield Skipped(HYBRID, "left out with BM25" if has_texts else _NO_TEXTS)
        yield Skipped(BM25, "left out" if has_texts else _NO_TEXTS)
        return

    def fused(name: str) -> TimedRun:
        return retriever.fuse(retriever.search(name), retriever.bm25)

    meaning = "the translated store and BM25, fused; it is held against the same fusion of the full re-embed"
    yield Arm(
        HYBRID, meaning, partial(fused, TRANSLATED), partial(retriever.cost_of_share, retriever.true_share), HYBRID_FULL
    )
    if retriever.in_pool:
        yield Skipped(HYBRID_FULL, "needs the full re-embed, of which a pool has a part: `--reference build`")
    else:
        yield Arm(
            HYBRID_FULL, "the full re-embed and BM25, fused", partial(fused, FULL), partial(retriever.cost_of_share, 1)
        )
    yield Arm(BM25, "words only, no embedding", lambda: retriever.bm25, partial(retriever.cost_of_share, 0))


_NO_TEXTS = "needs texts, and the translated store has none"


def _controls(retriever: Retriever) -> Choices:
    """Return rankings that every arm has to be better than; unjudged, they need true vectors of all they rank."""
    nothing = partial(retriever.cost_of_share, 0)
    controls = (
        Arm(MEAN, "control: one vector for all documents", retriever.rank_by_id, nothing),
        Arm(RANDOM, "control: documents drawn at random", retriever.rank_at_random, nothing),
    )
    if retriever.in_pool and not retriever.query_set.is_judged:
        need = "needs true vectors of whatever it ranks, which the pool does not have: `--reference build`"
        return [Skipped(arm.name, need) for arm in controls]
    return controls


def _two_stage(retriever: Retriever) -> Choices:
    """Yield an arm for each depth: the translated store finds so many documents, the target model ranks these."""
    stages, count = retriever.settings.stages, retriever.stores[TRANSLATED].info.count
    if stages is not None and not stages:
        yield Skipped(TWO_STAGE, "left out by --two-stage none")
        return
    if not retriever.stores[FULL].info.has_texts:
        yield Skipped(TWO_STAGE, _NO_TEXTS if retriever.in_pool else WITHOUT_TWO_STAGE)
        return
    if not retriever.in_pool and not retriever.has_same_ids:
        yield Skipped(TWO_STAGE, WITHOUT_TWO_STAGE)
        return
    for depth in retriever.rerank_depths:
        meaning = f"the translated store's first {depth} for each query, embedded by the target model and reranked"
        retrieve = partial(retriever.rerank, depth, TWO_STAGE)
        cost = partial(_reranking_cost, retriever, depth, TWO_STAGE)
        yield Arm(f"{TWO_STAGE} {depth}", meaning, retrieve, cost, is_alternative=True)
    for depth in sorted(set(TWO_STAGE_DEPTHS if stages is None else stages).difference(retriever.rerank_depths)):
        need = f"needs {_beyond(depth, retriever)}"
        if depth >= count:
            need = f"would embed the whole store, of {count:,} documents"
        yield Skipped(f"{TWO_STAGE} {depth}", need)


def _reranking_cost(retriever: Retriever, depth: int, name: str) -> ArmCost:
    """Return the cost of the documents that the audit's queries retrieve, and of those with true vectors already."""
    reranking = retriever.reranking(depth, name)
    sample = retriever.cost_of_share(retriever.true_share).tokens or 0.0
    tokens = reranking.tokens_per_query * len(retriever.query_set.queries) + sample
    return ArmCost(tokens, usd_of(tokens, retriever.tally.price), reranking)


def _beyond(depth: int, retriever: Retriever) -> str:
    """Return what a two-stage arm of that depth needs of a pool, and what gives it."""
    remedy = "raise `--max-cost`"
    if retriever.settings.stages is None:
        remedy = f"`--two-stage {depth}`"
    elif retriever.settings.most_deep is not None and depth > retriever.settings.most_deep:
        remedy = f"pool_depth={depth} of migrate.audit"
    return f"the first {depth} documents of every query, of which the pool has {retriever.pool_depth}: {remedy}"


def _together(retriever: Retriever) -> Choices:
    """Yield both stores as one, by ranks alone and with the first documents ranked by true vectors.

    Nothing is embedded for the ranks, so that this serves from the first query on, while the old model answers.
    """
    if STAY not in retriever.stores:
        yield Skipped(TOGETHER, NO_OLD_STORE)
        return
    meaning = (
        "the translated and the source store, each by queries of its own model, fused by rank: two query embeddings"
    )
    if (weight := retriever.weight_of_old) < 1:
        meaning += f"; the old ranks count {percent(weight / 2, 0)}, as both find few documents alike"
    cost = partial(retriever.cost_of_share, retriever.true_share)
    yield Arm(TOGETHER, meaning, retriever.together, cost, is_alternative=retriever.could_serve_both)
    if retriever.settings.stages is None:
        yield Skipped(f"{TOGETHER} N", "needs depths that are asked for: --two-stage 20,50")
    can_rerank = retriever.stores[FULL].info.has_texts and (retriever.in_pool or retriever.has_same_ids)
    for depth in retriever.rerank_depths if can_rerank and retriever.reranks_together else ():
        name = f"{TOGETHER} {depth}"
        if not retriever.can_rerank(TOGETHER, depth):
            need = (
                f"needs the first {depth} documents of both stores for every query in the pool: `--two-stage {depth}`"
            )
            yield Skipped(name, need)
            continue
        meaning = f"the first {depth} of `{TOGETHER}` for each query, embedded by the target model and reranked"
        retrieve = partial(retriever.rerank, depth, TOGETHER)
        cost = partial(_reranking_cost, retriever, depth, TOGETHER)
        yield Arm(name, meaning, retrieve, cost, is_alternative=retriever.could_serve_both)


_BUILT_IN = (
    _full_reembed,
    _translated,
    _stay,
    _bridge,
    _bm25_arms,
    _controls,
    _two_stage,
    _together,
)

ARMS: list[Callable[[Retriever], Choices]] = [*_BUILT_IN]
"""All arms, in the order of the reports; those of somebody's own are added here."""


def own_arms() -> list[Callable[[Retriever], Choices]]:
    """Return the arms that were added to those of this package."""
    return [arms for arms in ARMS if arms not in _BUILT_IN]


@dataclass(frozen=True, eq=False)
class Measures:
    """The results of all arms by name, each against its standard, and what the `skipped` ones need.

    `family` are the arms that could serve instead of the translated store, with bounds that hold for all of them at
    once, and `plan` is the arm that was asked about.
    """

    results: Mapping[str, ArmResult]
    scores: Mapping[str, Scores]
    comparisons: Mapping[str, Comparison]
    family: Mapping[str, Bounds]
    skipped: Mapping[str, str]
    plan: str


def measure_arms(retriever: Retriever, rules: Rules) -> Measures:
    """Answer the queries with every arm that the inputs allow, and measure what comes of it."""
    choices = [choice for choose in ARMS for choice in choose(retriever)]
    arms = [choice for choice in choices if isinstance(choice, Arm)]
    skipped = {choice.name: choice.need for choice in choices if isinstance(choice, Skipped)}
    alternatives = [arm.name for arm in arms if arm.is_alternative]
    plan = find_plan(retriever.settings.plan, (TRANSLATED, *alternatives), skipped)  # before anything is ranked
    runs = [(arm, arm.retrieve()) for arm in arms]
    results = {arm.name: measure_arm(arm, answer, retriever) for arm, answer in runs}
    scores = {name: result.scores[rules.query_set.measure] for name, result in results.items()}
    comparisons = {
        arm.name: rules.compare(results[arm.name], results[arm.standard])
        for arm in arms
        if arm.name != FULL and arm.standard in results
    }
    family = family_of(retriever, rules, {name: scores[name] for name in alternatives})
    return Measures(results, scores, comparisons, family, skipped, plan)


def family_of(retriever: Retriever, rules: Rules, scores: Mapping[str, Scores]) -> dict[str, Bounds]:
    """Return retention of the arms that could serve instead, by their deciding `scores`; bounds hold for all at once.

    Arms with depths that a pool does not reach count too: how far it grows depends on what it has shown. So do the
    usual ones where one of them is the plan: it may have been picked for what an audit of all has shown.
    """
    usual = () if retriever.settings.plan == TRANSLATED else TWO_STAGE_DEPTHS
    counted = {*retriever.asked_depths, *(depth for depth in usual if depth < retriever.stores[TRANSLATED].info.count)}
    n_reranking = len(counted) * (2 if retriever.reranks_together and retriever.could_serve_both else 1)
    n_others = n_reranking - sum(bool(rerank_depths(name)) for name in scores)
    full = retriever.deciding_scores(retriever.search(FULL).run)
    return rules.bootstrap(in_pool=True).family(scores, full, n_others=n_others)


def measure_arm(arm: Arm, answer: TimedRun, retriever: Retriever) -> ArmResult:
    """Return everything that is measured of an arm, whose `answer` is a run of `retriever`."""
    query_set = retriever.query_set
    scores = _all_scores(answer.run, None if retriever.in_pool else retriever.search(FULL).run, query_set)
    if not query_set.is_judged:
        scores = {query_set.measure: retriever.deciding_scores(answer.run), **scores}
    cost = arm.cost()
    return ArmResult(arm.name, arm.meaning, scores, answer.seconds, cost.tokens, cost.usd, cost.reranking)


def _all_scores(run: Rankings, full: Rankings | None, query_set: QuerySet) -> Mapping[str, Scores]:
    """Return a run's scores by every measure that needs ids alone, one for each distinct text, (c,).

    Without `full` the measures against it are left out.
    """
    ids, qrels = query_set.query_ids, query_set.qrels
    scores: dict[str, Scores] = {}
    if qrels is not None:
        scores[NDCG] = ndcg(run, qrels, ids, 10)
        scores["recall@100"] = recall(run, qrels, ids, 100)
        scores["MRR@10"] = reciprocal_rank(run, qrels, ids, 10)
        scores["judged@10"] = judged(run, qrels, ids, 10)
    if full is not None:
        scores |= {f"overlap@{k}": overlap(run, full, ids, k) for k in (1, 10, 100)}
        scores["RBO"] = rank_biased_overlap(run, full, ids)
    return {measure: query_set.merged(values) for measure, values in scores.items()}
