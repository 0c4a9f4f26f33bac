"""A LlamaIndex `BaseEmbedding` that checks that its model is the store's; `migrate.guard` says how."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr, SerializeAsAny

from migrate.check.guard import Guard, guard


class GuardedEmbedding(BaseEmbedding):
    """An embedding that is checked against a store; the parameters are those of `migrate.guard`."""

    model: SerializeAsAny[BaseEmbedding]
    store: Any
    every: int = 1_000
    mismatch: Literal["raise", "log"] = "raise"
    _guarded: Guard = PrivateAttr()

    def __init__(self, model: BaseEmbedding, store: Any, **settings: Any) -> None:
        own: dict[str, Any] = {"model_name": model.model_name, "embed_batch_size": model.embed_batch_size}
        super().__init__(**{**own, **settings, "model": model, "store": store})
        self._guarded = guard(model.get_text_embedding_batch, store, every=self.every, mismatch=self.mismatch)

    @classmethod
    def class_name(cls) -> str:
        """Name of the class, as LlamaIndex wants it."""
        return "GuardedEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        self._guarded.check()
        return self.model.get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        self._guarded.check()
        return self.model.get_text_embedding(text)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._guarded.check()
        return self.model.get_text_embedding_batch(texts)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        await asyncio.to_thread(self._guarded.check)
        return await self.model.aget_query_embedding(query)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        await asyncio.to_thread(self._guarded.check)
        return await self.model.aget_text_embedding(text)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        await asyncio.to_thread(self._guarded.check)
        return await self.model.aget_text_embedding_batch(texts)
