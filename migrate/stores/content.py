"""Hashes of all that a store holds, by which a later run knows it again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from migrate.files import sha256_file
from migrate.stores.base import Store, what_differs
from migrate.stores.binary_reader import read_errors
from migrate.stores.confidence import CONFIDENCE_NAME
from migrate.stores.sources import SOURCES_NAME

_BESIDE: Final = "beside_sha256"


def content_of(store: Store) -> dict[str, Any]:
    """Return the fingerprint of a store and hashes of all it has, to the last vector; reads it whole.

    A report notes it of the stores that it is of, and `switch` asks whether these are the ones (`is_content`). Of what
    lies beside the store it has the files of numbers, one a document; an OutputError where one cannot be read.
    """
    ids, vectors = hashlib.sha256(), hashlib.sha256()
    for batch in store.scan():
        for doc_id in batch.ids:
            encoded = doc_id.encode(errors="surrogatepass")
            ids.update(len(encoded).to_bytes(8, "little") + encoded)
        vectors.update(batch.vectors.astype("<f4", copy=False).tobytes())
    hashes = {"ids_sha256": ids.hexdigest(), "vectors_sha256": vectors.hexdigest()}
    beside_hashes, folder = {}, store.folder
    for path in () if folder is None else (folder / CONFIDENCE_NAME, folder / SOURCES_NAME):
        if path.exists():
            with read_errors(path):
                beside_hashes[path.name] = sha256_file(path)
    return {**store.snapshot().fingerprint, **hashes, _BESIDE: beside_hashes}


def content_difference(recorded: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    """Return in words what tells a store's `content` from what was noted of it."""
    difference = what_differs(recorded, content)
    if difference is None and (recorded.get("texts_sha256") is None) != (content["texts_sha256"] is None):
        difference = "texts on one side only"
    return difference or "the same documents, other files of numbers beside them"


def is_content(recorded: object, content: Mapping[str, Any]) -> bool:
    """Return whether a store's `content` is what was noted of it; earlier versions noted nothing beside the store."""
    compared = {**content}
    if isinstance(recorded, Mapping) and _BESIDE not in recorded:
        del compared[_BESIDE]
    return recorded == compared
