"""What tokens cost, by the price table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What some documents cost to embed. `usd` is None where no price is known, `is_exact` says who counted."""

    documents: int
    tokens: int
    usd: float | None
    is_exact: bool = False

    @property
    def sentence(self) -> str:
        """The cost in words."""
        price = "" if self.usd is None else f", ${self.usd:,.4f}"
        return f"{self.documents:,} documents, {'' if self.is_exact else 'about '}{self.tokens:,} tokens{price}"


def usd_of(tokens: float, price_usd_per_mtok: float | None) -> float | None:
    """Tokens in US dollars; None where no price is known."""
    return None if price_usd_per_mtok is None else tokens * price_usd_per_mtok / 1e6
