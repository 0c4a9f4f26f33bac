"""What each arm makes the target model embed of documents, in its tokens. Queries are not counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from migrate.audit.arms import BM25, BRIDGE, FULL, HYBRID, HYBRID_FULL, MEAN, RANDOM, STAY, TRANSLATED
from migrate.audit.ground import Ground
from migrate.cost import Tally
from migrate.stitch.fitted import FittedStitch
from migrate.stores.base import Store

_READ = 2_000
_TRUE = "true vectors"


@dataclass(frozen=True, slots=True)
class Outlay:
    """Tokens to embed all documents, and the shares (0-1) of these that arms embed.

    `share` have true vectors in the translated store, `bridge_share` are the sample that the bridge was fitted on.
    """

    tokens: float
    share: float
    bridge_share: float

    def of_arms(self) -> Mapping[str, float]:
        """Tokens by arm; a two-stage arm and a re-embedded part know better themselves."""
        part = self.share * self.tokens
        free = dict.fromkeys((STAY, BM25, MEAN, RANDOM), 0.0)
        bridge = self.bridge_share * self.tokens
        return {**free, FULL: self.tokens, HYBRID_FULL: self.tokens, TRANSLATED: part, HYBRID: part, BRIDGE: bridge}


def outlay_of(ground: Ground, bridge: FittedStitch | None, tally: Tally) -> Outlay | None:
    """The outlay of a translated store and a bridge, counted by `tally`; None where there are no texts to count."""
    store = ground.stores[TRANSLATED]
    if not store.info.has_texts:
        return None
    known = store.info.manifest
    true, crossed = known.counts.get(_TRUE, 0) if known else 0, bridge.manifest.counts.get("pairs", 0) if bridge else 0
    return Outlay(_tokens(store, ground, tally), true / store.info.count, crossed / store.info.count)


def _tokens(store: Store, ground: Ground, tally: Tally) -> float:
    """Tokens of all texts, each once; for a free model from some, evenly spread, where they are not in memory."""
    if ground.documents is not None or tally.target.is_api:
        return float(tally.cost(store.documents() if ground.documents is None else ground.documents).tokens)
    rows = np.unique(np.linspace(0, store.info.count - 1, min(_READ, store.info.count)).astype(np.int64))
    return float(np.mean(tally.tokens(list(store.documents(rows))))) * store.info.count
