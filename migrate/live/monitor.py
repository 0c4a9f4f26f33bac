"""A verdict on what a live store serves that may be looked at at any time.

Of sampled queries the documents that were served are known. Each is scored by agreement@10 with what a full re-embed
would have served (`migrate.audit.unjudged`), as far as a pool knows it: true vectors of the store's first documents for
the query, of those that were served, and of all documents that are true in the store already. Two scores come of it.
`high`, by the pool alone, is at least the true one: what is not in the pool can only make the best ten better. `low`
takes off what documents outside may add, by the errors of a random sample (`migrate.audit.outside`).

Means of both are bounded at all looks together (`migrate.live.confidence_sequence`): SAFE rests on the lower bound of
`low`, NOT SAFE on the upper bound of `high`. Each is bounded twice, over all queries and over the first one of each
kind (`migrate.live.query_kinds.Kinds`), and the wider bound counts: queries that come in runs of one kind are not
independent, and kinds alone do not show which of them users ask most.

The first `CALIBRATION` queries are not scored: they give the temperature of agreement, the errors, and by how much
these predict too much or too little. All of it begins anew with the translated vectors of another stitch, and goes on
where true vectors join the store. docs/statistics.md has the argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from migrate.audit.bootstrap import FLOOR_SHARE, Bootstrap
from migrate.audit.bounds import CONFIDENCE, FEWEST_QUERIES, MARGIN, Outcome
from migrate.audit.measures import CUT
from migrate.audit.outside import (
    ErrorTail,
    Lately,
    Outside,
    Ranked,
    Rows,
    Surroundings,
    look_around,
    rank_rows,
    ratio_of_losses,
    score_rows,
    tops_of,
)
from migrate.audit.query_groups import with_groups
from migrate.audit.query_set import QuerySet
from migrate.audit.unjudged import TopScores, agreement, limits_of, temperature_of
from migrate.audit.verdict import FEWEST_DOCUMENTS
from migrate.embedders.base import Embedder
from migrate.live.confidence_sequence import ConfidenceSequence
from migrate.live.query_kinds import Kinds
from migrate.live.state import LiveState, ServedQuery
from migrate.search.runs import Rankings, TopK
from migrate.selection.sample import known_documents
from migrate.stores.base import Metric, Store
from migrate.stores.serving import is_cosine
from migrate.vectors import Query, Vectors, no_progress, unit_rows

CALIBRATION: Final = 100
"""Queries by which the others are scored."""

_ERROR: Final = (1 - CONFIDENCE) / 2
"""The chance of a verdict to be wrong on either side."""

DEPTHS: Final = (2 * CUT, 50, 100, 200)
"""The store's first documents for a query that the pool has: ten, and ten more that say what others may bring; deeper
for a query of which documents outside may take more than `_MATTERS`."""

_KEPT_ERRORS: Final = 1_000
"""Errors of a band that are kept, at most."""

_MATTERS: Final = 0.005
"""Agreement that documents outside the pool may take, up to which a deeper pool would cost more than it says."""

_MONITOR: Final = "own monitor"


@dataclass(frozen=True)
class Calibration:
    """The temperature and errors of the first queries, by which the others are scored.

    `errors` of translated scores by band, each descending; `most` is the upper bound of what documents did take over
    what errors predict of them.
    """

    temperature: float
    errors: tuple[tuple[float, ...], ...]
    most: float

    @property
    def tails(self) -> list[ErrorTail]:
        """The errors of the bands."""
        return [ErrorTail.of(np.array(errors)) for errors in self.errors]


@dataclass(frozen=True, slots=True)
class LiveVerdict:
    """The verdict of now: agreement@10 of the `n_queries` scored, of `n_groups` kinds.

    `mean` is the most that it was on average, by the pool, `likely` the mean less what documents outside may take;
    `lower` and `upper` hold at all looks together. SAFE from `safe` on, NOT SAFE below `harmful`.
    `margin_from` is where the margin is from, empty where it was named to the worker.
    """

    outcome: Outcome
    n_queries: int
    mean: float
    likely: float
    lower: float
    upper: float
    margin: float
    safe: float
    harmful: float
    waiting: int = 0
    margin_from: str = ""
    n_groups: int = 0


@dataclass(frozen=True)
class Monitor:
    """All that was learned so far; `judged` gives the next one. Plain numbers, kept as JSON between looks.

    `last` is the number of the last query that was looked at; without a calibration, queries wait until there are
    `CALIBRATION` of them. `kinds` are those of the queries scored, `first_low` and `first_high` the scores of the first
    query of each. `translation` names what gave the translated vectors (`translation_of`).
    """

    margin: float = MARGIN
    last: int = 0
    n_documents: int = 0
    low: ConfidenceSequence = field(default_factory=ConfidenceSequence)
    high: ConfidenceSequence = field(default_factory=ConfidenceSequence)
    calibration: Calibration | None = None
    kinds: Kinds = field(default_factory=Kinds)
    first_low: ConfidenceSequence = field(default_factory=ConfidenceSequence)
    first_high: ConfidenceSequence = field(default_factory=ConfidenceSequence)
    margin_from: str = ""
    translation: str = ""

    @property
    def wants(self) -> int:
        """So many queries are looked at at once, at least."""
        if self.calibration is None:
            return CALIBRATION
        return 1

    def judged(self, pool: ServedPool) -> Monitor:
        """Look at some more queries, in their order: all that were sampled since, whatever their answers were.

        Reads the store; embeds documents that the pool lacks. Where that fails, they are to be looked at again.
        """
        last = pool.last
        count = pool.store.info.count
        if not pool.queries:  # documents that they were answered with are gone
            return replace(self, last=last, n_documents=count)
        if self.calibration is None:
            calibration = pool.calibrated(_ERROR)
            kinds = self.kinds.with_usual(pool.vectors)
            return replace(self, last=last, n_documents=count, calibration=calibration, kinds=kinds)
        low = self.low
        high = self.high
        first_low = self.first_low
        first_high = self.first_high
        kinds, is_first = self.kinds.with_new(pool.vectors)
        for below, above, first in zip(*pool.scores(self.calibration), is_first, strict=True):
            low = low.with_score(float(below))
            high = high.with_score(float(above))
            if first:
                first_low = first_low.with_score(float(below))
                first_high = first_high.with_score(float(above))
        monitor = replace(self, last=last, n_documents=count, low=low, high=high)
        return replace(monitor, kinds=kinds, first_low=first_low, first_high=first_high)

    def verdict(self, waiting: int = 0) -> LiveVerdict:
        """Return the verdict of now, at any time; `waiting` are queries that were not looked at yet."""
        limits = limits_of(self.margin)
        # Of all queries and of the first of each kind: a query that thousands repeat must not decide alone
        lower = min(scores.lower((1 - FLOOR_SHARE) * _ERROR) for scores in (self.low, self.first_low))
        upper = max(scores.upper(_ERROR) for scores in (self.high, self.first_high))
        outcome = Outcome.INCONCLUSIVE
        if self.first_high.count >= FEWEST_QUERIES:
            if upper < limits.harmful:
                outcome = Outcome.NOT_SAFE
            elif lower >= limits.safe and self.n_documents >= FEWEST_DOCUMENTS:
                outcome = Outcome.SAFE
        return LiveVerdict(
            outcome,
            n_queries=self.high.count,
            mean=self.high.mean,
            likely=self.low.mean,
            lower=lower,
            upper=upper,
            margin=self.margin,
            safe=limits.safe,
            harmful=limits.harmful,
            waiting=waiting,
            margin_from=self.margin_from,
            n_groups=self.first_high.count,
        )

    def keep(self, state: LiveState) -> None:
        """Keep it in the state of the store."""
        state.note(_MONITOR, self.as_json())

    @classmethod
    def kept_in(cls, state: LiveState) -> Self | None:
        """Return the one that a state keeps; None where it keeps none."""
        content = state.value(_MONITOR)
        if content is None:
            return None
        return cls.of_json(content)

    def as_json(self) -> dict[str, Any]:
        """Return what `of_json` reads."""
        return {**asdict(self), "kinds": self.kinds.as_json()}

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the one that `as_json` gave."""
        values = dict(document)
        for name in ("low", "high", "first_low", "first_high"):
            values[name] = ConfidenceSequence(**values[name])
        if values["calibration"] is not None:
            errors = tuple(map(tuple, values["calibration"]["errors"]))
            values["calibration"] = Calibration(**values["calibration"] | {"errors": errors})
        values["kinds"] = Kinds.of_json(values["kinds"])
        return cls(**values)


