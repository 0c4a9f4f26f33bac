"""The arms of an audit: each is one way of answering the queries, and one function.

To add one to this package, write a function and put it into `_BUILT_IN`; a program appends its own to `ARMS`.
`measure_arms` walks `ARMS`, and the reports show whatever is in it, in its order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from migrate.audit.bounds import Bounds
from migrate.audit.costs import Costs, reranking_of
from migrate.audit.experiment import (
    Experiment,
    can_rerank,
    could_serve_both,
    depths_asked,
    depths_reached,
    reranks_together,
)
from migrate.audit.keys import Rows
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
from migrate.audit.retrieval import (
    Runs,
    TimedRun,
    candidate_rows,
    fuse,
    fuse_stores,
    rank_at_random,
    rank_by_id,
    rerank,
    weight_of_old,
)
from migrate.audit.rules import Rules
from migrate.audit.scoring import deciding_scores
from migrate.audit_report.records import Comparison
from migrate.cost import usd_of
from migrate.display import percent
from migrate.search.runs import Rankings

WITHOUT_TWO_STAGE = "needs a reference with texts and of the same ids as the translated store"


@dataclass(frozen=True, slots=True)
class Reranked:
    """The rows of the reference that an arm embeds and ranks for each query, `depth` of them."""

    depth: int
    rows: Sequence[Rows]


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of answering the queries of an audit.

    `meaning` is the arm in a sentence, `share` how much of all documents, 0-1, the target model must embed to have it,
    besides those that are `reranked` as queries come, and `standard` the name of the arm that it is compared with. An
    alternative could serve instead of the translated store.
    """

    name: str
    meaning: str
    rank: Callable[[], TimedRun]
    share: float = 0.0
    standard: str = FULL
    is_alternative: bool = False
    reranked: Reranked | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """An arm that the inputs do not allow, and what is missing, as the end of the sentence "ARM needs ..."."""

    name: str
    need: str


Choices = Iterable[Arm | Skipped]
ArmFunction = Callable[[Experiment, Runs], Choices]


def _of_store(name: str, meaning: str, experiment: Experiment, runs: Runs, *, is_alternative: bool = False) -> Arm:
    """Return the arm that is what one store answers."""
    share = experiment.stores[name].share
    return Arm(name, meaning, lambda: runs.by_store[name], share, is_alternative=is_alternative)


def _full_reembed(experiment: Experiment, runs: Runs) -> Choices:
    meaning = "every document embedded by the target model: the standard"
    if experiment.in_pool:
        meaning = "the documents of the pool embedded by the target model: what a full re-embed scores at most"
    yield _of_store(FULL, meaning, experiment, runs)


def _translated(experiment: Experiment, runs: Runs) -> Choices:
    yield _of_store(TRANSLATED, "the translated store, queries embedded by the target model", experiment, runs)


def _stay(experiment: Experiment, runs: Runs) -> Choices:
    if STAY not in experiment.stores:
        yield Skipped(STAY, NO_OLD_STORE)
        return
    meaning = "the source store, queries embedded by the source model: doing nothing"
    yield _of_store(STAY, meaning, experiment, runs)


def _bridge(experiment: Experiment, runs: Runs) -> Choices:
    """Return the arm of Drift-Adapter (EMNLP 2025): what can be answered before anything is translated."""
    if BRIDGE not in experiment.stores:
        yield Skipped(BRIDGE, NO_BRIDGE)
        return
    meaning = "the source store, queries embedded by the target model and mapped back by a stitch"
    yield _of_store(BRIDGE, meaning, experiment, runs, is_alternative=True)


def _bm25_arms(experiment: Experiment, runs: Runs) -> Choices:
    """Yield words alone, and fused with vectors."""
    bm25 = runs.bm25
    if not experiment.ranks_words or bm25 is None:
        if experiment.stores[TRANSLATED].store.info.has_texts:
            yield Skipped(HYBRID, "left out with BM25")
            yield Skipped(BM25, "left out")
        else:
            yield Skipped(HYBRID, _NO_TEXTS)
            yield Skipped(BM25, _NO_TEXTS)
        return

    def fused(name: str) -> TimedRun:
        return fuse(experiment, runs.by_store[name], bm25)

    meaning = "the translated store and BM25, fused; it is held against the same fusion of the full re-embed"
    share = experiment.stores[TRANSLATED].share
    # Words must not hide what vectors lost, so hybrid search has a standard of its own
    yield Arm(HYBRID, meaning, partial(fused, TRANSLATED), share, standard=HYBRID_FULL)
    # Fused ranks may rise or fall where documents are left out
    if experiment.in_pool:
        yield Skipped(HYBRID_FULL, "needs the full re-embed, of which a pool has a part: `--reference build`")
    else:
        yield Arm(HYBRID_FULL, "the full re-embed and BM25, fused", partial(fused, FULL), 1.0)
    yield Arm(BM25, "words only, no embedding", lambda: bm25)


