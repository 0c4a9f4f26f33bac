"""The arms of an audit: each is one way of answering the queries, and one class.

An arm has a name and a meaning, says what it needs, retrieves, and knows its cost. To add one, write a class and put
it into `ARMS`: `audit_store` walks that list, and the reports show whatever is in it, in its order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

from migrate.audit.measures import Scores
from migrate.audit.results import (
    AGREEMENT,
    BM25,
    BRIDGE,
    DEPTHS,
    FULL,
    HYBRID,
    HYBRID_FULL,
    MEAN,
    PREFIX,
    RANDOM,
    REEMBEDDED,
    STAY,
    TRANSLATED,
    TWO_STAGE,
    ArmCost,
    ArmResult,
    all_scores,
    prefix_name,
)
from migrate.audit.retrieval import Retriever, TimedRun
from migrate.audit.verdict import Bounds, Floor, family_bounds
from migrate.cost import usd_of
from migrate.embedders.prefix import unit_of
from migrate.stores.base import Store
from migrate.vectors import Batch

_NO_TEXTS = "needs texts, and the translated store has none"
WITHOUT_TWO_STAGE = "needs a reference with texts and of the same ids as the translated store"


class Arm:
    """One way of answering the queries of an audit.

    Attributes
    ----------
    name
        The name in reports.
    meaning
        What the arm is, in a sentence.
    standard
        Name of the arm that it is compared with.
    is_alternative
        Whether it could serve instead of the translated store where that is not SAFE.
    """

    name: str
    meaning: str
    standard: ClassVar[str] = FULL
    is_alternative: ClassVar[bool] = False

    @classmethod
    def skip_reason(cls, retriever: Retriever) -> str | None:  # noqa: ARG003
        """Return what the arm lacks, as the end of the sentence "ARM needs ..."; None where all is there."""
        return None

    @classmethod
    def variants(cls, retriever: Retriever) -> Sequence[Arm]:  # noqa: ARG003
        """The arms of this class that the inputs allow: a single one, unless the class has a parameter."""
        return (cls(),)

    @classmethod
    def left_out(cls, retriever: Retriever) -> Mapping[str, str]:
        """The arms of this class that are not among `variants`, by name, and what each needs."""
        reason = cls.skip_reason(retriever)
        return {} if reason is None else {cls.name: reason}

    def retrieve(self, retriever: Retriever) -> TimedRun:
        """Rank documents for every query, by the store of the arm's name unless a class says otherwise.

        What arms share (searches, BM25) is computed once by `retriever`.
        """
        return retriever.search(self.name)

    def cost(self, retriever: Retriever) -> ArmCost:
        """Return what the target model must embed of documents; nothing, unless a class says otherwise."""
        return retriever.cost_of_share(0)


class FullReembed(Arm):
    """The standard."""

    name, meaning = FULL, "every document embedded by the target model: the standard"

    @classmethod
    def variants(cls, retriever: Retriever) -> Sequence[Arm]:
        """One that says so where only a pool is embedded."""
        arm = cls()
        if retriever.in_pool:
            arm.meaning = "the documents of the pool embedded by the target model: what a full re-embed scores at most"
        return (arm,)

    def cost(self, retriever: Retriever) -> ArmCost:
        """All documents."""
        return retriever.cost_of_share(1)


class Translated(Arm):
    """The store that the verdict is on."""

    name, meaning = TRANSLATED, "the translated store, queries embedded by the target model"

    def cost(self, retriever: Retriever) -> ArmCost:
        """The documents with true vectors: the sample of the stitch and what was re-embedded since."""
        return retriever.cost_of_share(retriever.true_share)


class Stay(Arm):
    """No migration."""

    name, meaning = STAY, "the source store, queries embedded by the source model: doing nothing"

    @classmethod
    def skip_reason(cls, retriever: Retriever) -> str | None:
        """The source store and its model."""
        needed = "needs the store before the migration and its model: --source STORE, --source-model SPEC"
        return None if STAY in retriever.stores else needed


class Bridge(Arm):
    """The arm of Drift-Adapter (EMNLP 2025): what can be answered today, before anything is translated."""

    name = BRIDGE
    meaning = "the source store, queries embedded by the target model and mapped back by a stitch"
    is_alternative = True

    @classmethod
    def skip_reason(cls, retriever: Retriever) -> str | None:
        """A stitch for queries."""
        needed = "needs a stitch for queries, of `fit --direction query`: --bridge STITCH, with --source STORE"
        return None if BRIDGE in retriever.stores else needed

    def cost(self, retriever: Retriever) -> ArmCost:
        """The sample of the stitch for queries."""
        return retriever.cost_of_share(retriever.bridge_share)


class Bm25(Arm):
    """Words alone."""

    name, meaning = BM25, "words only, no embedding"

    @classmethod
    def skip_reason(cls, retriever: Retriever) -> str | None:
        """Texts to rank by their words."""
        return _words_needed(retriever, "left out")

    def retrieve(self, retriever: Retriever) -> TimedRun:
        """Rank the texts of the translated store."""
        return retriever.bm25


class Hybrid(Translated):
    """Vectors and words. It has a standard of its own: words must not hide what vectors lost."""

    name = HYBRID
    meaning = "the translated store and BM25, fused; it is held against the same fusion of the full re-embed"
    standard = HYBRID_FULL

    @classmethod
    def skip_reason(cls, retriever: Retriever) -> str | None:
        """Texts, as BM25."""
        return _words_needed(retriever, "left out with BM25")

    def retrieve(self, retriever: Retriever) -> TimedRun:
        """Fuse the translated store's ranking with that of BM25."""
        return retriever.fuse(retriever.search(TRANSLATED), retriever.bm25)


