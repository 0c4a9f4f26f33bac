"""Answers one question: is this still that model? Some texts with vectors that are said to be its own are embedded.

The question is put to two things. To a *store*: are these vectors of this model? Any model is asked then, through its
cache. And to the *name* of a model: does it stand for the model that it was? The weights of one that runs here have a
hash, which is looked at in each run; one behind an API has its name alone, and what a cache or a store says of it is as
old as they are. So whoever spends on such a model, or judges by it, has texts embedded again, past the cache: before
what is known is believed, and after others were embedded, so that a server whose answers belong to other texts, or to
two models, is found out before anything is made of them.

    claim (texts, vectors) ── `matches` asks the model ──▶ Match ──▶ the caller says what it means
    claim ── `compare`, with vectors that are at hand ──▶ Match
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.base import Embedder, Role
from migrate.errors import VectorError
from migrate.selection.sample import distinct_texts
from migrate.stores.base import Store, StoreInfo
from migrate.stores.confidence import true_rows
from migrate.vectors import Progress, Text, Vectors, no_progress, squared_norms, unit_rows

FEW: Final = 4
"""Texts that tell a model from another one, of which not one vector is right."""

ASKED_AGAIN: Final = 8
"""Texts that tell a server that mixes up answers, or gives those of two models.

Of answers that are wrong in a share p, all 8 are right with a chance of (1 - p)^8: 0.4 % for a half, 43 % for a tenth.
A server that swaps or shifts the texts of each request does so to these too, and is found out for certain.
"""

SPOT_CHECKS: Final = 32
"""Texts that tell for a whole store: with all of them right, less than 9 % of it is of others (95 % confidence)."""

EXACT: Final = 1e-3
"""How far from 1 the cosine of two vectors of one text may be.

