"""Pairs: the documents of a sample, embedded by both models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from migrate.embedders.base import Embedder
from migrate.sample.distinct import find_copies
from migrate.sample.draw import Sample
from migrate.stores.base import Store
from migrate.vectors import Progress, Vectors, check_vectors, no_progress

MOST_PAIRS = 20_000
"""Pairs that a stitch is fitted on, drawn at random from more: the systems to solve are held in memory, about 1.5 GB
for so many. Every true vector that was paid for is kept all the same."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """The same texts embedded by both models: row i of `source`, (n, p), and of `target`, (n, q), is `ids[i]`.

    `copies` has the ids of the store's other documents with one of these texts, and its row.
    """

    ids: tuple[str, ...]
    source: Vectors
    target: Vectors
    copies: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)


def embed_pairs(store: Store, embedder: Embedder, sample: Sample, *, progress: Progress = no_progress) -> Pairs:
    """Embed the sample with the target model, put its old vectors beside, and find who else has its texts.

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
    return Pairs(tuple(batch.ids), batch.vectors, target, find_copies(store, sample.documents))
