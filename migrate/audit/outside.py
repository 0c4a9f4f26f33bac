"""The documents outside a pool: how much of the full re-embed's score they may still take away.

A random sample of documents outside is embedded, and the errors of their scores (true less translated) are put on all
others: a document that lacks `gap` exceeds with the chance that an error is at least `gap`. Errors differ near the top
and far from it, so documents fall into bands by their translated rank. What is embedded last of the pool shows by how
much that predicts too much. docs/statistics.md has the argument.

The sample is drawn by one random priority for each document, of which every query and band takes the lowest, so that
queries share documents (bottom-k sketches; Cohen & Kaplan 2007). What several documents add to the gains of a ranking
is no more than the sum of what each adds alone (Shapley 1962); logarithms of it are summed, whose mean exists for
errors with an exponential tail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from migrate.audit.bootstrap import FLOOR_SHARE, Bootstrap, Floor
from migrate.audit.bounds import CONFIDENCE
from migrate.audit.measures import CUT, ndcg
from migrate.audit.query_set import QuerySet
from migrate.audit.unjudged import TopScores
from migrate.search.runs import Rankings
from migrate.stores.base import Metric, Store
from migrate.stores.serving import as_compared
from migrate.vectors import Batch, Progress, Vectors, check_vectors, squared_norms

Rows = NDArray[np.int64]
"""Rows of the translated store."""

SAMPLED: Final = 300
"""Errors to measure in each band, over all queries; in the last band, which holds most documents, for each query."""

_EDGES: Final = (40, 160, 640, 2_560)
"""Translated ranks at which bands end, each four times as far as the one before: errors differ most near the top."""

_BINS: Final = 2_048
"""Bins of translated scores in which documents outside are counted for each query, as their scores are too many."""

_EXPONENT: Final = 600.0
"""Largest exponent of a gain: e**709 is the largest float64, and gains are added up."""

_TAIL_SHARE: Final = 0.1
"""Share of the errors, 0-1, that are the tail, whose excess says what larger ones to expect."""

_NEXT_TO_NONE: Final = 1e-9
"""Documents of a bin that may exceed a score, on average, up to which they are left out of the sum."""

_NO_EXCESS: Final = 1e-9
"""Stands for no excess over the beginning of a tail, which is divided by."""

_DISCOUNTS: Final = 1 / np.log2(np.arange(CUT) + 2)


def score_rows(queries: Vectors, vectors: Vectors, metric: Metric) -> Vectors:
    """Return scores of (n, dim) rows for (q, dim) queries, (q, n), more is nearer: inner products, or -distances."""
    scores: Vectors = queries @ vectors.T
    if metric == "l2":
        scores *= 2
        scores -= squared_norms(vectors)
        scores -= squared_norms(queries)[:, None]
    return scores


@dataclass(frozen=True, eq=False)
class Ranked:
    """The nearest rows of the translated store for each query, best first: `rows` and their `scores`, (q, k) each.

    `lowest` is the lowest score in the store, (q,).
    """

    rows: Rows
    scores: Vectors
    lowest: Vectors

    @property
    def edges(self) -> list[int]:
        """The ends of bands, as ranks: each but the last band is four times as wide as the one before."""
        return [edge for edge in _EDGES if edge < self.rows.shape[1]]


def rank_rows(store: Store, queries: Vectors, depth: int, *, progress: Progress) -> Ranked:
    """Return the first `depth` rows for each query, and no fewer than the bands need; reads the store once."""
    # The last band holds most of the store, and is not to be cut into
    wide = [edge for edge in _EDGES if edge <= store.info.count // 4]
    depth = min(max([depth, *(edge + 1 for edge in wide)]), store.info.count)
    scores = np.full((len(queries), depth), -np.inf, dtype=np.float32)
    rows = np.full((len(queries), depth), -1, dtype=np.int64)
    lowest = np.full(len(queries), np.inf, dtype=np.float32)
    for start, batch in _numbered(store, "rank the translated store", progress):
        for block in _blocks(len(queries)):
            new = score_rows(queries[block], batch.vectors, store.info.metric)
            lowest[block] = np.minimum(lowest[block], new.min(axis=1))
            near = np.concatenate([scores[block], new], axis=1)
            numbers = np.broadcast_to(np.arange(start, start + len(batch)), new.shape)
            best = np.argpartition(-near, depth - 1, axis=1)[:, :depth]
            scores[block] = np.take_along_axis(near, best, axis=1)
            rows[block] = np.take_along_axis(np.concatenate([rows[block], numbers], axis=1), best, axis=1)
    order = np.lexsort((rows, -scores), axis=1)
    return Ranked(np.take_along_axis(rows, order, axis=1), np.take_along_axis(scores, order, axis=1), lowest)


def _blocks(count: int) -> Iterator[slice]:
    """Return queries to score at a time, so that memory does not grow with them."""
    height = 1_024
    return (slice(start, min(start + height, count)) for start in range(0, count, height))


def _numbered(store: Store, stage: str, progress: Progress) -> Iterator[tuple[int, Batch]]:
    """Yield the batches of a store as it compares them, with the number of the first row of each."""
    start = 0
    for batch in store.scan():
        progress(stage, start, store.info.count)
        check_vectors(batch.ids, batch.vectors, source=str(store.info.location))
        yield start, replace(batch, vectors=as_compared(store.info, batch.vectors))
        start += len(batch)
    progress(stage, start, store.info.count)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Pairs of a query and a row outside the pool, drawn in one band: numbers and translated scores, (n,) each."""

    queries: Rows
    rows: Rows
    scores: Vectors