class HybridFull(FullReembed):
    """The standard of `hybrid`; not there in a pool."""

    name, meaning = HYBRID_FULL, "the full re-embed and BM25, fused"

    @classmethod
    def skip_reason(cls, retriever: Retriever) -> str | None:
        """Texts, and all documents: fused ranks may rise or fall where others are left out."""
        if retriever.in_pool:
            return "needs the full re-embed, of which a pool has a part: `--reference build`"
        return _words_needed(retriever, "left out with BM25")

    def retrieve(self, retriever: Retriever) -> TimedRun:
        """Fuse the reference's ranking with that of BM25."""
        return retriever.fuse(retriever.search(FULL), retriever.bm25)


class Control(Arm):
    """A ranking that every arm has to be better than."""

    @classmethod
    def skip_reason(cls, retriever: Retriever) -> str | None:
        """True vectors of whatever it ranks, where nothing is judged."""
        needed = "needs true vectors of whatever it ranks, which the pool does not have: `--reference build`"
        return needed if retriever.in_pool and retriever.query_set.qrels is None else None


class OneVector(Control):
    """A control."""

    name, meaning = MEAN, "control: one vector for all documents"

    def retrieve(self, retriever: Retriever) -> TimedRun:
        """Every document ties, so that the doc_id alone decides."""
        return retriever.rank_by_id()


class Random(Control):
    """A control."""

    name, meaning = RANDOM, "control: documents drawn at random"

    def retrieve(self, retriever: Retriever) -> TimedRun:
        """A draw of its own for each query."""
        return retriever.rank_at_random()


