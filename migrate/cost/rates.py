"""Prices, and how fast texts can be embedded: by a provider's limits, by a user's word, or as measured here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from migrate.embedders.base import Embedder
from migrate.embedders.cache import with_choosers
from migrate.embedders.rates import parse_rate
from migrate.embedders.registry import rate_limits
from migrate.errors import UsageError
from migrate.progress import one_step
from migrate.vectors import Text


def usd_of(tokens: float, price_usd_per_mtok: float | None) -> float | None:
    """Return tokens in US dollars; None where no price is known."""
    if price_usd_per_mtok is None:
        return None
    return tokens * price_usd_per_mtok / 1e6


CALIBRATION_TEXTS = 32
"""Texts that a calibration embeds and times."""

_WARM_UP = 4
"""Texts of these that are embedded before the clock starts."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests (of a local model, texts) and tokens in a minute; None for no limit. `source` says who knows it."""

    requests_per_min: float | None
    tokens_per_min: float | None
    source: str

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Read `3000/min`, `50/s`, `1000000tok/min`, or one of each with a comma between.

        >>> Rate.parse("50/s, 1000000tok/min")
        Rate(requests_per_min=3000.0, tokens_per_min=1000000.0, source='as given by rate=')

        Raises UsageError: it is none of these.
        """
        amounts: dict[bool, float] = {}
        for limit in text.split(","):
            amount, seconds, is_tokens = parse_rate(limit) or (0.0, 1, False)
            if not amount or is_tokens in amounts:
                raise UsageError(
                    f"{text!r} is not a rate of requests or tokens; give one such as 3000/min, 50/s or "
                    "1000000tok/min, or one of each with a comma between"
                )
            amounts[is_tokens] = amount * (60 / seconds)
        return cls(amounts.get(False), amounts.get(True), "as given by rate=")

    def completed(self, limits: Rate | None) -> Rate:
        """Return the rate with the limits of another where it has none: requests may not carry any number of tokens.

        >>> Rate(3000, None, "as given").completed(Rate(100, 40_000, "of the tier")).sentence(is_api=True)
        '3,000 requests/min and 40,000 tokens/min, as given, else of the tier'
        """
        # Requests may not carry any number of tokens: a rate in requests alone would be too fast for long texts
        if limits is None or None not in (self.requests_per_min, self.tokens_per_min):
            return self
        requests = self.requests_per_min
        if requests is None:
            requests = limits.requests_per_min
        tokens = self.tokens_per_min
        if tokens is None:
            tokens = limits.tokens_per_min
        return Rate(requests, tokens, f"{self.source}, else {limits.source}")

    def minutes(self, requests: float, tokens: float) -> float:
        """Return how long it takes to ask for so much without going beyond the limits.

        >>> Rate(3000, 1_000_000, "tier 1").minutes(10, 2_500_000)
        2.5
        """
        minutes: float = 0
        if self.requests_per_min is not None:
            minutes = requests / self.requests_per_min
        if self.tokens_per_min is not None:
            minutes = max(minutes, tokens / self.tokens_per_min)
        return minutes

    def sentence(self, *, is_api: bool) -> str:
        """Describe the rate: requests of an API, texts of a local model.

        >>> Rate(50, None, "as given by rate=").sentence(is_api=False)
        '50 texts/min, as given by rate='
        """
        unit = "texts"
        if is_api:
            unit = "requests"
        phrases = []
        if self.requests_per_min is not None:
            phrases.append(f"{self.requests_per_min:,.0f} {unit}/min")
        if self.tokens_per_min is not None:
            phrases.append(f"{self.tokens_per_min:,.0f} tokens/min")
        return f"{' and '.join(phrases)}, {self.source}"


def tier_rate(tier: str = "1") -> Rate:
    """Return the limits of OpenAI's usage tier."""
    for limit in rate_limits():
        if limit.tier == tier:
            source = f"OpenAI's limit for tier {tier} as of {limit.checked}"
            return Rate(limit.requests_per_min, limit.tokens_per_min, source)
    raise UsageError(f"there is no tier {tier!r}; choose one of {', '.join(limit.tier for limit in rate_limits())}")


def measure_rate(embedder: Embedder, texts: Sequence[Text], *, again: bool = False) -> Rate:
    """Embed some texts and time all but the first few; that no query chose them is kept with vectors that are kept.

    `again` is past any cache.
    """
    # What the cache is given without a word on its choice counts as chosen by queries that nobody can name
    embedder = with_choosers(embedder, ())
    embed = embedder.embed_documents
    if again:
        embed = partial(embedder.embed_again, role="document")
    # The first calls load weights and open connections, which a long run does once
    embed(texts[:_WARM_UP])
    timed = texts[_WARM_UP:] or texts
    with one_step("measure the speed of the model"):
        started = time.perf_counter()
        embed(timed)
        # A coarse clock can measure nothing for a few short texts
        elapsed = max(time.perf_counter() - started, 1e-9)
    return Rate(60 * len(timed) / elapsed, None, f"as measured here on {len(timed)} documents")
