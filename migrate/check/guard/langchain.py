"""A LangChain `Embeddings` that checks that its model is the store's; `migrate.guard` says how."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

from langchain_core.embeddings import Embeddings

from migrate.check.guard import guard
from migrate.stores.base import Store


class GuardedEmbeddings(Embeddings):
    """Embeddings that are checked against a store; the parameters are those of `migrate.guard`."""

    def __init__(
        self,
        embeddings: Embeddings,
        store: Store | str | Path,
        *,
        every: int = 1_000,
        mismatch: Literal["raise", "log"] = "raise",
    ) -> None:
        self.embeddings = embeddings
        self.guarded = guard(embeddings.embed_documents, store, every=every, mismatch=mismatch)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed documents."""
        self.guarded.check()
        return self.embeddings.embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        """Embed a query."""
        self.guarded.check()
        return self.embeddings.embed_query(text)

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed documents."""
        # A check embeds texts, and would hold up everything else that the event loop serves
        await asyncio.to_thread(self.guarded.check)
        return await self.embeddings.aembed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        """Embed a query."""
        await asyncio.to_thread(self.guarded.check)
        return await self.embeddings.aembed_query(text)