class TwoStageArm(Arm):
    """The translated store finds `depth` documents, the target model embeds these and ranks them."""

    name = TWO_STAGE
    is_alternative = True

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.name = f"{TWO_STAGE} {depth}"
        self.meaning = f"the translated store's first {depth} for each query, embedded by the target model and reranked"

    @classmethod
    def skip_reason(cls, retriever: Retriever) -> str | None:
        """Depths, and a reference with the same ids and texts."""
        if retriever.audit.stages is not None and not retriever.audit.stages:
            return "left out by --two-stage none"
        if retriever.in_pool:
            return None if retriever.stores[FULL].info.has_texts else _NO_TEXTS
        usable = _can_rerank(retriever.stores[TRANSLATED], retriever.stores[FULL])
        return None if usable else WITHOUT_TWO_STAGE

    @classmethod
    def variants(cls, retriever: Retriever) -> Sequence[Arm]:
        """An arm for each depth."""
        return [cls(depth) for depth in retriever.rerank_depths]

    @classmethod
    def left_out(cls, retriever: Retriever) -> Mapping[str, str]:
        """All of them, or the depths that the pool does not reach, or that would be the whole store."""
        reasons = dict(super().left_out(retriever))
        if reasons:
            return reasons
        count, has = retriever.stores[TRANSLATED].info.count, retriever.rerank_depths
        depths = DEPTHS if retriever.audit.stages is None else retriever.audit.stages
        for depth in sorted(set(depths).difference(has)):
            name = f"{TWO_STAGE} {depth}"
            if depth >= count:
                reasons[name] = f"would embed the whole store, of {count:,} documents"
            else:
                reasons[name] = f"needs {_beyond(depth, retriever)}"
        return reasons

    def retrieve(self, retriever: Retriever) -> TimedRun:
        """Rerank by the true vectors, which the reference has."""
        return retriever.rerank(self.depth)

    def cost(self, retriever: Retriever) -> ArmCost:
        """The documents that the audit's queries retrieve, and those with true vectors already."""
        reranking = retriever.reranking(self.depth)
        before = retriever.cost_of_share(retriever.true_share).tokens or 0.0
        tokens = reranking.tokens_per_query * len(retriever.query_set.queries) + before
        return ArmCost(tokens, usd_of(tokens, retriever.tally.price), reranking)


class Prefix(Arm):
    """The simplest rival of a translation: the first tokens of every document, embedded by the target model."""

    name = PREFIX
    is_alternative = True

    def __init__(self, tokens: int, unit: str) -> None:
        self.tokens = tokens
        self.name = prefix_name(tokens)
        self.meaning = f"the first {tokens} {unit} of every document embedded by the target model, queries whole"

    @classmethod
    def skip_reason(cls, retriever: Retriever) -> str | None:
        """Return how many tokens; stores of them are made before."""
        return None if retriever.audit.prefixes else "needs numbers of tokens to embed of each document: --prefix 24,64"

    @classmethod
    def variants(cls, retriever: Retriever) -> Sequence[Arm]:
        """An arm for each number."""
        unit = unit_of(retriever.counter)
        return [cls(tokens, unit) for tokens in retriever.audit.prefixes]

    def cost(self, retriever: Retriever) -> ArmCost:
        """These tokens of all documents."""
        return retriever.cost_of_first(self.tokens)


class PartlyReembedded(Arm):
    """The translated store with more true vectors: a budget of `migrate.audit.frontier`, which makes these arms."""

    name = REEMBEDDED

    def __init__(self, share: float, policy: str, batches: Callable[[], Iterable[Batch]], cost: ArmCost) -> None:
        self.name = reembedded_name(share)
        self.meaning = f"{share:.0%} of the documents re-embedded, chosen by {policy}, and the stitch fitted again"
        self._batches = batches
        self._cost = cost

    @classmethod
    def skip_reason(cls, retriever: Retriever) -> str | None:  # noqa: ARG003
        """Budgets: only a frontier has them."""
        return "needs budgets to try: --frontier STITCH, with --source STORE that it was fitted on"

    def retrieve(self, retriever: Retriever) -> TimedRun:
        """Search the vectors as they are translated."""
        return retriever.search_batches(TRANSLATED, self._batches())

    def cost(self, retriever: Retriever) -> ArmCost:
        """The documents that the budget pays for, the sample too."""
        return self._cost


