"""A few texts of a store, with vectors that are known to be those of its model."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from migrate.check.comparison import Tolerance, agree, tolerance_of
from migrate.errors import UsageError, VectorError
from migrate.files import beside
from migrate.manifest import MANIFEST_NAME, ModelIdentity
from migrate.selection.sample import known_documents
from migrate.stores import open_store
from migrate.stores.all_true import TRUE
from migrate.stores.base import Store
from migrate.stores.confidence import true_rows
from migrate.vectors import Vectors

ASKED = 4
"""Texts that a check embeds: of a wrong model not one vector is right."""

_DRAWN, _SHORTEST = 64, 20


@dataclass(frozen=True, eq=False, slots=True)
class KnownTexts:
    """Texts and their vectors, (n, dim), as they were read.

    Attributes
    ----------
    texts, vectors : n of each
    model : the model by the manifest, if there is one
    tolerance : how far a cosine may be from 1
    """

    location: str
    texts: tuple[str, ...]
    vectors: Vectors
    model: ModelIdentity | None
    tolerance: Tolerance

    @classmethod
    def read(cls, store: Store) -> Self:
        """Draw the shortest of a few texts at random, so that a check costs little."""
        info = store.info
        manifest = info.manifest
        rows = np.arange(info.count)
        if manifest is not None and manifest.counts.get(TRUE, info.count) != info.count:
            rows = np.flatnonzero(true_rows(store))
        rows = np.random.default_rng(0).permutation(rows)[:_DRAWN] if info.has_texts else rows[:0]
        documents = list(known_documents(store, rows))
        order = sorted(range(len(rows)), key=lambda i: (len(documents[i].text) < _SHORTEST, len(documents[i].text)))
        chosen = np.array([i for i in order if documents[i].text.strip()][:ASKED], dtype=np.int64)
        if not len(chosen):
            raise UsageError(
                f"{info.location}: the store has no text of a vector that is known to be its model's, so no client "
                "can be guarded by it"
            )
        texts = tuple(documents[i].text for i in chosen)
        return cls(
            info.location,
            texts,
            store.get(rows[chosen]).vectors,
            None if manifest is None else manifest.model,
            tolerance_of(info),
        )

    @property
    def to_embed(self) -> list[str]:
        """The texts as they are, and then, if documents have a prefix, with it: a check embeds both.

        Some programs add the prefix themselves, some models do.
        """
        prefix = "" if self.model is None else self.model.document_prefix
        return [*self.texts, *(prefix + text for text in self.texts if prefix)]

    def require(self, embedded: Vectors) -> None:
        """Make sure that most vectors of the texts, with the prefix or without, are the store's.

        `embedded` are the vectors of `to_embed`, (n, dim). A text or two may have changed since.

        Raises VectorError: they are not, or of another dimension.
        """
        stored = self.vectors
        count = len(stored)
        theirs = "" if self.model is None else f", which are those of {self.model.spec}"
        advice = "embed queries with the store's own model, or search the store that was built with this one"
        if len(embedded) != len(self.to_embed):
            raise VectorError(
                f"{self.location}: the guarded model gives {len(embedded)} vectors for {len(self.to_embed)} texts; "
                "check it"
            )
        if embedded.shape[1] != stored.shape[1]:
            raise VectorError(
                f"{self.location}: the guarded model gives vectors of {embedded.shape[1]:,} dimensions, and the store "
                f"has {stored.shape[1]:,}{theirs}; {advice}"
            )
        attempts = [embedded[start : start + count] for start in range(0, len(embedded), count)]
        if all(2 * agree(stored, attempt, self.tolerance).sum() < count for attempt in attempts):
            raise VectorError(
                f"{self.location}: the guarded model does not give the store's vectors{theirs}: of {count} of its "
                f"texts the vectors have a median cosine of {_median_cosine(stored, attempts[-1]):.3f} with them; "
                f"{advice}"
            )


def _median_cosine(first: Vectors, second: Vectors) -> float:
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return float(np.median(np.einsum("nd,nd->n", first, second) / lengths))


@dataclass(slots=True)
class KnownRows:
    """The rows of a store, or of what lies at its location now."""

    store: Store | str | Path
    _files_read: tuple[tuple[int, int], ...] = ()
    _rows: KnownTexts | None = None

    def __post_init__(self) -> None:
        self.current()

    def current(self) -> KnownTexts:
        """Return the rows, read anew where other files lie at the location since."""
        seen = self._files_seen()
        if self._rows is None or seen != self._files_read:
            store = self.store if isinstance(self.store, Store) else open_store(self.store)
            self._rows, self._files_read = KnownTexts.read(store), seen
        return self._rows

    def _files_seen(self) -> tuple[tuple[int, int], ...]:
        """Return what tells the files at the location from others in their place; nothing of a database's server."""
        if isinstance(self.store, Store):
            return ()
        path = Path(str(self.store).partition("#")[0].removeprefix("faiss:"))
        seen = []
        for file in (path, beside(path) / MANIFEST_NAME, path.parent / MANIFEST_NAME, path / "index.faiss"):
            with suppress(OSError, ValueError):
                status = file.stat()
                seen.append((status.st_ino, status.st_mtime_ns))
        return tuple(seen)
