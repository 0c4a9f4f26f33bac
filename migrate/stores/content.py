"""Hashes of all that a store holds, by which a later run knows it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from migrate.digests import BLAKE3, function_of, hash_file, new_hasher, noted, present_names, update_texts
from migrate.stores.base import Store, what_differs
from migrate.stores.binary_reader import read_errors
from migrate.stores.confidence import CONFIDENCE_NAME
from migrate.stores.old_checksums import SOURCES_NAME

_BESIDE: Final = "beside_hashes"


def content_of(store: Store, function: str = BLAKE3) -> dict[str, Any]:
    """Return the fingerprint of a store and hashes of all it has, to the last vector; reads it whole.

    A report notes it of the stores that it is of, and `switch` asks whether these are the ones (`is_content`). Of what
    lies beside the store it has the files of numbers, one a document; an OutputError where one cannot be read.
    """
    ids = new_hasher(function)
    vectors = new_hasher(function)
    for batch in store.scan():
        update_texts(ids, batch.ids)
        # The same bytes on a machine of the other byte order.
        vectors.update(np.ascontiguousarray(batch.vectors, "<f4").reshape(-1).view(np.uint8).data)
    content = {**store.snapshot(function).fingerprint, "ids_hash": noted(ids), "vectors_hash": noted(vectors)}
    beside_hashes = {}
    folder = store.folder
    for path in () if folder is None else (folder / CONFIDENCE_NAME, folder / SOURCES_NAME):
        if path.exists():
            with read_errors(path):
                beside_hashes[path.name] = hash_file(path, function)
    return {**content, _BESIDE: beside_hashes}


def content_difference(recorded: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    """Return in words what tells a store's `content` from what was noted of it."""
    recorded = present_names(recorded)
    difference = what_differs(recorded, content)
    if difference is None and (recorded.get("texts_hash") is None) != (content["texts_hash"] is None):
        difference = "texts on one side only"
    return difference or "the same documents, other files of numbers beside them"


def content_as_noted(recorded: object, content: Mapping[str, Any], store: Store) -> Mapping[str, Any]:
    """Return a store's `content` by the function of what was noted of it; reads the store again for another one."""
    if not isinstance(recorded, Mapping):
        vectors_hash = None
    else:
        vectors_hash = present_names(recorded).get("vectors_hash")
    if not isinstance(vectors_hash, str):
        return content
    function = function_of(vectors_hash, f"{store.info.location}: what was noted of it")
    if function == BLAKE3:
        return content
    return content_of(store, function)


def is_content(recorded: object, content: Mapping[str, Any], store: Store) -> bool:
    """Return whether a store's `content` is what was noted of it; earlier versions noted nothing beside the store."""
    if not isinstance(recorded, Mapping):
        return False
    noted_content = present_names(recorded)
    compared = {**content_as_noted(recorded, content, store)}
    # What is not noted cannot differ: a report of an earlier version is to stay valid.
    if _BESIDE not in noted_content:
        del compared[_BESIDE]
    return noted_content == compared