Those of an API, or of a copy that rounds, differ in the fourth digit at most, and two stores that others had made were
off by less than 1e-6; a prefix moved the vector of a text by 2e-3 or more.
"""

SAME: Final = 1 - EXACT
"""Cosine from which on two vectors are those of one text."""

_STRAY: Final = 0.3
"""How far single vectors stray from the mean of a code, as a share of what the code loses."""

_CODED: Final = 0.07
"""How far from the expected cosine the vector of a product or residual quantizer may be."""

_LOOSE: Final = 5e-3
"""Distance from 1 beyond which a tolerance may hide what a prefix changes, which is 2e-3 or more."""

_LOOKED_UP: Final = 256
"""Documents of a store that are looked up in the cache, which costs nothing; enough to find some in a small part."""

_SCALAR = {"SQfp16": EXACT, "SQbf16": EXACT, "SQ8": 2e-3, "SQ6": 5e-3, "SQ4": 2e-2}
"""Measured on 5,183 unit vectors of 384 dimensions: the worst lost 6e-4 with SQ6, 1e-2 with SQ4, else below 5e-5."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The distance from 1 that a cosine may have; `coded` if it counts from what an index's code leaves of a vector.

    A code that stores the mean of what it stands for has, on average, cos(x, x') = |x'| / |x|: a vector reconstructed
    from a product or residual quantizer is as much too short as it is off. So the norm says which cosine to expect.
    """

    allowed: float = EXACT
    coded: bool = False

    @property
    def loose(self) -> bool:
        """True if it may hide what a prefix changes, so that ways of embedding must be compared with each other."""
        return self.allowed > _LOOSE

    def least(self, stored: Vectors, reembedded: Vectors) -> NDArray[np.float64]:
        """Return the least cosine at which a row of `stored`, (n, dim), is the same as that of `reembedded`; (n,)."""
        if not self.coded:
            return np.full(len(stored), 1 - self.allowed)
        expected = np.sqrt(squared_norms(stored).astype(np.float64) / squared_norms(reembedded))
        expected = np.minimum(expected, 1 / expected)
        # The coarser the code, the more single vectors stray from what it does on average
        stray = _STRAY * (1 - expected)
        least: NDArray[np.float64] = expected - self.allowed - stray
        return least


def tolerance_of(info: StoreInfo) -> Tolerance:
    """Return the tolerance for a store, by the kind of its index."""
    if info.exact:
        return Tolerance(EXACT)
    codecs = str(info.details.get("factory", "")).split(",")
    if all(re.fullmatch(r"Flat|SQ\w+|IVF.*|IDMap2?|HNSW.*", codec) for codec in codecs) and codecs[-1] in _SCALAR:
        return Tolerance(_SCALAR[codecs[-1]])
    return Tolerance(_CODED, coded=True)


def pairwise(first: Vectors, second: Vectors) -> NDArray[np.float64]:
    """Return the cosine of each row of `first` with the same row of `second`, (n,)."""
    cosines: NDArray[np.float64] = np.einsum("ij,ij->i", unit_rows(first), unit_rows(second)).astype(np.float64)
    return cosines


def agree(stored: Vectors, reembedded: Vectors, tolerance: Tolerance) -> Mask:
    """Return which rows of `stored`, (n, dim), are those of `reembedded`."""
    return pairwise(stored, reembedded) >= tolerance.least(stored, reembedded)


@dataclass(frozen=True, eq=False, slots=True)
class Claim:
    """Texts, and the vectors, (n, dim), that a model is said to have given them in a role."""

    texts: Sequence[Text]
    vectors: Vectors
    tolerance: Tolerance = field(default_factory=Tolerance)
    role: Role = "document"

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, positions: Sequence[int] | NDArray[np.int64]) -> Self:
        """Return some of them, in this order."""
        texts = [self.texts[position] for position in positions]
        return type(self)(texts, self.vectors[np.asarray(positions, dtype=np.int64)], self.tolerance, self.role)


NO_CLAIM: Final = Claim((), np.empty((0, 0), dtype=np.float32))
"""No texts: no model is asked."""


@dataclass(frozen=True, eq=False, slots=True)
class Match:
    """The evidence of whether a `model` is still the one of a claim.

    Attributes
    ----------
    claim : the texts that were embedded, in this order, with their earlier vectors
    vectors : those that the model gives now, (n, its dim)
    cosines : of the earlier vectors with those, (n,); 0 where the model has another dimension
    right : whether they are the same, (n,)
    """

    model: str
    claim: Claim
    vectors: Vectors
    cosines: NDArray[np.float64]
    right: Mask

    @property
    def count(self) -> int:
        """The number of texts that were embedded."""
        return len(self.claim)

    @property
    def agreeing(self) -> int:
        """The number of texts with the vector of the claim."""
        return int(self.right.sum())

    @property
    def is_right(self) -> bool:
        """True if no vector differs."""
        return self.agreeing == self.count

    @property
    def is_mostly_right(self) -> bool:
        """True if more than half agree, which is no chance: of another model none does."""
        return 2 * self.agreeing > self.count

    @property
    def worst(self) -> int:
        """The position of the text whose vectors differ most."""
        return int(self.cosines.argmin())

    @property
    def evidence(self) -> str:
        """The figures, for people."""
        return f"{self.agreeing} of {self.count} documents that were embedded again have its vectors"

    def require(self, source: str) -> Self:
        """Make sure that no vector differs; `source` begins the message. Raises VectorError: one does."""
        if self.is_right:
            return self
        raise VectorError(
            f"{source}: {self.model} gives another vector for the text of {self.claim.texts[self.worst].id!r} than "
            f"it gave before (cosine {self.cosines[self.worst]:.3f}, {self.count - self.agreeing} of {self.count} are "
            "others): the model has changed since, or the server mixes up its texts; name the server that still has "
            "the model, or start again with another --cache for the new one"
        )

    def require_one(self, source: str) -> Self:
        """Make sure that one vector is the model's, of those that a store calls true; raises VectorError.

        One is enough: in a database texts may have changed since.
        """
        if self.agreeing or not self.count:
            return self
        raise VectorError(
            f"{source}: the store calls vectors true that {self.model} does not give (cosine "
            f"{self.cosines.max():.3f} at best, of {self.count}): the model has changed since it made them; name the "
            "server that still has that model, or make the store anew with this one"
        )


def compare(claim: Claim, vectors: Vectors, model: str) -> Match:
    """Hold a claim against the vectors, (n, dim), that a model has given to the same texts."""
    # Of another dimension it is another model, and there is no cosine
    if vectors.shape != claim.vectors.shape:
        return Match(model, claim, vectors, np.zeros(len(claim)), np.zeros(len(claim), dtype=bool))
    right = agree(claim.vectors, vectors, claim.tolerance)
    return Match(model, claim, vectors, pairwise(claim.vectors, vectors), right)


def matches(
    claim: Claim,
    embedder: Embedder,
    n: int = ASKED_AGAIN,
    *,
    past_cache: bool = False,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Match:
    """Have a model embed `n` texts of a claim, and compare: the first, the last and others at random.

    `past_cache` asks whether its name still stands for it: one text alone and the others in another order than before,
    as a server may mix up the texts of a request; and only where nothing but answers can tell (`needs_proof`).

    Raises RemoteError, SpendingError, InputError: as the embedder.
    """
    spec = embedder.profile.spec
    if not len(claim) or (past_cache and not needs_proof(embedder)):
        return compare(NO_CLAIM, NO_CLAIM.vectors, spec)
    positions = some_places(len(claim), n, np.random.default_rng(seed))
    if not past_cache:
        chosen = claim.take(positions)
        return compare(chosen, embedder.embed(chosen.texts, claim.role, progress=progress), spec)
    # One alone and the others backwards: what came in one request before, in its order, does not come so again
    chosen = claim.take([*positions[1:2], *positions[:1], *positions[:1:-1]])
    vectors = embedder.embed_again(chosen.texts[:1], claim.role)
    if len(chosen) > 1:
        vectors = np.concatenate([vectors, embedder.embed_again(chosen.texts[1:], claim.role)])
    return compare(chosen, vectors, spec)


def needs_proof(embedder: Embedder) -> bool:
    """Return True if only its answers tell which model it is: it is behind an API, or may be."""
    profile = embedder.profile
    return profile.is_api or profile.is_paid is not False


def some_places(count: int, n: int, rng: np.random.Generator) -> list[int]:
    """Return `n` of `count` positions, ascending: the first, the last, and others at random."""
    if count <= n:
        return list(range(count))
    # The first and the last always: a server that shifts its answers by one is wrong at an end
    inner = 1 + rng.choice(count - 2, n - 2, replace=False)
    return [0, *sorted(inner.tolist()), count - 1]


def claim_of_rows(store: Store, order: NDArray[np.int64], n: int) -> Claim:
    """Draw the first `n` distinct texts of some rows of a store, none of them blank, with the vectors that it has."""
    drawn = list(distinct_texts(store, order, n))
    if not drawn:
        return NO_CLAIM
    rows = np.array([candidate.row for candidate in drawn], dtype=np.int64)
    documents = [candidate.document for candidate in drawn]
    return Claim(documents, store.get(rows).vectors, tolerance_of(store.info))


def claim_of_true_rows(store: Store, rows: NDArray[np.int64] | None = None, *, seed: int = 0) -> Claim:
    """Draw some of the `rows` that hold true vectors; by default those that the store calls so.

    None of a store without texts, or of one that keeps codes.
    """
    if not store.info.has_texts or not store.info.exact:
        return NO_CLAIM
    if rows is None:
        rows = np.flatnonzero(true_rows(store))
    return claim_of_rows(store, np.random.default_rng(seed).permutation(rows), ASKED_AGAIN)


def claim_of_cache(embedder: Embedder, texts: Sequence[Text]) -> Claim:
    """Return those of some texts whose vectors as documents are in the cache."""
    if not len(texts) or not needs_proof(embedder):
        # The model would not be asked, so nothing is looked up
        return NO_CLAIM
    cached = embedder.find(texts, "document")
    if not cached:
        return NO_CLAIM
    return Claim([texts[position] for position in cached], np.stack(list(cached.values())))


def claim_of_store(store: Store, embedder: Embedder, rows: NDArray[np.int64] | None = None, *, seed: int = 0) -> Claim:
    """Draw texts of a store with the vectors that its true `rows` have (`claim_of_true_rows`), or the cache."""
    if not store.info.has_texts or not needs_proof(embedder):
        return NO_CLAIM
    order = np.random.default_rng(seed).permutation(store.info.count)
    documents = [document for document in store.documents(order[:_LOOKED_UP]) if document.text.strip()]
    cached = claim_of_cache(embedder, documents)
    in_cache = cached.take(range(min(len(cached), ASKED_AGAIN)))
    in_store = claim_of_true_rows(store, rows, seed=seed)
    if not len(in_cache):
        return in_store
    if not len(in_store):
        return in_cache
    return Claim([*in_store.texts, *in_cache.texts], np.concatenate([in_store.vectors, in_cache.vectors]))


class Witnesses:
    """Random sample of the texts that a run embeds, to be embedded again at its end."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)
        self._sample: list[tuple[Text, Vectors]] = []
        self._seen = 0

    def add(self, texts: Sequence[Text], vectors: Vectors) -> None:
        """Sample some texts of a batch, with their vectors, (n, dim)."""
        for position in some_places(len(texts), ASKED_AGAIN, self._rng):
            witness = texts[position], vectors[position].copy()
            self._seen += 1
            if len(self._sample) < ASKED_AGAIN:
                self._sample.append(witness)
            # A reservoir (Vitter 1985): each text so far has the same chance, however many there are to come
            elif (chosen := int(self._rng.integers(self._seen))) < ASKED_AGAIN:
                self._sample[chosen] = witness

    def claim(self) -> Claim:
        """Return the sample."""
        if not self._sample:
            return NO_CLAIM
        texts, vectors = zip(*self._sample, strict=True)
        return Claim(texts, np.stack(vectors))
