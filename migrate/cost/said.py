"""What a spending command says before it starts, and afterwards: tokens, dollars, minutes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from migrate.cost.answers import dollars, duration
from migrate.cost.count import Known, TextCount, count_texts
from migrate.cost.price import usd_of
from migrate.cost.rates import tier_rate
from migrate.cost.target import Target, innermost
from migrate.documents import Text
from migrate.embedders.base import Embedder, Role
from migrate.embedders.cache import CachedEmbedder
from migrate.embedders.openai_requests import MANY_TEXTS
from migrate.vectors import Progress, no_progress


@dataclass(frozen=True, slots=True)
class Said:
    """What embedding `documents` and `queries` will cost, those in the cache (`cached`) left out.

    Dollars are None where no price is known, minutes where no rate is. `by` is the model, where it is not the target.
    """

    documents: int
    queries: int
    cached: int
    tokens: int
    usd: float | None
    minutes: float | None
    is_exact: bool
    by: str = ""

    @property
    def sentence(self) -> str:
        """The line before the start."""
        parts = [f"{self.documents:,} documents"]
        parts += [f"{self.queries:,} queries"] if self.queries else []
        parts += [f"{'' if self.is_exact else 'about '}{self.tokens:,} tokens", self._money(self.usd)]
        parts += [] if self.minutes is None else [duration(self.minutes)]
        beside = f" ({self.cached:,} more are in the cache)" if self.cached else ""
        return f"to embed{self._model}: {', '.join(parts)}{beside}"

    def told_of(self, tokens: int, usd: float | None, until: str = "") -> str:
        """The line at the end: what it was, beside what was said; `until` it broke off, where it did."""
        return (
            f"embedded{self._model}{until}: {tokens:,} tokens, {self._money(usd)} (said before: {self.tokens:,} "
            f"tokens, {self._money(self.usd)})"
        )

    def __add__(self, other: Said) -> Said:
        """Both together, for a command that says what it will embed in two steps."""
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        minutes = None if self.minutes is None or other.minutes is None else self.minutes + other.minutes
        return Said(
            self.documents + other.documents,
            self.queries + other.queries,
            self.cached + other.cached,
            self.tokens + other.tokens,
            usd,
            minutes,
            self.is_exact and other.is_exact,
            self.by,
        )

    @property
    def _model(self) -> str:
        return f" by {self.by}" if self.by else ""

    @staticmethod
    def _money(usd: float | None) -> str:
        return "no price known" if usd is None else dollars(usd)


def say(
    texts: Iterable[Text],
    queries: Sequence[Text],
    embedder: Embedder,
    target: Target,
    progress: Progress | None = None,
    *,
    by: str = "",
) -> Said:
    """Count what must be embedded, and price it; a text that comes twice is paid for twice where no cache keeps it."""
    once, report = isinstance(embedder, CachedEmbedder), progress or no_progress
    documents = count_texts(texts, target, known=_known(embedder, "document"), once=once, progress=report)
    asked = count_texts(queries, target, known=_known(embedder, "query"), once=once) if queries else TextCount()
    tokens = documents.tokens_to_embed + asked.tokens_to_embed
    count = documents.to_embed + asked.to_embed
    own_server = getattr(innermost(embedder), "base_url", None) or os.environ.get("OPENAI_BASE_URL")
    minutes = None if own_server else tier_rate().minutes(count / MANY_TEXTS, tokens)
    return Said(
        documents.to_embed,
        asked.to_embed,
        documents.cached + asked.cached,
        tokens,
        usd_of(tokens, target.price_usd_per_mtok),
        minutes,
        target.counter.exact,
        by,
    )


def _known(embedder: Embedder, role: Role) -> Known | None:
    if not isinstance(embedder, CachedEmbedder) or not embedder.path.is_file():
        return None
    return lambda texts: embedder.known(texts, role)