ARMS: list[type[Arm]] = [
    FullReembed,
    Translated,
    Stay,
    Bridge,
    Hybrid,
    HybridFull,
    Bm25,
    OneVector,
    Random,
    TwoStageArm,
    Prefix,
    PartlyReembedded,
]
"""All arms, in the order of the reports."""


def reembedded_name(share: float) -> str:
    """The name of a budget's arm.

    >>> reembedded_name(0.3)
    'translated + 30%'
    """
    return f"translated + {share:.0%}"


def select_arms(retriever: Retriever) -> tuple[list[Arm], dict[str, str]]:
    """The arms of `ARMS` that the inputs allow, and by name what each of the others needs.

    An arm that is the standard of another skipped arm goes without saying.
    """
    reasons = {kind: kind.skip_reason(retriever) for kind in ARMS}
    arms = [arm for kind in ARMS if reasons[kind] is None for arm in kind.variants(retriever)]
    standards = {kind.standard for kind, reason in reasons.items() if reason is not None}
    left_out = {name: reason for kind in ARMS for name, reason in kind.left_out(retriever).items()}
    return arms, {name: reason for name, reason in left_out.items() if name not in standards}


def family_of(retriever: Retriever, scores: Mapping[str, Scores], floor: Floor | None) -> dict[str, Bounds]:
    """Retention of the arms that could serve instead, by their deciding `scores`; bounds hold for all of them at once.

    Two-stage arms that a pool does not reach count too: how far it grows depends on what it has shown. So do the usual
    ones where one of them is the plan: it may have been picked for what an audit of all has shown.
    """
    usual = () if retriever.audit.plan == TRANSLATED else DEPTHS
    counted = {*retriever.asked_depths, *(depth for depth in usual if depth < retriever.stores[TRANSLATED].info.count)}
    return family_bounds(
        scores,
        retriever.deciding_scores(retriever.search(FULL).run),
        seed=retriever.audit.seed,
        resamples=retriever.audit.resamples,
        weighting=retriever.query_set.weighting(),
        floor=floor,
        others=len(counted) - len(retriever.rerank_depths),
    )


def measure_arm(arm: Arm, answer: TimedRun, retriever: Retriever) -> ArmResult:
    """Everything that is measured of an arm, whose `answer` is a run of `retriever`."""
    query_set = retriever.query_set
    full = None if retriever.in_pool else retriever.search(FULL).run
    scores = all_scores(answer.run, full, query_set)
    if query_set.qrels is None:
        scores = {AGREEMENT: retriever.deciding_scores(answer.run), **scores}
    cost, weighting = arm.cost(retriever), query_set.weighting()
    weights = None if weighting is None or query_set.chances is None else weighting.values
    return ArmResult(arm.name, arm.meaning, scores, answer.seconds, cost.tokens, cost.usd, cost.reranking, weights)


def _can_rerank(translated: Store, reference: Store) -> bool:
    """Return whether the stores hold the same ids, not only chunks of the same documents, and the texts to embed."""
    if not reference.info.has_texts:
        return False
    ids, others = ({doc_id for batch in store.scan() for doc_id in batch.ids} for store in (translated, reference))
    return ids == others


def _beyond(depth: int, retriever: Retriever) -> str:
    """Return what a two-stage arm of that depth needs of a pool, and what gives it."""
    if retriever.audit.stages is None:
        remedy = f"`--two-stage {depth}`"
    elif retriever.audit.is_pooled and depth > retriever.audit.most_deep:
        remedy = f"pool_depth={depth} of migrate.audit"
    else:
        remedy = "raise `--max-cost`"
    return f"the first {depth} documents of every query, of which the pool has {retriever.pool_depth}: {remedy}"


def _words_needed(retriever: Retriever, left_out: str) -> str | None:
    if retriever.documents is not None:
        return None
    return left_out if retriever.stores[TRANSLATED].info.has_texts else _NO_TEXTS
