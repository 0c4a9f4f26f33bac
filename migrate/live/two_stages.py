"""The second stage of a search: documents that the stores have found, ranked by true vectors as far as there are any.

True vectors are those that memory or the cache has, and those that can be embedded within the limits. The others count
by their translated vectors.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.live.counts import Counts
from migrate.live.generation import Generation
from migrate.live.old_store import BothFound, OldStore, joined
from migrate.live.options import LiveLimits
from migrate.search.rerank import estimate_scores, rerank
from migrate.stores.serving import Hits, is_cosine
from migrate.vectors import Vectors, unit_rows

MONITORED: Final = 10
"""Documents of each answer that the monitor sees, even where fewer were asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class LiveAnswer:
    """The documents that answer a query, best first, with their scores, (n,), by the metric of the store.

    `untrue` counts the documents that were ranked without a true vector, of the pool, and `generation` names the
    store that answered: index, texts and query model were those of one. `answered_by` has `new`, `old` or both stores:
    where both have answered, documents are in the order of their ranks in both, and where the old one did alone, scores
    are its own.
    """

    ids: tuple[str, ...]
    scores: NDArray[np.float32]
    untrue: int
    generation: str
    answered_by: tuple[str, ...] = ("new",)


@dataclass(frozen=True)
class FirstStage:
    """Documents that the stores have found for a query.

    `query`, (dim,), is its vector by the model of the store, `chooser` its digest. `old` is what the old store has
    found, None where it was not asked or has not answered.
    """

    generation: Generation
    query: Vectors
    hits: Hits
    chooser: str
    old: Hits | None = None


@dataclass(frozen=True)
class _Untrue:
    """The documents of a pool without a true vector in the store, in the order of the pool.

    `query`, (dim,), is of unit length where the store compares by cosine; `scores`, (n,), are by the store's vectors.
    """

    generation: Generation
    query: Vectors
    ids: tuple[str, ...]
    digests: Sequence[bytes | None]
    scores: NDArray[np.floating]

    def missing(self, present: NDArray[np.intp], scores: NDArray[np.floating] | None = None) -> dict[str, bytes]:
        """Return those with a text and no vector at hand, by id, the best `scores` first if they are given."""
        at_hand = set(present.tolist())
        order = list(range(len(self.ids)))
        if scores is not None:
            nearest_first = scores if self.generation.store.info.metric == "l2" else -scores
            order = np.argsort(nearest_first, kind="stable").tolist()
        found = {}
        for row in order:
            digest = self.digests[row]
            if row not in at_hand and digest is not None:
                found[self.ids[row]] = digest
        return found

    def estimates(self, present: NDArray[np.intp], true: Vectors, translated: Vectors | None) -> NDArray[np.floating]:
        """Return the scores, (n,), in which those at the places `present` count by their true vectors.

        The scores of the others are corrected by what these say of the errors of `translated` vectors, (n, dim).
        """
        if not len(present) or translated is None:
            return self.scores
        info = self.generation.store.info
        return estimate_scores(
            self.query, self.scores, translated, present, _as_compared(self.generation, true), metric=info.metric
        )


def second_stage(
    first: FirstStage, *, limits: LiveLimits, counts: Counts, old_store: OldStore | None, k: int
) -> LiveAnswer:
    """Rank the first hits of a query by true vectors: those at hand, of the cache, and what may be embedded now.

    The answer has `k` documents, and as many as the monitor wants to see.
    """
    deadline = time.monotonic() + limits.max_ms / 1000
    generation = first.generation
    info = generation.store.info
    depth = max(limits.depth, k)
    query = _as_compared(generation, first.query[None])[0]
    hits = first.hits
    if first.old is not None:
        hits = joined(info, generation.texts, query, hits, first.old.ids, depth=depth)
    # Of documents beyond, true vectors would hardly change the first ten
    pool = hits.ids[:depth]
    hashes = generation.texts.hashes(pool)
    lacking = generation.untrue(pool, hashes)
    ids = tuple(pool[row] for row in lacking.tolist())
    digests = [hashes[row] for row in lacking.tolist()]
    counts.want(ids, lacking, first.chooser)

    untrue = _Untrue(generation, query, ids, digests, hits.scores[lacking])
    present, rows = _look_up(untrue, deadline)
    allowed = counts.allowed(limits.max_documents)
    translated = None
    if len(present) < len(ids) and (allowed or len(present)):
        # Read only where there are true vectors to learn from: that is a request to the database
        translated = generation.texts.vectors(ids)
    if len(present) < len(ids) and allowed:
        # Of both stores, those that are first by the ranks in both
        best_first = None
        if first.old is None:
            best_first = untrue.estimates(present, rows, translated)
        present, rows = _embed(untrue, untrue.missing(present, best_first), allowed, first.chooser, deadline)
    scores: NDArray[np.floating] = hits.scores
    if len(present) < len(ids):
        scores = np.array(hits.scores, np.float64)
        scores[lacking] = untrue.estimates(present, rows, translated)

    n_shown = max(k, MONITORED)
    n_ranked = len(hits.ids) if first.old is not None else min(n_shown, len(hits.ids))
    true_rows = _as_compared(generation, rows)
    best = dict(rerank(query, hits.ids, scores, lacking[present], true_rows, metric=info.metric, depth=n_ranked))
    shown = list(best)
    answered_by: tuple[str, ...] = ("new",)
    if first.old is not None and old_store is not None:
        both = BothFound(first.hits.ids, first.old.ids, info.count)
        true = {ids[row] for row in present.tolist()}
        # The nearer the store is to a full re-embed, the less the old model has to add
        true_share = 1 - (len(ids) - len(true)) / max(len(pool), 1)
        shown = old_store.fuse(shown, both, true, true_share=true_share, depth=n_shown)
        answered_by = ("new", "old")
    return LiveAnswer(
        tuple(shown),
        np.array([best[doc_id] for doc_id in shown], np.float32),
        len(ids) - len(present),
        generation.key,
        answered_by,
    )


def _look_up(untrue: _Untrue, deadline: float) -> tuple[NDArray[np.intp], Vectors]:
    """Return the places of those whose vectors memory or the cache has, (n,), and these, (n, dim)."""
    vectors = untrue.generation.vectors
    present, rows = vectors.in_memory(untrue.digests)
    unasked = vectors.unasked(untrue.missing(present))
    if not unasked:
        return present, rows
    vectors.look_up(untrue.generation.texts.unchanged(unasked), seconds=deadline - time.monotonic())
    return vectors.in_memory(untrue.digests)


def _embed(
    untrue: _Untrue, missing: dict[str, bytes], allowed: int, chooser: str, deadline: float
) -> tuple[NDArray[np.intp], Vectors]:
    """Have the first `allowed` of the missing ones embedded; return as `_look_up`."""
    vectors = untrue.generation.vectors
    accepted = list(vectors.accepted(missing).items())
    chosen = dict(accepted[:allowed])
    if chosen:
        documents = untrue.generation.texts.unchanged(chosen)
        vectors.embed(documents, chooser=chooser, seconds=deadline - time.monotonic())
    return vectors.in_memory(untrue.digests)


def _as_compared(generation: Generation, rows: Vectors) -> Vectors:
    """Return vectors as the store compares them."""
    if is_cosine(generation.store.info):
        return unit_rows(rows)
    return rows
