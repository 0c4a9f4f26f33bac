"""What a spending command says before it starts, and afterwards: tokens, dollars, minutes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from migrate.cost.answers import dollars, duration
from migrate.cost.count import Known, TextCount, count_texts
from migrate.cost.price import usd_of
from migrate.cost.rates import tier_rate
from migrate.cost.target import Target
from migrate.documents import Text
from migrate.embedders.base import Embedder, Role
from migrate.embedders.cache import CachedEmbedder
from migrate.embedders.openai_requests import MANY_TEXTS
from migrate.vectors import Progress, no_progress


@dataclass(frozen=True, slots=True)
class Said:
    """What embedding `documents` and `queries` will cost, those in the cache (`cached`) left out.

    Dollars are None where no price is known, minutes where no rate is.
    """

    documents: int
    queries: int
    cached: int
    tokens: int
    usd: float | None
    minutes: float | None
    is_exact: bool

    @property
    def sentence(self) -> str:
        """The line before the start."""
        parts = [f"{self.documents:,} documents"]
        parts += [f"{self.queries:,} queries"] if self.queries else []
        parts += [f"{'' if self.is_exact else 'about '}{self.tokens:,} tokens", self._money(self.usd)]
        parts += [] if self.minutes is None else [duration(self.minutes)]
        beside = f" ({self.cached:,} more are in the cache)" if self.cached else ""
        return f"to embed: {', '.join(parts)}{beside}"

    def told_of(self, tokens: int, usd: float | None) -> str:
        """The line at the end: what it was, beside what was said."""
        return (
            f"embedded: {tokens:,} tokens, {self._money(usd)} (said before: {self.tokens:,} tokens, "
            f"{self._money(self.usd)})"
        )

    @staticmethod
    def _money(usd: float | None) -> str:
        return "no price known" if usd is None else dollars(usd)


def say(
    texts: Iterable[Text],
    queries: Sequence[Text],
    embedder: Embedder,
    target: Target,
    progress: Progress | None = None,
) -> Said:
    """Count what must be embedded, and price it."""
    documents = count_texts(texts, target, known=_known(embedder, "document"), progress=progress or no_progress)
    asked = count_texts(queries, target, known=_known(embedder, "query")) if queries else TextCount()
    tokens = documents.tokens_to_embed + asked.tokens_to_embed
    count = documents.to_embed + asked.to_embed
    own_server = getattr(_inner(embedder), "base_url", None) or os.environ.get("OPENAI_BASE_URL")
    minutes = None if own_server else tier_rate().minutes(count / MANY_TEXTS, tokens)
    return Said(
        documents.to_embed,
        asked.to_embed,
        documents.cached + asked.cached,
        tokens,
        usd_of(tokens, target.price_usd_per_mtok),
        minutes,
        target.counter.exact,
    )


def _inner(embedder: Embedder) -> Embedder:
    """The model itself, below cache and meter."""
    below = getattr(embedder, "embedder", None)
    return embedder if below is None else _inner(below)


def _known(embedder: Embedder, role: Role) -> Known | None:
    if not isinstance(embedder, CachedEmbedder) or not embedder.path.is_file():
        return None
    return lambda texts: embedder.known(texts, role)
