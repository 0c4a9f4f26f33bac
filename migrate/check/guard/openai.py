"""A client of the `openai` package as a function of texts, which `migrate.guard` takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def embedding_function(client: Any, model: str, **options: Any) -> Callable[[list[str]], Any]:
    """Return a function that embeds texts by a client's `embeddings.create`; of an `AsyncOpenAI` an asynchronous one.

    `options` are passed with each request, such as `dimensions=256`. The function returns a list of vectors, lists of
    floats, in the order of the texts.
    """
    create = client.embeddings.create
    if inspect.iscoroutinefunction(create):

        async def embed_async(texts: list[str]) -> list[list[float]]:
            return _vectors(await create(input=texts, model=model, **options))

        return embed_async

    def embed(texts: list[str]) -> list[list[float]]:
        return _vectors(create(input=texts, model=model, **options))

    return embed


def _vectors(answer: Any) -> list[list[float]]:
    return [item.embedding for item in sorted(answer.data, key=lambda item: item.index)]
