"""`migrate.compare`: any number of stores of the same documents, each pair by every measure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations, product
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

import migrate.lab.compare.report  # noqa: F401 - how a comparison looks in a notebook
from migrate.errors import StoreError, UsageError
from migrate.lab.compare.comparison import Compared, LocalDocument, LocalDocuments, StoresComparison
from migrate.lab.compare.groups import Contrast, Groups, Positions, check_groups, contrast, layer_distances
from migrate.lab.compare.labels import judge_labels
from migrate.lab.similarity.measures import MEASURES
from migrate.lab.similarity.spaces import Space, chance_cka, compare_described, describe_space
from migrate.lab.similarity.stitching import RIDGE, Stitching, check_stitch, halves, judge_stitching
from migrate.report.terminal import cut
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.file_store import check_stamps
from migrate.vectors import Batch, Progress, Vectors, check_vectors, no_progress

Item = TypeVar("Item")

SAMPLE = 10_000
"""The largest number of documents to compare."""

FEWEST = 10
"""The smallest number of shared documents that a comparison needs."""

Keys = NDArray[np.uint64]


def compare(
    *stores: Store | str | Path,
    sample: int = SAMPLE,
    kind: Sequence[str] = (RIDGE,),
    labels: Mapping[str, str] | None = None,
    group: Positions | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> StoresComparison:
    """Compare the spaces of two or more stores over the documents that all of them have, matched by id.

    Parameters
    ----------
    stores
        Stores, or their paths.
    sample
        Documents to compare at most.
    kind
        Kinds of stitches, of vectors alone, to fit between every two stores: ridge, ols, procrustes, lowrank, mlp:2 ...
    labels
        Labels of documents, by id: classifiers trained on the first store's vectors are tried on those of the others.
    group
        Stores that belong together, by their places in `stores`, from 0; measures within are set against those between.
    seed
        Seed of the sample, and of what is random in the measures.
    progress
        Called with a step, how much of it is done, and how much there is.

    Raises
    ------
    UsageError
        There are fewer than two stores, a stitch is none of vectors alone, or a group has no stores or another's.
    InputError
        The stores share fewer than 10 ids, or labels; or a vector is zero or not finite.

    Examples
    --------
    >>> import migrate
    >>> migrate.compare("my-store", "my-store")
    <StoresComparison of my-store, my-store (2): 150 documents, CKA 1.000>
    """
    opened = [store if isinstance(store, Store) else open_store(store, verify=True) for store in stores]
    if len(opened) < 2:
        raise UsageError("a comparison needs two or more stores; name another")
    specs = list(dict.fromkeys(kind)) or [RIDGE]
    for spec in specs:
        check_stitch(spec)
    if group is not None:
        check_groups(group, len(opened))
    matched = match_documents(opened, sample=sample, seed=seed, progress=progress)
    spaces = [describe_space(vectors, seed=seed) for vectors in matched.vectors]
    downstream = None
    if labels is not None:
        rows = [row for row, doc_id in enumerate(matched.ids) if doc_id in labels]
        labels_of_rows = [labels[matched.ids[row]] for row in rows]
        downstream = judge_labels([vectors[rows] for vectors in matched.vectors], labels_of_rows, seed=seed)
    names = distinct_names([store.info.location for store in opened])
    fitted: dict[str, dict[tuple[int, int], Stitching]] = {spec: {} for spec in specs}
    positions = range(len(spaces))
    for spec, a, b in _counted(list(product(specs, positions, positions)), "fit stitches", progress):
        fitted[spec][a, b] = judge_stitching(spaces[a].vectors, spaces[b].vectors, stitch=spec, seed=seed)
    first = fitted[specs[0]]
    pairs = _counted(list(combinations(positions, 2)), "compare spaces", progress)
    local = tuple(_local_documents(space, matched.ids) for space in spaces)
    comparison = StoresComparison(
        stores=tuple(
            Compared(
                name,
                store.info.location,
                store.info.count,
                store.info.dim,
                store.info.exact,
                space.dimension,
                space.two_nn,
            )
            for name, store, space in zip(names, opened, spaces, strict=True)
        ),
        shared=matched.shared,
        documents=len(matched.ids),
        seed=seed,
        pairs={(a, b): compare_described(spaces[a], spaces[b], first[a, b], first[b, a], seed=seed) for a, b in pairs},
        stitches=fitted,
        chance=tuple(chance_cka(space.vectors, seed=seed) for space in spaces),
        local=local,
        texts=_first_texts(opened, matched, local),
        groups=None,
        downstream=downstream,
        notes=tuple(_notes(opened, names, matched)),
    )
    if group is None:
        return comparison
    return replace(comparison, groups=_compare_groups(comparison, group))


def distinct_names(locations: Sequence[str]) -> list[str]:
    """Return for each location its last parts that tell it from all others, and a number where it is the same.

    A location may hold what a terminal obeys; a name does not.
    """
    paths = [Path(location).absolute().parts for location in locations]
    depths = range(1, 1 + max(map(len, paths)))
    # Compared with the paths as a set, as one store may stand there twice
    depth = next(d for d in depths if len({path[-d:] for path in paths}) == len(set(paths)))
    names = [str(Path(*path[-depth:])) for path in paths]
    names = ["".join(char if char.isprintable() else "?" for char in name) for name in names]
    distinct = []
    for position, name in enumerate(names):
        earlier = names[:position].count(name)
        # A store may be compared with itself
        distinct.append(f"{name} ({earlier + 1})" if earlier else name)
    return distinct


def _compare_groups(comparison: StoresComparison, positions: Positions) -> Groups:
    members = list(positions.values())
    contrasts = []
    angles = np.empty(0)
    for measure in MEASURES:
        if measure.key in ("cka", "cka_distance", "jaccard", "relative_orientation", "r2", "penalty"):
            matrix = np.array(comparison.matrix(measure), dtype=float)
            contrasts.append(Contrast(measure.key, measure.title, *contrast(matrix, members, seed=comparison.seed)))
            if measure.key == "cka_distance":
                angles = matrix
    return Groups(positions, tuple(contrasts), layer_distances(angles, members))


def _local_documents(space: Space, ids: Sequence[str]) -> LocalDocuments:
    defined = np.flatnonzero(np.isfinite(space.local))
    # Stable, so that documents of one dimension come in the same order each time
    order = defined[np.argsort(space.local[defined], kind="stable")]
    lowest, highest = (
        tuple(
            LocalDocument(
                ids[space.near.query_rows[query]],
                float(space.local[query]),
                tuple(ids[row] for row in space.near.rows[query][:5]),
            )
            for query in queries[:20]
        )
        for queries in (order, order[::-1])
    )
    return LocalDocuments(lowest, highest)


def _first_texts(stores: Sequence[Store], matched: Matched, local: Sequence[LocalDocuments]) -> dict[str, str]:
    """Return how the listed documents begin, as the first store with texts has them."""
    number = next((number for number, store in enumerate(stores) if store.info.has_texts), None)
    if number is None:
        return {}
    listed = {
        doc_id
        for ends in local
        for document in (*ends.lowest, *ends.highest)
        for doc_id in (document.id, *document.neighbours)
    }
    rows = [row for row, doc_id in enumerate(matched.ids) if doc_id in listed]
    documents = stores[number].documents(matched.rows[number][rows])
    return {document.id: cut(" ".join(document.text.split()), 80) for document in documents}


def _counted(items: Sequence[Item], stage: str, progress: Progress) -> Iterator[Item]:
    """Yield the items, and report how many are done."""
    for done, item in enumerate(items):
        progress(stage, done, len(items))
        yield item
    progress(stage, len(items), len(items))


def _notes(stores: Sequence[Store], names: Sequence[str], matched: Matched) -> list[str]:
    notes = [
        f"{name} has {store.info.count - matched.shared:,} documents that not all of the others have; they are left out"
        for name, store in zip(names, stores, strict=True)
        if store.info.count > matched.shared
    ]
    if len(matched.ids) < matched.shared:
        notes.append(f"{len(matched.ids):,} of the {matched.shared:,} shared documents are compared, drawn by the seed")
    fitted_on = len(halves(len(matched.ids), seed=0)[0])
    named = list(zip(names, stores, strict=True))
    if wide := [f"{name} ({store.info.dim:,})" for name, store in named if store.info.dim > fitted_on]:
        notes.append(
            f"stitches are fitted on {fitted_on:,} documents, fewer than the dimensions of {', '.join(wide)}: what "
            "they reach says as much of that number as of the spaces"
        )
    if lossy := [name for name, store in named if not store.info.exact]:
        notes.append(f"the vectors of {', '.join(lossy)} are approximate, as the index keeps them")
    return notes


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """Documents by id: row i of each of `vectors`, (n, dim of the store), is `ids[i]`; `shared` is how many there are.

    `rows`, (n,) each, are their rows in the stores. The order is random, by the seed.
    """

    ids: tuple[str, ...]
    vectors: tuple[Vectors, ...]
    rows: tuple[NDArray[np.int64], ...]
    shared: int


def match_documents(
    stores: Sequence[Store], *, sample: int = SAMPLE, seed: int = 0, progress: Progress = no_progress
) -> Matched:
    """Read the vectors of up to `sample` documents that all of the stores have.

    Every id gets a 64-bit hash keyed by `seed`; those with the smallest hashes are the sample, in whatever order the
    stores are. Held in memory are 8 bytes a document of each store, and the sample's vectors.
    """
    keys = [_keys(store, seed, progress, number, len(stores)) for number, store in enumerate(stores)]
    # Sorted by the hash, so that the first ones are a random sample
    shared = reduce(np.intersect1d, keys)
    if len(shared) < FEWEST:
        names = ", ".join(store.info.location for store in stores)
        raise StoreError(
            f"{names}: the stores have {len(shared) or 'no'} ids in common; compare stores with at least {FEWEST}"
        )
    read = [_take(store, store_keys, shared[:sample]) for store, store_keys in zip(stores, keys, strict=True)]
    # After the reading: what was written to meanwhile is refused
    for store in stores:
        check_stamps(store)
    # Two ids with one hash are as good as impossible; if it happens they are left out.
    same = [row for row, ids in enumerate(zip(*(batch.ids for batch, _ in read), strict=True)) if len(set(ids)) == 1]
    ids = tuple(read[0][0].ids[row] for row in same)
    vectors = tuple(np.ascontiguousarray(batch.vectors[same]) for batch, _ in read)
    return Matched(ids, vectors, tuple(rows[same] for _, rows in read), len(shared))


def _keys(store: Store, seed: int, progress: Progress, number: int, total: int) -> Keys:
    """Return a hash for each row, (n,); equal ids have equal ones."""
    progress("match documents", number, total)
    secret = str(seed).encode()
    digests = bytearray()
    for batch in store.scan():
        for doc_id in batch.ids:
            # Keyed by the seed, so that another one draws other documents; ids of pickles may hold halves of characters
            digests += hashlib.blake2b(doc_id.encode("utf-8", "surrogatepass"), digest_size=8, key=secret).digest()
    return np.frombuffer(bytes(digests), dtype=np.uint64)


def _take(store: Store, keys: Keys, shared: Keys) -> tuple[Batch, NDArray[np.int64]]:
    """Return the vectors and the rows in the order of `shared`; the store has all of them."""
    # An id that a store has twice is read where it comes first
    distinct, first = np.unique(keys, return_index=True)
    rows = first[np.searchsorted(distinct, shared)].astype(np.int64)
    batch = store.get(rows)
    check_vectors(batch.ids, batch.vectors, source=store.info.location)
    return batch, rows
