"""A LlamaIndex `BaseEmbedding` behind a guard."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr

from migrate.check.guard.watch import Watch


class GuardedEmbedding(BaseEmbedding):
    """The same embedding, checked first; other attributes are its own, and what is set is set there too."""

    _model: BaseEmbedding = PrivateAttr()
    _watch: Watch = PrivateAttr()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return super().__getattr__(name)  # type: ignore[misc]
        return getattr(self._model, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            setattr(self._model, name, value)
        if name.startswith("_") or name in BaseEmbedding.model_fields:
            super().__setattr__(name, value)

    def __reduce__(self) -> Any:
        """Pickle the model and the watch, which LlamaIndex's own way leaves out."""
        return guarded_embedding, (self._model, self._watch)

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
