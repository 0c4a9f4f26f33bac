"""The audit: every arm answers the same queries, the full re-embed is the standard, the verdict follows.

What each arm makes the target model embed of documents, in its tokens. Queries are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from migrate.audit.arms import (
    BM25,
    BRIDGE,
    FULL,
    HYBRID,
    HYBRID_FULL,
    MEAN,
    RANDOM,
    STANDARDS,
    STAY,
    TRANSLATED,
    Arm,
    Comparison,
    compare_arm,
    deciding_measure,
    measure_arm,
    missing_arms,
)
from migrate.audit.diagnostics import find_hurt
from migrate.audit.held_out import judge_held_out
from migrate.audit.inputs import Ground, prepare_ground
from migrate.audit.query_set import PARENT_FIELD, Questions, independent
from migrate.audit.reference import odd_scores
from migrate.audit.report import AuditReport
from migrate.audit.retrieval import Answered, Asking
from migrate.audit.slices import untold_fields
from migrate.audit.two_stage import TwoStage, arm_meaning, arm_name, can_rerank
from migrate.audit.verdict import MARGIN, RESAMPLES, Bounds, Verdict, decide, family_bounds
from migrate.cost import Tally, tally_of
from migrate.embedders.base import Embedder
from migrate.manifest import Manifest
from migrate.selection.query_log import choosers_of
from migrate.stitch.fitted import FittedStitch
from migrate.stores.base import Store
from migrate.vectors import Progress, no_progress

_READ = 2_000
_TRUE = "true vectors"


@dataclass(frozen=True, slots=True)
class Outlay:
    """Tokens to embed all documents, and the shares (0-1) of these that arms embed.

    `share` have true vectors in the translated store, `bridge_share` are the sample that the bridge was fitted on.
    """

    tokens: float
    share: float
    bridge_share: float

    def of_arms(self) -> Mapping[str, float]:
        """Tokens by arm; a two-stage arm and a re-embedded part know better themselves."""
        part = self.share * self.tokens
        free = dict.fromkeys((STAY, BM25, MEAN, RANDOM), 0.0)
        bridge = self.bridge_share * self.tokens
        return {**free, FULL: self.tokens, HYBRID_FULL: self.tokens, TRANSLATED: part, HYBRID: part, BRIDGE: bridge}


def outlay_of(ground: Ground, bridge: FittedStitch | None, tally: Tally) -> Outlay | None:
    """The outlay of a translated store and a bridge, counted by `tally`; None where there are no texts to count."""
    store = ground.stores[TRANSLATED]
    if not store.info.has_texts:
        return None
    known = store.info.manifest
    true, crossed = known.counts.get(_TRUE, 0) if known else 0, bridge.manifest.counts.get("pairs", 0) if bridge else 0
    return Outlay(_tokens(store, ground, tally), true / store.info.count, crossed / store.info.count)


def _tokens(store: Store, ground: Ground, tally: Tally) -> float:
    """Tokens of all texts, each once; for a free model from some, evenly spread, where they are not in memory."""
    if ground.documents is not None or tally.target.is_api:
        return float(tally.cost(store.documents() if ground.documents is None else ground.documents).tokens)
    rows = np.unique(np.linspace(0, store.info.count - 1, min(_READ, store.info.count)).astype(np.int64))
    return float(np.mean(tally.tokens(list(store.documents(rows))))) * store.info.count


def audit_store(
    translated: Store,
    reference: Store,
    questions: Questions,
    embedder: Embedder,
    *,
    source: Store | None = None,
    source_embedder: Embedder | None = None,
    bridge: FittedStitch | None = None,
    bm25: bool = True,
    two_stage: Sequence[int] = (),
    slice_fields: Sequence[str] = (),
    price_usd_per_mtok: float | None = None,
    parent_field: str = PARENT_FIELD,
    margin: float = MARGIN,
    seed: int = 0,
    resamples: int = RESAMPLES,
    progress: Progress = no_progress,
) -> AuditReport:
    """Answer the queries with every arm that can be had, and judge the translated store.

    Arms: the full re-embed (`reference`), the translated store, staying with the source model where `source` and
    `source_embedder` are given, asking `source` through the query stitch `bridge` where it is given, BM25 where there
    are texts, its fusion with the translated store and with the full re-embed, and two controls. For each N of
    `two_stage`, the target model ranks the translated store's first N again (`migrate.audit.two_stage`). The verdict
    is on the translated store alone, and never SAFE where the reference is not shown to be a full re-embed
    (`migrate.audit.reference`). Vectors are searched exactly, whatever the index, so that no arm is blamed for
    its index. `slice_fields` are metadata fields to tell queries apart by.

    Queries that chose documents of the translated store or of the bridge do not judge; those of one text count once.

    Raises
    ------
    UsageError
        There is a bridge, but no source.
    StitchError
        The bridge is a stitch for documents, or not fitted on the source for this embedder.
    InputError
        There are no queries, or none of the relevant documents is in the stores.
    StoreError
        The stores do not hold the same documents, the reference is not a full re-embed of them by this model, or a
        store is not the one of its manifest.
    VectorError
        A store is not of its embedder's dimension, or a vector is zero or not finite.
    RemoteError
        A query could not be embedded.
    InconclusiveError
        Too few queries are left for a verdict, without those that chose documents.
    """
    questions = independent(questions, choosers_of(translated.info.manifest, bridge.manifest if bridge else None))
    ground = prepare_ground(
        translated,
        reference,
        questions,
        embedder,
        source=source,
        source_embedder=source_embedder,
        bridge=bridge,
        words=bm25,
        parent_field=parent_field,
        seed=seed,
        progress=progress,
    )
    tally = tally_of(embedder, price_usd_per_mtok)
    asking = Asking(questions, progress, seed)
    second = _second_stage(ground, two_stage, tally, asking)
    answers = {**_answers(ground, asking), **{arm_name(depth): asking.again(second, depth) for depth in second.depths}}
    outlay = outlay_of(ground, bridge, tally)
    arms = _arms(answers, second, questions, outlay.of_arms() if outlay else {}, tally.price)
    judging = _Judging(deciding_measure(questions), margin, seed, resamples, ground.n_documents)
    runs = {name: answered.run for name, answered in answers.items()}
    hurt = find_hurt(ground, runs, slice_fields=slice_fields, seed=seed, resamples=resamples)
    doubts = (*ground.doubts, *judging.oddities(arms, provisional=questions.qrels is None))
    held_out = judge_held_out(ground, asking, margin=margin, resamples=resamples)
    return AuditReport(
        verdict=judging.verdict(arms, provisional=questions.qrels is None).doubted(doubts),
        arms=tuple(arms.values()),
        comparisons=judging.comparisons(arms),
        measure=judging.measure,
        query_ids=tuple(query.id for query in questions.distinct),
        n_documents=ground.n_documents,
        dataset=questions.name,
        notes=(
            *ground.notes,
            *(arm.reranking.sentence for arm in arms.values() if arm.reranking),
            *untold_fields(hurt.slices, slice_fields),
        ),
        manifest=_manifest(ground, judging),
        family=judging.family(arms),
        missing=missing_arms(arms, has_texts=translated.info.has_texts, asked_two_stage=bool(two_stage)),
        held_out=None if held_out is None else held_out.doubted(doubts),
        hurt=hurt,
        reference=ground.proof,
        doubts=doubts,
    )


def _answers(ground: Ground, asking: Asking) -> dict[str, Answered]:
    """The answers of every arm but the two-stage ones."""
    answers = {
        name: asking.search(store, ground.vectors[name], ground.keys[name]) for name, store in ground.stores.items()
    }
    keys = ground.keys[TRANSLATED]
    if ground.documents is not None:
        words = asking.bm25(ground.documents, keys)
        answers[HYBRID] = asking.hybrid(answers[TRANSLATED], words)
        answers[HYBRID_FULL] = asking.hybrid(answers[FULL], words)
        answers[BM25] = words
    return {**answers, MEAN: asking.one_vector(keys), RANDOM: asking.at_random(keys)}


def _second_stage(ground: Ground, depths: Sequence[int], tally: Tally, asking: Asking) -> TwoStage:
    translated, reference = ground.stores[TRANSLATED], ground.stores[FULL]
    return TwoStage(
        translated,
        reference,
        ground.questions.query_ids,
        ground.vectors[FULL],
        depths=depths if depths and can_rerank(translated, reference) else (),
        keys=ground.keys[FULL],
        kept=asking.depth,
        tally=tally,
        progress=asking.progress,
    )


def _arms(
    answers: Mapping[str, Answered],
    second: TwoStage,
    questions: Questions,
    tokens: Mapping[str, float],
    price: float | None,
) -> dict[str, Arm]:
    full = answers[FULL].run
    arms = {
        name: measure_arm(name, answered, full, questions, tokens=tokens.get(name), price_usd_per_mtok=price)
        for name, answered in answers.items()
    }
    for depth in second.depths:
        name, cost = arm_name(depth), second.cost(depth)
        total = cost.tokens_per_query * len(questions.queries) + tokens.get(TRANSLATED, 0.0)
        arms[name] = measure_arm(
            name,
            answers[name],
            full,
            questions,
            meaning=arm_meaning(depth),
            tokens=total,
            price_usd_per_mtok=price,
            reranking=cost,
        )
    return arms


@dataclass(frozen=True, slots=True)
class _Judging:
    """What every comparison of an audit has in common."""

    measure: str
    margin: float
    seed: int
    resamples: int
    n_documents: int

    def comparisons(self, arms: Mapping[str, Arm]) -> dict[str, Comparison]:
        return {
            name: compare_arm(
                arm, arms[STANDARDS.get(name, FULL)], self.measure, seed=self.seed, resamples=self.resamples
            )
            for name, arm in arms.items()
            if name != FULL
        }

    def family(self, arms: Mapping[str, Arm]) -> dict[str, Bounds]:
        """Bounds of the arms that could serve instead of the translated store, which hold for all of them at once."""
        scores = {name: arm.scores[self.measure] for name, arm in arms.items() if name == BRIDGE or arm.reranking}
        return family_bounds(scores, arms[FULL].scores[self.measure], seed=self.seed, resamples=self.resamples)

    def oddities(self, arms: Mapping[str, Arm], *, provisional: bool) -> tuple[str, ...]:
        """Scores that speak against the reference; without judgements it is the measure of itself."""
        if provisional:
            return ()
        words, stay = (arms[name].scores[self.measure] if name in arms else None for name in (BM25, STAY))
        arm, full = (arms[name].scores[self.measure] for name in (TRANSLATED, FULL))
        return odd_scores(arm, full, words, stay, seed=self.seed, resamples=self.resamples)

    def verdict(self, arms: Mapping[str, Arm], *, provisional: bool) -> Verdict:
        """The verdict on the translated store."""
        return decide(
            arms[TRANSLATED].scores[self.measure],
            arms[FULL].scores[self.measure],
            arms[STAY].scores[self.measure] if STAY in arms and not provisional else None,
            margin=self.margin,
            seed=self.seed,
            resamples=self.resamples,
            provisional=provisional,
            n_documents=self.n_documents,
        )


def _manifest(ground: Ground, judging: _Judging) -> Manifest:
    known = ground.stores[TRANSLATED].info.manifest
    return Manifest(
        kind="report",
        model=known.model if known else None,
        source_model=known.source_model if known else None,
        seed=judging.seed,
        counts={"queries": len(ground.questions.distinct), "documents": ground.n_documents},
        details={"dataset": ground.questions.name, "resamples": judging.resamples},
    )
