"""A LangChain `Embeddings` behind a guard."""

from __future__ import annotations

from typing import Any

from langchain_core.embeddings import Embeddings

from migrate.check.guard.watch import Watch


class GuardedEmbeddings(Embeddings):
    """The same embeddings, checked first; other attributes are theirs."""

    def __init__(self, embeddings: Embeddings, watch: Watch) -> None:
        self.embeddings, self.watch = embeddings, watch

    def __getattr__(self, name: str) -> Any:
        if name == "embeddings":  # not there yet, while it is copied
            raise AttributeError(name)
        return getattr(self.embeddings, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("embeddings", "watch"):
            object.__setattr__(self, name, value)
        else:
            setattr(self.embeddings, name, value)

    @property
    def _class_name(self) -> str:
        return type(self.embeddings).__name__

    def _check(self) -> None:
        self.watch.before(self.embeddings.embed_documents, name=self._class_name)

    async def _check_async(self) -> None:
        await self.watch.before_async(self.embeddings.aembed_documents, name=self._class_name)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed documents."""
        self._check()
        return self.embeddings.embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        """Embed a query."""
        self._check()
        return self.embeddings.embed_query(text)

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed documents."""
        await self._check_async()
        return await self.embeddings.aembed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        """Embed a query."""
        await self._check_async()
        return await self.embeddings.aembed_query(text)
