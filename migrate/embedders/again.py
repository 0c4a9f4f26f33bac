"""Proof that the model behind a name is the one it was: some texts are embedded again, past the cache, and compared.

The weights of a model that runs here have a hash, which is looked at in each run. A model behind an API has a name
alone, and what the cache or a store says of it is as old as they are. So whoever spends on such a model, or judges by
it, has `ASKED_AGAIN` texts embedded afresh: before it believes what is known, and after it has embedded others, so that
a server whose answers belong to other texts, or to two models, is found out before anything is made of them.

Of answers that are wrong in a share p, all 8 are right with a chance of (1 - p)^8: 0.4 % for a half, 43 % for a tenth.
A server that swaps or shifts the texts of each request does so to these too, and is found out for certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from migrate.embedders.base import Embedder, Role
from migrate.errors import VectorError
from migrate.vectors import Text, Vectors, unit_rows

ASKED_AGAIN: Final = 8
"""Texts that are embedded again at a time."""

SAME: Final = 0.999
"""Cosine of two vectors of one text; those of an API, or of a copy that rounds, differ in the fourth digit at most."""


def needs_proof(embedder: Embedder) -> bool:
    """Return True if only its answers tell which model it is: it is behind an API, or may be."""
    profile = embedder.profile
    return profile.is_api or profile.is_paid is not False


def prove_known(embedder: Embedder, texts: Sequence[Text], *, source: str) -> int:
    """Compare, as `prove_answers`, the texts whose vectors are in the cache; return how many were embedded again."""
    if not texts or not needs_proof(embedder):
        return 0
    cached = embedder.find(texts, "document")
    if not cached:
        return 0
    cached_texts = [texts[position] for position in cached]
    return prove_answers(embedder, cached_texts, np.stack(list(cached.values())), source=source)


def prove_answers(
    embedder: Embedder, texts: Sequence[Text], vectors: Vectors, role: Role = "document", *, source: str
) -> int:
    """Embed some texts again, past the cache, compare with their `vectors`, (n, dim), and return how many there were.

    They are the first, the last and others at random, one of them alone and the rest in another order than before. A
    model that runs here is not asked. `source` begins the message.

    Raises VectorError: a vector is another than before. RemoteError, SpendingError: as the embedder.
    """
    if not len(texts) or not needs_proof(embedder):
        return 0
    positions = some_places(len(texts), np.random.default_rng(len(texts)))
    order = [*positions[1:2], *positions[:1], *positions[:1:-1]]
    repeated = embedder.embed_again([texts[order[0]]], role)
    if remaining := order[1:]:
        repeated = np.concatenate([repeated, embedder.embed_again([texts[position] for position in remaining], role)])
    earlier = vectors[order]
    cosines = np.zeros(len(order))
    if repeated.shape == earlier.shape:
        cosines = np.einsum("nd,nd->n", unit_rows(repeated), unit_rows(earlier))
    if cosines.min() < SAME:
        worst, differing = int(cosines.argmin()), int((cosines < SAME).sum())
        raise VectorError(
            f"{source}: {embedder.profile.spec} gives another vector for the text of {texts[order[worst]].id!r} than "
            f"it gave before (cosine {cosines[worst]:.3f}, {differing} of {len(order)} are others): the model has "
            "changed since, or the server mixes up its texts; name the server that still has the model, or start "
            "again with another --cache for the new one"
        )
    return len(order)


def some_places(count: int, rng: np.random.Generator) -> list[int]:
    """Return the first of so many positions, the last, and others at random, ascending: `ASKED_AGAIN` at most."""
    if count <= ASKED_AGAIN:
        return list(range(count))
    inner = 1 + rng.choice(count - 2, ASKED_AGAIN - 2, replace=False)
    return [0, *sorted(inner.tolist()), count - 1]


class Witnesses:
    """Random sample of the texts that a run embeds, to be embedded again at its end."""

    def __init__(self, embedder: Embedder, source: str) -> None:
        self._embedder, self._source = embedder, source
        self._rng = np.random.default_rng(0)
        self._kept: list[tuple[Text, Vectors]] = []
        self._seen = 0

    def add(self, texts: Sequence[Text], vectors: Vectors) -> None:
        """Sample some texts of a batch, with their vectors, (n, dim)."""
        for position in some_places(len(texts), self._rng):
            witness = texts[position], vectors[position].copy()
            self._seen += 1
            if len(self._kept) < ASKED_AGAIN:
                self._kept.append(witness)
            elif (chosen := int(self._rng.integers(self._seen))) < ASKED_AGAIN:
                self._kept[chosen] = witness

    def check(self) -> None:
        """Embed the sample again; raises as `prove_answers`."""
        if self._kept:
            texts, vectors = zip(*self._kept, strict=True)
            prove_answers(self._embedder, texts, np.stack(vectors), source=self._source)
