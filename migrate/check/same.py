"""Whether a store is of the target model already, so that there is nothing to migrate."""

from __future__ import annotations

from typing import Final

from migrate.check.comparison import agree, draw, tolerance_of
from migrate.check.facts import manifest_finding
from migrate.embedders.base import Embedder
from migrate.embedders.kinds import split_spec
from migrate.errors import InputError, SpendingError, StoreError, VectorError
from migrate.manifest import MADE_BY_STAMP
from migrate.selection import Sample
from migrate.stores.all_true import TRUE
from migrate.stores.base import Store
from migrate.vectors import Vectors

_FEW: Final = 4
_SAMPLE: Final = 32
"""With the vectors of so many texts all the same, less than 9 % of the store has others (95 % confidence)."""


def is_recorded_of(store: Store, embedder: Embedder) -> bool | None:
    """Whether a store's manifest says that every vector is of a model, with its prefixes and its dimension.

    None where it does not say, or only a stamp says so that nobody has checked. Of another model than the manifest's
    nothing but the name is asked.
    """
    manifest, count = store.info.manifest, store.info.count
    if manifest is None or manifest.model is None:
        return None
    if manifest.store.made_by == MADE_BY_STAMP and not manifest.store.checked:
        return None
    if manifest.counts.get(TRUE, count) != count or _name(manifest.model.spec) != _name(embedder.profile.spec):
        return False
    if store.info.has_texts:
        embedder.fit(store.documents())
    return manifest_finding(manifest, embedder.quick_identity()).ok


def _name(spec: str) -> str:
    return split_spec(spec)[1].rpartition("/")[2].lower()


def is_embedded_by(store: Store, embedder: Embedder) -> bool:
    """Whether a store without a manifest that answers has the model's own vectors, by some texts that are embedded.

    These are four, and others up to 32 where the four have the store's vectors. Fewer documents tell nothing, nor does
    what an index keeps in short codes, nor texts that cannot be embedded.

    Raises
    ------
    RemoteError
        As the embedder.
    """
    tolerance = tolerance_of(store.info)
    if not store.info.has_texts or tolerance.coded or tolerance.loose or is_recorded_of(store, embedder) is not None:
        return False
    if store.info.count < _FEW or embedder.quick_identity().dim != store.info.dim:
        return False
    try:
        embedder.fit(store.documents())
        sample, stored = draw(store, _SAMPLE, seed=0)
        return all(
            agree(stored[rows], _embedded(embedder, sample, rows), tolerance).all()
            for rows in (slice(0, _FEW), slice(_FEW, len(sample.documents)))
            if len(sample.documents[rows])
        )
    except (InputError, StoreError, VectorError, SpendingError):
        return False


def _embedded(embedder: Embedder, sample: Sample, rows: slice) -> Vectors:
    return embedder.chosen_by(()).embed_documents(sample.documents[rows])
