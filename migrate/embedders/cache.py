"""The embedding cache: vectors that were computed once are kept on disk, so that no run pays for them again.

`CachedEmbedder` wraps an embedder; `CacheFile` is the SQLite file behind it, which checks vectors as they are read and
may be shared between processes.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.base import Embedder, Role, WrappedEmbedder, require_texts
from migrate.embedders.own_database import OwnDatabase
from migrate.errors import InputError
from migrate.files import canonical_json, make_private, output_errors
from migrate.vectors import Progress, Text, Vectors, as_vectors, no_progress

UNKNOWN_QUERY = ""
"""Stands among digests of queries that chose documents for those that nobody can name."""

LEAVE_ASIDE = "--cache none or another --cache leaves these vectors aside"


_MOST_PLACEHOLDERS = 500
"""Values in one statement; SQLite before 3.32 takes 999 at most."""


class CacheFile(OwnDatabase):
    """An open cache. Version 2 also says which queries chose a text.

    The journal is SQLite's default: switching to write-ahead logging fails at once, without waiting, while another
    process has the file open.
    """

    title = "embedding cache"
    remedy = "delete it, or choose another path, and run again"
    application_id = 0x4C4D4543
    version = 2
    creation = (
        "CREATE TABLE IF NOT EXISTS embeddings (key BLOB PRIMARY KEY, vector BLOB, checksum INTEGER) WITHOUT ROWID",
        "CREATE TABLE chosen (key BLOB PRIMARY KEY, choice BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE choosers (choice BLOB, query TEXT, PRIMARY KEY (choice, query)) WITHOUT ROWID",
    )
    # Of texts that version 1 has kept nobody knows why they were embedded.
    upgrade = (
        *creation[1:],
        "INSERT INTO chosen SELECT key, x'' FROM embeddings",
        "INSERT INTO choosers VALUES (x'', '')",  # `UNKNOWN_QUERY`
    )

    def __enter__(self) -> Self:
        self._check_owner()
        self.open()
        return self

    def _check_owner(self) -> None:
        """Make sure that no other user can write to the file: what others write there would be used as vectors.

        SQLite gives its journal the same mode.
        """
        with output_errors(self.path):
            make_private(self.path)
            file = self.path.stat()
            folder = self.path.parent.stat()
        faults = {
            "belongs to another user; choose another path": file.st_uid not in (os.geteuid(), 0),
            f"may be written to by everyone; remove that permission (chmod o-w {self.path})": file.st_mode
            & stat.S_IWOTH,
            f"is in a folder that everyone may write to; remove that permission (chmod o-w {self.path.parent})": (
                folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX
            ),
        }
        for fault, applies in faults.items():
            if applies:
                raise InputError(f"{self.path}: the embedding cache {fault}")

    def read(self, keys: Collection[bytes]) -> dict[bytes, Vectors]:
        """Return the vectors, shape (dim,), of the keys that are in the cache."""
        with self.errors():
            rows = self._rows("key, vector, checksum", "embeddings", keys)
            vectors = {key: self._check(vector, checksum) for key, vector, checksum in rows}
        dims = sorted({len(vector) for vector in vectors.values()})
        if len(dims) > 1:
            raise InputError(
                f"{self.path}: the cached vectors of one model have the dimensions "
                f"{' and '.join(map(str, dims))}: the server changed its model in between, or the file is "
                f"damaged; {LEAVE_ASIDE}"
            )
        return vectors

    def _check(self, vector: object, checksum: object) -> Vectors:
        # SQLite checks its pages no further than it must: a flipped bit would be a vector like any other
        if not isinstance(vector, bytes) or not vector or len(vector) % 4 or zlib.crc32(vector) != checksum:
            raise self.damaged("a vector is not what was written")
        return np.frombuffer(vector, dtype="<f4").astype(np.float32)

    def write(
        self, vectors: Mapping[bytes, Vectors], choice: bytes | None = None, choosers: Collection[str] = ()
    ) -> None:
        """Add vectors in one transaction; on return they are on disk.

        `choice` names the queries because of which the texts were embedded; `choosers` are digests of more of them.
        """
        rows = [(key, vector.astype("<f4").tobytes()) for key, vector in vectors.items()]
        with self.transaction():
            self._database.executemany(
                "INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?)",
                [(key, vector, zlib.crc32(vector)) for key, vector in rows],
            )
            if choice is not None:
                self._database.executemany(
                    "INSERT OR IGNORE INTO chosen VALUES (?, ?)", [(key, choice) for key in vectors]
                )
                self._database.executemany(
                    "INSERT OR IGNORE INTO choosers VALUES (?, ?)", [(choice, query) for query in choosers]
                )

    def chosen(self, keys: Collection[bytes]) -> dict[bytes, bytes]:
        """Return those of the keys whose texts were embedded because of queries, with the choice of each."""
        with self.errors():
            return dict(self._rows("key, choice", "chosen", keys))

    def _rows(self, columns: str, table: str, keys: Collection[bytes]) -> Iterator[Any]:
        """Yield the rows of some keys, in the order of these, asking for some at a time."""
        # In the order of the table, whose pages are then read once each
        ordered = sorted(keys)
        for start in range(0, len(ordered), _MOST_PLACEHOLDERS):
            chunk = ordered[start : start + _MOST_PLACEHOLDERS]
            placeholders = ",".join("?" * len(chunk))
            # all at once: a cursor would be closed with the generator, and the database may be closed by then
            yield from self._database.execute(
                f"SELECT {columns} FROM {table} WHERE key IN ({placeholders})",  # noqa: S608
                chunk,
            ).fetchall()

    def choosers(self, choices: Collection[bytes]) -> frozenset[str]:
        """Return the digests of the queries of some choices."""
        with self.errors():
            query = "SELECT query FROM choosers WHERE choice = ?"
            return frozenset(digest for choice in choices for (digest,) in self._database.execute(query, (choice,)))


@dataclass(frozen=True, slots=True)
class ChosenBy:
    """Reason to embed texts: `key` names the queries that chose them, None where chance or the whole collection did.

    `queries` has their digests, `UNKNOWN_QUERY` where nobody can name them.
    """

    key: bytes | None
    queries: frozenset[str]


UNCHOSEN = ChosenBy(None, frozenset())
"""Of texts that chance or the whole collection chose, and of queries."""

UNEXPLAINED = ChosenBy(b"", frozenset({UNKNOWN_QUERY}))
"""Of texts that are embedded without a word on their choice nobody knows why they were."""


@dataclass(slots=True)
class _Run:
    """Counters that the copies of a cached embedder share: of texts, and which queries of a choice the file has."""

    hits: int = 0
    misses: int = 0
    written: dict[bytes, frozenset[str]] = field(default_factory=dict)


class CachedEmbedder(WrappedEmbedder):
    """An embedder that passes to another only the texts that are not cached for the same model and prefix.

    A text that occurs twice is embedded once. What is new is on disk as soon as the other hands it over, so that an
    interrupted run keeps it; with `keeps` the file outlives this run as well. The file remembers the `provenance` of
    documents.
    """

    def __init__(
        self,
        embedder: Embedder,
        path: Path,
        *,
        keeps: bool = True,
        provenance: ChosenBy = UNEXPLAINED,
        run: _Run | None = None,
    ) -> None:
        super().__init__(embedder)
        self.cacheable = False
        self.keeps = keeps
        self.path = path
        self.provenance = provenance
        self._run = run or _Run()

    def around(self, embedder: Embedder) -> CachedEmbedder:
        """Another embedder behind the same cache: whoever holds this one sees what a metered copy embeds."""
        return CachedEmbedder(embedder, self.path, keeps=self.keeps, provenance=self.provenance, run=self._run)

    def with_provenance(self, provenance: ChosenBy) -> CachedEmbedder:
        """Return the same embedder for texts of another choice."""
        return CachedEmbedder(self.embedder, self.path, keeps=self.keeps, provenance=provenance, run=self._run)

    def choices(self, texts: Sequence[Text], role: Role) -> list[bytes | None]:
        """Return by which choice of queries each text came into the cache; None where none did, or it is not there."""
        if not self.path.exists():
            return [None] * len(texts)
        keys = self._keys(texts, role)
        with CacheFile(self.path) as file:
            chosen = file.chosen(set(keys))
        return [chosen.get(key) for key in keys]

    def choosers(self, choices: Collection[bytes]) -> frozenset[str]:
        """Return the digests of the queries of some choices."""
        with CacheFile(self.path) as file:
            return file.choosers(choices)

    @property
    def hits(self) -> int:
        """Texts that were not embedded, because they were on disk or occurred before."""
        return self._run.hits

    @property
    def misses(self) -> int:
        """Texts that were embedded."""
        return self._run.misses

    def find(self, texts: Sequence[Text], role: Role) -> dict[int, Vectors]:
        """The vectors that are on disk, (dim,), by the position of their texts; nothing is embedded.

        Raises InputError: the cache is damaged or something else.
        """
        if not self.path.exists():
            return {}
        keys = self._keys(texts, role)
        with CacheFile(self.path) as file:
            cached = file.read(set(keys))
        return {position: cached[key] for position, key in enumerate(keys) if key in cached}

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Embed texts, those on disk for free. Progress counts texts that are done, the free ones at once.

        Raises InputError: the cache is damaged or something else, or the embedder behind it refuses a text.
        OutputError: the cache cannot be written to.
        """
        require_texts(texts, model="the embedding cache")
        keys = self._keys(texts, role)
        with CacheFile(self.path) as file:
            vectors = file.read(set(keys))
            missing: dict[bytes, Text] = {}
            for key, text in zip(keys, texts, strict=True):
                if key not in vectors:
                    # A text that occurs twice is embedded once
                    missing.setdefault(key, text)
            if vectors and missing:  # a server may have another model under the same name by now
                dim = len(next(iter(vectors.values())))
                self.embedder.expect_dim(dim, str(self.path), advice=LEAVE_ASIDE)
            self._run.hits += len(texts) - len(missing)
            if texts:
                # At once, so that the time left is estimated from what is embedded, not from what is read
                progress("embed", len(texts) - len(missing), len(texts))
            vectors.update(self._embed_missing(file, missing, role, progress, len(texts)))
        if not texts:
            return np.empty((0, self.identity.dim), dtype=np.float32)
        return as_vectors(np.stack([vectors[key] for key in keys]), source=str(self.path))

    def embed_again(self, texts: Sequence[Text], role: Role) -> Vectors:
        """Embed past the cache, which is neither read nor written."""
        return self.embedder.embed_again(texts, role)

    def embed_tokens(
        self,
        ids: NDArray[np.int32],
        embed: Callable[[NDArray[np.int32], Progress], Vectors],
        progress: Progress = no_progress,
    ) -> Vectors:
        """Vectors, (t, dim), of t single tokens by their ids, as `embed` makes them; those on disk are free."""
        # Not the scope of texts: a text may be the number of a token
        scope = canonical_json([self.cache_scope("document"), "token"])
        keys = [hashlib.sha256(f"{scope}\n{number}".encode()).digest() for number in ids.tolist()]
        with CacheFile(self.path) as file:
            vectors = file.read(set(keys))
            missing = np.array([key not in vectors for key in keys], dtype=bool)
            if missing.any():
                embedded = embed(ids[missing], progress)
                new_keys = [key for key, is_new in zip(keys, missing.tolist(), strict=True) if is_new]
                new = dict(zip(new_keys, embedded, strict=True))
                file.write(new)
                vectors.update(new)
        return np.stack([vectors[key] for key in keys])

    def _embed_missing(
        self, file: CacheFile, missing: dict[bytes, Text], role: Role, progress: Progress, total: int
    ) -> dict[bytes, Vectors]:
        """Embed, and save each batch as it arrives."""
        embedded: dict[bytes, Vectors] = {}
        keys = list(missing)

        def keep(positions: Sequence[int], vectors: Vectors) -> None:
            rows = {keys[position]: vector for position, vector in zip(positions, vectors, strict=True)}
            provenance = self.provenance if role == "document" else UNCHOSEN
            written = self._run.written.get(provenance.key or b"", frozenset())
            # Only what the file lacks: a log may have 100,000 queries, and each batch would write them all again
            file.write(rows, provenance.key, provenance.queries - written)
            if provenance.key is not None:
                self._run.written[provenance.key] = provenance.queries
            # A text that came twice, as after a request that was sent again, is one
            self._run.misses += len(rows.keys() - embedded.keys())
            embedded.update(rows)

        def report(stage: str, done: int, _total: int | None) -> None:
            progress(stage, total - len(keys) + done, total)

        if missing:
            self.embedder.embed_each(list(missing.values()), role, keep, progress=report)
        return embedded

    def _keys(self, texts: Sequence[Text], role: Role) -> list[bytes]:
        """SHA-256 of scope and text; the scope is JSON, so the line break between them cannot be part of it."""
        # Hashed once, and copied for each text
        scope = hashlib.sha256(self.cache_scope(role).encode() + b"\n")
        keys = []
        for text in texts:
            digest = scope.copy()
            digest.update(text.text.encode(errors="surrogatepass"))  # half a surrogate pair is in no cache
            keys.append(digest.digest())
        return keys


