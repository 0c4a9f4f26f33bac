"""A client of the `openai` package behind a guard: each model that `embeddings.create` is asked for is checked."""

from __future__ import annotations

import inspect
from typing import Any, Self

from migrate.check.guard.watch import Watch

_SAME_MODEL = ("model", "dimensions", "user", "extra_headers", "extra_query", "extra_body", "timeout")
"""Arguments that the request of a check takes over."""


class _Shown:
    """An object whose attributes are another's, but for those of its own; they are set there too."""

    _own = ("_behind", "_watch", "_asked", "embeddings")

    def __init__(self, behind: Any) -> None:
        self._behind = behind

    def __getattr__(self, name: str) -> Any:
        if name == "_behind":  # not there yet, while it is copied
            raise AttributeError(name)
        return getattr(self._behind, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._own:
            object.__setattr__(self, name, value)
        else:
            setattr(self._behind, name, value)


class _GuardedEmbeddings(_Shown):
    """The `embeddings` of a client, or its view of whole responses; a check asks by `asked`, the plain `create`."""

    def __init__(self, embeddings: Any, watch: Watch, asked: Any = None) -> None:
        super().__init__(embeddings)
        self._watch, self._asked = watch, asked or embeddings.create

    @property
    def with_raw_response(self) -> Any:
        """The embeddings that answer with the whole response."""
        return _GuardedEmbeddings(self._behind.with_raw_response, self._watch, self._asked)

    @property
    def with_streaming_response(self) -> Any:
        """The embeddings whose response is read as it comes."""
        return _GuardedEmbeddings(self._behind.with_streaming_response, self._watch, self._asked)

    def create(self, **options: Any) -> Any:
        """Embed as the client does, after a check; of an asynchronous client the result is to be awaited."""
        create, asked, watch = self._behind.create, self._asked, self._watch
        taken = {name: options[name] for name in _SAME_MODEL if name in options}
        model = str(options.get("model"))
        key = model, taken.get("dimensions")
        if inspect.iscoroutinefunction(asked):

            async def checked() -> Any:
                async def embed_async(texts: list[str]) -> list[Any]:
                    return _vectors(await asked(input=texts, **taken))

                await watch.before_async(embed_async, name=model, key=key)
                return await create(**options)

            return checked()

        def embed(texts: list[str]) -> list[Any]:
            return _vectors(asked(input=texts, **taken))

        watch.before(embed, name=model, key=key)
        return create(**options)


class _GuardedClient(_Shown):
    def __init__(self, client: Any, watch: Watch, asked: Any = None) -> None:
        super().__init__(client)
        self.embeddings = _GuardedEmbeddings(client.embeddings, watch, asked)
        self._watch = watch

    @property
    def with_raw_response(self) -> Any:
        """The client that answers with the whole response."""
        return _GuardedClient(self._behind.with_raw_response, self._watch, self._behind.embeddings.create)

    @property
    def with_streaming_response(self) -> Any:
        """The client whose response is read as it comes."""
        return _GuardedClient(self._behind.with_streaming_response, self._watch, self._behind.embeddings.create)

    def with_options(self, **options: Any) -> Any:
        """Return the client with other options, behind the same guard."""
        return _GuardedClient(self._behind.with_options(**options), self._watch)

    copy = with_options

    def __enter__(self) -> Self:
        self._behind.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._behind.__exit__(*error)

    async def __aenter__(self) -> Self:
        await self._behind.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._behind.__aexit__(*error)


def guarded_client(client: Any, watch: Watch) -> Any:
    """Return the client, all of whose other attributes are as they were, behind a watch."""
    return _GuardedClient(client, watch)


def _vectors(answer: Any) -> list[Any]:
    return [item.embedding for item in sorted(answer.data, key=lambda item: item.index)]
