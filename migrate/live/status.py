"""The status of a live store: its verdict, what is true in it, what was asked and spent, and its history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from migrate.audit.bounds import Outcome
from migrate.errors import UsageError
from migrate.live.control import is_running, paused_at
from migrate.live.generation import generation_of
from migrate.live.monitor import CALIBRATION, LiveVerdict, Monitor
from migrate.live.state import Counter, LiveState, WorkerFacts, state_path
from migrate.live.watch import translation_of
from migrate.stores.all_true import is_all_true
from migrate.stores.base import Store
from migrate.stores.file_store import as_files
from migrate.stores.registry import open_store


@dataclass(frozen=True, slots=True)
class LiveStatus:
    """A live store at one moment.

    `verdict` is None before a worker has looked at it, `true` where neither a worker nor a searcher has seen the store
    that is there now. `waiting` are queries that were sampled and not looked at yet,
    of which `needed` are left to go before any is scored. `queued` are documents that were asked for and are not true.
    `is_all_true` says that every vector of the store is the model's own: it is a full re-embed, whatever is asked of
    it. `paused_at` is the time of the pause that was asked of the worker, None where there is none.
    """

    location: str
    count: int
    true: int | None
    queued: int
    refused: int
    verdict: LiveVerdict | None
    needed: int
    is_running: bool
    worker: WorkerFacts
    counters: Mapping[Counter, float]
    is_all_true: bool
    paused_at: float | None = None

    @property
    def is_all_cached(self) -> bool:
        """True if every document has its true vector, in the cache at least."""
        return self.true is not None and 0 < self.count == self.true + self.refused

    @property
    def outcome(self) -> Outcome:
        """The verdict in a word."""
        if self.is_all_true:
            return Outcome.SAFE
        if self.verdict is None:
            return Outcome.INCONCLUSIVE
        return self.verdict.outcome

    @property
    def share(self) -> float | None:
        """The share of the documents, 0-1, that have true vectors."""
        if self.true is None:
            return None
        if self.count:
            return self.true / self.count
        return 0.0


def open_state(store: Store) -> LiveState:
    """Open the state of a store that is served or worked at; UsageError where it has none yet."""
    path = state_path(store)
    if not path.exists():
        raise UsageError(
            f"{store.info.location}: this store was not served live yet; serve it with `migrate.live`, or start "
            "`lead-migrate live run`"
        )
    return LiveState(path)


def status_of(location: str) -> LiveStatus:
    """Return how a live store is doing; raises as `open_state`, but one that was embedded in full needs no state."""
    store = open_store(location)
    count = store.info.count
    if is_all_true(store) and not state_path(store).exists():
        counters = dict.fromkeys(get_args(Counter), 0.0)
        return LiveStatus(location, count, count, 0, 0, None, 0, False, WorkerFacts(), counters, is_all_true=True)
    with open_state(store) as state:
        monitor = Monitor.kept_in(state)
        if monitor is not None and monitor.translation != translation_of(store):
            monitor = None
        waiting = len(state.queries.after(0 if monitor is None else monitor.last, limit=10_000))
        uncalibrated = monitor is None or monitor.calibration is None
        is_known = state.value("generation") in (None, generation_of(store))
        true = None
        if is_known:
            true = len(state.documents.true())
        return LiveStatus(
            location=location,
            count=count,
            true=true,
            queued=len(state.demand.queue(1_000_000)),
            refused=len(state.documents.refused()),
            verdict=None if monitor is None else monitor.verdict(waiting),
            needed=max(CALIBRATION - waiting, 0) if uncalibrated else 0,
            is_running=is_running(state),
            worker=WorkerFacts.kept_in(state),
            counters=state.counters(),
            # True vectors of files may be in the cache alone, which the first stage of a search knows nothing of.
            is_all_true=is_all_true(store) if as_files(store) is not None else 0 < count == true,
            paused_at=paused_at(state),
        )
