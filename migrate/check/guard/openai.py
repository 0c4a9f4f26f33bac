"""A client of the `openai` package behind a guard: each model that `embeddings.create` is asked for is checked."""

from __future__ import annotations

import inspect
from typing import Any

from migrate.check.guard.watch import Watch

_SAME_MODEL = ("model", "dimensions", "user", "extra_headers", "extra_query", "extra_body", "timeout")
"""Arguments that the request of a check takes over."""


class _Shown:
    """An object whose attributes are another's, but for those of its own."""

    def __init__(self, behind: Any) -> None:
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        if name == "_behind":  # not there yet, while it is copied
            raise AttributeError(name)
        return getattr(self._behind, name)


class _GuardedEmbeddings(_Shown):
    def __init__(self, embeddings: Any, watch: Watch) -> None:
        super().__init__(embeddings)
        self._watch = watch

    def create(self, **options: Any) -> Any:
        """Embed as the client does, after a check; of an asynchronous client the result is to be awaited."""
        create, watch = self._behind.create, self._watch
        taken = {name: options[name] for name in _SAME_MODEL if name in options}
        model = str(options.get("model"))
        key = model, taken.get("dimensions")
        if inspect.iscoroutinefunction(create):

            async def checked() -> Any:
                async def embed_async(texts: list[str]) -> list[Any]:
                    return _vectors(await create(input=texts, **taken))

                await watch.before_async(embed_async, name=model, key=key)
                return await create(**options)

            return checked()

        def embed(texts: list[str]) -> list[Any]:
            return _vectors(create(input=texts, **taken))

        watch.before(embed, name=model, key=key)
        return create(**options)


class _GuardedClient(_Shown):
    def __init__(self, client: Any, watch: Watch) -> None:
        super().__init__(client)
        self.embeddings = _GuardedEmbeddings(client.embeddings, watch)
        self._watch = watch

    def with_options(self, **options: Any) -> Any:
        """Return the client with other options, behind the same guard."""
        return _GuardedClient(self._behind.with_options(**options), self._watch)

    copy = with_options


def guarded_client(client: Any, watch: Watch) -> Any:
    """Return the client, all of whose other attributes are as they were, behind a watch."""
    return _GuardedClient(client, watch)


def _vectors(answer: Any) -> list[Any]:
    return [item.embedding for item in sorted(answer.data, key=lambda item: item.index)]
