"""Diagnostics: the causes behind the mean score of a translated store; `slices` has the kinds of queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from migrate.audit.evidence import Evidence
from migrate.audit.experiment import Experiment
from migrate.audit.measures import Scores
from migrate.audit.query_set import QuerySet
from migrate.audit.results import FULL, STAY, TIE, TRANSLATED
from migrate.audit.slices import find_slices
from migrate.audit_report.records import Histogram, Hit, Hubness, Regression, Slice, Threshold, ThresholdTable
from migrate.search.runs import Rankings
from migrate.stores.base import Metric
from migrate.vectors import Vectors, squared_norms

_CHARACTERS = 160


def find_regressions(evidence: Evidence, scores: Mapping[str, Scores]) -> tuple[Regression, ...]:
    """Return the ten queries whose score falls furthest behind that of the full re-embed, worst first, ties by place.

    Queries of one text are one, with their mean `scores` by the deciding measure, (c,) for each arm, and the hits of
    the first of them.
    """
    query_set = evidence.experiment.query_set
    runs = evidence.runs.compared
    loss = scores[FULL] - scores[TRANSLATED]
    worst = [int(row) for row in np.argsort(-loss, kind="stable")[:10] if loss[row] > TIE]
    queries = [query_set.distinct[row] for row in worst]
    tops = {(name, query.id): runs[name].top(query.id, 3) for name in runs for query in queries}
    texts = evidence.experiment.stores[TRANSLATED].texts(sorted({doc_id for top in tops.values() for doc_id in top}))

    def hit(query_id: str, doc_id: str) -> Hit:
        text = " ".join(texts.get(doc_id, "").split())
        if len(text) > _CHARACTERS:
            text = text[: _CHARACTERS - 1].rstrip() + "…"
        return Hit(doc_id, text, query_set.grades(query_id).get(doc_id))

    return tuple(
        Regression(
            query.id,
            query.text,
            {name: float(scores[name][row]) for name in runs},
            {name: tuple(hit(query.id, doc_id) for doc_id in tops[name, query.id]) for name in runs},
        )
        for row, query in zip(worst, queries, strict=True)
    )


NEIGHBOURS = 10


def hubness_of(arm: str, vectors: Vectors, metric: Metric, *, neighbours: int = NEIGHBOURS) -> Hubness:
    """Count neighbours among some documents of a store, (n, dim), n > `neighbours`."""
    nearness = vectors @ vectors.T
    if metric == "l2":
        nearness = 2 * nearness - squared_norms(vectors)
    np.fill_diagonal(nearness, -np.inf)
    nearest = np.argpartition(-nearness, neighbours, axis=1)[:, :neighbours]
    counts = np.bincount(nearest.ravel(), minlength=len(vectors)).astype(float)
    spread = counts.std()
    skewness = 0.0
    if spread:
        # The third standardised moment of how often each is a neighbour (Radovanovic et al. 2010, JMLR 11)
        skewness = float(np.mean(((counts - counts.mean()) / spread) ** 3))
    return Hubness(arm, len(vectors), skewness, int(counts.max()), float((counts == 0).mean()))


PASS_RATES = (0.9, 0.75, 0.5, 0.25, 0.1, 0.05)
"""Shares of the hits that the old thresholds of the table let pass."""


def table_of_thresholds(
    old: Rankings, new: Rankings, query_set: QuerySet, metrics: tuple[Metric, Metric]
) -> ThresholdTable:
    """Return the table of thresholds; both runs are of searched vectors, and answer every query."""
    old_metric, new_metric = metrics
    old_hits = _Hits.of(old, query_set, _sign(old_metric))
    new_hits = _Hits.of(new, query_set, _sign(new_metric))
    return ThresholdTable(
        metrics,
        tuple(_threshold_at(rate, old_hits, new_hits, is_judged=query_set.is_judged) for rate in PASS_RATES),
        {STAY: old_hits.histogram(), TRANSLATED: new_hits.histogram()},
    )


def _sign(metric: Metric) -> float:
    """Return what turns a score into one that is greater where it is nearer, and back."""
    if metric == "ip":
        return 1.0
    return -1.0


def _threshold_at(rate: float, old_hits: _Hits, new_hits: _Hits, *, is_judged: bool) -> Threshold:
    """Return the old threshold that lets a share of the hits pass, and the new ones in its place."""
    old = old_hits.passed_by(rate)
    new = new_hits.passed_by(rate)
    precision_old = None
    precision_new = None
    same_precision = None
    if is_judged:
        precision_old = old_hits.precision(old)
        precision_new = new_hits.precision(new)
        loosest = new_hits.loosest(precision_old)
        if loosest is not None:
            same_precision = new_hits.sign * loosest
    return Threshold(
        old=old_hits.sign * old,
        pass_rate=float((old_hits.scores >= old).mean()),
        same_pass_rate=new_hits.sign * new,
        precision_old=precision_old,
        precision_new=precision_new,
        same_precision=same_precision,
    )


@dataclass(frozen=True, eq=False)
class _Hits:
    """Scores of hits, more is nearer, and which of them are relevant, (n,) each.

    Times the `sign` they are the store's own scores.
    """

    scores: NDArray[np.float64]
    relevant: NDArray[np.bool_]
    sign: float

    @classmethod
    def of(cls, run: Rankings, query_set: QuerySet, sign: float) -> Self:
        """Return the first ten of every query."""
        scores: list[float] = []
        relevant: list[bool] = []
        for query_id in query_set.query_ids:
            grades = query_set.grades(query_id)
            scores += run.scores.get(query_id, ())[:10]
            relevant += [grades.get(doc_id, 0) > 0 for doc_id in run.top(query_id, 10)]
        return cls(sign * np.array(scores, dtype=float), np.array(relevant, dtype=bool), sign)

    def passed_by(self, share: float) -> float:
        """Return the highest score that, as a threshold, lets pass at least this share of the hits, 0-1."""
        return float(np.quantile(self.scores, 1 - share, method="higher"))

    def histogram(self) -> Histogram:
        """Return how the store's own scores are spread."""
        counts, edges = np.histogram(self.sign * self.scores, bins=40)
        return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))

    def precision(self, threshold: float) -> float:
        """Return the share of relevant ones among the hits that pass; some do."""
        return float(self.relevant[self.scores >= threshold].mean())

    def loosest(self, precision: float) -> float | None:
        """Return the lowest score that, as a threshold, lets pass hits of at least this precision."""
        order = np.argsort(-self.scores, kind="stable")
        ranked = self.scores[order]
        shares = np.cumsum(self.relevant[order]) / np.arange(1, len(order) + 1)
        last = np.r_[ranked[1:] != ranked[:-1], True]  # equal scores pass together
        good = np.flatnonzero(last & (shares >= precision))
        if not len(good):
            return None
        return float(ranked[good[-1]])


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """The causes behind the mean. What is not available is empty or None: calibration needs the arm `stay`."""

    regressions: tuple[Regression, ...] = ()
    slices: tuple[Slice, ...] = ()
    calibration: ThresholdTable | None = None
    hubness: tuple[Hubness, ...] = ()


