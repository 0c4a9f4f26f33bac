"""Embeddings that were paid for once, kept on disk, so that neither a killed run nor the next one pays again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from migrate.documents import Text
from migrate.embedders.base import Embedder, Role, Variant, require_texts
from migrate.embedders.cache_file import LEAVE_ASIDE, CacheFile
from migrate.embedders.wrapper import WrappedEmbedder
from migrate.files import cache_folder
from migrate.vectors import Progress, Vectors, as_vectors, no_progress


def default_cache_path() -> Path:
    """Where embeddings are kept unless the user says otherwise."""
    return cache_folder() / "embeddings.sqlite"


class CachedEmbedder(WrappedEmbedder):
    """An embedder that asks another one only for texts it has not seen under the same model and prefix.

    A text that occurs twice is embedded once. What is new is on disk as soon as the other hands it over, batch by batch
    or answer by answer, whatever happens to the run after that.

    Parameters
    ----------
    keeps
        Whether the file outlives this run, so that a run that broke off pays for nothing twice.

    Attributes
    ----------
    hits, misses
        Texts that were not embedded, because they were on disk or occurred before; texts that were.
    """

    def __init__(self, embedder: Embedder, path: Path, *, keeps: bool = True) -> None:
        super().__init__(embedder)
        self.cacheable = False
        self.keeps = keeps
        self.path = path
        self.hits = 0
        self.misses = 0

    def with_prefixes(self, document_prefix: str, query_prefix: str) -> Embedder | None:
        """The embedder behind the cache with other prefixes, behind the same cache."""
        other = self.embedder.with_prefixes(document_prefix, query_prefix)
        return None if other is None else CachedEmbedder(other, self.path, keeps=self.keeps)

    def variants(self) -> Iterator[Variant]:
        """Those of the embedder behind the cache, which must not hold them: a key does not tell them apart."""
        return self.embedder.variants()

    def known(self, texts: Sequence[Text], role: Role) -> list[bool]:
        """Whether each text is on disk already, so that embedding it costs nothing."""
        with CacheFile(self.path) as file:
            keys = self._keys(texts, role)
            found = file.read(set(keys))
        return [key in found for key in keys]

    def find(self, texts: Sequence[Text], role: Role) -> dict[int, Vectors]:
        """The vectors that are on disk, (dim,), by the position of their texts; nothing is embedded.

        Raises
        ------
        InputError
            The cache is damaged or something else.
        """
        with CacheFile(self.path) as file:
            keys = self._keys(texts, role)
            found = file.read(set(keys))
        return {position: found[key] for position, key in enumerate(keys) if key in found}

    def embed(self, texts: Sequence[Text], role: Role, *, progress: Progress = no_progress) -> Vectors:
        """Embed texts, those on disk for free. Progress counts texts that are done, the free ones at once.

        Raises
        ------
        InputError
            The cache is damaged or something else, or the embedder behind it refuses a text.
        OutputError
            The cache cannot be written to.
        """
        require_texts(texts, model="the embedding cache")
        keys = self._keys(texts, role)
        with CacheFile(self.path) as file:
            found = file.read(set(keys))
            missing: dict[bytes, Text] = {}
            for key, text in zip(keys, texts, strict=True):
                if key not in found:
                    missing.setdefault(key, text)
            if found and missing:  # a server may have another model under the same name by now
                dim = len(next(iter(found.values())))
                self.embedder.expect_dim(dim, str(self.path), advice=LEAVE_ASIDE)
            self.hits += len(texts) - len(missing)
            if texts:
                progress("embed", len(texts) - len(missing), len(texts))
            found.update(self._embed_missing(file, missing, role, progress, len(texts)))
        if not texts:
            return np.empty((0, self.identity.dim), dtype=np.float32)
        return as_vectors(np.stack([found[key] for key in keys]), source=str(self.path))

    def _embed_missing(
        self, file: CacheFile, missing: dict[bytes, Text], role: Role, progress: Progress, total: int
    ) -> dict[bytes, Vectors]:
        """Embed, and keep what comes when it comes."""
        found: dict[bytes, Vectors] = {}
        keys = list(missing)

        def keep(positions: Sequence[int], vectors: Vectors) -> None:
            rows = {keys[position]: vector for position, vector in zip(positions, vectors, strict=True)}
            file.write(rows)
            self.misses += len(rows.keys() - found.keys())
            found.update(rows)

        def report(stage: str, done: int, _total: int | None) -> None:
            progress(stage, total - len(keys) + done, total)

        if missing:
            self.embedder.embed_each(list(missing.values()), role, keep, progress=report)
        return found

    def _keys(self, texts: Sequence[Text], role: Role) -> list[bytes]:
        """SHA-256 of scope and text; the scope is JSON, so the line break between them cannot be part of it."""
        scope = hashlib.sha256(self.cache_scope(role).encode() + b"\n")
        keys = []
        for text in texts:
            digest = scope.copy()
            digest.update(text.text.encode(errors="surrogatepass"))  # what no model takes is in no cache
            keys.append(digest.digest())
        return keys
