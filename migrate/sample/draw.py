"""The sample: which documents are embedded again, and the pairs of old and new vectors that this gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.documents import Document
from migrate.embedders.base import Embedder
from migrate.errors import StoreError
from migrate.stores.base import Store
from migrate.vectors import Progress, Vectors, check_vectors, no_progress

SAMPLE_SIZE = 1_000


@dataclass(frozen=True, slots=True)
class Sample:
    """Documents of a store: `documents[i]` stands in row `rows[i]`; rows ascend."""

    rows: NDArray[np.int64]
    documents: tuple[Document, ...]


@dataclass(frozen=True, slots=True)
class Pairs:
    """The same texts embedded by both models: row i of `source`, (n, p), and of `target`, (n, q), is `ids[i]`."""

    ids: tuple[str, ...]
    source: Vectors
    target: Vectors

    def __len__(self) -> int:
        return len(self.ids)


def draw_sample(store: Store, size: int = SAMPLE_SIZE, *, seed: int = 0) -> Sample:
    """Draw documents at random, without those whose text is blank; all of them where the store has no more.

    Raises
    ------
    StoreError
        The store has no texts, or none that is not blank.
    """
    found: list[tuple[int, Document]] = []
    order = np.random.default_rng(seed).permutation(store.info.count)
    for rows in _blocks(order, size):
        found += [pair for pair in _documents_at(store, rows) if pair[1].text.strip()]
        if len(found) >= size:
            break
    if not found:
        raise StoreError(
            f"{store.info.path}: expected documents with texts to embed again, found none that is not blank"
        )
    found = sorted(found[:size], key=lambda pair: pair[0])
    return Sample(np.array([row for row, _ in found], dtype=np.int64), tuple(document for _, document in found))


def _blocks(order: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(order), size):
        yield order[start : start + size]


def _documents_at(store: Store, rows: NDArray[np.int64]) -> Sequence[tuple[int, Document]]:
    return list(zip(rows.tolist(), store.documents(rows), strict=True))


def embed_pairs(store: Store, embedder: Embedder, sample: Sample, *, progress: Progress = no_progress) -> Pairs:
    """Embed the sample with the target model and put its old vectors beside.

    Raises
    ------
    VectorError
        An old vector is zero or not finite.
    RemoteError, InputError
        As the embedder.
    """
    batch = store.take(sample.rows)
    check_vectors(batch.ids, batch.vectors, source=str(store.info.path))
    target = embedder.embed_documents(sample.documents, progress=progress)
    return Pairs(tuple(batch.ids), batch.vectors, target)