_NO_TEXTS = "needs texts, and the translated store has none"


def _controls(experiment: Experiment, _runs: Runs) -> Choices:
    """Return rankings that every arm has to be better than; unjudged, they need true vectors of all they rank."""
    if experiment.in_pool and not experiment.query_set.is_judged:
        need = "needs true vectors of whatever it ranks, which the pool does not have: `--reference build`"
        return [Skipped(MEAN, need), Skipped(RANDOM, need)]
    # By their ids, so that rows in another order give the same control
    ordered = experiment.stores[TRANSLATED].keys.documents.in_order()
    return [
        Arm(MEAN, "control: one vector for all documents", partial(rank_by_id, experiment, ordered)),
        Arm(RANDOM, "control: documents drawn at random", partial(rank_at_random, experiment, ordered)),
    ]


def _reranking_arm(name: str, depth: int, meaning: str, experiment: Experiment, rows: Sequence[Rows]) -> Arm:
    """Return an arm that embeds some rows of the reference for each query and ranks them."""
    return Arm(
        f"{name} {depth}",
        meaning,
        partial(rerank, experiment, rows, depth),
        experiment.stores[TRANSLATED].share,
        is_alternative=name == TWO_STAGE or could_serve_both(experiment),
        reranked=Reranked(depth, rows),
    )


def _two_stage(experiment: Experiment, runs: Runs) -> Choices:
    """Yield an arm for each depth: the translated store finds so many documents, the target model ranks these."""
    requested = experiment.settings.stages
    count = experiment.stores[TRANSLATED].store.info.count
    if requested is None:
        requested = TWO_STAGE_DEPTHS
    if not requested:
        yield Skipped(TWO_STAGE, "left out by --two-stage none")
        return
    if not can_rerank(experiment):
        need = WITHOUT_TWO_STAGE
        if experiment.in_pool:
            need = _NO_TEXTS
        yield Skipped(TWO_STAGE, need)
        return
    reached = depths_reached(experiment)
    for depth in reached:
        meaning = f"the translated store's first {depth} for each query, embedded by the target model and reranked"
        yield _reranking_arm(TWO_STAGE, depth, meaning, experiment, candidate_rows(experiment, runs, TWO_STAGE, depth))
    for depth in sorted(set(requested).difference(reached)):
        need = f"needs {_beyond(depth, experiment)}"
        if depth >= count:
            need = f"would embed the whole store, of {count:,} documents"
        yield Skipped(f"{TWO_STAGE} {depth}", need)


def _beyond(depth: int, experiment: Experiment) -> str:
    """Return what a two-stage arm of that depth needs of a pool, and what gives it."""
    settings = experiment.settings
    remedy = "raise `--max-cost`"
    if settings.stages is None:
        remedy = f"`--two-stage {depth}`"
    elif settings.pool_depth is not None and depth > settings.pool_depth:
        remedy = f"`--reference pool:{depth}`"
    return f"the first {depth} documents of every query, of which the pool has {experiment.pool_depth}: {remedy}"


def _together(experiment: Experiment, runs: Runs) -> Choices:
    """Yield both stores as one, by ranks alone and with the first documents ranked by true vectors.

    Nothing is embedded for the ranks, so that this serves from the first query on, while the old model answers.
    """
    if STAY not in experiment.stores:
        yield Skipped(TOGETHER, NO_OLD_STORE)
        return
    meaning = (
        "the translated and the source store, each by queries of its own model, fused by rank: two query embeddings"
    )
    # Where the old model finds little of what the new one does, its ranks only spoil the others
    weight = weight_of_old(experiment, runs)
    if weight < 1:
        meaning += f"; the old ranks count {percent(weight / 2, 0)}, as both find few documents alike"
    yield Arm(
        TOGETHER,
        meaning,
        partial(fuse_stores, experiment, runs),
        experiment.stores[TRANSLATED].share,
        is_alternative=could_serve_both(experiment),
    )
    if experiment.settings.stages is None:
        yield Skipped(f"{TOGETHER} N", "needs depths that are asked for: --two-stage 20,50")
    if not (can_rerank(experiment) and reranks_together(experiment)):
        return
    for depth in depths_reached(experiment):
        rows = candidate_rows(experiment, runs, TOGETHER, depth)
        # A rank of a document without a true vector is not known, and the first ones must all be there to be ranked
        if not all((query_rows >= 0).all() for query_rows in rows):
            need = (
                f"needs the first {depth} documents of both stores for every query in the pool: `--two-stage {depth}`"
            )
            yield Skipped(f"{TOGETHER} {depth}", need)
            continue
        meaning = f"the first {depth} of `{TOGETHER}` for each query, embedded by the target model and reranked"
        yield _reranking_arm(TOGETHER, depth, meaning, experiment, rows)


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

