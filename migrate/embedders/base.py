"""The `Embedder` interface that every kind of model implements, and a base class for embedders that wrap another."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from migrate.embedders.profile import Profile
from migrate.errors import InputError, VectorError
from migrate.files import canonical_json, output_errors, write_bytes
from migrate.manifest import ModelIdentity
from migrate.vectors import Progress, Text, Vectors, no_progress

Role = Literal["document", "query"]

UNKNOWN_QUERY = ""
"""Stands among digests of queries that chose documents for those that nobody can name."""

Keep = Callable[[Sequence[int], Vectors], None]
"""Called as keep(positions, vectors): vectors (n, dim) of the texts at these n positions, as soon as they are there."""


BUILT_WITH = "name the model that it was built with"


@dataclass(frozen=True, slots=True, eq=False)
class TokenTable:
    """The tokenizer of a local model and the input vector of each of its tokens.

    `tokenizer` is JSON of the tokenizers library; `vectors` is (vocabulary, width), float32; `limit` is how many
    tokens of a text the model reads, special ones left aside, None where there is no limit.
    """

    tokenizer: str
    vectors: Vectors
    limit: int | None


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


class Embedder(ABC):
    """Turns texts into vectors. Prefixes are added inside; callers pass texts as they are.

    `cacheable` says whether a vector depends on nothing but the identity, the role and the text, so that it may be
    kept across runs; `is_cached` whether a cache in front embeds a text that comes twice only once; `keeps` whether
    that cache outlives the run, so that nothing is paid for twice; `batch_size` is how many texts are worth handing
    over at once.
    """

    cacheable: bool = True
    is_cached: bool = False
    keeps: bool = False
    batch_size: int = 256

    @property
    @abstractmethod
    def identity(self) -> ModelIdentity:
        """The model as artefacts remember it."""

    @abstractmethod
    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Vectors of the texts, float32, (len(texts), dim), finite, in the order of `texts`.

        Raises InputError: a text that the model cannot embed: empty, too long, unknown to a file of vectors. Names its
        id. RemoteError: a remote service failed, and trying again did not help.
        """

    def embed_each(self, texts: Sequence[Text], role: Role, keep: Keep, *, progress: Progress = no_progress) -> None:
        """Embed texts, and hand over their vectors as they come, in any order, in the thread that called.

        Where `progress` or anything else raises, what was paid for by then has been handed over.

        Raises InputError, RemoteError: as `embed`.
        """
        for start in range(0, len(texts), self.batch_size):
            batch = range(start, min(start + self.batch_size, len(texts)))
            keep(batch, self.embed([texts[position] for position in batch], role))
            progress("embed", batch.stop, len(texts))

    def gather(self, texts: Sequence[Text], role: Role, progress: Progress) -> Vectors:
        """Return the vectors, (n, dim), that `embed_each` hands over for one text or more, in their order."""
        rows: dict[int, Vectors] = {}

        def keep(positions: Sequence[int], vectors: Vectors) -> None:
            rows.update(zip(positions, vectors, strict=True))

        self.embed_each(texts, role, keep, progress=progress)
        return np.stack([rows[position] for position in range(len(texts))])

    def in_batches(
        self, texts: Sequence[Text], dim: int, embed: Callable[[Sequence[Text]], Vectors], progress: Progress
    ) -> Vectors:
        """Return the vectors, (len(texts), dim), that `embed` gives to `batch_size` texts at a time."""
        vectors = np.empty((len(texts), dim), dtype=np.float32)
        for start in range(0, len(texts), self.batch_size):
            batch = texts[start : start + self.batch_size]
            vectors[start : start + len(batch)] = embed(batch)
            progress("embed", start + len(batch), len(texts))
        return vectors

    def embed_documents(self, texts: Sequence[Text], *, progress: Progress = no_progress) -> Vectors:
        """Embed texts as documents."""
        return self.embed(texts, "document", progress=progress)

    def embed_queries(self, texts: Sequence[Text], *, progress: Progress = no_progress) -> Vectors:
        """Embed texts as queries."""
        return self.embed(texts, "query", progress=progress)

    def embed_again(self, texts: Sequence[Text], role: Role) -> Vectors:
        """Embed past any cache: the model's vectors as they are now."""
        return self.embed(texts, role)

    @property
    def needs_texts(self) -> bool:
        """True if it reads the texts; vectors in a file may be found by the ids alone."""
        return True

    @property
    def profile(self) -> Profile:
        """Price, limits, tokens and abilities, without loading a model or asking a server.

        This one suits a free model that nothing is known of but its identity: its tokens are estimated.
        """
        model = self.quick_identity()
        return Profile(
            model.spec,
            dim=model.dim,
            document_prefix=model.document_prefix,
            query_prefix=model.query_prefix,
            is_paid=False,
        )

    def loaded_profile(self) -> Profile:
        """Return the profile; a local model without a tokenizer file is loaded, which may download it."""
        return self.profile

    @property
    def usage_tokens(self) -> int:
        """Tokens that a server has charged for so far; 0 where no server reports them."""
        return 0

    def are_cached(self, texts: Sequence[Text], role: Role) -> list[bool]:
        """Return for each text if its vector is in the cache, so that embedding it costs nothing."""
        cached = self.find(texts, role)
        return [position in cached for position in range(len(texts))]

    def find(self, texts: Sequence[Text], role: Role) -> dict[int, Vectors]:
        """The vectors that are in the cache, (dim,), by the position of their texts; nothing is embedded."""
        return {}

    def chosen_by(self, queries: Collection[str], *, group: str | None = None) -> Embedder:
        """Return this embedder for texts that queries have chosen, so that its cache, if any, remembers who did.

        `queries` are digests (`migrate.selection.choosers`), `UNKNOWN_QUERY` where nobody can name them, empty where
        chance or the whole collection chose. `group` names queries that become more as time goes on; None where these
        are all.
        """
        return self

    def choices(self, texts: Sequence[Text], role: Role) -> list[bytes | None]:
        """Return by which choice of queries each text came into the cache; None where none did, or it is not there."""
        return [None] * len(texts)

    def choosers(self, choices: Collection[bytes]) -> frozenset[str]:
        """Return the digests of the queries of some choices."""
        return frozenset()

    def with_model(self, change: Callable[[Embedder], Embedder]) -> Embedder:
        """The same embedder with its model replaced by `change(model)`, behind the same cache if there is one."""
        return change(self)

    def with_attempts(self, *, attempts: int) -> Embedder:
        """The same model for a thread that waits for no other, and gives up after so many attempts at a request.

        Itself where no server is asked.
        """
        return self

    def warm_up(self) -> None:
        """Load the library that the first request needs; no server is asked."""

    def quick_identity(self) -> ModelIdentity:
        """The identity as far as it is known without loading a model that is in the registry."""
        return self.identity

    def expect_dim(self, dim: int, source: str, *, advice: str = BUILT_WITH) -> None:
        """Make sure, before anything is embedded, that vectors are of the dimension of `source`, a store or a file.

        `advice` is what to do where they are not.

        Raises VectorError: they are of another one.
        """
        identity = self.quick_identity()
        if identity.dim != dim:
            raise other_dimension(identity.spec, identity.dim, dim, source, advice)

    def with_prefixes(self, document_prefix: str, query_prefix: str) -> Embedder | None:
        """The same model, not loaded again, with other prefixes; None for one that takes none."""
        return None

    def variants(self) -> Iterator[Variant]:
        """Other ways to make vectors with the same weights; most models have none."""
        return iter(())

    def token_table(self) -> TokenTable | None:
        """The tokens of a model that runs here, or None where there are none to be had."""
        return None

    def fit(self, corpus: Iterable[Text]) -> None:
        """Learn from the corpus what the model needs before it can embed; most models need nothing."""

    def state(self) -> Mapping[str, bytes]:
        """The learned state as files by name; none for most models."""
        return {}

    def save_state(self, folder: Path) -> None:
        """Write `state` into an existing folder; `load_embedder(spec, state=folder)` then embeds the same way."""
        with output_errors(folder):
            for name, payload in self.state().items():
                write_bytes(folder / name, payload)

    def cache_scope(self, role: Role) -> str:
        """All that a vector depends on besides the text: texts equal under one scope have one vector."""
        model = self.identity
        prefix = model.document_prefix if role == "document" else model.query_prefix
        return canonical_json([model.spec, model.revision, model.dim, prefix])


