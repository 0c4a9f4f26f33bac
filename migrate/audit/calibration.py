"""How a similarity threshold must move: one that was tuned on the old store means something else on the new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.audit.questions import Questions
from migrate.search.runs import Run
from migrate.stores.base import Metric

PASS_RATES = (0.9, 0.75, 0.5, 0.25, 0.1, 0.05)
"""Shares of the hits that the old thresholds of the table let pass."""

_HITS = 10
_BINS = 40


@dataclass(frozen=True, slots=True)
class Threshold:
    """An old threshold, and the new ones that keep its pass rate and its precision.

    A pass rate is the share (0-1) of hits that pass, a precision the share of these that are relevant.
    `precision_old` and `precision_new` are of what passes `old` and `same_pass_rate`; None without judgements.
    `same_precision` is the loosest new threshold that is as precise as the old one; None where none is.
    """

    old: float
    pass_rate: float
    same_pass_rate: float
    precision_old: float | None
    precision_new: float | None
    same_precision: float | None


@dataclass(frozen=True, slots=True)
class Histogram:
    """How the scores of an arm's hits are spread: `edges`, (b + 1,), and `counts`, (b,)."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Thresholds of the store before and after; scores are those of the first ten hits of every query.

    `metrics` say what a score is, old and new: an inner product must be at least the threshold, a squared distance at
    most.
    """

    metrics: tuple[Metric, Metric]
    thresholds: tuple[Threshold, ...]
    histograms: Mapping[str, Histogram]


def calibrate(
    old: Run, new: Run, questions: Questions, metrics: tuple[Metric, Metric], *, names: tuple[str, str]
) -> Calibration:
    """The table of thresholds; both runs are of searched vectors, and answer every query."""
    hits = [_hits(run, questions) for run in (old, new)]
    signs = [1.0 if metric == "ip" else -1.0 for metric in metrics]
    before, after = (_Hits(sign * scores, relevant) for (scores, relevant), sign in zip(hits, signs, strict=True))
    table = [_threshold(before, after, rate, signs, judged=questions.qrels is not None) for rate in PASS_RATES]
    spread = {name: _histogram(scores) for name, (scores, _) in zip(names, hits, strict=True)}
    return Calibration(metrics, tuple(table), spread)


@dataclass(frozen=True, eq=False)
class _Hits:
    """Scores of hits, more is nearer, and whether each is relevant, (n,) each."""

    scores: NDArray[np.float64]
    relevant: NDArray[np.bool_]

    def precision(self, threshold: float) -> float:
        """Share of relevant ones among the hits that pass; some do."""
        return float(self.relevant[self.scores >= threshold].mean())

    def loosest(self, precision: float) -> float | None:
        """The lowest score that, as a threshold, lets pass hits of at least this precision."""
        order = np.argsort(-self.scores, kind="stable")
        ranked = self.scores[order]
        shares = np.cumsum(self.relevant[order]) / np.arange(1, len(order) + 1)
        last = np.r_[ranked[1:] != ranked[:-1], True]  # equal scores pass together
        good = np.flatnonzero(last & (shares >= precision))
        return float(ranked[good[-1]]) if len(good) else None


def _hits(run: Run, questions: Questions) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    qrels = questions.qrels or {}
    scores = [score for q in questions.query_ids for score in run.scores.get(q, ())[:_HITS]]
    relevant = [qrels.get(q, {}).get(doc_id, 0) > 0 for q in questions.query_ids for doc_id in run.top(q, _HITS)]
    return np.array(scores, dtype=float), np.array(relevant, dtype=bool)


def _threshold(before: _Hits, after: _Hits, rate: float, signs: Sequence[float], *, judged: bool) -> Threshold:
    old, new = (float(np.quantile(one.scores, 1 - rate, method="higher")) for one in (before, after))
    precise = before.precision(old) if judged else None
    loosest = after.loosest(precise) if precise is not None else None
    return Threshold(
        signs[0] * old,
        float((before.scores >= old).mean()),
        signs[1] * new,
        precise,
        after.precision(new) if judged else None,
        None if loosest is None else signs[1] * loosest,
    )


def _histogram(scores: NDArray[np.float64]) -> Histogram:
    counts, edges = np.histogram(scores, bins=_BINS)
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))
