"""The `Embedder` interface that every kind of model implements, and a base class for embedders that wrap another.

What only some models can do - embed in other ways, report what they charge, save what they learned - is in
`abilities.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np

from migrate.embedders.profile import Profile
from migrate.errors import InputError, VectorError
from migrate.files import canonical_json
from migrate.manifest import ModelIdentity
from migrate.vectors import Progress, Text, Vectors, no_progress

Role = Literal["document", "query"]

Keep = Callable[[Sequence[int], Vectors], None]
"""Called as keep(positions, vectors): vectors (n, dim) of the texts at these n positions, as soon as they are there."""


BUILT_WITH = "name the model that it was built with"


class Embedder(ABC):
    """Turns texts into vectors. Prefixes are added inside; callers pass texts as they are.

    `cacheable` says whether a vector depends on nothing but the identity, the role and the text, so that it may be
    kept across runs; `batch_size` is how many texts are worth handing over at once.
    """

    cacheable: bool = True
    batch_size: int = 256

    @property
    @abstractmethod
    def identity(self) -> ModelIdentity:
        """The model as artefacts remember it."""

    def quick_identity(self) -> ModelIdentity:
        """The identity as far as it is known without loading a model that is in the registry."""
        return self.identity

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

    def fit(self, corpus: Iterable[Text]) -> None:
        """Learn from the corpus what the model needs before it can embed; most models need nothing."""

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

            def within(stage: str, done: int, size: int | None, start: int = start) -> None:
                # The end of a batch is reported below, when it was handed over
                if done != size:
                    progress(stage, start + done, len(texts))

            keep(batch, self.embed([texts[position] for position in batch], role, progress=within))
            progress("embed", batch.stop, len(texts))

    def embed_documents(self, texts: Sequence[Text], *, progress: Progress = no_progress) -> Vectors:
        """Embed texts as documents."""
        return self.embed(texts, "document", progress=progress)

    def embed_queries(self, texts: Sequence[Text], *, progress: Progress = no_progress) -> Vectors:
        """Embed texts as queries."""
        return self.embed(texts, "query", progress=progress)

    def embed_again(self, texts: Sequence[Text], role: Role) -> Vectors:
        """Embed past any cache: the model's vectors as they are now."""
        return self.embed(texts, role)

    def find(self, texts: Sequence[Text], role: Role) -> dict[int, Vectors]:
        """The vectors that are in the cache, (dim,), by the position of their texts; nothing is embedded."""
        return {}

    def expect_dim(self, dim: int, source: str, *, advice: str = BUILT_WITH) -> None:
        """Make sure, before anything is embedded, that vectors are of the dimension of `source`, a store or a file.

        `advice` is what to do where they are not.

        Raises VectorError: they are of another one.
        """
        identity = self.quick_identity()
        if identity.dim != dim:
            raise other_dimension(identity.spec, identity.dim, dim, source, advice)

    def cache_scope(self, role: Role) -> str:
        """All that a vector depends on besides the text: texts equal under one scope have one vector."""
        model = self.identity
        # Other texts go to the model with another prefix, so that their vectors are others too
        prefix = model.document_prefix if role == "document" else model.query_prefix
        return canonical_json([model.spec, model.revision, model.dim, prefix])


def gather(embedder: Embedder, texts: Sequence[Text], role: Role, progress: Progress) -> Vectors:
    """Return the vectors, (n, dim), that `embed_each` hands over for one text or more, in their order."""
    rows: dict[int, Vectors] = {}

    def keep(positions: Sequence[int], vectors: Vectors) -> None:
        rows.update(zip(positions, vectors, strict=True))

    embedder.embed_each(texts, role, keep, progress=progress)
    return np.stack([rows[position] for position in range(len(texts))])


def in_batches(
    texts: Sequence[Text],
    size: int,
    dim: int,
    embed: Callable[[Sequence[Text], Callable[[int], None]], Vectors],
    progress: Progress,
) -> Vectors:
    """Return the vectors, (len(texts), dim), that `embed` gives to `size` texts at a time.

    It may call its second argument with how many of these are done.
    """
    vectors = np.empty((len(texts), dim), dtype=np.float32)
    for start in range(0, len(texts), size):
        batch = texts[start : start + size]

        def within(done: int, start: int = start) -> None:
            progress("embed", start + done, len(texts))

        vectors[start : start + len(batch)] = embed(batch, within)
        progress("embed", start + len(batch), len(texts))
    return vectors


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


class WrappedEmbedder(Embedder):
    """Holds another embedder, and passes on to it everything but the embedding.

    A cache is the outermost of several: a meter, or whatever else counts what is embedded, goes below it.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self.cacheable = embedder.cacheable
        self.batch_size = embedder.batch_size

    @abstractmethod
    def around(self, embedder: Embedder) -> Embedder:
        """The same wrapper around another embedder."""

    @property
    def identity(self) -> ModelIdentity:
        """The identity of the embedder inside."""
        return self.embedder.identity

    def quick_identity(self) -> ModelIdentity:
        """The identity of the embedder inside, as far as it is known."""
        return self.embedder.quick_identity()

    @property
    def profile(self) -> Profile:
        """The profile of the embedder inside."""
        return self.embedder.profile

    def fit(self, corpus: Iterable[Text]) -> None:
        """Let the embedder inside learn from the corpus."""
        self.embedder.fit(corpus)

    def expect_dim(self, dim: int, source: str, *, advice: str = BUILT_WITH) -> None:
        """Check the dimension of the embedder inside."""
        self.embedder.expect_dim(dim, source, advice=advice)

    def cache_scope(self, role: Role) -> str:
        """The scope of the embedder inside."""
        return self.embedder.cache_scope(role)


def innermost(embedder: Embedder) -> Embedder:
    """Return the model inside all wrappers, which is `embedder` itself where it has none."""
    while isinstance(embedder, WrappedEmbedder):
        embedder = embedder.embedder
    return embedder


def with_model(embedder: Embedder, change: Callable[[Embedder], Embedder]) -> Embedder:
    """Return the same embedder with its model replaced by `change(model)`, in the same wrappers."""
    if isinstance(embedder, WrappedEmbedder):
        return embedder.around(with_model(embedder.embedder, change))
    return change(embedder)