def other_dimension(spec: str, model_dim: int, store_dim: int, source: str, advice: str) -> VectorError:
    """The error for a model of dimension `model_dim` that is to meet vectors of another one, those of `source`."""
    return VectorError(f"{source}: its vectors have dimension {store_dim}, those of {spec} {model_dim}; {advice}")


def require_texts(texts: Sequence[Text], *, model: str) -> None:
    """Make sure that every text can be embedded, before any of them costs something.

    Raises InputError: a text is empty or only white space (models answer with a vector that means nothing), or holds
    half a surrogate pair, which no tokenizer takes. Names the id of the first.
    """
    for text in texts:
        if not text.text.strip():
            raise InputError(f"{model}: {text.id!r} has no text; leave it out or give it one")
        try:
            text.text.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{model}: {text.id!r} is not valid Unicode ({error.reason}); repair its text") from error


def _inner(name: str) -> Any:
    """Return a property or a method of a wrapper that is that of the embedder inside."""

    def call(wrapper: WrappedEmbedder, *arguments: Any, **options: Any) -> Any:
        return getattr(wrapper.embedder, name)(*arguments, **options)

    def read(wrapper: WrappedEmbedder) -> Any:
        return getattr(wrapper.embedder, name)

    return property(read) if isinstance(getattr(Embedder, name), property) else call


class WrappedEmbedder(Embedder):
    """Passes on to `embedder` everything but the embedding."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self.cacheable = embedder.cacheable
        self.is_cached = embedder.is_cached
        self.keeps = embedder.keeps
        self.batch_size = embedder.batch_size

    @abstractmethod
    def around(self, embedder: Embedder) -> Embedder:
        """The same wrapper around another embedder."""

    identity = _inner("identity")
    quick_identity = _inner("quick_identity")
    warm_up = _inner("warm_up")
    profile = _inner("profile")
    loaded_profile = _inner("loaded_profile")
    needs_texts = _inner("needs_texts")
    usage_tokens = _inner("usage_tokens")
    find = _inner("find")
    choices = _inner("choices")
    choosers = _inner("choosers")
    expect_dim = _inner("expect_dim")
    cache_scope = _inner("cache_scope")
    token_table = _inner("token_table")
    fit = _inner("fit")
    state = _inner("state")
    variants = _inner("variants")  # uncached and uncounted: no cache key tells them apart

    def chosen_by(self, queries: Collection[str], *, group: str | None = None) -> Embedder:
        """Tell it to the embedder inside."""
        inner = self.embedder.chosen_by(queries, group=group)
        return self if inner is self.embedder else self.around(inner)

    def with_model(self, change: Callable[[Embedder], Embedder]) -> Embedder:
        """Change the model inside, and wrap it in the same way."""
        return self.around(self.embedder.with_model(change))

    def with_prefixes(self, document_prefix: str, query_prefix: str) -> Embedder | None:
        """The embedder inside with other prefixes, wrapped in the same way."""
        prefixed = self.embedder.with_prefixes(document_prefix, query_prefix)
        return None if prefixed is None else self.around(prefixed)
