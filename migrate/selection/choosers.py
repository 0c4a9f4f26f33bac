"""Queries that chose documents do not judge: the one rule, wherever the vectors of these documents travel.

Whatever embeds documents because of a query makes that query a *chooser*: a log that a sample is drawn by, the pool of
an audit, live serving. A document that was embedded because a query finds it answers that query as the target model
would, whatever the other documents do: judged by its choosers, a store looks better than it is.

A chooser may come back in other words, where no digest knows it. So whatever bought the vectors, and whoever remembers
it, judges are held against what has true vectors (`look_for_the_chosen`): queries that have nothing to do with the
choice look for such a document hardly more often than it is among all, choosers in any words far more often. The store
has to be SAFE without these documents then.

Choosers are remembered as digests of their normal form, not as texts: by stitches and stores in their manifests, and by
the embedding cache beside each vector they bought. So a store that was copied without its manifest is still known by
its vectors. True vectors that nothing accounts for are of unknown origin.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.base import Embedder
from migrate.embedders.cache import UNKNOWN_QUERY, CachedEmbedder, cache_of
from migrate.manifest import MADE_BY_STAMP, Manifest
from migrate.selection.model_match import SAME, pairwise
from migrate.stores.base import Store
from migrate.stores.confidence import stored_confidence
from migrate.stores.file_store import index_is_verified
from migrate.vectors import Query, Vectors, query_key, unit_rows

RECORDED = "from the cache, with the queries that chose"
"""What the manifest of a filled-in store says; without these queries, in one of an earlier version."""

_EQUAL = 1 - 1e-6
"""Cosine from which on vectors are one and the same, as a store keeps them."""

_CODED = 0.99
"""The same of a store that keeps codes; in between is `SAME`."""

WHOLE = 0.99
"""Share, 0-1, of documents with true vectors from which on a store is as good as a full re-embed."""

USUAL = 0.15
"""By how much, 0-1, others may look for documents with true vectors more often than these are among all.

