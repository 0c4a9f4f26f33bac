"""Abilities that only some models have: a base class for each, and a function that asks any embedder for it.

The functions look through caches and meters at the model inside, and have an answer for models without the ability.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.base import Embedder, innermost, with_model
from migrate.embedders.profile import Profile
from migrate.embedders.tokens import make_counter
from migrate.files import output_errors, write_bytes
from migrate.vectors import Document, Progress, Vectors


@dataclass(frozen=True, slots=True, eq=False)
class TokenTable:
    """The tokenizer of a local model and the input vector of each of its tokens.

    `tokenizer` is JSON of the tokenizers library; `vectors` is (vocabulary, width), float32; `limit` is how many
    tokens of a text the model reads, special ones left aside, None where there is no limit. `outputs` gives the
    vectors, (t, dim), float32, that the model itself makes of t tokens by their ids, each as a text of its own; None
    where only the input vectors are to be had.
    """

    tokenizer: str
    vectors: Vectors
    limit: int | None
    outputs: Callable[[NDArray[np.int32], Progress], Vectors] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """The same weights used in another way, as a store may have been built: `meaning` completes "embedded ...".

    `has_spec` says whether the spec of `embedder` makes it. Texts of fewer than `fewest_characters` come out the same
    as ever.
    """

    kind: Literal["pooling", "length"]
    meaning: str
    embedder: Embedder
    has_spec: bool = True
    fewest_characters: int = 0


class LocalModel(Embedder):
    """A model whose weights are on this machine."""

    @abstractmethod
    def variants(self) -> Iterator[Variant]:
        """Other ways to make vectors with the same weights."""

    @abstractmethod
    def token_table(self) -> TokenTable | None:
        """The tokens, or None where they cannot be had."""


class PrefixedModel(Embedder):
    """A model that puts a prefix before each text."""

    @abstractmethod
    def with_prefixes(self, document_prefix: str, query_prefix: str) -> Embedder:
        """The same model, not loaded again, with other prefixes."""


class CorpusModel(Embedder):
    """A model that learns from the corpus before it can embed."""

    @abstractmethod
    def state(self) -> Mapping[str, bytes]:
        """The learned state as files by name."""


class VectorTable(Embedder):
    """Vectors that were computed elsewhere, and are looked up."""

    @property
    @abstractmethod
    def finds_by_id(self) -> bool:
        """True if vectors are found by the ids of texts alone."""

    def holds(self, document: Document) -> bool:
        """Return True if it has the vector of a document, as a table of all documents does."""
        return True


class RemoteModel(Embedder):
    """A model behind a server."""

    @property
    @abstractmethod
    def usage_tokens(self) -> int:
        """Tokens that the server has charged for so far; 0 where it does not report them."""

    @abstractmethod
    def with_attempts(self, *, attempts: int) -> Embedder:
        """The same model for a thread that waits for no other, and gives up after so many attempts at a request."""

    @abstractmethod
    def warm_up(self) -> None:
        """Load the library that the first request needs; no server is asked."""


def variants_of(embedder: Embedder) -> Iterator[Variant]:
    """Yield other ways to use the same weights, uncached and unmetered: no cache key tells them apart."""
    model = innermost(embedder)
    if isinstance(model, LocalModel):
        yield from model.variants()


def token_table_of(embedder: Embedder) -> TokenTable | None:
    """Return the tokens of a model that runs here, or None where there are none to be had.

    What the model makes of single tokens is kept where its cache keeps what it makes of texts.
    """
    # A model that is only loaded needs no SQLite
    from migrate.embedders.cache import cache_of

    model = innermost(embedder)
    if not isinstance(model, LocalModel):
        return None
    table = model.token_table()
    cache = cache_of(embedder)
    if table is None or table.outputs is None or cache is None:
        return table
    embed = table.outputs
    return replace(table, outputs=lambda ids, progress: cache.embed_tokens(ids, embed, progress))


def loaded_profile(embedder: Embedder) -> Profile:
    """Return the profile; a local model without a tokenizer file is loaded, which may download it."""
    profile = embedder.profile
    table = None
    if not profile.counter.exact:
        table = token_table_of(embedder)
    if table is None:
        return profile
    identity = embedder.identity
    counter = make_counter(table.tokenizer)
    return replace(
        profile,
        document_prefix=identity.document_prefix,
        query_prefix=identity.query_prefix,
        max_tokens=None if table.limit is None else table.limit + counter.special,
        counter=counter,
    )


def with_prefixes(embedder: Embedder, document_prefix: str, query_prefix: str) -> Embedder | None:
    """Return the same embedder with other prefixes; None for a model that takes none."""
    model = innermost(embedder)
    if not isinstance(model, PrefixedModel):
        return None
    prefixed = model.with_prefixes(document_prefix, query_prefix)
    return with_model(embedder, lambda _: prefixed)


def needs_texts(embedder: Embedder) -> bool:
    """Return True if it reads the texts, as all do but some tables of vectors."""
    model = innermost(embedder)
    return not (isinstance(model, VectorTable) and model.finds_by_id)


def held_by(embedder: Embedder) -> Callable[[Document], bool] | None:
    """Return what says which documents a table of vectors holds; None for a model, which embeds any."""
    model = innermost(embedder)
    return model.holds if isinstance(model, VectorTable) else None


def state_of(embedder: Embedder) -> Mapping[str, bytes]:
    """Return what a model has learned as files by name; none for most models."""
    model = innermost(embedder)
    if isinstance(model, CorpusModel):
        return model.state()
    return {}


def save_state(embedder: Embedder, folder: Path) -> None:
    """Write what a model has learned into an existing folder; `load_embedder(spec, state=folder)` then embeds alike."""
    with output_errors(folder):
        for name, payload in state_of(embedder).items():
            write_bytes(folder / name, payload)


def usage_tokens(embedder: Embedder) -> int:
    """Return the tokens that a server has charged for so far; 0 where no server reports them."""
    model = innermost(embedder)
    if isinstance(model, RemoteModel):
        return model.usage_tokens
    return 0


def with_attempts(embedder: Embedder, *, attempts: int) -> Embedder:
    """Return the same embedder for a thread that waits for no other, and gives up after so many attempts.

    Itself where no server is asked.
    """
    model = innermost(embedder)
    if not isinstance(model, RemoteModel):
        return embedder
    impatient = model.with_attempts(attempts=attempts)
    return with_model(embedder, lambda _: impatient)


def warm_up(embedder: Embedder) -> None:
    """Load the library that the first request to a server needs; no server is asked."""
    model = innermost(embedder)
    if isinstance(model, RemoteModel):
        model.warm_up()