@dataclass(frozen=True, eq=False)
class Surroundings:
    """The documents outside a pool: `drawn` pairs by band, and how many others there are by their translated score.

    `counts`, (q, bins), are of equally wide bins between each query's `low` and `high`, (q,) each.
    """

    ranked: Ranked
    drawn: Sequence[Drawn]
    counts: NDArray[np.int64]
    low: Vectors
    high: Vectors

    @property
    def rows(self) -> Rows:
        """The rows to embed."""
        return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *(sample.rows for sample in self.drawn)]))

    def without(self, scores: Vectors) -> Surroundings:
        """Return the same without some of the rows that were counted, by their translated scores, (q, n)."""
        bins = _bins(scores, self.low, self.high)
        removed = np.stack([np.bincount(row, minlength=_BINS) for row in bins])
        # Rounding may choose the next bin
        return replace(self, counts=np.maximum(self.counts - removed, 0))

    def tops(self, query: int) -> Vectors:
        """Return the upper end of each bin of a query, (bins,)."""
        low = self.low[query : query + 1]
        width = (self.high[query : query + 1] - low) / _BINS
        return (low + width * np.arange(1, _BINS + 1)).astype(np.float32)


def look_around(
    store: Store,
    queries: Vectors,
    ranked: Ranked,
    outside: NDArray[np.bool_],
    *,
    seed: int,
    progress: Progress,
    sampled: int = SAMPLED,
) -> Surroundings:
    """Count the rows that are `outside`, (n,), a pool, and draw `sampled` in each band; reads the store once."""
    low = ranked.lowest
    high = ranked.scores[:, 0]
    bands = len(ranked.edges) + 1
    per_query = max(ceil(sampled / len(queries)), 1)
    quotas = [per_query] * (bands - 1) + [sampled]
    # One priority for each document, of which every query and band takes the lowest, so that queries share documents to
    # embed (bottom-k sketches; Cohen & Kaplan 2007)
    priority = np.random.default_rng(seed).random(len(outside))
    picks: list[list[tuple[Rows, Vectors]]] = [
        [(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)) for _ in queries] for _ in range(bands)
    ]
    counts = np.zeros((len(queries), _BINS), dtype=np.int64)
    for start, batch in _numbered(store, "look outside the pool", progress):
        candidates = np.flatnonzero(outside[start : start + len(batch)])
        candidates = candidates[np.argsort(priority[start + candidates], kind="stable")]
        for block in _blocks(len(queries)):
            scores = score_rows(queries[block], batch.vectors[candidates], store.info.metric)
            bins = _bins(scores, low[block], high[block])
            for query, query_scores, query_bins in zip(range(block.start, block.stop), scores, bins, strict=True):
                counts[query] += np.bincount(query_bins, minlength=_BINS)
                band = np.searchsorted(-ranked.scores[query, ranked.edges], -query_scores, side="right")
                for number, most in enumerate(quotas):
                    near = np.flatnonzero(band == number)[:most]
                    rows = np.concatenate([picks[number][query][0], start + candidates[near]])
                    values = np.concatenate([picks[number][query][1], query_scores[near]])
                    best = np.argsort(priority[rows], kind="stable")[:most]
                    picks[number][query] = rows[best], values[best]
    drawn = [
        Drawn(
            np.repeat(np.arange(len(queries)), [len(rows) for rows, _ in band]),
            np.concatenate([rows for rows, _ in band]),
            np.concatenate([values for _, values in band]),
        )
        for band in picks
    ]
    return Surroundings(ranked, drawn, counts, low, high)


