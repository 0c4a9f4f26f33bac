"""What embedding some texts will cost, and what it did cost: tokens, dollars, minutes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from migrate.cost.count import CacheLookup, TextCount, count_texts
from migrate.cost.rates import tier_rate, usd_of
from migrate.embedders.base import Embedder, Role
from migrate.embedders.openai import MANY_TEXTS
from migrate.embedders.profile import Profile
from migrate.vectors import Progress, Text, no_progress


def dollars(usd: float) -> str:
    """An amount with as many digits as it needs.

    >>> dollars(1234.5), dollars(0.0312), dollars(0.00001), dollars(0)
    ('$1,234.50', '$0.0312', '<$0.0001', '$0.00')
    """
    if 0 < usd < 0.00005:
        return "<$0.0001"
    return f"${usd:,.2f}" if usd >= 1 or not usd else f"${usd:,.4f}"


def duration(minutes: float) -> str:
    """A time in the unit that suits it.

    >>> duration(0.02), duration(30), duration(200)
    ('1.2 s', '30 min', '3.3 h')
    """
    if minutes < 1:
        return f"{60 * minutes:.2g} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What embedding `documents` and `queries` with one model will cost, without those in the cache (`cached`).

    Dollars are None where no price is known, minutes where no rate is. `is_exact` says whether the model's own
    tokenizer counted. `model` names the model and its role; empty for the target. `again` are texts that are embedded
    again, past the cache, to prove the model; `again_tokens` about their tokens, which are among `tokens`.
    """

    documents: int
    queries: int
    cached: int
    tokens: int
    usd: float | None
    minutes: float | None
    is_exact: bool
    model: str = ""
    again: int = 0
    again_tokens: int = 0

    @property
    def sentence(self) -> str:
        """The line before the start."""
        parts = [f"{self.documents:,} documents"]
        parts += [f"{self.queries:,} queries"] if self.queries else []
        parts += [f"{'' if self.is_exact else 'about '}{self.tokens:,} tokens", self._money(self.usd)]
        parts += [] if self.minutes is None else [duration(self.minutes)]
        in_cache = f" ({self.cached:,} more are in the cache)" if self.cached else ""
        again = f"; up to {self.again} texts again, to prove the model" if self.again else ""
        return f"to embed{self._by_model}: {', '.join(parts)}{in_cache}{again}"

    def compare_actual(self, tokens: int, usd: float | None, until: str = "") -> str:
        """The line at the end: what was embedded, next to the estimate; `until` says where it broke off, if it did."""
        return (
            f"embedded{self._by_model}{until}: {tokens:,} tokens, {self._money(usd)} (estimate: {self.tokens:,} "
            f"tokens, {self._money(self.usd)})"
        )

    def __add__(self, other: CostEstimate) -> CostEstimate:
        """Both together; of one model, or the total of several."""
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        minutes = None if self.minutes is None or other.minutes is None else self.minutes + other.minutes
        return CostEstimate(
            self.documents + other.documents,
            self.queries + other.queries,
            self.cached + other.cached,
            self.tokens + other.tokens,
            usd,
            minutes,
            self.is_exact and other.is_exact,
            self.model,
            self.again + other.again,
            self.again_tokens + other.again_tokens,
        )

    @property
    def _by_model(self) -> str:
        return f" by {self.model}" if self.model else ""

    @staticmethod
    def _money(usd: float | None) -> str:
        return "no price known" if usd is None else dollars(usd)


def estimate_cost(
    texts: Iterable[Text],
    queries: Sequence[Text],
    embedder: Embedder,
    profile: Profile,
    progress: Progress = no_progress,
    *,
    model: str = "",
    again: int = 0,
    known: Sequence[Text] = (),
) -> CostEstimate:
    """Count what must be embedded, and price it; nothing is embedded.

    A text that comes twice is paid for twice where no cache keeps it. `profile` is that of the embedder, at the price
    to count with. `again` are texts that are embedded once more, of average length, `known` further ones.
    """
    once = embedder.is_cached
    documents = count_texts(texts, profile, lookup=_cache_lookup(embedder, "document"), once=once, progress=progress)
    lookup = _cache_lookup(embedder, "query")
    query_count = count_texts(queries, profile.for_queries(), lookup=lookup, once=once) if queries else TextCount()
    tokens = documents.tokens_to_embed + query_count.tokens_to_embed
    count = documents.to_embed + query_count.to_embed
    read = count + documents.cached + query_count.cached
    again = again if read else 0
    again_tokens = math.ceil(again * (documents.tokens_read + query_count.tokens_read) / max(read, 1))
    if again:
        again, again_tokens = again + len(known), again_tokens + count_texts(known, profile, once=False).tokens_read
    tokens += again_tokens
    minutes = tier_rate().minutes(count / MANY_TEXTS, tokens) if profile.rate_limits else None
    return CostEstimate(
        documents.to_embed,
        query_count.to_embed,
        documents.cached + query_count.cached,
        tokens,
        usd_of(tokens, profile.price_usd_per_mtok),
        minutes,
        profile.counter.exact,
        model,
        again,
        again_tokens,
    )


def _cache_lookup(embedder: Embedder, role: Role) -> CacheLookup | None:
    if not embedder.is_cached:
        return None
    return lambda texts: embedder.known(texts, role)
