"""Counts the calls of a client, and says when its model is to be checked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Generator, Hashable, Sequence
from typing import Any

from migrate.check.guard.known import KnownRows
from migrate.errors import LeadMigrateError, VectorError
from migrate.vectors import Vectors, as_vectors

_LOG = logging.getLogger("migrate")

Embed = Callable[[list[str]], Any]


class Watch:
    """Checks a client before its first call, before one in `every`, and before each while its model is another.

    A client may ask by several models; `key` tells them apart.
    """

    def __init__(self, known: KnownRows, *, every: int, raises: bool) -> None:
        self.known, self.every, self.raises = known, every, raises
        self._until_check: dict[Hashable, int] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def before(self, embed: Callable[[list[str]], Sequence[Any]], *, name: str, key: Hashable = None) -> None:
        """Check if it is time; `embed` embeds documents, `name` says what the client or its model is called."""
        if self._may_pass(key):
            return
        with self._lock:  # the first calls of several threads wait for the one check
            if self._may_pass(key, counts=False):
                return
            steps = self._check(name, key)
            try:
                texts = next(steps)
                while True:
                    texts = steps.send(embed(texts))
            except StopIteration:
                return

    async def before_async(
        self, embed: Callable[[list[str]], Awaitable[Sequence[Any]]], *, name: str, key: Hashable = None
    ) -> None:
        """Do the same for a client that is asynchronous; of several first calls each may check."""
        if self._may_pass(key):
            return
        steps = self._check(name, key)
        try:
            texts = next(steps)
            while True:
                texts = steps.send(await embed(texts))
        except StopIteration:
            return

    def _may_pass(self, key: Hashable, *, counts: bool = True) -> bool:
        left = self._until_check.get(key, 0)
        if left > 0 and counts:
            self._until_check[key] = left - 1
        return left > 0

    def _check(self, name: str, key: Hashable) -> Generator[list[str], Sequence[Any], None]:
        """Yield texts to embed, as they are and then with the prefix of the manifest, and judge what comes back."""
        rows = self.known.current()
        try:
            embedded = as_vectors((yield list(rows.texts)), source=name)
            try:
                rows.require(embedded, name=name)
            except VectorError:
                if not rows.prefix or embedded.shape[1] != rows.vectors.shape[1]:
                    raise
                prefixed: Vectors = as_vectors((yield [rows.prefix + text for text in rows.texts]), source=name)
                rows.require(prefixed, name=name)
        except LeadMigrateError as error:
            if self.raises:
                raise
            _LOG.warning("%s", error)
        self._until_check[key] = self.every - 1
