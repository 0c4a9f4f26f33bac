"""Reads numbers beside a store, one a document, in a `.npy` whose header is not trusted."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.stores.base import Store


def read_row_values(
    path: Path, dtype: str, count: int, *, advice: str, sha256: str | None = None
) -> NDArray[Any] | None:
    """Return the numbers of a file, (count,), or None where there is none; `advice` is what to do where it is damaged.

    `sha256` is the one that the manifest has, None where it has none.
    """
    if not path.exists():
        return None
    # Not by `np.load`, which takes pickles and archives too, and makes room for whatever size a header claims.
    try:
        content = path.read_bytes()
        file = io.BytesIO(content)
        np.lib.format.read_magic(file)
        shape, _, found = np.lib.format.read_array_header_1_0(file)
        values = np.frombuffer(content, dtype=dtype, offset=file.tell())
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: expected one number a document, found a damaged file; {advice}") from error
    if shape != (count,) or found != np.dtype(dtype) or len(values) != count:
        raise StoreError(
            f"{path}: expected {count} numbers, one a document, found {found} of shape {shape}, {len(values)} in all; "
            f"{advice}"
        )
    if sha256 is not None and (actual := hashlib.sha256(content).hexdigest()) != sha256:
        raise StoreError(
            f"{path}: expected the SHA-256 of the manifest, {sha256[:12]}..., found {actual[:12]}...; the file was "
            f"damaged or replaced: copy it again, or {advice}"
        )
    return values


def stored_row_values(store: Store, name: str, dtype: str, *, advice: str) -> NDArray[Any] | None:
    """Return the numbers of a file beside a store, as `read_row_values`; None of a store that nothing lies beside."""
    folder, manifest, count = store.folder, store.info.manifest, store.info.count
    if folder is None:
        return None
    noted = (None if manifest is None else manifest.store.beside_sha256) or {}
    return read_row_values(folder / name, dtype, count, advice=advice, sha256=noted.get(name))
