"""Facts about well-known embedding models: dimension, prefixes, token limit, normalisation, price.

The 17 models of LEAD (Culp & Hernandez 2024, github.com/GatlenCulp/embedding_translation) and three that many
stores were built with. Facts are from the model cards and their `modules.json`, `sentence_bert_config.json`:

- e5 wants "query: " and "passage: "; bge, mxbai and UAE want an instruction before the query alone;
  gte, gtr-t5 and sentence-t5 want nothing.
- mxbai-embed-large-v1 and UAE-Large-V1 have no Normalize module, so their vectors are not of unit length.
- A local model costs no money, so its price is None.

Prices are US dollars per million tokens: text-embedding-3-large from OpenAI's own model page, the others from pages
that quote it; the batch price is half, as OpenAI's guide to its Batch API says. Limits are those of OpenAI's usage
tiers for its embedding models, from copies of the model pages. All as of `PRICES_DATE`. They change: show them with
their date.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from functools import cache
from typing import Literal

PRICES_DATE = "2026-05"
"""Year and month of the prices and of `RATE_LIMITS`."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts about a model that are known before it is loaded.

    `max_tokens` is the length beyond which a local model cuts a text off and an API refuses it.
    """

    name: str
    provider: Literal["sentence-transformers", "openai"]
    dim: int
    document_prefix: str
    query_prefix: str
    max_tokens: int
    normalized: bool
    price_usd_per_mtok: float | None

    @property
    def batch_price_usd_per_mtok(self) -> float | None:
        """The price through the provider's batch service, which answers within a day."""
        return None if self.price_usd_per_mtok is None else self.price_usd_per_mtok / 2

    @property
    def spec(self) -> str:
        """The model as `load_embedder` takes it."""
        return f"{self.provider}:{self.name}"

    @property
    def short_name(self) -> str:
        """The name without the organisation."""
        return self.name.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The limits of a provider per minute for an account of one tier."""

    tier: str
    requests_per_min: int
    tokens_per_min: int


RATE_LIMITS = (
    RateLimit("free", 100, 40_000),
    RateLimit("1", 3_000, 1_000_000),
    RateLimit("2", 5_000, 1_000_000),
    RateLimit("3", 5_000, 5_000_000),
    RateLimit("4", 10_000, 5_000_000),
    RateLimit("5", 10_000, 10_000_000),
)
"""OpenAI's limits for its embedding models, by usage tier."""


def prices_age(today: date) -> str:
    """Say how old the prices are; empty while they are young.

    >>> prices_age(date(2026, 6, 1))
    ''
    >>> prices_age(date(2027, 5, 1))
    'prices and limits are of 2026-05, 12 months old; check developers.openai.com/api/docs/models or give --price'
    """
    year, month = map(int, PRICES_DATE.split("-"))
    months = 12 * (today.year - year) + today.month - month
    if months < 3:
        return ""
    return (
        f"prices and limits are of {PRICES_DATE}, {months} months old; "
        "check developers.openai.com/api/docs/models or give --price"
    )


def _local(
    name: str,
    dim: int,
    *,
    prefixes: tuple[str, str] = ("", ""),
    max_tokens: int = 512,
    normalized: bool = True,
) -> ModelFacts:
    document_prefix, query_prefix = prefixes
    return ModelFacts(name, "sentence-transformers", dim, document_prefix, query_prefix, max_tokens, normalized, None)


def _openai(name: str, dim: int, price_usd_per_mtok: float) -> ModelFacts:
    """OpenAI's page says 8192 tokens and older ones 8191: the smaller is safe under both."""
    return ModelFacts(name, "openai", dim, "", "", 8191, True, price_usd_per_mtok)


_E5 = ("passage: ", "query: ")
_INSTRUCTED = ("", "Represent this sentence for searching relevant passages: ")

_MODELS = (
    _local("intfloat/e5-small-v2", 384, prefixes=_E5),
    _local("intfloat/e5-base-v2", 768, prefixes=_E5),
    _local("intfloat/e5-large-v2", 1024, prefixes=_E5),
    _local("BAAI/bge-small-en-v1.5", 384, prefixes=_INSTRUCTED),
    _local("BAAI/bge-base-en-v1.5", 768, prefixes=_INSTRUCTED),
    _local("BAAI/bge-large-en-v1.5", 1024, prefixes=_INSTRUCTED),
    _local("thenlper/gte-small", 384),
    _local("thenlper/gte-base", 768),
    _local("thenlper/gte-large", 1024),
    _local("sentence-transformers/gtr-t5-base", 768),
    _local("sentence-transformers/gtr-t5-large", 768),
    _local("sentence-transformers/sentence-t5-base", 768, max_tokens=256),
    _local("sentence-transformers/sentence-t5-large", 768, max_tokens=256),
    _local("mixedbread-ai/mxbai-embed-large-v1", 1024, prefixes=_INSTRUCTED, normalized=False),
    _local("WhereIsAI/UAE-Large-V1", 1024, prefixes=_INSTRUCTED, normalized=False),
    _openai("text-embedding-3-small", 1536, 0.02),
    _openai("text-embedding-3-large", 3072, 0.13),
    # Not in LEAD:
    _openai("text-embedding-ada-002", 1536, 0.10),
    _local("sentence-transformers/all-MiniLM-L6-v2", 384, max_tokens=256),
    _local("sentence-transformers/all-mpnet-base-v2", 768, max_tokens=384),
)


def known_models() -> tuple[ModelFacts, ...]:
    """Every model of the registry, those of LEAD first."""
    return _MODELS


@cache
def _by_spelling() -> dict[str, ModelFacts]:
    """Models by the names they answer to; LEAD itself writes OpenAI's with an organisation."""
    spellings: dict[str, ModelFacts] = {}
    for entry in _MODELS:
        spellings |= dict.fromkeys([entry.name.lower(), entry.short_name.lower()], entry)
        if entry.provider == "openai":
            spellings[f"openai/{entry.name}"] = entry
    return spellings


def find_model(name: str) -> ModelFacts | None:
    """The facts of a model by its full name, with or without the organisation, in any case; None if unknown.

    >>> find_model("E5-base-v2").name
    'intfloat/e5-base-v2'
    """
    return _by_spelling().get(name.lower())


def suggest_models(name: str) -> list[str]:
    """Up to three names of the registry that look like `name`, best first."""
    matches = get_close_matches(name.lower(), list(_by_spelling()), n=6, cutoff=0.5)
    return list(dict.fromkeys(_by_spelling()[match].name for match in matches))[:3]