class ServedPool:
    """The true vectors that some queries are judged by: of `pooled` rows, and of those that are true in the store.

    `embedder` is the model of the vectors of `store`; `is_true` marks the rows with true vectors, (n,).
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        queries: Sequence[ServedQuery],
        is_true: NDArray[np.bool_],
        *,
        seed: int = 0,
    ) -> None:
        self.store = store
        self.embedder = embedder
        self.is_true = is_true
        self.seed = seed
        self.last = queries[-1].number
        self.metric: Metric = store.info.metric
        self.ids = [doc_id for batch in store.scan() for doc_id in batch.ids]
        self.row_of = {doc_id: row for row, doc_id in enumerate(self.ids)}
        # Of documents that were deleted since there is no true vector
        self.queries = [query for query in queries if query.ids and all(doc in self.row_of for doc in query.ids[:CUT])]
        if not self.queries:
            return
        self.is_cosine = is_cosine(store.info)
        self.vectors: Vectors = self._compared(np.stack([query.vector for query in self.queries]))
        self.query_set = QuerySet([Query(str(q), str(q)) for q in range(len(self.queries))], None, "served")
        self.served = [np.array([self.row_of[doc] for doc in query.ids[:CUT]]) for query in self.queries]
        self.ranked: Ranked = rank_rows(store, self.vectors, max(DEPTHS), progress=no_progress)
        self.pooled: Rows = np.empty(0, dtype=np.int64)
        self.true: dict[int, Vectors] = {}
        self._add(np.concatenate([self.ranked.rows[:, : DEPTHS[0]].ravel(), *self.served]))

    def _add(self, rows: Rows) -> None:
        """Add rows to the pool."""
        new = np.setdiff1d(rows, self.pooled)
        self.true.update(zip(new.tolist(), self._true_vectors(new), strict=True))
        self.pooled = np.union1d(self.pooled, new)
        self.run = self._best()

    def _true_vectors(self, rows: Rows) -> Vectors:
        """Return the true vectors of rows, (n, dim): the store's own where they are true, else the model's."""
        vectors: Vectors = self.store.get(rows).vectors.astype(np.float32)
        missing = np.flatnonzero(~self.is_true[rows])
        if len(missing):
            vectors[missing] = self.embedder.embed_documents(list(known_documents(self.store, rows[missing])))
        return self._compared(vectors)

    def _compared(self, vectors: Vectors) -> Vectors:
        """Return vectors as the store compares them."""
        if self.is_cosine:
            return unit_rows(vectors)
        return vectors

    def _best(self) -> Rankings:
        """Return the first documents of a full re-embed, among the pool and all that is true in the store."""
        top = TopK(self.query_set.query_ids, self.vectors, metric=self.metric, depth=CUT)
        top.add([self.ids[row] for row in self.pooled], np.stack([self.true[row] for row in self.pooled.tolist()]))
        # What is true in the store anyway costs nothing to compare with
        outside = self.is_true.copy()
        outside[self.pooled] = False
        start = 0
        for batch in self.store.scan() if outside.any() else ():
            rows = np.flatnonzero(outside[start : start + len(batch)])
            top.add([batch.ids[row] for row in rows.tolist()], self._compared(batch.vectors[rows]))
            start += len(batch)
        return top.run()

    def _surroundings(self) -> Surroundings | None:
        """Return the documents whose true vectors are not known; None where all are."""
        unknown = ~self.is_true
        unknown[self.pooled] = False
        if not unknown.any():
            return None
        return look_around(self.store, self.vectors, self.ranked, unknown, seed=self.seed, progress=no_progress)

    def _full(self) -> TopScores:
        return np.stack([tops_of(self.run, query_id, self.metric) for query_id in self.query_set.query_ids])

    def _scores_of(self, query: int, rows: Rows) -> NDArray[np.float64]:
        """Return the true scores of rows of the pool for a query, (n,)."""
        vectors = np.stack([self.true[row] for row in rows.tolist()])
        scores: NDArray[np.float64] = score_rows(self.vectors[query : query + 1], vectors, self.metric)[0].astype(float)
        return scores

    def calibrated(self, error: float) -> Calibration:
        """Return what these queries tell of others; embeds a random sample of the documents outside."""
        temperature = temperature_of(self._full())
        around = self._surroundings()
        if around is None:
            return Calibration(temperature, ((0.0,),), 1.0)
        vectors = dict(zip(around.rows.tolist(), self._true_vectors(around.rows), strict=True))
        bands = []
        for drawn in around.drawn:
            true = [
                score_rows(self.vectors[query : query + 1], vectors[row][None], self.metric)[0, 0]
                for query, row in zip(drawn.queries.tolist(), drawn.rows.tolist(), strict=True)
            ]
            errors = np.sort(np.asarray(true - drawn.scores, np.float64))[::-1]
            # The largest of each group of neighbours: no chance comes out lower by it.
            group = max(-(-len(errors) // _KEPT_ERRORS), 1)
            bands.append(tuple(errors[::group].tolist()))
        for band in reversed(range(len(bands) - 1)):  # one that the pool covers ends inside a bin of the next
            bands[band] = bands[band] or bands[band + 1]
        recent = [self._recent(query) for query in range(len(self.queries))]
        _, most = ratio_of_losses(
            self.run,
            recent,
            with_groups(self.query_set, self.vectors),
            self.metric,
            temperature,
            Bootstrap(seed=self.seed),
            error=error,
        )
        return Calibration(temperature, tuple(bands), most)

    def _recent(self, query: int) -> Lately:
        """Return the later half of a query's documents, if translated; served or not, which depends on errors."""
        # As near as documents outside may be: the ten that were served are there because of their errors
        half = slice(DEPTHS[0] // 2, min(DEPTHS[0], self.store.info.count))
        rows = self.ranked.rows[query, half]
        untrue = ~self.is_true[rows]
        names = frozenset(self.ids[row] for row in rows[untrue])
        true = self._scores_of(query, rows[untrue]) if untrue.any() else np.empty(0)
        return Lately(self.ranked.scores[query, half][untrue], true, names)

    def scores(self, calibration: Calibration) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Two scores of each query, (q,) each: the least that it is expected to be, and the most."""
        losses = self._losses(calibration)
        for depth in DEPTHS[1:]:
            matters = losses > _MATTERS
            if not matters.any():
                break
            self._add(self.ranked.rows[matters, :depth].ravel())
            losses = self._losses(calibration)
        arm = np.full((len(self.queries), CUT), -np.inf)
        full = self._full()
        for query, rows in enumerate(self.served):
            arm[query, : len(rows)] = self._scores_of(query, rows)
            full[query, len(rows) :] = -np.inf  # who asks for three documents is to get the best three
        most = agreement(arm, full, temperature=calibration.temperature)
        return most * (1 - losses), most

    def _losses(self, calibration: Calibration) -> NDArray[np.float64]:
        """Return the most that documents outside may be expected to take of the agreement of each query, 0-1, (q,)."""
        around = self._surroundings()
        if around is None:
            return np.zeros(len(self.queries))
        bands = len(around.ranked.edges) + 1
        tails = (calibration.tails + [calibration.tails[-1]] * bands)[:bands]  # the store may have grown
        numbers = {query_id: number for number, query_id in enumerate(self.query_set.query_ids)}
        outside = Outside(around, tails, self.metric, numbers, 1.0, calibration.most, calibration.temperature)
        losses: NDArray[np.float64] = np.clip(calibration.most * outside.losses(self.run, self.query_set), 0, 1)
        return losses