As users ask for the same again and again, held-out queries of a log do by up to 0.13, and those that chose by 0.29 to
0.65 (`benchmarks/independence.py`).
"""


def digest_of(query: Query) -> str:
    """Return 16 hexadecimal digits of SHA-256, equal for queries of one normal form (`query_key`)."""
    return _digest(query_key(query.text))


def digests_of(queries: Iterable[Query]) -> frozenset[str]:
    """Return the digests of some queries."""
    return frozenset(map(digest_of, queries))


def is_chooser(query: Query, choosers: Collection[str]) -> bool:
    """Return whether a query is among the choosers, by its normal form or by that of an earlier version."""
    # Manifests of earlier versions hold digests of another normal form
    earlier = " ".join(unicodedata.normalize("NFC", query.text.casefold()).split())
    return digest_of(query) in choosers or _digest(earlier) in choosers


def look_for_the_chosen(judges: float, share: float) -> bool:
    """Return whether judges may be choosers: a share of them, 0-1, looks for a document with a true vector.

    A `share` of all documents has one, 0-1. Where that is most, half of the way to all is too often.
    """
    return judges > share + min(USUAL, (1 - share) / 2)


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()[:16]


def choosers_of(*manifests: Manifest | None) -> frozenset[str]:
    """Return the digests of the queries that chose documents, as some manifests have them."""
    digests: set[str] = set()
    for manifest in filter(None, manifests):
        digests.update(manifest.chosen_by)
    return frozenset(digests)


def accounts_for_true(manifest: Manifest | None) -> bool:
    """Return whether a manifest says where all true vectors of its store came from."""
    if manifest is None or UNKNOWN_QUERY in manifest.chosen_by or manifest.store.made_by == MADE_BY_STAMP:
        return False  # who stamps a store knows its model, but not who chose what
    return manifest.store.filled_in in (None, RECORDED)


@dataclass(frozen=True, slots=True, eq=False)
class Choosers:
    """The queries that chose the true vectors of a store.

    Attributes
    ----------
    queries
        Digests of the queries that chose some.
    unexplained
        The rows, (n,), of which nothing says whether they are true, or why; None where all are accounted for.
    equal
        The cosine from which on a vector of the store is taken for the true one.
    """

    queries: frozenset[str] = frozenset()
    unexplained: NDArray[np.bool_] | None = None
    equal: float = 1.0


def choosers_in(store: Store, embedder: Embedder) -> Choosers:
    """Return who chose the true vectors of a store: by its manifest, else by the cache of its model, `embedder`.

    A vector that equals the one that the cache has of the document's text was chosen by whoever that one was embedded
    for.

    Raises StoreError: `confidence.npy` is damaged, or of another store. InputError: the cache is damaged.
    """
    manifest = store.info.manifest
    count = store.info.count
    is_true = np.zeros(count, bool)
    confidence = stored_confidence(store)
    if confidence is not None:
        is_true = confidence == 1
    queries = choosers_of(manifest)
    if manifest is not None and manifest.counts.get("true vectors", 0) >= WHOLE * count:
        # There was nothing to choose
        return Choosers()
    if not accounts_for_true(manifest):
        # Any row may be a true vector that some query chose, unless the cache says who it was
        rows = np.ones(count, bool)
        unexplained = np.ones(count, bool)
        equal = _least_cosine(store)
    elif index_is_verified(store):
        return Choosers(queries)
    else:
        # No hash shows that the index is as the manifest says: rows that it calls translated may be true by now
        rows = ~is_true
        unexplained = np.zeros(count, bool)
        equal = _EQUAL
    queries_of: dict[bytes | None, frozenset[str]] = {None: frozenset()}
    cache = cache_of(embedder)
    if store.info.has_texts and cache is not None:
        for row, choice in _cached_rows(store, cache, rows, equal):
            if choice is not None and choice not in queries_of:
                queries_of[choice] = cache.choosers([choice])
            unexplained[row] = UNKNOWN_QUERY in queries_of[choice]
    return Choosers(queries.union(*queries_of.values()), unexplained, equal)


def _least_cosine(store: Store) -> float:
    """Return the cosine from which on a vector of unknown origin is taken for the one in the cache."""
    if store.info.exact:
        return SAME
    return _CODED


def _cached_rows(
    store: Store, cache: CachedEmbedder, rows: NDArray[np.bool_], equal: float
) -> Iterator[tuple[int, bytes | None]]:
    """Yield those of some `rows`, (n,), whose vector is the one that the cache has, and the choice of each."""
    documents = store.documents()
    start = 0
    for batch in store.scan(batch_size=4_096):
        texts = list(islice(documents, len(batch)))
        positions = np.flatnonzero(rows[start : start + len(batch)])
        first = start
        start += len(batch)
        if not len(positions):
            continue
        texts_read = [texts[position] for position in positions]
        cached_vectors = cache.find(texts_read, "document")
        if not cached_vectors:
            continue
        choices = cache.choices(texts_read, "document")
        for number, vector in cached_vectors.items():
            if _is_same(batch.vectors[positions[number]], vector, equal):
                yield first + int(positions[number]), choices[number]


def _is_same(stored: Vectors, cached: Vectors, equal: float) -> bool:
    """Return whether a store holds a cached vector: up to its length and rounding, or up to a cosine below that."""
    if stored.shape != cached.shape or not (stored.any() and cached.any()):
        return False
    first, second = unit_rows(np.stack([stored, cached]).astype(np.float32))
    if equal < _EQUAL:
        return bool(first @ second >= equal)
    # A translation that is nearly perfect differs by more than these in one of hundreds of numbers.
    room = 4 * np.spacing(np.maximum(np.abs(first), np.abs(second)))
    return bool((np.abs(first - second) <= room).all())


def choosers_of_source(store: Store, embedder: Embedder, old: Vectors, new: Vectors) -> frozenset[str]:
    """Return who chose true vectors of the target model that a store to be translated holds already.

    `old` and `new` are its own vectors of a sample and those of the target model, `embedder`, (n, dim) each. Where some
    are equal, and not all, the store was filled in before; what comes of it flatters the queries of then.
    """
    if old.shape != new.shape or not len(old):
        return frozenset()
    share = float((pairwise(old, new) >= SAME).mean())
    # None: nothing was filled in. All: it is a full re-embed, and nobody chose
    if not 1 - WHOLE < share < WHOLE:
        return frozenset()
    return choosers_in(store, embedder).queries or frozenset({UNKNOWN_QUERY})
