"""Finds out before money is spent whether a store is of the target already: there is nothing to migrate then."""

from __future__ import annotations

from migrate.check.comparison import draw
from migrate.check.facts import manifest_finding
from migrate.embedders.base import Embedder
from migrate.embedders.cache import with_choosers
from migrate.embedders.kinds import split_spec
from migrate.errors import InputError, SpendingError, StoreError, VectorError
from migrate.manifest import MADE_BY_STAMP
from migrate.selection.model_match import FEW, SPOT_CHECKS, matches, tolerance_of
from migrate.stores.all_true import TRUE
from migrate.stores.base import Store


def is_recorded_of(store: Store, embedder: Embedder) -> bool | None:
    """Return whether a store's manifest says that every vector is of a model, with its prefixes and its dimension.

    None where it does not say, or only a stamp says so that nobody has checked. Of another model than the manifest's
    nothing but the name is asked.
    """
    manifest = store.info.manifest
    count = store.info.count
    if manifest is None or manifest.model is None:
        return None
    if manifest.store.made_by == MADE_BY_STAMP and not manifest.store.checked:
        return None
    recorded, named = (
        split_spec(spec)[1].rpartition("/")[2].lower() for spec in (manifest.model.spec, embedder.profile.spec)
    )
    if manifest.counts.get(TRUE, count) != count or recorded != named:
        return False
    if store.info.has_texts:
        embedder.fit(store.documents())
    return manifest_finding(manifest, embedder.quick_identity()).ok


def is_embedded_by(store: Store, embedder: Embedder) -> bool:
    """Return whether a store without a manifest that answers has the model's own vectors, by some of its texts.

    These are four, and others up to 32 where the four have the store's vectors: with so many the same, less than 9 % of
    the store has others (95 % confidence). Fewer documents tell nothing, nor does what an index keeps in short codes,
    nor texts that cannot be embedded. Raises RemoteError as the embedder.
    """
    tolerance = tolerance_of(store.info)
    if not store.info.has_texts or tolerance.coded or tolerance.loose or is_recorded_of(store, embedder) is not None:
        return False
    if store.info.count < FEW or embedder.quick_identity().dim != store.info.dim:
        return False
    try:
        embedder.fit(store.documents())
        _, claim = draw(store, SPOT_CHECKS, seed=0)
        model = with_choosers(embedder, ())
        if not matches(claim.take(range(len(claim))[:FEW]), model, FEW).is_right:
            return False  # of another model, and no more is paid
        remaining = claim.take(range(len(claim))[FEW:])
        return matches(remaining, model, SPOT_CHECKS).is_right
    except (InputError, StoreError, VectorError, SpendingError):
        return False