ARMS: list[ArmFunction] = [*_BUILT_IN]
"""All arms, in the order of the reports; those of somebody's own are added here."""


def own_arms() -> list[ArmFunction]:
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


def measure_arms(experiment: Experiment, runs: Runs, rules: Rules, costs: Costs) -> Measures:
    """Answer the queries with every arm that the inputs allow, and measure what comes of it."""
    choices = [choice for arms_of in ARMS for choice in arms_of(experiment, runs)]
    arms = [choice for choice in choices if isinstance(choice, Arm)]
    skipped = {choice.name: choice.need for choice in choices if isinstance(choice, Skipped)}
    alternatives = [arm.name for arm in arms if arm.is_alternative]
    # Before arms rank, which takes long: a plan may turn out to be none of them only here
    plan = find_plan(experiment.settings.plan, (TRANSLATED, *alternatives), skipped)
    ranked = [(arm, arm.rank()) for arm in arms]
    results = {arm.name: _measured(arm, answer, experiment, runs.full, costs) for arm, answer in ranked}
    scores = {name: result.scores[rules.query_set.measure] for name, result in results.items()}
    comparisons = {
        arm.name: rules.compare(results[arm.name], results[arm.standard])
        for arm in arms
        if arm.name != FULL and arm.standard in results
    }
    family = family_of(experiment, runs.full, rules, {name: scores[name] for name in alternatives})
    return Measures(results, scores, comparisons, family, skipped, plan)


def family_of(experiment: Experiment, full: Rankings, rules: Rules, scores: Mapping[str, Scores]) -> dict[str, Bounds]:
    """Return retention of the arms that could serve instead, by deciding `scores`; its bounds hold for all at once."""
    count = experiment.stores[TRANSLATED].store.info.count
    # Depths that a pool does not reach count too: how far it grows depends on what it has shown
    depths = set(depths_asked(experiment))
    if experiment.settings.plan != TRANSLATED:
        # The plan may have been picked for what an audit of all the usual depths has shown
        depths.update(depth for depth in TWO_STAGE_DEPTHS if depth < count)
    n_reranking = len(depths)
    if reranks_together(experiment) and could_serve_both(experiment):
        n_reranking *= 2
    n_others = n_reranking - sum(bool(rerank_depths(name)) for name in scores)
    full_scores = deciding_scores(experiment, full, full)
    return rules.bootstrap(in_pool=True).family(scores, full_scores, n_others=n_others)


def _measured(arm: Arm, answer: TimedRun, experiment: Experiment, full: Rankings, costs: Costs) -> ArmResult:
    """Return everything that is measured of an arm, by what it answers."""
    query_set = experiment.query_set
    standard = None
    # A pool lacks much of what the full re-embed would find
    if not experiment.in_pool:
        standard = full
    scores = _all_scores(answer.run, standard, query_set)
    if not query_set.is_judged:
        scores = {query_set.measure: deciding_scores(experiment, full, answer.run), **scores}
    if arm.reranked is None:
        cost = costs.of_share(arm.share)
    else:
        cost = _reranking_cost(arm, arm.reranked, experiment, costs)
    return ArmResult(arm.name, arm.meaning, scores, answer.seconds, cost.tokens, cost.usd, cost.reranking)


def _reranking_cost(arm: Arm, reranked: Reranked, experiment: Experiment, costs: Costs) -> ArmCost:
    """Return the cost of the documents that the audit's queries retrieve, and of those with true vectors already."""
    count = experiment.stores[TRANSLATED].store.info.count
    reranking = reranking_of(costs, experiment.stores[FULL].store, reranked.rows, reranked.depth, count)
    sample = costs.of_share(arm.share).tokens or 0.0
    tokens = reranking.tokens_per_query * len(experiment.query_set.queries) + sample
    return ArmCost(tokens, usd_of(tokens, costs.tally.price), reranking)


def _all_scores(run: Rankings, full: Rankings | None, query_set: QuerySet) -> Mapping[str, Scores]:
    """Return a run's scores by every measure that needs ids alone, one for each distinct text, (c,).

    Without `full` the measures against it are left out.
    """
    ids = query_set.query_ids
    qrels = query_set.qrels
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
