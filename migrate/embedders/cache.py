"""The embedding cache: vectors that were computed once are kept on disk, so that no run pays for them again.

`CachedEmbedder` wraps an embedder; `CacheFile` is the SQLite file behind it, which checks vectors as they are read and
may be shared between processes.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from migrate.embedders.base import UNKNOWN_QUERY, Embedder, Role, WrappedEmbedder, require_texts
from migrate.embedders.own_database import OwnDatabase
from migrate.errors import InputError
from migrate.files import make_private, output_errors
from migrate.vectors import Progress, Text, Vectors, as_vectors, no_progress

LEAVE_ASIDE = "--cache none or another --cache leaves these vectors aside"


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
        ordered = sorted(keys)
        for start in range(0, len(ordered), 500):
            chunk = ordered[start : start + 500]
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
        wrapper = CachedEmbedder(embedder, self.path, keeps=self.keeps)
        wrapper._counts = self._counts  # whoever holds this one sees what a metered copy embeds
        wrapper._choice, wrapper._choosers, wrapper._noted = self._choice, self._choosers, self._noted
        return wrapper

    def chosen_by(self, queries: Collection[str], *, group: str | None = None) -> CachedEmbedder:
        """Return this embedder for texts that queries, given by digests, have chosen: the cache remembers these.

        Of texts that are embedded without such a word nobody knows why they were.
        """
        wrapper = self.around(self.embedder)
        named = "\n".join(sorted(queries)) if group is None else f"group {group}"
        wrapper._choice, wrapper._choosers = hashlib.sha256(named.encode()).digest(), frozenset(queries)
        if not queries:
            wrapper._choice = None
        return wrapper

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
