"""The cost of embedding some texts: tokens, dollars, minutes."""

from __future__ import annotations

from dataclasses import dataclass


def dollars(usd: float) -> str:
    """Return an amount with as many digits as it needs.

    >>> dollars(1234.5), dollars(0.0312), dollars(0.00001), dollars(0)
    ('$1,234.50', '$0.0312', '<$0.0001', '$0.00')
    """
    if 0 < usd < 0.00005:
        return "<$0.0001"
    return f"${usd:,.2f}" if usd >= 1 or not usd else f"${usd:,.4f}"


def duration(minutes: float) -> str:
    """Return a time in the unit that suits it.

    >>> duration(0.001), duration(0.02), duration(30), duration(200)
    ('<0.1 s', '1.2 s', '30 min', '3.3 h')
    """
    if 0 < 60 * minutes < 0.1:
        return "<0.1 s"
    if minutes < 1:
        return f"{60 * minutes:.2g} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def token_count(tokens: float) -> str:
    """Return a number of tokens; a large one in millions.

    >>> token_count(9_876), token_count(163_652), token_count(12_345_678), token_count(1_234_567_890)
    ('9,876 tokens', '0.16 M tokens', '12.3 M tokens', '1,235 M tokens')
    """
    if tokens < 10_000:
        return f"{tokens:,.0f} tokens"
    millions = tokens / 1e6
    return f"{millions:,.{2 if millions < 10 else 1 if millions < 100 else 0}f} M tokens"


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of embedding `documents` and `queries` with one model, without those in the cache (`cached`).

    Dollars are None where no price is known, minutes where no rate is. `is_exact` says whether the model's own
    tokenizer counted. `model` names the model and its role; empty for the target. `again` are texts that are embedded
    again, past the cache, to prove the model; `again_tokens` about their tokens, which are among `tokens`.
    """

    documents: int
    queries: int = 0
    cached: int = 0
    tokens: int = 0
    usd: float | None = None
    minutes: float | None = None
    is_exact: bool = True
    model: str = ""
    again: int = 0
    again_tokens: int = 0

    @property
    def sentence(self) -> str:
        """The line before the start."""
        phrases = [f"{self.documents:,} documents"]
        phrases += [f"{self.queries:,} queries"] if self.queries else []
        phrases += [f"{'' if self.is_exact else 'about '}{self.tokens:,} tokens", _money(self.usd)]
        phrases += [] if self.minutes is None else [duration(self.minutes)]
        in_cache = f" ({self.cached:,} more are in the cache)" if self.cached else ""
        proof = f"; up to {self.again} texts again, to prove the model" if self.again else ""
        return f"to embed{self._by_model}: {', '.join(phrases)}{in_cache}{proof}"

    def compare_actual(self, tokens: int, usd: float | None, until: str = "") -> str:
        """Return the line at the end, of what was embedded; `until` says where it broke off, if it did."""
        estimate = f"(estimate: {self.tokens:,} tokens, {_money(self.usd)})"
        return f"embedded{self._by_model}{until}: {tokens:,} tokens, {_money(usd)} {estimate}"

    def __add__(self, other: Estimate) -> Estimate:
        """Return both together: the texts of one model, in two parts."""
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        minutes = None if self.minutes is None or other.minutes is None else self.minutes + other.minutes
        return Estimate(
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


def _money(usd: float | None) -> str:
    return "no price known" if usd is None else dollars(usd)