def _bins(scores: Vectors, low: Vectors, high: Vectors) -> NDArray[np.int64]:
    """Return the bin of each score, (q, n)."""
    scale = _BINS / np.where(high > low, high - low, 1)
    bins: NDArray[np.int64] = np.clip((scores - low[:, None]) * scale[:, None], 0, _BINS - 1).astype(np.int64)
    return bins


@dataclass(frozen=True, eq=False)
class ErrorTail:
    """The chance that an error of a score is at least so large.

    `errors` descend, (n,). The first `size` of them are the tail, which begins at `start`; `excess` is how far they are
    beyond that on average.
    """

    errors: NDArray[np.float64]
    size: int
    start: float
    excess: float

    @classmethod
    def of(cls, errors: NDArray[np.floating]) -> ErrorTail:
        """Return the tail of some errors in any order."""
        descending = np.sort(errors.astype(np.float64))[::-1]
        count = len(descending)
        if not count:
            return cls(descending, 0, 0.0, _NO_EXCESS)
        size = min(max(int(_TAIL_SHARE * count), 1), count - 1)
        start = float(descending[size])
        excess = _NO_EXCESS
        if size:
            excess = max(float((descending[:size] - start).mean()), _NO_EXCESS)
        return cls(descending, size, start, excess)

    def __call__(self, gap: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the chance that an error is at least `gap`; of no errors nothing is known, and the chance is 1."""
        if not len(self.errors):
            return np.ones_like(gap, dtype=np.float64)
        start = self.start
        share = np.searchsorted(-self.errors, -gap, side="right") / len(self.errors)
        # An exponential tail, as excesses over a high threshold have in the limit (Pickands 1975): larger errors than
        # any that was measured are possible
        beyond = max(self.size, 1) / len(self.errors) * np.exp(-(np.maximum(gap, start) - start) / self.excess)
        return np.where(gap <= start, share, np.maximum(share, beyond))

    def reach(self, excesses: float) -> float:
        """Return so many mean excesses beyond the largest error; infinitely far where nothing is known."""
        if not len(self.errors):
            return np.inf
        return float(self.errors[0] + excesses * self.excess)


def discount_after(rank: int, more: float) -> float:
    """Return at least the mean discount of a document at `rank`, from 1, once `others` came before it on average.

    It lies on a line that falls as fast as the discount does where that is steepest, down to 0: a convex function below
    the discount, so that the mean discount is at least that of the mean number of others (Jensen).

    >>> discount_after(1, 0), round(discount_after(1, 1), 3), discount_after(10, 1)
    (1.0, 0.631, 0.0)
    """
    if rank > CUT:
        return 0.0
    now = _DISCOUNTS[rank - 1]
    following = np.append(_DISCOUNTS[rank:], 0)
    # By Jensen's inequality: for a convex function below the discount, the mean discount is at least that of the mean
    # number of others
    steepest = ((now - following) / np.arange(1, len(following) + 1)).max()
    return float(max(now - more * steepest, 0.0))


@dataclass(frozen=True, eq=False)
class Others:
    """Documents of which a query has translated scores: in each band its errors, scores and how many have each.

    Scores are (n,), counts (n,), a greater score is nearer.
    """

    bands: Sequence[tuple[ErrorTail, NDArray[np.floating], NDArray[np.floating | np.integer]]]

    def expected(self, scores: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return how many are to have at least each of some true scores, (m,)."""
        total = np.zeros(len(scores))
        for tail, tops, counts in self.bands:
            near = tail(scores.min(initial=np.inf) - tops) * counts > _NEXT_TO_NONE
            total += tail(scores[:, None] - tops[near]) @ counts[near]
        return total

    @property
    def highest(self) -> float:
        """A true score that none is expected to exceed."""
        reached = [float(tops.max() + tail.reach(10)) for tail, tops, _ in self.bands if len(tops)]
        return max(reached, default=-np.inf)


@dataclass(frozen=True, eq=False)
class Relevant:
    """The relevant documents in a pool for a query: gains over the ideal one, ranks from 1 and true scores, (n,)."""

    gains: NDArray[np.float64]
    ranks: NDArray[np.int64]
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, run: Rankings, query_id: str, judged: Mapping[str, int], metric: Metric) -> Self:
        """Return the ones that a run has retrieved, by the grades that were judged."""
        grades = {doc_id: max(grade, 0) for doc_id, grade in judged.items()}
        ideal = float(np.sort(list(grades.values()))[::-1][:CUT] @ _DISCOUNTS[: len(grades)]) or 1.0
        ranked = enumerate(scored(run, query_id, metric), start=1)
        relevant = [(grades[doc] / ideal, rank, score) for rank, (doc, score) in ranked if grades.get(doc, 0) > 0]
        gains, ranks, scores = np.array(relevant, dtype=np.float64).reshape(-1, 3).T
        return cls(gains, ranks.astype(np.int64), scores)

    def loss(self, outsiders: Others) -> float:
        """Return what others are expected to take of nDCG@10."""
        shown = self.ranks <= CUT
        expected = zip(self.ranks[shown].tolist(), outsiders.expected(self.scores[shown]).tolist(), strict=True)
        discounts = [discount_after(rank, count) for rank, count in expected]
        return float(self.gains[shown] @ (_DISCOUNTS[self.ranks[shown] - 1] - discounts))

    def without(self, recent: Lately) -> tuple[Self, float]:
        """Return those that would rank among the first ten without the last documents, and what these took of them."""
        ranks_before = self.ranks - (recent.true > self.scores[:, None]).sum(axis=1)
        shown = (ranks_before > 0) & (ranks_before <= CUT)
        now = np.append(_DISCOUNTS, 0)[np.minimum(self.ranks[shown] - 1, CUT)]
        loss = float(self.gains[shown] @ (_DISCOUNTS[ranks_before[shown] - 1] - now))
        return replace(self, gains=self.gains[shown], ranks=ranks_before[shown], scores=self.scores[shown]), loss


