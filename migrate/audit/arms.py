"""The arms: their names, what a run scores, what it cost, and how it compares.

Arms that could not be had, and what each of them needs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from migrate.audit.measures import Scores, judged, ndcg, overlap, rank_biased_overlap, recall, reciprocal_rank
from migrate.audit.query_set import Questions
from migrate.audit.retrieval import Answered
from migrate.audit.two_stage import WITHOUT_TWO_STAGE, Reranking
from migrate.audit.verdict import Bounds, retention_bounds
from migrate.cost import usd_of
from migrate.search.runs import Run

TIE = 1e-9
"""Differences of nDCG@10 up to this count as a tie."""

FULL, TRANSLATED, STAY, BRIDGE, BM25 = "full re-embed", "translated", "stay", "bridge", "BM25"
HYBRID, HYBRID_FULL = "hybrid", "hybrid, full"
MEAN, RANDOM = "mean", "random"

MEANINGS = {
    FULL: "every document embedded by the target model: the standard",
    TRANSLATED: "the translated store, queries embedded by the target model",
    STAY: "the source store, queries embedded by the source model: doing nothing",
    BRIDGE: "the source store, queries embedded by the target model and mapped back by a stitch",
    HYBRID: "the translated store and BM25, fused; it is held against the same fusion of the full re-embed",
    HYBRID_FULL: "the full re-embed and BM25, fused",
    BM25: "words only, no embedding",
    MEAN: "control: one vector for all documents",
    RANDOM: "control: documents drawn at random",
}

STANDARDS = {HYBRID: HYBRID_FULL}
"""What an arm is held against, where it is not the full re-embed: words must not hide what vectors lost."""

NDCG, OVERLAP = "nDCG@10", "overlap@10"


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of answering the queries, and how well it does.

    `scores` maps a measure (`nDCG@10`, `recall@100`, `MRR@10`, `judged@10`, `overlap@1`, `overlap@10`, `overlap@100`,
    `RBO`) to one value for each distinct text that is asked (`Questions.distinct`); without judgements only those
    against the full re-embed are there. `seconds` is the time to rank, without embedding. `tokens` is about what the
    target model embeds of documents to have this arm, `usd` their price; None where it is not known. `reranking` is
    what a two-stage arm would embed.
    """

    name: str
    meaning: str
    scores: Mapping[str, Scores]
    seconds: float
    tokens: float | None = None
    usd: float | None = None
    reranking: Reranking | None = None

    def mean(self, measure: str) -> float | None:
        """Mean over all queries asked about, or None where the measure could not be taken."""
        return float(np.mean(self.scores[measure])) if measure in self.scores else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """An arm against its standard: retention of the deciding measure, and queries won, tied and lost."""

    retention: Bounds
    wins: int
    ties: int
    losses: int
    standard: str = FULL


def deciding_measure(questions: Questions) -> str:
    """What a verdict rests on: nDCG@10, or overlap@10 where nothing is judged."""
    return OVERLAP if questions.qrels is None else NDCG


def deciding_scores(run: Run, full: Run, questions: Questions) -> Scores:
    """A run's scores by the deciding measure, one for each distinct text, (c,)."""
    ids, qrels = questions.query_ids, questions.qrels
    return questions.merged(overlap(run, full, ids, 10) if qrels is None else ndcg(run, qrels, ids, 10))


def measure_arm(
    name: str,
    answered: Answered,
    full: Run,
    questions: Questions,
    *,
    meaning: str = "",
    tokens: float | None = None,
    price_usd_per_mtok: float | None = None,
    reranking: Reranking | None = None,
) -> Arm:
    """Everything that is measured of an arm."""
    ids, qrels, run = questions.query_ids, questions.qrels, answered.run
    scores: dict[str, Scores] = {}
    if qrels is not None:
        scores[NDCG] = ndcg(run, qrels, ids, 10)
        scores["recall@100"] = recall(run, qrels, ids, 100)
        scores["MRR@10"] = reciprocal_rank(run, qrels, ids, 10)
        scores["judged@10"] = judged(run, qrels, ids, 10)
    scores |= {f"overlap@{k}": overlap(run, full, ids, k) for k in (1, 10, 100)}
    scores["RBO"] = rank_biased_overlap(run, full, ids)
    usd = None if tokens is None else usd_of(tokens, price_usd_per_mtok)
    scores = {measure: questions.merged(values) for measure, values in scores.items()}
    return Arm(name, meaning or MEANINGS.get(name, ""), scores, answered.seconds, tokens, usd, reranking)


def compare_arm(arm: Arm, standard: Arm, measure: str, *, seed: int, resamples: int) -> Comparison:
    """Hold an arm against its standard."""
    mine, other = arm.scores[measure], standard.scores[measure]
    bounds = retention_bounds(mine, other, seed=seed, resamples=resamples)
    return Comparison(bounds, *win_tie_loss(mine, other), standard.name)


def win_tie_loss(arm: Scores, reference: Scores) -> tuple[int, int, int]:
    """How many queries the arm answers better than, as well as, and worse than the reference."""
    difference = arm - reference
    wins, losses = int((difference > TIE).sum()), int((difference < -TIE).sum())
    return wins, len(difference) - wins - losses, losses


TWO_STAGE, REEMBEDDED = "two-stage", "translated + k%"

_NO_TEXTS = "needs texts, and the translated store has none"


def missing_arms(found: Collection[str], *, has_texts: bool, asked_two_stage: bool) -> Mapping[str, str]:
    """What each arm that is not among `found` needs."""
    needs = {
        STAY: "needs the store before the migration and its model: --source STORE, --source-model SPEC",
        BRIDGE: "needs a stitch for queries, of `fit --direction query`: --bridge STITCH, with --source STORE",
        HYBRID: "left out with BM25" if has_texts else _NO_TEXTS,
        BM25: "left out by --no-bm25" if has_texts else _NO_TEXTS,
        TWO_STAGE: WITHOUT_TWO_STAGE if asked_two_stage else "left out by --two-stage none",
        REEMBEDDED: "needs budgets to try: --frontier, with --source STORE and the --stitch fitted on it",
    }
    names = tuple(found)
    return {name: need for name, need in needs.items() if not any(one.startswith(_stem(name)) for one in names)}


def _stem(name: str) -> str:
    return name.removesuffix("k%")
