"""What an audit finds: arms with their measures, the comparison with the reference, the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from migrate.audit.measures import Scores
from migrate.audit.two_stage import Reranking
from migrate.audit.verdict import Bounds, Verdict
from migrate.manifest import Manifest

TIE = 1e-9
"""Differences of nDCG@10 up to this count as a tie."""

FULL, TRANSLATED, STAY, BRIDGE, BM25, MEAN = "full re-embed", "translated", "stay", "bridge", "BM25", "mean"

MEANINGS = {
    FULL: "every document embedded by the target model: the standard",
    TRANSLATED: "the translated store, queries embedded by the target model",
    STAY: "the source store, queries embedded by the source model: doing nothing",
    BRIDGE: "the source store, queries embedded by the target model and mapped back by a stitch",
    BM25: "words only, no embedding",
    MEAN: "control: one vector for all documents",
}


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of answering the queries, and how well it does.

    `scores` maps a measure (`nDCG@10`, `recall@100`, `MRR@10`, `overlap@1`, `overlap@10`, `overlap@100`) to one value
    a query; without judgements only the overlaps are there. `seconds` is the time to rank, without embedding.
    `reranking` is what a two-stage arm would embed.
    """

    name: str
    meaning: str
    scores: Mapping[str, Scores]
    seconds: float
    reranking: Reranking | None = None

    def mean(self, measure: str) -> float | None:
        """Mean over all queries asked about, or None where the measure could not be taken."""
        return float(np.mean(self.scores[measure])) if measure in self.scores else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """An arm against the full re-embed: retention of the deciding measure, and queries won, tied and lost."""

    retention: Bounds
    wins: int
    ties: int
    losses: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The whole finding. `measure` is what the verdict rests on: nDCG@10, or overlap@10 where nothing is judged."""

    verdict: Verdict
    arms: tuple[Arm, ...]
    comparisons: Mapping[str, Comparison]
    measure: str
    query_ids: tuple[str, ...]
    n_documents: int
    dataset: str
    notes: tuple[str, ...]
    manifest: Manifest

    @property
    def stay(self) -> Scores | None:
        """What staying scores by nDCG@10, one value a query; None without that arm, or without judgements."""
        return next((arm.scores.get("nDCG@10") for arm in self.arms if arm.name == STAY), None)

    def arm(self, name: str) -> Arm:
        """The arm of that name.

        Raises
        ------
        KeyError
            There is none.
        """
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise KeyError(name)


def win_tie_loss(arm: Scores, reference: Scores) -> tuple[int, int, int]:
    """How many queries the arm answers better than, as well as, and worse than the reference."""
    difference = arm - reference
    wins, losses = int((difference > TIE).sum()), int((difference < -TIE).sum())
    return wins, len(difference) - wins - losses, losses
