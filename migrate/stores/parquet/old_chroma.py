"""Recognises folders of Chroma before 0.4, with all collections in one file of Parquet, and says how to read one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

from migrate.errors import StoreError
from migrate.stores.binary_reader import read_errors
from migrate.stores.documents.arrow import arrow_errors

_EMBEDDINGS: Final = "chroma-embeddings.parquet"
_COLLECTIONS: Final = "chroma-collections.parquet"
_COLLECTION: Final = "collection_uuid"
_TAKE_ONE: Final = (
    "import sys, pyarrow.parquet as p; "
    f"p.write_table(p.read_table(sys.argv[1], filters=[('{_COLLECTION}', '=', sys.argv[2])]), sys.argv[3])"
)
"""A program that writes the records of one collection to a file."""


def refuse_old_chroma(path: Path) -> None:
    """Raise a StoreError for such a folder, or for its file of records if there are several collections in it.

    The file of a single collection is Parquet like any other.
    """
    is_file = path.name == _EMBEDDINGS
    if is_file:
        embeddings = path
    else:
        embeddings = path / _EMBEDDINGS
    # without the names beside it, the folder is a translated store of such a file
    if not embeddings.is_file() or not (is_file or (path / _COLLECTIONS).is_file()):
        return
    names = _collections(embeddings)
    if len(names) > 1:
        listed = ", ".join(f"{name} ({key})" for key, name in names.items())[:400]
        command = f'python -c "{_TAKE_ONE}" {shlex.quote(str(embeddings))} {shlex.quote(next(iter(names)))} one.parquet'
        raise StoreError(
            f"{path}: Chroma before 0.4 wrote this, and it has {len(names)} collections: {listed}; write the one you "
            f"want to a file of its own, as in {command}, or move all to a Chroma of today with chroma-migrate"
        )
    if not is_file:
        location = shlex.quote(f"parquet:{embeddings}")
        raise StoreError(f"{path}: Chroma before 0.4 wrote this folder; give the file with its records, {location}")


def _collections(embeddings: Path) -> dict[str, str]:
    """Return the names of the collections that have records, by their keys; a key where no name is known."""
    import pyarrow.parquet

    collections = embeddings.with_name(_COLLECTIONS)
    with read_errors(embeddings), arrow_errors(embeddings):
        if _COLLECTION not in pyarrow.parquet.read_schema(embeddings).names:
            return {}
        column = pyarrow.parquet.read_table(embeddings, columns=[_COLLECTION]).column(_COLLECTION)
        keys = [str(key) for key in column.unique().to_pylist()]
    names: dict[str, str] = {}
    if collections.is_file():
        with read_errors(collections), arrow_errors(collections):
            rows = pyarrow.parquet.read_table(collections, columns=["uuid", "name"]).to_pylist()
            names = {str(row["uuid"]): str(row["name"]) for row in rows}
    return {key: names.get(key, key) for key in keys}
