"""What texts would cost by a rule of thumb: four characters a token, dollars by the price table. Fast, and rough."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from migrate.documents import Text
from migrate.embedders.registry import find_model
from migrate.manifest import ModelIdentity
from migrate.sample.distinct import text_digest

CHARS_PER_TOKEN = 4
"""Characters of a token, about: English prose has 4 to 5, other languages and code fewer."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What some documents cost to embed, an estimate. `usd` is None where no price is known."""

    documents: int
    tokens: int
    usd: float | None

    @property
    def sentence(self) -> str:
        """The estimate in words."""
        price = "" if self.usd is None else f", ${self.usd:,.4f}"
        return f"{self.documents:,} documents, about {self.tokens:,} tokens{price}"


def estimate_tokens(text: str) -> int:
    """How many tokens a text has, about.

    >>> estimate_tokens("nine char")
    3
    """
    return -(-len(text) // CHARS_PER_TOKEN)


def estimate_cost(texts: Iterable[Text], price_usd_per_mtok: float | None) -> Cost:
    """What these texts would cost, at a price in US dollars per million tokens; one that comes twice is paid once."""
    count, tokens_of = 0, dict[bytes, int]()
    for text in texts:
        count += 1
        tokens_of[text_digest(text.text)] = estimate_tokens(text.text)
    tokens = sum(tokens_of.values())
    return Cost(count, tokens, usd_of(tokens, price_usd_per_mtok))


def usd_of(tokens: float, price_usd_per_mtok: float | None) -> float | None:
    """Tokens in US dollars; None where no price is known."""
    return None if price_usd_per_mtok is None else tokens * price_usd_per_mtok / 1e6


def price_of(model: ModelIdentity) -> float | None:
    """The registry's price of a model, US dollars per million tokens; None for one that costs none or is not known.

    >>> price_of(ModelIdentity("openai:text-embedding-3-small", 1536, True))
    0.02
    """
    facts = find_model(model.spec.partition(":")[2])
    return None if facts is None else facts.price_usd_per_mtok