@dataclass(frozen=True, eq=False)
class Room:
    """The first ten documents of the full re-embed in a pool, and what one more of a given score would add to them.

    `tops` are their true scores, (10,), best first, a greater one nearer; -inf where they are fewer.
    """

    tops: NDArray[np.float64]
    temperature: float

    def gain_of(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return log(1 + rise / P) for a document of each true score, alone; 0 for one not among the first ten."""
        ranks = np.searchsorted(-self.tops, -scores, side="left")
        inside = np.minimum(ranks, CUT - 1)
        drops = (_DISCOUNTS - np.append(_DISCOUNTS[1:], 0)) * self._gains(self.tops)
        # What those from each rank on lose by moving down one
        displaced = np.cumsum(drops[::-1])[::-1]
        rises = _DISCOUNTS[inside] * self._gains(scores) - displaced[inside]
        return np.log1p(np.where(ranks < CUT, np.maximum(rises, 0), 0) / self.possible)

    @property
    def possible(self) -> float:
        """P, the discounted gains of the ten, in units of the gain of the first."""
        return float(_DISCOUNTS @ self._gains(self.tops))

    def _gains(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        gains: NDArray[np.float64] = np.exp(np.minimum((scores - self.tops[0]) / self.temperature, _EXPONENT))
        return gains

    def grid(self, highest: float) -> NDArray[np.float64]:
        """Return scores to sum over: from the tenth on finely, from a little above the first to the `highest` coarsely.

        Ten units of temperature below the last of a short ranking next to nothing is gained.
        """
        last = max(self.tops[-1], self.tops[np.isfinite(self.tops)].min() - 10 * self.temperature)
        first = self.tops[0] + 2 * self.temperature
        steps = int(np.clip((first - last) / self.temperature * 4, 2, 200))
        beyond = first + (max(highest, first) - first) * np.linspace(0, 1, 33)[1:] ** 2
        return np.concatenate([np.linspace(last, first, steps), beyond])

    def share_lost(self, grid: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
        """Return the share of agreement that is lost where `expected` documents have at least each score of a grid."""
        lost = self.gain_of(grid)
        # What several documents add to the gains of a ranking is no more than the sum of what each adds alone (Shapley
        # 1962); logarithms of it are summed, whose mean exists for errors with an exponential tail
        return float(-np.expm1(-(lost[0] * expected[0] + np.diff(lost) @ expected[:-1])))

    def loss(self, outsiders: Others) -> float:
        """Return the share of agreement that others are expected to take."""
        if outsiders.highest == np.inf or not np.isfinite(self.tops[0]):
            return 1.0
        grid = self.grid(outsiders.highest)
        return self.share_lost(grid, outsiders.expected(grid))

    def raised_to(self, now: Room) -> float:
        """Return the share of agreement that is lost where the first ten have become others."""
        # P is in units of the first
        raised = np.exp(min((now.tops[0] - self.tops[0]) / self.temperature, _EXPONENT))
        return float(1 - self.possible / (now.possible * raised))


def scored(run: Rankings, query_id: str, metric: Metric) -> Iterator[tuple[str, float]]:
    """Yield the documents that a run has retrieved for a query, best first, with their true scores."""
    sign = -1.0
    if metric == "ip":
        sign = 1.0
    for doc_id, score in zip(run.rankings.get(query_id, ()), run.scores.get(query_id, ()), strict=True):
        yield doc_id, sign * score


def tops_of(run: Rankings, query_id: str, metric: Metric, without: frozenset[str] = frozenset()) -> TopScores:
    """Return the true scores of the first ten documents of a run for a query, (10,), but some of them."""
    scores = [score for doc_id, score in scored(run, query_id, metric) if doc_id not in without][:CUT]
    return np.array([*scores, *[-np.inf] * (CUT - len(scores))])


@dataclass(frozen=True, eq=False)
class Lately:
    """The last rows that were embedded for a query because of their translated rank: scores, (n,) each.

    `documents` are those of which the pool would have no row without them.
    """

    translated: NDArray[np.floating]
    true: NDArray[np.floating]
    documents: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Outside:
    """The documents outside a pool, after the sample of them was embedded.

    `tails` are those of the bands; `ratio` is what the last documents of the pool took away, as a share of what errors
    predicted of them, and `most` its upper bound. `row_of` are the numbers of the queries by their ids. What may be
    taken is nDCG@10, or without judgements a share of agreement@10 at a `temperature`.
    """

    surroundings: Surroundings
    tails: Sequence[ErrorTail]
    metric: Metric
    row_of: Mapping[str, int]
    ratio: float
    most: float
    temperature: float | None = None

    def losses(self, run: Rankings, query_set: QuerySet) -> NDArray[np.float64]:
        """Return what errors predict that documents outside take from the full re-embed's `run` in the pool, (q,)."""
        return np.array([self._loss(run, query_id, query_set.grades(query_id)) for query_id in query_set.query_ids])

    def _loss(self, run: Rankings, query_id: str, judged: Mapping[str, int]) -> float:
        around = self.surroundings
        query = self.row_of[query_id]
        filled = np.flatnonzero(around.counts[query])
        tops = around.tops(query)[filled]
        counts = around.counts[query, filled]
        band = np.searchsorted(-around.ranked.scores[query, around.ranked.edges], -tops, side="right")
        outsiders = Others([(tail, tops[band == n], counts[band == n]) for n, tail in enumerate(self.tails)])
        if self.temperature is None:
            return Relevant.of(run, query_id, judged, self.metric).loss(outsiders)
        return Room(tops_of(run, query_id, self.metric), self.temperature).loss(outsiders)

    def floor(self, run: Rankings, query_set: QuerySet, losses: NDArray[np.float64]) -> Floor:
        """Return what is left of the full re-embed's scores, or of any arm's agreement, where `run` is in the pool."""
        is_share = self.temperature is not None
        scores = np.ones(len(losses))
        if not is_share:
            scores = ndcg(run, query_set.qrels or {}, query_set.query_ids, CUT)
        expected = np.clip(scores - self.ratio * losses, 0, 1)
        least = np.clip(scores - self.most * losses, 0, 1)
        return Floor(query_set.merged(expected), query_set.merged(least), is_share)


def ratio_of_losses(
    run: Rankings,
    recent: Sequence[Lately],
    query_set: QuerySet,
    metric: Metric,
    temperature: float | None,
    bootstrap: Bootstrap,
    *,
    error: float = 1 - CONFIDENCE,
) -> tuple[float, float]:
    """Return what the last documents of a pool took over what their errors predict, and its upper bound.

    1 where they predict nothing. The bound has a share of the `error` that a verdict may make, `FLOOR_SHARE`.
    """
    tail = ErrorTail.of(
        np.concatenate([np.empty(0), *(query_recent.true - query_recent.translated for query_recent in recent)])
    )
    observed = np.zeros(len(recent))
    predicted = np.zeros(len(recent))
    for position, (query_id, query_recent) in enumerate(zip(query_set.query_ids, recent, strict=True)):
        outsiders = Others([(tail, query_recent.translated, np.ones(len(query_recent.true)))])
        if not len(query_recent.true):
            continue
        if temperature is None:
            now = Relevant.of(run, query_id, query_set.grades(query_id), metric)
            relevant_before, observed[position] = now.without(query_recent)
            predicted[position] = relevant_before.loss(outsiders)
        else:
            room = Room(tops_of(run, query_id, metric, query_recent.documents), temperature)
            if np.isfinite(room.tops[0]):
                observed[position] = room.raised_to(Room(tops_of(run, query_id, metric), temperature))
                predicted[position] = room.loss(outsiders)
    if not predicted.any():
        return 1.0, 1.0
    # What lies outside is no loss of a translation: a group may be won as a whole, as it may be lost
    grouping = replace(query_set.grouping, evenly=True)
    observed_loss, expected = (query_set.merged(np.minimum(values, 1)) for values in (observed, predicted))
    evenly = replace(bootstrap, grouping=grouping, confidence=1 - FLOOR_SHARE * error)
    bounds = evenly.retention(observed_loss, expected)
    return bounds.estimate, bounds.upper
