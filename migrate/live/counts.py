"""The counts of a searcher between two writes to the state: what was wanted, served and embedded."""

from __future__ import annotations

import random
import threading
from collections import Counter as Tally
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.live.state import OLD_STORE, Counter, LiveState, ServedQuery
from migrate.search.fusion import RankComparison

_MOST_QUERIES: Final = 1_000
"""Sampled queries that wait in memory while the state cannot be written to."""


@dataclass
class _Buffer:
    counts: Tally[Counter] = field(default_factory=Tally)
    wanted: Tally[str] = field(default_factory=Tally)
    choosers: set[str] = field(default_factory=set)
    queries: list[ServedQuery] = field(default_factory=list)


class Counts:
    """Counts since they were last written to a state, by all threads of a process.

    `budget` is the number of documents that the queries of all searchers may have embedded, None for no end; `sampled`
    the share of queries that is kept for the monitor.
    """

    def __init__(self, state: LiveState, *, budget: int | None, sampled: float) -> None:
        self._state = state
        self._budget = budget
        self._sampled = sampled
        self._lock = threading.Lock()
        self._buffer = _Buffer()
        self._random = random.Random()  # noqa: S311 - which queries are looked at
        self._embedded = int(state.counters()["embedded_by_queries"])

    def add(self, counts: Mapping[Counter, float]) -> None:
        """Add to counters."""
        with self._lock:
            self._buffer.counts.update(counts)

    def want(self, ids: Sequence[str], positions: NDArray[np.intp], chooser: str) -> None:
        """Note documents without a true vector in the store, their places in a pool, and who wants them."""
        if not ids:
            return
        with self._lock:
            self._buffer.choosers.add(chooser)
            for doc_id, position in zip(ids, positions.tolist(), strict=True):
                # What lies high decides the answer
                self._buffer.wanted[doc_id] += 1 / (position + 1)

    def sample(self, query: ServedQuery) -> None:
        """Keep a share of the queries, at random, for the monitor."""
        with self._lock:
            # At random, not every so many: logs repeat themselves in rhythms of their own
            if len(self._buffer.queries) < _MOST_QUERIES and self._random.random() < self._sampled:
                self._buffer.queries.append(query)

    def allowed(self, most: int) -> int:
        """Return how many documents a query may have embedded now, `most` where the budget has room for them."""
        if self._budget is None:
            return most
        with self._lock:
            spent = self._embedded + int(self._buffer.counts["embedded_by_queries"])
        return max(min(most, self._budget - spent), 0)

    def write_down(
        self, uncertainties: Callable[[Collection[str]], Sequence[float]], compared: RankComparison | None
    ) -> None:
        """Write all that was counted at once, or keep it for the next time.

        `compared` says how the old store compares with the new one, where there is one.
        """
        with self._lock:
            buffer = self._buffer
            self._buffer = _Buffer()
            self._embedded += int(buffer.counts["embedded_by_queries"])
        try:
            if buffer != _Buffer():
                self._write(buffer, uncertainties, compared)
            # Other searchers spend from the same budget
            if self._budget is not None:
                self._embedded = int(self._state.counters()["embedded_by_queries"])
        except BaseException:
            with self._lock:
                self._embedded -= int(buffer.counts["embedded_by_queries"])
                self._buffer.counts.update(buffer.counts)
                self._buffer.wanted.update(buffer.wanted)
                self._buffer.choosers |= buffer.choosers
                self._buffer.queries[:0] = buffer.queries
            raise

    def _write(
        self,
        buffer: _Buffer,
        uncertainties: Callable[[Collection[str]], Sequence[float]],
        compared: RankComparison | None,
    ) -> None:
        # In one transaction, so that a query is counted once or not at all
        weights = zip(buffer.wanted.values(), uncertainties(buffer.wanted), strict=True)
        with self._state.transaction():
            self._state.demand.add(dict(zip(buffer.wanted, weights, strict=True)), buffer.choosers)
            self._state.queries.add(buffer.queries)
            self._state.count(buffer.counts)
            if compared is not None:
                self._state.note(OLD_STORE, asdict(compared))
