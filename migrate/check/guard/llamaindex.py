"""A LlamaIndex `BaseEmbedding` behind a guard."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr

from migrate.check.guard.watch import Watch


class GuardedEmbedding(BaseEmbedding):
    """The same embedding, checked first."""

    _model: BaseEmbedding = PrivateAttr()
    _watch: Watch = PrivateAttr()

    @classmethod
    def class_name(cls) -> str:
        """Name of the class, as LlamaIndex wants it."""
        return "GuardedEmbedding"

    def _check(self) -> None:
        self._watch.before(self._model._get_text_embeddings, name=self._model.model_name)

    async def _check_async(self) -> None:
        await self._watch.before_async(self._model._aget_text_embeddings, name=self._model.model_name)

    def _get_query_embedding(self, query: str) -> list[float]:
        self._check()
        return self._model._get_query_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        await self._check_async()
        return await self._model._aget_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        self._check()
        return self._model._get_text_embedding(text)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        await self._check_async()
        return await self._model._aget_text_embedding(text)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        self._check()
        return self._model._get_text_embeddings(texts)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        await self._check_async()
        return await self._model._aget_text_embeddings(texts)


def guarded_embedding(model: BaseEmbedding, watch: Watch) -> GuardedEmbedding:
    """Return the embedding, with the settings that LlamaIndex's base class has, behind a watch."""
    settings: dict[str, Any] = {name: getattr(model, name) for name in BaseEmbedding.model_fields}
    guarded = GuardedEmbedding(**settings)
    guarded._model, guarded._watch = model, watch
    return guarded