def cache_of(embedder: Embedder) -> CachedEmbedder | None:
    """Return the cache in front of an embedder, which embeds a text that comes twice only once; None without one."""
    if isinstance(embedder, CachedEmbedder):
        return embedder
    return None


def is_kept(embedder: Embedder) -> bool:
    """Return True if what is embedded is in a cache that outlives the run, so that nothing is paid for twice."""
    cache = cache_of(embedder)
    return cache is not None and cache.keeps


def are_cached(embedder: Embedder, texts: Sequence[Text], role: Role) -> list[bool]:
    """Return for each text if its vector is in the cache, so that embedding it costs nothing."""
    cached = embedder.find(texts, role)
    return [position in cached for position in range(len(texts))]


def with_choosers(embedder: Embedder, queries: Collection[str], *, group: str | None = None) -> Embedder:
    """Return an embedder for texts that queries have chosen, so that its cache, if any, remembers who did.

    `queries` are digests (`migrate.selection.choosers`), `UNKNOWN_QUERY` where nobody can name them, empty where
    chance or the whole collection chose. `group` names queries that become more as time goes on; None where these
    are all.
    """
    cache = cache_of(embedder)
    if cache is None:
        return embedder
    if not queries:
        return cache.with_provenance(UNCHOSEN)
    named = "\n".join(sorted(queries)) if group is None else f"group {group}"
    return cache.with_provenance(ChosenBy(hashlib.sha256(named.encode()).digest(), frozenset(queries)))
