"""The watch of a worker: queries that searchers have sampled are judged by its monitor as they come."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

import numpy as np

from migrate.embedders.base import Embedder
from migrate.embedders.cache import with_choosers
from migrate.errors import InputError, SpendingError
from migrate.files import canonical_json
from migrate.live.monitor import Monitor, ServedPool
from migrate.live.options import WorkerOptions
from migrate.live.state import LiveState
from migrate.live.survey import LiveSurvey
from migrate.stores.base import Store

_AT_ONCE: Final = 200
"""Queries that are judged at once, at most."""

# Arbitrary: a busy worker takes many turns a second, and each look asks the state for new queries.
_REST_S: Final = 1.0
_ENOUGH: Final = 50
"""Queries that are not waited with."""


def chosen_by_served(embedder: Embedder, state: LiveState) -> Embedder:
    """Have the cache remember that what is embedded from now on was chosen by the queries that were served."""
    return with_choosers(embedder, state.demand.choosers(), group=str(state.path))


class Watch:
    """The monitor of a store, kept in its state."""

    def __init__(self, state: LiveState, options: WorkerOptions) -> None:
        self._state = state
        self._options = options
        self._monitor = Monitor()
        self._looked_at = -np.inf

    def adopt(self, store: Store) -> None:
        """Go on with what is known of a store; of one that was translated anew, nothing is."""
        translation = translation_of(store)
        monitor = Monitor.kept_in(self._state)
        if monitor is None:
            monitor = Monitor()
        elif monitor.translation != translation:
            monitor = Monitor(last=self._state.queries.newest())
        # another margin is another question to the same scores
        options = self._options
        self._monitor = replace(
            monitor, translation=translation, margin=options.margin, margin_from=options.margin_from
        )
        self._monitor.keep(self._state)

    def look(self, store: Store, embedder: Embedder, survey: LiveSurvey, *, now: bool) -> None:
        """Judge the queries that were sampled since: `now`, or once they are many or have waited for a minute.

        Documents are embedded for that. Where they cannot be paid for, or not be embedded, the queries wait.
        """
        since = time.monotonic() - self._looked_at
        if not now and since < _REST_S:
            return
        queries = self._state.queries.after(self._monitor.last, limit=_AT_ONCE)
        if not now and len(queries) < _ENOUGH and since < 60:
            return
        self._looked_at = time.monotonic()
        if len(queries) < self._monitor.wants:
            return
        is_true = np.array([doc_id in survey.in_store for batch in store.scan() for doc_id in batch.ids], dtype=bool)
        try:
            pool = ServedPool(store, chosen_by_served(embedder, self._state), queries, is_true, seed=self._options.seed)
            self._monitor = self._monitor.judged(pool)
        except (SpendingError, InputError):
            return
        self._monitor.keep(self._state)


def translation_of(store: Store) -> str:
    """Name the translation that gave the vectors without a true one; true vectors that come do not change it."""
    manifest = store.info.manifest
    inputs = None
    if manifest is not None:
        inputs = dict(manifest.inputs)
    return canonical_json(inputs)
