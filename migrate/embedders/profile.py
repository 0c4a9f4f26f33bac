"""Profile of an embedder before anything is loaded or sent: price, limits, tokens, abilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from migrate.embedders.registry import RateLimit
from migrate.embedders.tokens import WORD_PIECES, Counts, EstimateCounter, TokenCounter, whole
from migrate.vectors import Text


def estimate_word_pieces() -> TokenCounter:
    """The counter for a model whose tokenizer is not available."""
    return EstimateCounter(WORD_PIECES, special=2)  # [CLS] and [SEP]


@dataclass(frozen=True, slots=True)
class Profile:
    """A model before it is loaded. None means unknown.

    Attributes
    ----------
    spec, kind
        The model as `load_embedder` takes it, and the kind alone; no kind for an embedder of a caller's own.
    max_tokens
        How much of a text the model takes, the prefix and special tokens included.
    is_paid
        Whether texts may cost money; the price is in US dollars per million tokens.
    counter
        Counts tokens as the model does, or as nearly as possible.
    is_api, is_local
        Whether texts are sent to an API, in requests; whether the model runs on this machine's processors.
    request_texts, request_tokens
        The most that the API takes in one request.
    rate_limits
        What the provider lets an account ask for in a minute, by usage tier; empty where it does not say.
    embeds_new_texts
        Whether it embeds any text as it is, without a corpus to learn from first or a list of texts it is limited to.
    """

    spec: str
    kind: str = ""
    dim: int | None = None
    document_prefix: str = ""
    query_prefix: str = ""
    max_tokens: int | None = None
    is_paid: bool | None = None
    price_usd_per_mtok: float | None = None
    counter: TokenCounter = field(default_factory=estimate_word_pieces, compare=False)
    is_api: bool = False
    is_local: bool = False
    request_texts: int = 2_048
    request_tokens: int = 300_000
    rate_limits: tuple[RateLimit, ...] = ()
    embeds_new_texts: bool = True

    def at_price(self, usd_per_mtok: float | None) -> Profile:
        """The same model at a price that the user knows; None leaves it at its own."""
        if usd_per_mtok is None:
            return self
        return replace(self, price_usd_per_mtok=usd_per_mtok)

    def for_queries(self) -> Profile:
        """The profile that counts queries as it counts documents: by their prefix."""
        return replace(self, document_prefix=self.query_prefix)

    def count(self, texts: Sequence[Text]) -> Counts:
        """Tokens of what the model is given of each text, with prefix and special tokens, none of them cut off."""
        return self.counter.count([self.document_prefix + whole(text.text) for text in texts])

    def read(self, texts: Sequence[Text]) -> Counts:
        """Count the tokens that the model takes of each text, which are those paid for."""
        return self.cut(self.count(texts))

    def cut(self, counts: Counts) -> Counts:
        """Counts with what is beyond the model's limit left out."""
        if self.max_tokens is None:
            return counts
        return counts.clip(max=self.max_tokens)
