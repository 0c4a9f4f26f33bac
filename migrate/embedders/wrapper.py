"""An embedder around another one: what it does not do itself, the other does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from migrate.documents import Text
from migrate.embedders.base import BUILT_WITH, Embedder, Role, TokenTable
from migrate.manifest import ModelIdentity


class WrappedEmbedder(Embedder):
    """Passes on to `embedder` everything but the embedding."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self.cacheable = embedder.cacheable
        self.keeps = embedder.keeps
        self.batch_size = embedder.batch_size

    @property
    def identity(self) -> ModelIdentity:
        """That of the embedder inside."""
        return self.embedder.identity

    @property
    def needs_texts(self) -> bool:
        """Whether the embedder inside reads the texts."""
        return self.embedder.needs_texts

    def quick_identity(self) -> ModelIdentity:
        """That of the embedder inside."""
        return self.embedder.quick_identity()

    def expect_dim(self, dim: int, source: str, *, advice: str = BUILT_WITH) -> None:
        """Ask it of the embedder inside."""
        self.embedder.expect_dim(dim, source, advice=advice)

    def cache_scope(self, role: Role) -> str:
        """That of the embedder inside."""
        return self.embedder.cache_scope(role)

    def token_table(self) -> TokenTable | None:
        """That of the embedder inside."""
        return self.embedder.token_table()

    def fit(self, corpus: Iterable[Text]) -> None:
        """Fit the embedder inside."""
        self.embedder.fit(corpus)

    def state(self) -> Mapping[str, bytes]:
        """That of the embedder inside."""
        return self.embedder.state()
