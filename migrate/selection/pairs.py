"""Embeds a sample with the target model, and pairs the result with the old vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from migrate.embedders.base import Embedder
from migrate.selection.model_match import Claim, matches
from migrate.selection.sample import Sample, find_copies
from migrate.stores.base import Store
from migrate.vectors import Progress, Vectors, check_vectors, no_progress


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
    """Embed the sample with the target model, read its old vectors, and find other documents with its texts.

    A model behind an API has a few of the texts embedded again (`matches`): nothing is learned from a server that mixes
    up its texts, or from a cache of another model.

    Raises VectorError: an old vector is zero or not finite, or the model gives other vectors than before. RemoteError,
    InputError: as the embedder.
    """
    (pairs,) = embed_all_pairs([(store, sample)], embedder, source=store.info.location, progress=progress)
    return pairs


def embed_all_pairs(
    samples: Sequence[tuple[Store, Sample]], embedder: Embedder, *, source: str, progress: Progress = no_progress
) -> list[Pairs]:
    """Embed samples of several stores together, as `embed_pairs` does that of one; `source` is what holds them."""
    batches = [store.get(sample.rows) for store, sample in samples]
    for (store, _), batch in zip(samples, batches, strict=True):
        check_vectors(batch.ids, batch.vectors, source=store.info.location)
    documents = [document for _, sample in samples for document in sample.documents]
    vectors = embedder.embed_documents(documents, progress=progress)
    matches(Claim(documents, vectors), embedder, past_cache=True).require(source)
    ends = np.cumsum([len(batch) for batch in batches])
    return [
        Pairs(tuple(batch.ids), batch.vectors, target, find_copies(store, sample.documents))
        for (store, sample), batch, target in zip(samples, batches, np.split(vectors, ends[:-1]), strict=True)
    ]
