"""The cost of embedding some texts: tokens, dollars, minutes."""

from __future__ import annotations

from dataclasses import dataclass

from migrate.display import dollars


def duration(minutes: float) -> str:
    """Return a time in the unit that suits it.

    >>> duration(0.001), duration(0.02), duration(30), duration(200)
    ('<0.1 s', '1.2 s', '30 min', '3.3 h')
    """
    if 0 < 60 * minutes < 0.1:
        return "<0.1 s"
    if minutes < 1:
        return f"{60 * minutes:.2g} s"
    if minutes < 120:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h"


def token_count(tokens: float) -> str:
    """Return a number of tokens; a large one in millions.

    >>> token_count(9_876), token_count(163_652), token_count(12_345_678), token_count(1_234_567_890)
    ('9,876 tokens', '0.16 M tokens', '12.3 M tokens', '1,235 M tokens')
    """
    if tokens < 10_000:
        return f"{tokens:,.0f} tokens"
    millions = tokens / 1e6
    decimals = 0
    if millions < 10:
        decimals = 2
    elif millions < 100:
        decimals = 1
    return f"{millions:,.{decimals}f} M tokens"


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
        if self.queries:
            phrases.append(f"{self.queries:,} queries")
        if self.is_exact:
            phrases.append(f"{self.tokens:,} tokens")
        else:
            phrases.append(f"about {self.tokens:,} tokens")
        phrases.append(_money(self.usd))
        if self.minutes is not None:
            phrases.append(duration(self.minutes))
        sentence = f"to embed{self._by_model}: {', '.join(phrases)}"
        if self.cached:
            sentence += f" ({self.cached:,} more are in the cache)"
        if self.again:
            sentence += f"; up to {self.again} texts again, to prove the model"
        return sentence

    def compare_actual(self, tokens: int, usd: float | None, until: str = "") -> str:
        """Return the line at the end, of what was embedded; `until` says where it broke off, if it did."""
        estimate = f"(estimate: {self.tokens:,} tokens, {_money(self.usd)})"
        return f"embedded{self._by_model}{until}: {tokens:,} tokens, {_money(usd)} {estimate}"

    def __add__(self, second: Estimate) -> Estimate:
        """Return both together: the texts of one model, in two parts."""
        return Estimate(
            self.documents + second.documents,
            self.queries + second.queries,
            self.cached + second.cached,
            self.tokens + second.tokens,
            _total(self.usd, second.usd),
            _total(self.minutes, second.minutes),
            self.is_exact and second.is_exact,
            self.model,
            self.again + second.again,
            self.again_tokens + second.again_tokens,
        )

    @property
    def _by_model(self) -> str:
        if not self.model:
            return ""
        return f" by {self.model}"


def _total(first: float | None, second: float | None) -> float | None:
    """Return both together; None where either is not known."""
    if first is None or second is None:
        return None
    return first + second


def _money(usd: float | None) -> str:
    if usd is None:
        return "no price known"
    return dollars(usd)
