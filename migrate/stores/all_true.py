"""Stores made from another of which every vector is a true one: which those are, and whether one is as it was made."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from migrate.errors import UsageError
from migrate.manifest import Manifest, StoreFacts
from migrate.stores.base import Store
from migrate.stores.content import content_as_noted, content_of
from migrate.stores.file_store import index_is_verified
from migrate.stores.registry import open_store

TRUE: Final = "true vectors"
"""Under this name a manifest counts them."""


def is_all_true(store: Store) -> bool:
    """Return whether every vector is the store's own model's, as the command says that made the store."""
    manifest = store.info.manifest
    return (
        manifest is not None
        and manifest.model is not None
        and is_made_from_another(store)
        and 0 < store.info.count == manifest.counts.get(TRUE)
    )


def is_shortened(store: Store) -> bool:
    """Return whether a store was cut to fewer dimensions of the model of its source: true vectors that tell less."""
    manifest = store.info.manifest
    if manifest is None or manifest.model is None or manifest.source_model is None:
        return False
    source = manifest.source_model
    return manifest.model.spec == source.spec and manifest.model.dim < source.dim


def is_full_reembed(store: Store) -> bool:
    """Return whether every vector is the one that the store's model gives of the text, whole."""
    return is_all_true(store) and not is_shortened(store)


def is_made_from_another(store: Store) -> bool:
    """Return whether the manifest of a store says that it was translated or embedded from an older one."""
    return store.info.manifest is not None and "source rows" in store.info.manifest.inputs


def note_content(location: str) -> None:
    """Let the manifest of a new store say what it holds, where no hash of its files does: in a database."""
    store = open_store(location)
    manifest = store.info.manifest
    companions = store.companions
    if manifest is None or companions is None or not is_all_true(store) or index_is_verified(store):
        return
    # there is no place for a manifest: `switch` will ask for a report
    with suppress(UsageError):
        companions.keep(with_content(manifest, content_of(store)))


def keeps_as_made(store: Store, *, is_kept: bool) -> bool:
    """Return whether the vectors that another store keeps of this one are what its manifest was written for.

    In a database anybody may have changed them since. Where nothing `is_kept` there is nothing to vouch for.
    """
    if not is_kept or index_is_verified(store):
        return True
    if store.info.manifest is None:
        recorded = None
    else:
        recorded = store.info.manifest.store.content
    return recorded is not None and recorded == content_as_noted(recorded, content_of(store), store)


def with_content(manifest: Manifest, content: Mapping[str, Any] | None) -> Manifest:
    """Return the manifest with what its store holds, or, of one that is written anew, without."""
    details = {key: value for key, value in manifest.details.items() if key != "content"}
    return replace(manifest, details={**details, **StoreFacts(content=content).as_details()})


def is_as_made(store: Store, content: Mapping[str, Any]) -> bool:
    """Return whether a store, which holds `content`, is as its manifest was written for, to the last vector."""
    manifest = store.info.manifest
    if manifest is None:
        return False
    recorded = manifest.store.content
    return recorded == content_as_noted(recorded, content, store) or index_is_verified(store)