def diagnose(evidence: Evidence, subjects: Mapping[str, str], scores: Mapping[str, Scores]) -> Diagnostics:
    """Compare the translated store with the full re-embed and, where there is one, with the source store.

    `subjects` are the documents that queries are about, `scores` those of the arms by the deciding measure, (c,) each.
    In a pool there are no topics, and the slices are of scores as they are expected.
    """
    experiment = evidence.experiment
    runs = evidence.runs.compared
    arm, full = evidence.rules.likely(scores[TRANSLATED], scores[FULL])
    ids, sampled = _sample(experiment)
    calibration = None
    if STAY in runs:
        metrics = experiment.stores[STAY].store.info.metric, experiment.stores[TRANSLATED].store.info.metric
        calibration = table_of_thresholds(runs[STAY], runs[TRANSLATED], experiment.query_set, metrics)
    return Diagnostics(
        find_regressions(evidence, scores),
        find_slices(evidence, subjects, arm, full),
        calibration,
        tuple(
            hubness_of(name, vectors, experiment.stores[name].store.info.metric)
            for name, vectors in sampled.items()
            if len(ids) > NEIGHBOURS
        ),
    )


def _sample(experiment: Experiment) -> tuple[tuple[str, ...], dict[str, Vectors]]:
    """Return up to 2,000 ids that all stores have, and their vectors in each; other chunks have other ids."""
    stores = experiment.stores
    names = [name for name in (STAY, TRANSLATED, FULL) if name in stores]
    if experiment.in_pool:  # which is no random sample of the full re-embed
        names.remove(FULL)
    ids = stores[TRANSLATED].keys.ids
    rows_in = {name: ids.matches(stores[name].keys.ids) for name in names}
    # Not of an id that came before
    is_first = rows_in[TRANSLATED] == np.arange(len(ids))
    common = np.flatnonzero(is_first & np.logical_and.reduce([rows >= 0 for rows in rows_in.values()]))
    # Another series than that which draws the pairs of a stitch: these have true vectors, and would flatter it
    drawn = common[np.random.default_rng([experiment.settings.seed, 1]).permutation(len(common))[:2_000]]
    return tuple(ids.take(drawn)), {name: stores[name].store.get(rows_in[name][drawn]).vectors for name in names}
