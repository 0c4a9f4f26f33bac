"""The embedding cache: vectors that were computed once are kept on disk, so that no run pays for them again.

`CachedEmbedder` wraps an embedder; `CacheFile` is the SQLite file behind it, which checks vectors as they are read and
may be shared between processes.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from migrate.embedders.base import UNKNOWN_QUERY, Embedder, Role, WrappedEmbedder, require_texts
from migrate.errors import InputError, LockedError, OutputError
from migrate.files import cache_folder, make_private, output_errors
from migrate.vectors import Progress, Text, Vectors, as_vectors, no_progress

APPLICATION_ID = 0x4C4D4543
"""Marks the file as an embedding cache of lead-migrate (SQLite's `application_id`)."""

FORMAT_VERSION = 2
"""Version 2 also says which queries chose a text."""

_BUSY_TIMEOUT_S = 60.0
_CREATE = (
    "CREATE TABLE IF NOT EXISTS embeddings (key BLOB PRIMARY KEY, vector BLOB, checksum INTEGER) WITHOUT ROWID",
    "CREATE TABLE chosen (key BLOB PRIMARY KEY, choice BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE choosers (choice BLOB, query TEXT, PRIMARY KEY (choice, query)) WITHOUT ROWID",
)
_UPGRADE = (
    *_CREATE[1:],
    "INSERT INTO chosen SELECT key, x'' FROM embeddings",
    "INSERT INTO choosers VALUES (x'', '')",  # `UNKNOWN_QUERY`
)
"""Nobody knows why the texts that version 1 has kept were embedded."""

LEAVE_ASIDE = "--no-cache or another --cache leaves these vectors aside"


class CacheFile:
    """An open cache; a context manager. A file that is not there yet is created, with its folder, for this user alone.

    Processes take turns, each transaction waiting for the others for up to a minute.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> CacheFile:
        self._make()
        with self._translated():
            self._database = sqlite3.connect(self.path, timeout=_BUSY_TIMEOUT_S, isolation_level=None)
        try:
            with self._translated():
                self._prepare()
        except BaseException:
            self._database.close()
            raise
        return self

    def _make(self) -> None:
        """Create the file and its folder for this user alone, or make sure that no other user can write to them.

        What other users write there would be used as vectors. SQLite gives its journal the same mode.
        """
        with output_errors(self.path):
            make_private(self.path)
            file, folder = self.path.stat(), self.path.parent.stat()
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._database.close()

    def _prepare(self) -> None:
        """Recognise the file, or make it one. Two processes may come upon a new file at once, so look again locked.

        The journal is SQLite's default: switching to write-ahead logging fails at once, without waiting, while
        another process has the file open.
        """
        with self._database:
            self._database.execute("BEGIN")
            if self._is_ours():
                return
        with self._database:
            self._database.execute("BEGIN IMMEDIATE")
            if self._is_ours():
                return
            for statement in _UPGRADE if self._pragma("application_id") == APPLICATION_ID else _CREATE:
                self._database.execute(statement)
            self._database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._database.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def _is_ours(self) -> bool:
        """Return True for a cache of this version, False for an empty one and for one of version 1.

        In a transaction: it reads twice.
        """
        if self._pragma("application_id") == APPLICATION_ID:
            version = self._pragma("user_version")
            if version in (1, FORMAT_VERSION):
                return version == FORMAT_VERSION
            raise InputError(
                f"{self.path}: an embedding cache of version {version}, where this release reads {FORMAT_VERSION}; "
                "choose another path"
            )
        if self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise InputError(
                f"{self.path}: this is the database of another application; choose another path for the cache"
            )
        return False

    def _pragma(self, name: str) -> int:
        return int(self._database.execute(f"PRAGMA {name}").fetchone()[0])

    def read(self, keys: Collection[bytes]) -> dict[bytes, Vectors]:
        """Return the vectors, shape (dim,), of the keys that are in the cache."""
        with self._translated():
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
        if not isinstance(vector, bytes) or not vector or len(vector) % 4 or zlib.crc32(vector) != checksum:
            raise self._damaged("a vector is not what was written")
        return np.frombuffer(vector, dtype="<f4").astype(np.float32)

    def write(
        self, vectors: Mapping[bytes, Vectors], choice: bytes | None = None, choosers: Collection[str] = ()
    ) -> None:
        """Add vectors in one transaction; on return they are on disk.

        `choice` names the queries because of which the texts were embedded; `choosers` are digests of more of them.
        """
        rows = [(key, vector.astype("<f4").tobytes()) for key, vector in vectors.items()]
        # The connection rolls back whatever its block began, even where Ctrl-C comes right after BEGIN: what is in
        # flight then is still to be written
        with self._translated(), self._database:
            self._database.execute("BEGIN IMMEDIATE")
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
        with self._translated():
            return dict(self._rows("key, choice", "chosen", keys))

    def _rows(self, columns: str, table: str, keys: Collection[bytes]) -> Iterator[Any]:
        """Yield the rows of some keys, in the order of these, asking for some at a time."""
        ordered = sorted(keys)
        for start in range(0, len(ordered), 500):
            part = ordered[start : start + 500]
            marks = ",".join("?" * len(part))
            # all at once: a cursor would be closed with the generator, and the database may be closed by then
            yield from self._database.execute(
                f"SELECT {columns} FROM {table} WHERE key IN ({marks})",  # noqa: S608
                part,
            ).fetchall()

    def choosers(self, choices: Collection[bytes]) -> frozenset[str]:
        """Return the digests of the queries of some choices."""
        with self._translated():
            query = "SELECT query FROM choosers WHERE choice = ?"
            return frozenset(digest for choice in choices for (digest,) in self._database.execute(query, (choice,)))

    def _damaged(self, what: str) -> InputError:
        return InputError(
            f"{self.path}: the embedding cache is damaged ({what}); delete it, or choose another path, and run again"
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
                raise self._damaged(str(error)) from error
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise LockedError(
                    f"another run holds the cache {self.path}; wait for it, or choose another path"
                ) from error
            raise OutputError(
                f"cannot write the embedding cache {self.path}: {error}; free some space or choose another path"
            ) from error


def default_cache_path() -> Path:
    """Return the cache that is used unless the user names another."""
    return cache_folder() / "embeddings.sqlite"


class CachedEmbedder(WrappedEmbedder):
    """An embedder that passes to another only the texts that are not cached for the same model and prefix.

    A text that occurs twice is embedded once. What is new is on disk as soon as the other hands it over, so that an
    interrupted run keeps it; with `keeps` the file outlives this run as well.
    """

    def __init__(self, embedder: Embedder, path: Path, *, keeps: bool = True) -> None:
        super().__init__(embedder)
        self.cacheable = False
        self.is_cached = True
        self.keeps = keeps
        self.path = path
        self._counts = Counter[str]()
        self._choice: bytes | None = b""
        self._choosers: frozenset[str] = frozenset({UNKNOWN_QUERY})
        self._noted: dict[bytes, frozenset[str]] = {}

    def around(self, embedder: Embedder) -> CachedEmbedder:
        """Another embedder behind the same cache."""
        other = CachedEmbedder(embedder, self.path, keeps=self.keeps)
        other._counts = self._counts  # whoever holds this one sees what a metered copy embeds
        other._choice, other._choosers, other._noted = self._choice, self._choosers, self._noted
        return other

    def chosen_by(self, queries: Collection[str], *, group: str | None = None) -> CachedEmbedder:
        """Return this embedder for texts that queries, given by digests, have chosen: the cache remembers these.

        Of texts that are embedded without such a word nobody knows why they were.
        """
        other = self.around(self.embedder)
        named = "\n".join(sorted(queries)) if group is None else f"group {group}"
        other._choice, other._choosers = hashlib.sha256(named.encode()).digest(), frozenset(queries)
        if not queries:
            other._choice = None
        return other

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
        return self._counts["hits"]

    @property
    def misses(self) -> int:
        """Texts that were embedded."""
        return self._counts["misses"]

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
                    missing.setdefault(key, text)
            if vectors and missing:  # a server may have another model under the same name by now
                dim = len(next(iter(vectors.values())))
                self.embedder.expect_dim(dim, str(self.path), advice=LEAVE_ASIDE)
            self._counts["hits"] += len(texts) - len(missing)
            if texts:
                progress("embed", len(texts) - len(missing), len(texts))
            vectors.update(self._embed_missing(file, missing, role, progress, len(texts)))
        if not texts:
            return np.empty((0, self.identity.dim), dtype=np.float32)
        return as_vectors(np.stack([vectors[key] for key in keys]), source=str(self.path))

    def embed_again(self, texts: Sequence[Text], role: Role) -> Vectors:
        """Embed past the cache, which is neither read nor written."""
        return self.embedder.embed_again(texts, role)

    def _embed_missing(
        self, file: CacheFile, missing: dict[bytes, Text], role: Role, progress: Progress, total: int
    ) -> dict[bytes, Vectors]:
        """Embed, and save each batch as it arrives."""
        embedded: dict[bytes, Vectors] = {}
        keys = list(missing)

        def keep(positions: Sequence[int], vectors: Vectors) -> None:
            rows = {keys[position]: vector for position, vector in zip(positions, vectors, strict=True)}
            choice = self._choice if role == "document" else None
            file.write(rows, choice, self._choosers - self._noted.get(choice or b"", frozenset()))
            if choice is not None:
                self._noted[choice] = self._choosers
            self._counts["misses"] += len(rows.keys() - embedded.keys())
            embedded.update(rows)

        def report(stage: str, done: int, _total: int | None) -> None:
            progress(stage, total - len(keys) + done, total)

        if missing:
            self.embedder.embed_each(list(missing.values()), role, keep, progress=report)
        return embedded

    def _keys(self, texts: Sequence[Text], role: Role) -> list[bytes]:
        """SHA-256 of scope and text; the scope is JSON, so the line break between them cannot be part of it."""
        scope = hashlib.sha256(self.cache_scope(role).encode() + b"\n")
        keys = []
        for text in texts:
            digest = scope.copy()
            digest.update(text.text.encode(errors="surrogatepass"))  # half a surrogate pair is in no cache
            keys.append(digest.digest())
        return keys
