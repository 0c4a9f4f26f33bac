"""Facts about well-known embedding models, of `models.toml` beside this module, which has the source of each.

A fact that is None is not known. A local model costs no money, so it has no price. Prices change: say how old they are.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import date
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from migrate.reading import parse_toml

LOCAL = "sentence-transformers"
"""Provider of the models that run on this machine."""

_FILE = Path(__file__).with_name("models.toml")

_MONTHS_PER_YEAR = 12

_PRICES_LAST = 3
"""Months after which a price has to be looked up again."""


@dataclass(frozen=True, slots=True)
class RolePrompt:
    """Marks of a document or a query as such: a `prefix` before its text, or a `task` that the API is told.

    A prefix that is None is that of the model's own configuration.
    """

    prefix: str | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The time for which a provider keeps a model.

    `is_legacy` says that it will switch the model off some day, `off_since` on which day it has or will, and
    `successor` names the model that it recommends instead.
    """

    is_legacy: bool = False
    off_since: date | None = None
    successor: str | None = None

    def is_off(self, today: date) -> bool:
        """Return whether the provider has switched the model off."""
        return self.off_since is not None and self.off_since <= today

    def stage(self, today: date) -> str:
        """Say how long the model will be there: active, legacy, or off, and since when.

        >>> find_model("embed-english-v2.0").lifecycle.stage(date(2026, 11, 26))
        'off since 2026-04-04'
        """
        if self.off_since is not None:
            return f"off {'since' if self.is_off(today) else 'from'} {self.off_since}"
        if self.is_legacy:
            return "legacy"
        return "active"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts about a model that are known before it is loaded.

    Attributes
    ----------
    name, provider
        The model as in the spec PROVIDER:NAME.
    dim, shorter
        The dimension, and shorter ones that the model is made for.
    checked, sources
        The day on which the facts were last compared with these pages.
    max_tokens
        The length beyond which a local model cuts a text off and an API refuses it.
    document, query
        How the model learns that a text is one of these.
    normalized
        Whether vectors are of unit length.
    price_usd_per_mtok
        US dollars per million tokens.
    licence
        Of the weights, where these can be had.
    family
        Models of one family share a space: vectors of one answer queries of another.
    lifecycle
        How long the provider keeps it.
    """

    name: str
    provider: str
    dim: int
    checked: date
    sources: tuple[str, ...]
    shorter: tuple[int, ...] = ()
    max_tokens: int | None = None
    document: RolePrompt = RolePrompt()
    query: RolePrompt = RolePrompt()
    normalized: bool | None = None
    price_usd_per_mtok: float | None = None
    licence: str | None = None
    family: str | None = None
    lifecycle: Lifecycle = Lifecycle()

    @property
    def spec(self) -> str:
        """The model as `load_embedder` takes it."""
        return f"{self.provider}:{self.name}"

    @property
    def short_name(self) -> str:
        """The name without the organisation."""
        return self.name.rpartition("/")[2]

    @property
    def is_complete(self) -> bool:
        """True where prefixes and norms are known, so that the model need not be loaded to identify it."""
        return None not in (self.document.prefix, self.query.prefix, self.normalized)

    def going_away(self, today: date) -> str:
        """Say that the model is off, or will be; empty where its provider keeps it.

        >>> find_model("text-embedding-ada-002").going_away(date(2026, 11, 26))
        'text-embedding-ada-002 is legacy, which its provider switches off some day; text-embedding-3-small succeeds it'
        """
        lifecycle = self.lifecycle
        if lifecycle.off_since is None and not lifecycle.is_legacy:
            return ""
        sentence = f"{self.name} is {lifecycle.stage(today)}"
        if lifecycle.off_since is None:
            sentence += ", which its provider switches off some day"
        if lifecycle.successor:
            sentence += f"; {lifecycle.successor} succeeds it"
        return sentence

    def price_age(self, today: date) -> str:
        """Say how old the price is; empty while it is young, or where there is none.

        >>> find_model("voyage-4").price_age(date(2027, 11, 1))
        'the price of voyage-4 is of 2026-11, 12 months old; check docs.voyageai.com/embeddings, or give --price'
        """
        months = _MONTHS_PER_YEAR * (today.year - self.checked.year) + today.month - self.checked.month
        if self.price_usd_per_mtok is None or months < _PRICES_LAST:
            return ""
        page = self.sources[0].removeprefix("https://")
        return (
            f"the price of {self.name} is of {self.checked:%Y-%m}, {months} months old; check {page}, or give --price"
        )


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The limits of a provider per minute for an account of one tier; `checked` is the month, as 2026-05."""

    tier: str
    requests_per_min: int
    tokens_per_min: int
    checked: str


@cache
def _tables() -> dict[str, Any]:
    return parse_toml(_FILE.read_bytes())


@cache
def known_models() -> tuple[ModelFacts, ...]:
    """Every model of the registry, those of LEAD first."""
    return tuple(_facts(row) for row in _tables()["model"])


def _facts(row: dict[str, Any]) -> ModelFacts:
    """Return a row as facts; a name that is none of theirs is a TypeError."""
    values: dict[str, Any] = {name: tuple(it) if isinstance(it, list) else it for name, it in row.items()}
    document = RolePrompt(values.pop("document_prefix", None), values.pop("document_task", None))
    query = RolePrompt(values.pop("query_prefix", None), values.pop("query_task", None))
    lifecycle = Lifecycle(values.pop("legacy", False), values.pop("off_since", None), values.pop("successor", None))
    if unknown := values.keys() - {field.name for field in fields(ModelFacts)}:
        raise TypeError(f"{row['name']}: {', '.join(sorted(unknown))}")
    return ModelFacts(**values, document=document, query=query, lifecycle=lifecycle)


@cache
def rate_limits() -> tuple[RateLimit, ...]:
    """Return OpenAI's limits for its embedding models, by usage tier."""
    table = _tables()["rate_limits"]["openai"]
    tiers = {name: value for name, value in table.items() if name not in ("checked", "sources")}
    return tuple(RateLimit(tier, requests, tokens, table["checked"]) for tier, (requests, tokens) in tiers.items())


@cache
def _by_spelling() -> dict[str, ModelFacts]:
    """Models by the names they answer to; LEAD itself writes OpenAI's with an organisation."""
    spellings: dict[str, ModelFacts] = {}
    for entry in known_models():
        spellings |= dict.fromkeys([entry.name.lower(), entry.short_name.lower()], entry)
        # LEAD itself writes these with an organisation, and so do stores of its followers
        if entry.provider == "openai":
            spellings[f"openai/{entry.name}"] = entry
    return spellings


def find_model(name: str, provider: str | None = None) -> ModelFacts | None:
    """The facts of a model by its full name, with or without the organisation, in any case; None if unknown.

    With a `provider`, None for a model of another one.

    >>> find_model("E5-base-v2").name
    'intfloat/e5-base-v2'
    """
    entry = _by_spelling().get(name.lower())
    if entry is not None and provider not in (None, entry.provider):
        return None
    return entry


def suggest_models(name: str) -> list[str]:
    """Up to three names of the registry that look like `name`, best first."""
    # Twice as many as are named: a model answers to two spellings
    matches = get_close_matches(name.lower(), list(_by_spelling()), n=6, cutoff=0.5)
    return list(dict.fromkeys(_by_spelling()[match].name for match in matches))[:3]
