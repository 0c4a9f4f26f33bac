"""Check that a program embeds with the model of its store.

    embed = migrate.guard(SentenceTransformer("all-MiniLM-L6-v2").encode, "new-store")

The guarded function is called as the function itself. Before its first call, and before one in `every` after that, it
embeds a few texts of the store whose vectors are known. The modules beside this one adapt it to LangChain, LlamaIndex
and clients of the `openai` package.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from migrate.check.guard.known import KnownRows
from migrate.errors import LeadMigrateError, UsageError
from migrate.stores.base import Store
from migrate.vectors import as_vectors

_LOG = logging.getLogger("migrate")


class Guard:
    """A function that embeds texts, called as the function itself, and checked first.

    Made by `guard`. Several threads may share it; each of several first calls may check.
    """

    def __init__(self, embed: Callable[..., Any], known: KnownRows, *, every: int, raises: bool) -> None:
        self.embed = embed
        self._known = known
        self._every = every
        self._raises = raises
        self._until_check = 0

    def __call__(self, texts: Sequence[str], *arguments: Any, **options: Any) -> Any:
        """Embed texts; the result of an asynchronous function is to be awaited.

        Raises VectorError: the model is not the store's. StoreError: the store cannot be read.
        """
        if inspect.iscoroutinefunction(self.embed):
            return self._call_async(texts, *arguments, **options)
        self.check()
        return self.embed(texts, *arguments, **options)

    async def _call_async(self, texts: Sequence[str], *arguments: Any, **options: Any) -> Any:
        if self._is_due():
            self._judge(await self.embed(self._texts()))
        return await self.embed(texts, *arguments, **options)

    def check(self) -> None:
        """Count a call that embeds in another way, such as one for a query, and check if it is time; errors as a call.

        The function must not be asynchronous.
        """
        if self._is_due():
            self._judge(self.embed(self._texts()))

    def _is_due(self) -> bool:
        if self._until_check > 0:
            self._until_check -= 1
            return False
        return True

    def _texts(self) -> list[str]:
        return self._known.current().to_embed

    def _judge(self, embedded: Any) -> None:
        try:
            self._known.current().require(as_vectors(embedded, source="the guarded model"))
        except LeadMigrateError as error:
            if self._raises:
                raise
            _LOG.warning("%s", error)
        # Not reached where the model was refused, so that its next call is checked too
        self._until_check = self._every - 1


def guard(
    embed: Callable[..., Any],
    store: Store | str | Path,
    *,
    every: int = 1_000,
    mismatch: Literal["raise", "log"] = "raise",
) -> Guard:
    """Return a function that embeds as this one does, and checks that its model is the one of the store's vectors.

    A few texts of the store are embedded as documents and compared with their vectors: before the first call, before
    one in `every` after that, and before each call as long as an error is raised. Of a translated store they are those
    that have true vectors. Files that were replaced at their place since are read anew; of a database what was read
    first counts. Lengths of vectors are not compared, nor is how queries are embedded; of an index of short codes only
    a model is told that is far from its own.

    Parameters
    ----------
    embed
        A function of a list of texts that returns a vector for each, such as `SentenceTransformer.encode`, or an
        asynchronous one. What else it is called with is passed on; a check calls it with the texts alone.
        `migrate.check.guard.langchain`, `.llamaindex` and `.openai` adapt clients of these libraries.
    store
        The store that the program searches, or its location.
    every
        Number of calls from one check to the next.
    mismatch
        "raise" a `VectorError` where the model is another; or "log" a warning to the logger `migrate`, and go on.

    Raises UsageError: `embed` is no function, or the store has no text of a vector that is known to be its model's.
    StoreError: as `open_store`.

    >>> import migrate
    >>> migrate.guard(lambda texts: [[0.0] * 24 for _ in texts], "my-store")(["a text"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    migrate.errors.VectorError: my-store: the guarded model gives vectors of 24 dimensions, and the store has ...
    """
    if not isinstance(every, int) or every < 1 or mismatch not in ("raise", "log"):
        raise UsageError(f'every={every!r} is a whole number from 1, and mismatch={mismatch!r} is "raise" or "log"')
    if not callable(embed):
        raise UsageError(
            f"{type(embed).__module__}.{type(embed).__qualname__} is no function of texts; give one, such as "
            "model.encode, or an adapter of migrate.check.guard: langchain.GuardedEmbeddings, "
            "llamaindex.GuardedEmbedding or openai.embedding_function"
        )
    return Guard(embed, KnownRows(store), every=every, raises=mismatch == "raise")
