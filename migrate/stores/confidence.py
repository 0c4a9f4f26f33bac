"""`confidence.npy` beside a translated store, and other files of numbers there, one a document in the store's order.

The confidence is the cosine to expect. The header of a file is not trusted.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.digests import function_name, function_of, hash_bytes, shown
from migrate.display import percent
from migrate.errors import StoreError
from migrate.files import read_file
from migrate.stores.base import Store
from migrate.stores.export import IDS_NAME, IdIndex, IdLookup
from migrate.vectors import Vectors

CONFIDENCE_NAME = "confidence.npy"
_ADVICE: Final = "translate again"


def read_row_values(
    path: Path, dtype: str, count: int, *, advice: str, recorded: str | None = None
) -> NDArray[Any] | None:
    """Return the numbers of a file, (count,), or None where there is none; `advice` is what to do where it is damaged.

    They are in the byte order of this machine, whatever that of `dtype` is, and may be changed. `recorded` is the
    hash that the manifest has, None where it has none.
    """
    if not path.exists():
        return None
    # Not by `np.load`, which takes pickles and archives too, and makes room for whatever size a header claims.
    try:
        content = read_file(path)
        file = io.BytesIO(content)
        np.lib.format.read_magic(file)
        shape, _, stored_dtype = np.lib.format.read_array_header_1_0(file)
        values = np.frombuffer(content, dtype=dtype, offset=file.tell())
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: the file is damaged; {advice}") from error
    if shape != (count,) or stored_dtype != np.dtype(dtype) or len(values) != count:
        raise StoreError(
            f"{path}: has {len(values)} numbers, {stored_dtype} of shape {shape}, for {count} documents; {advice}"
        )
    if recorded is None:
        return values.astype(values.dtype.newbyteorder("="))
    actual = hash_bytes(content, function=function_of(recorded, f"{path}: the manifest"))
    if actual != recorded:
        raise StoreError(
            f"{path}: its {function_name(actual)} {shown(actual)} is not that of the manifest, "
            f"{shown(recorded)}; the file was damaged or replaced: copy it again, or {advice}"
        )
    return values.astype(values.dtype.newbyteorder("="))


def stored_row_values(store: Store, name: str, dtype: str, *, advice: str) -> NDArray[Any] | None:
    """Return the numbers of a file beside a store, as `read_row_values`; None of a store that nothing lies beside."""
    folder = store.folder
    manifest = store.info.manifest
    count = store.info.count
    if folder is None:
        return None
    hashes = (None if manifest is None else manifest.store.beside_hashes) or {}
    index = IdIndex.load(folder / IDS_NAME)  # of a field: its records come and go
    if index is None:
        n_written = count
    else:
        n_written = len(index)
    values = read_row_values(folder / name, dtype, n_written, advice=advice, recorded=hashes.get(name))
    if index is None or values is None:
        return values
    rows = IdLookup(index).rows_of(store.ids(range(count)))
    # `IdLookup` gives -1 to a record that came after the field was written: nothing is known of its vector.
    nothing = np.array([np.nan if values.dtype.kind == "f" else 0], values.dtype)
    return np.concatenate([values, nothing])[rows]  # -1 is the last


def read_confidence(folder: Path, count: int) -> Vectors | None:
    """Read the confidence of each document of a store, (count,); None if it has none. Raises as `read_row_values`."""
    return read_row_values(folder / CONFIDENCE_NAME, "<f4", count, advice=_ADVICE)


LEAST_SPEARMAN = 0.2
"""Below this the confidence is not to be used: it hardly tells good translations from bad ones."""


@dataclass(frozen=True, slots=True)
class Uncovered:
    """Documents unlike those that the stitch was fitted on: less confident than 99 % of the sample, held out.

    `examples` are the ids of the least confident ones.
    """

    count: int
    of: int
    lowest: float
    examples: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The figures for a person."""
        share = 0.0
        if self.of:
            share = self.count / self.of
        examples = ""
        if self.examples:
            examples = f", such as {', '.join(map(repr, self.examples))}"
        return (
            f"{self.count:,} of {self.of:,} documents ({percent(share)}) lie outside what the sample covers{examples}: "
            f"their confidence is below {self.lowest:.2f}, as it was for only 1 % of the sample when held out"
        )


def unreliable(spearman: float) -> str:
    """Return a sentence that a confidence with this rank correlation is not to be used."""
    return (
        f"the confidence is not to be used: it ranks held-out documents by their true cosine with Spearman "
        f"{spearman:.2f}, below {LEAST_SPEARMAN}"
    )


def stored_confidence(store: Store) -> Vectors | None:
    """Read the confidence of each document of a store, (count,); None if nothing lies beside it, or no confidence.

    Raises a StoreError where `confidence.npy` is damaged, of another store, or not what the manifest has the hash of.
    """
    return stored_row_values(store, CONFIDENCE_NAME, "<f4", advice=_ADVICE)


def true_rows(store: Store) -> NDArray[np.bool_]:
    """Return which rows have true vectors, (count,), as `stored_confidence` says: none where it says nothing."""
    values = stored_confidence(store)
    if values is None:
        return np.zeros(store.info.count, dtype=bool)
    # Whoever writes a true vector notes exactly 1 for it.
    is_true: NDArray[np.bool_] = values == 1
    return is_true


def distrust(store: Store) -> str | None:
    """Return why the confidence of a translated store is not to be used; None if it is, or nobody measured it."""
    manifest = store.info.manifest
    return distrust_of(manifest.store.confidence_spearman if manifest else None)


def distrust_of(spearman: float | None) -> str | None:
    """Return what `distrust` says of the rank correlation that was measured."""
    if spearman is None or spearman >= LEAST_SPEARMAN:
        return None
    return unreliable(spearman)


def usable_confidence(store: Store) -> Vectors | None:
    """Read the confidence as `stored_confidence` does; None if it is not to be used."""
    if distrust(store) is not None:
        return None
    return stored_confidence(store)


def find_outside(store: Store) -> Uncovered | None:
    """Find the documents of a translated store that its sample does not cover; raises as `stored_confidence`.

    None where nothing is known of it, or the confidence that would say so is not to be used.
    """
    manifest = store.info.manifest
    lowest = manifest.store.confidence_lowest if manifest else None
    values = usable_confidence(store)
    if lowest is None or values is None:
        return None
    return outside_of(values, lowest, lambda rows: store.get(rows).ids)


def outside_of(values: Vectors, lowest: float, ids_of: Callable[[NDArray[np.int64]], Sequence[str]]) -> Uncovered:
    """Find the documents whose confidence, (n,), is below `lowest`; `ids_of` some rows."""
    below = np.flatnonzero(values < lowest)
    worst = below[np.argsort(values[below], kind="stable")[:3]]
    return Uncovered(len(below), len(values), float(lowest), tuple(ids_of(worst)) if len(worst) else ())
