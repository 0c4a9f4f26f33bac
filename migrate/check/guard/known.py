"""A few texts of a store, with vectors that are known to be those of its model."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np

from migrate.errors import UsageError, VectorError
from migrate.files import beside
from migrate.manifest import MANIFEST_NAME, ModelIdentity
from migrate.selection.model_match import FEW, NO_CLAIM, Claim, claim_of_rows, compare
from migrate.stores import open_store
from migrate.stores.all_true import TRUE
from migrate.stores.base import Store
from migrate.stores.confidence import true_rows
from migrate.vectors import Vectors

_DRAWN: Final = 64
"""Texts of which a check embeds the shortest: it is paid for again and again."""

_SHORTEST: Final = 20
"""Characters of a text that has enough of them to tell a model."""


@dataclass(frozen=True, eq=False, slots=True)
class KnownTexts:
    """Texts and their vectors, as they were read.

    Attributes
    ----------
    claim : the texts, with their vectors
    model : the model by the manifest, if there is one
    """

    location: str
    claim: Claim
    model: ModelIdentity | None

    @classmethod
    def read(cls, store: Store) -> Self:
        """Draw the shortest of a few texts at random, so that a check costs little."""
        info = store.info
        manifest = info.manifest
        rows = np.arange(info.count)
        # Translated vectors are not the model's own
        if manifest is not None and manifest.counts.get(TRUE, info.count) != info.count:
            rows = np.flatnonzero(true_rows(store))
        claim = NO_CLAIM
        if info.has_texts:
            claim = claim_of_rows(store, np.random.default_rng(0).permutation(rows), _DRAWN)
        if not len(claim):
            raise UsageError(
                f"{info.location}: the store has no text of a vector that is known to be its model's, so no client "
                "can be guarded by it"
            )
        lengths = [len(document.text) for document in claim.texts]
        shortest = sorted(range(len(claim)), key=lambda number: (lengths[number] < _SHORTEST, lengths[number]))
        model = None
        if manifest is not None:
            model = manifest.model
        return cls(info.location, claim.take(shortest[:FEW]), model)

    @property
    def to_embed(self) -> list[str]:
        """The texts as they are, and then, if documents have a prefix, with it: a check embeds both.

        Some programs add the prefix themselves, some models do.
        """
        texts = [document.text for document in self.claim.texts]
        if self.model is None or not self.model.document_prefix:
            return texts
        return [*texts, *(self.model.document_prefix + text for text in texts)]

    def require(self, embedded: Vectors) -> None:
        """Make sure that most vectors of the texts, with the prefix or without, are the store's.

        `embedded` are the vectors of `to_embed`, (n, dim). A text or two may have changed since.

        Raises VectorError: they are not, or of another dimension.
        """
        claim = self.claim
        count, dim = claim.vectors.shape
        theirs = ""
        if self.model is not None:
            theirs = f", which are those of {self.model.spec}"
        advice = "embed queries with the store's own model, or search the store that was built with this one"
        if len(embedded) != len(self.to_embed):
            raise VectorError(
                f"{self.location}: the guarded model gives {len(embedded)} vectors for {len(self.to_embed)} texts; "
                "check it"
            )
        if embedded.shape[1] != dim:
            raise VectorError(
                f"{self.location}: the guarded model gives vectors of {embedded.shape[1]:,} dimensions, and the store "
                f"has {dim:,}{theirs}; {advice}"
            )
        attempts = [
            compare(claim, embedded[start : start + count], "the guarded model")
            for start in range(0, len(embedded), count)
        ]
        # A text or two may have changed since; of another model none agrees
        if all(2 * match.agreeing < count for match in attempts):
            raise VectorError(
                f"{self.location}: the guarded model does not give the store's vectors{theirs}: of {count} of its "
                f"texts the vectors have a median cosine of {np.median(attempts[-1].cosines):.3f} with them; "
                f"{advice}"
            )


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
        files = self._files()
        if self._rows is None or files != self._files_read:
            store = self.store
            if not isinstance(store, Store):
                store = open_store(store)
            self._rows = KnownTexts.read(store)
            self._files_read = files
        return self._rows

    def _files(self) -> tuple[tuple[int, int], ...]:
        """Return what tells the files at the location from others in their place; nothing of a database's server."""
        if isinstance(self.store, Store):
            return ()
        path = Path(str(self.store).partition("#")[0].removeprefix("faiss:"))
        identities = []
        for file in (path, beside(path) / MANIFEST_NAME, path.parent / MANIFEST_NAME, path / "index.faiss"):
            with suppress(OSError, ValueError):
                status = file.stat()
                identities.append((status.st_ino, status.st_mtime_ns))
        return tuple(identities)
