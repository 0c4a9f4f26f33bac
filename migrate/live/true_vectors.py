"""True vectors of documents while queries wait: from memory, from the cache, or embedded now, each once for all.

A text is known by its `text_hash`. What an embedder fails at is not found; nothing here raises for that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.abilities import usage_tokens, with_attempts
from migrate.embedders.base import Embedder
from migrate.embedders.cache import CachedEmbedder, with_choosers
from migrate.errors import InputError
from migrate.live.state import Counter, text_hash
from migrate.vectors import Document, Query, Vectors, as_vectors, check_vectors

_log = logging.getLogger(__name__)

_ASK_AGAIN_S: Final = 30.0
"""Seconds after which the cache is asked again for a text that it did not have."""

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 60.0
"""The first pause after a failure, and the longest after many."""

_REMEMBERED_QUERIES: Final = 1_000
"""Queries whose vectors are held in memory."""

_BATCHES_PER_THREAD: Final = 4
"""Batches that may be embedded or wait for it, to a thread."""

CountUp = Callable[[Mapping[Counter, float]], None]


class Pause:
    """A pause that doubles with each failure in a row, up to a minute; failures at the same time are one."""

    def __init__(self) -> None:
        self._failures = 0
        self._until = 0.0

    @property
    def is_over(self) -> bool:
        """True if it may be tried again."""
        return time.monotonic() >= self._until

    def fail(self) -> bool:
        """Begin a pause; return True if there was none."""
        if not self.is_over:
            return False
        self._until = time.monotonic() + min(_FIRST_PAUSE_S * 2**self._failures, _LONGEST_PAUSE_S)
        self._failures += 1
        return True

    def end(self) -> None:
        """End the pause, and forget the failures."""
        self._failures = 0
        self._until = 0.0


class VectorMemory:
    """The vectors, (dim,), that were used last, by the hash of their text; `most` are held."""

    def __init__(self, dim: int, most: int) -> None:
        self._dim = dim
        self._most = most
        self._vectors: OrderedDict[bytes, Vectors] = OrderedDict()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._vectors

    def find(self, digests: Sequence[bytes | None]) -> tuple[NDArray[np.intp], Vectors]:
        """Return the places of those digests that are known, (n,), and copies of their vectors, (n, dim)."""
        known = [(place, digest) for place, digest in enumerate(digests) if digest and digest in self._vectors]
        rows = np.empty((len(known), self._dim), np.float32)
        for row, (_, digest) in enumerate(known):
            rows[row] = self._vectors[digest]
            self._vectors.move_to_end(digest)
        return np.array([place for place, _ in known], np.intp), rows

    def keep(self, digest: bytes, vector: Vectors) -> None:
        """Hold a copy of a vector, in the place of the one that was used longest ago where there are enough."""
        self._vectors[digest] = vector.astype(np.float32)
        self._vectors.move_to_end(digest)
        if len(self._vectors) > self._most:
            self._vectors.popitem(last=False)


class LiveVectors:
    """The vectors that one embedder, behind its cache if it has one, gives of documents, for all threads of a process.

    An embedder that fails is left alone for a while, and so is waiting for one that is slow; both pauses grow. Of what
    is held in memory, what was not used for longest goes first. `count` is called with what is to be counted.
    """

    def __init__(self, embedder: Embedder, *, memory_bytes: int, count: CountUp) -> None:
        self.embedder = embedder
        is_api = embedder.profile.is_api
        # Local models are not safe with several threads, and have no use for them.
        self._turn: AbstractContextManager[object] = nullcontext() if is_api else threading.Lock()
        self._threads = 4 if is_api else 1
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="live-embed")
        # Threads of their own: the cache answers while the model hangs
        self._readers = ThreadPoolExecutor(2, thread_name_prefix="live-cache")
        # The cache is written to for each text that is new in it, which a query should not wait for.
        model = embedder.embedder if isinstance(embedder, CachedEmbedder) else embedder
        self._model = with_attempts(model, attempts=3)
        self._own = threading.local()
        self._count = count
        self._lock = threading.Lock()
        dim = embedder.identity.dim
        bytes_per_vector = np.dtype(np.float32).itemsize * dim
        self._memory = VectorMemory(dim, max(memory_bytes // bytes_per_vector, 1))
        # People ask the same again, page by page, and so do tests of a server
        self._queries = VectorMemory(dim, _REMEMBERED_QUERIES)
        self._flights: dict[bytes, Future[None]] = {}
        self._absent: dict[bytes, float] = {}
        self._refused: set[bytes] = set()
        self._batches = 0
        self._failing = Pause()
        self._slow = Pause()

    def close(self) -> None:
        """Embed nothing more; what is being embedded comes to its end, in the cache."""
        self._readers.shutdown(wait=True, cancel_futures=True)
        self._pool.shutdown(wait=True)

    def of_query(self, text: str) -> Vectors:
        """Return the vector of a query, (dim,); raises as `Embedder.embed`."""
        digest = text_hash(text)
        with self._lock:
            _, rows = self._queries.find([digest])
        if not len(rows):
            with self._turn:
                rows = self._model.embed_queries([Query("query", text)])
            with self._lock:
                self._queries.keep(digest, rows[0])
        vector: Vectors = rows[0]
        return vector

    def in_memory(self, digests: Sequence[bytes | None]) -> tuple[NDArray[np.intp], Vectors]:
        """Return the places of those texts whose vectors are in memory, (n,), and these, (n, dim)."""
        with self._lock:
            return self._memory.find(digests)

    def unasked(self, hashes: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return those documents, by id, that the cache may have by now: it was not asked for them lately."""
        since = time.monotonic() - _ASK_AGAIN_S
        return {doc_id: digest for doc_id, digest in hashes.items() if self._absent.get(digest, -np.inf) < since}

    def accepted(self, hashes: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return those documents, by id, that the model has not refused."""
        return {doc_id: digest for doc_id, digest in hashes.items() if digest not in self._refused}

    def look_up(self, documents: Mapping[bytes, Document], *, seconds: float) -> None:
        """Take what the cache has of some texts into memory, waiting for at most so long."""

        def take() -> None:
            try:
                vectors = self.embedder.find(list(documents.values()), "document")
            except Exception as error:
                self._failed(error)
                return
            with self._lock:
                self._absent |= dict.fromkeys(documents, time.monotonic())
                for position, digest in enumerate(documents):
                    if position in vectors:
                        self._keep(digest, vectors[position])

        # Late vectors are not lost: they come into memory for the next query
        with suppress(RuntimeError):  # closed meanwhile
            wait([self._readers.submit(take)] if documents else [], timeout=max(seconds, 0))

    def embed(self, documents: Mapping[bytes, Document], *, chooser: str, seconds: float) -> None:
        """Embed some texts because of a query, `chooser`, or join those who are at it, and wait for at most so long.

        What is late comes into memory, and into the cache, when it comes.
        """
        with self._lock:
            flights = [self._flights[digest] for digest in documents if digest in self._flights]
            new = {
                digest: document
                for digest, document in documents.items()
                if digest not in self._flights and digest not in self._memory and digest not in self._refused
            }
            # What is beyond that is left to the worker: a query that waits in a long line is late anyway
            if self._batches >= _BATCHES_PER_THREAD * self._threads or not self._failing.is_over:
                new = {}
            started: dict[bytes, Future[None]] = {digest: Future() for digest in new}
            self._flights |= started
            self._batches += bool(new)
        if new:
            flights += started.values()
            try:
                self._pool.submit(self._fly, new, chooser)
            except RuntimeError:  # closed meanwhile
                self._land(new, {})
        if not flights or seconds <= 0 or not self._slow.is_over:
            return
        done, late = wait(flights, timeout=seconds)
        # One batch that is in time shows that the server answers
        if late and not done:
            self._slow.fail()
        elif done:
            self._slow.end()

    def _fly(self, documents: Mapping[bytes, Document], chooser: str) -> None:
        vectors: dict[bytes, Vectors] = {}
        try:
            if self._failing.is_over:  # it may have failed while this batch waited for its turn
                vectors = self._embedded(documents, chooser)
        except Exception as error:
            self._failed(error)
        else:
            if vectors:
                self._failing.end()
        finally:
            self._land(documents, vectors)

    def _land(self, documents: Mapping[bytes, Document], vectors: Mapping[bytes, Vectors]) -> None:
        """Take the vectors into memory before anybody who comes later could start anew; let those who wait go on."""
        with self._lock:
            for digest, vector in vectors.items():
                self._keep(digest, vector)
            flights = [self._flights.pop(digest) for digest in documents]
            self._batches -= 1
        for flight in flights:
            flight.set_result(None)

    def _embedded(self, documents: Mapping[bytes, Document], chooser: str) -> dict[bytes, Vectors]:
        """Return the vectors of some texts; one that the model refuses does not stand in the way of the others."""
        try:
            with self._turn:
                embedder = self._embedder
                tokens_before = usage_tokens(embedder)
                rows = with_choosers(embedder, {chooser}).embed_documents(list(documents.values()))
        except InputError:
            if len(documents) == 1:
                self.embedder.find(list(documents.values()), "document")  # if the cache is to blame, it fails again
                self._refused.add(next(iter(documents)))
                return {}
            answers_of = [self._embedded({digest: document}, chooser) for digest, document in documents.items()]
            return {digest: vector for answer in answers_of for digest, vector in answer.items()}
        source = embedder.profile.spec
        as_vectors(rows, dim=embedder.identity.dim, source=source)
        check_vectors([one.id for one in documents.values()], rows, source=source)
        self._count({"embedded_by_queries": len(rows), "tokens": usage_tokens(embedder) - tokens_before})
        return dict(zip(documents, rows, strict=True))

    @property
    def _embedder(self) -> Embedder:
        """The embedder of this thread: a call that hangs keeps no other waiting."""
        if not hasattr(self._own, "embedder"):
            # Nobody waits for a third attempt: there is a pause instead, for all queries at once.
            self._own.embedder = with_attempts(self.embedder, attempts=2)
        embedder: Embedder = self._own.embedder
        return embedder

    def _keep(self, digest: bytes, vector: Vectors) -> None:
        self._absent.pop(digest, None)
        self._memory.keep(digest, vector)

    def _failed(self, error: Exception) -> None:
        self._count({"embedder_failures": 1})
        if self._failing.fail():
            _log.warning("documents are ranked by their translated vectors: %s", error)
