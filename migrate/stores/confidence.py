"""`confidence.npy` beside a translated store: for each document, in the store's order, the cosine to expect."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from migrate.errors import StoreError
from migrate.stores.base import Store
from migrate.vectors import Vectors

CONFIDENCE_NAME = "confidence.npy"


class ConfidenceFile:
    """Writes rows of the file in any order; what other writers have left in it stays. A context manager."""

    def __init__(self, folder: Path, count: int) -> None:
        self._file = os.open(folder / CONFIDENCE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (count,)})
        self._start = len(header.getvalue())
        os.truncate(self._file, self._start + 4 * count)
        _write(self._file, header.getvalue(), 0)

    def put(self, row: int, values: Vectors) -> None:
        """Write the values of rows `row` and on, (n,)."""
        _write(self._file, values.astype("<f4").tobytes(), self._start + 4 * row)

    def sync(self) -> None:
        """Make what was written durable."""
        os.fsync(self._file)

    def close(self) -> None:
        """Leave the file."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _write(descriptor: int, content: bytes, offset: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def read_confidence(folder: Path, count: int) -> Vectors | None:
    """The confidence of each document of a store, (count,), or None where it has none.

    Raises
    ------
    StoreError
        The file is damaged, or of another store.
    """
    path = folder / CONFIDENCE_NAME
    if not path.exists():
        return None
    # Not by `np.load`, which takes pickles and archives too, and makes room for whatever size a header claims.
    try:
        with path.open("rb") as file:
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            values = np.frombuffer(file.read(), dtype="<f4").astype(np.float32)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: expected one number a document, found a damaged file; translate again") from error
    if shape != (count,) or dtype != "<f4" or len(values) != count:
        raise StoreError(
            f"{path}: expected {count} numbers, one a document, found {dtype} of shape {shape}, {len(values)} in all; "
            "translate again"
        )
    return values


LEAST_SPEARMAN = 0.2
"""Below this the confidence is not to be used: it hardly tells good translations from bad ones."""

_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Outside:
    """Documents unlike those that the stitch was fitted on: less confident than 99 % of the sample, held out.

    `examples` are the ids of the least confident ones.
    """

    count: int
    of: int
    lowest: float
    examples: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """For a person."""
        share = self.count / self.of if self.of else 0.0
        such = f", such as {', '.join(map(repr, self.examples))}" if self.examples else ""
        return (
            f"{self.count:,} of {self.of:,} documents ({share:.1%}) lie outside what the sample covers{such}: their "
            f"confidence is below {self.lowest:.2f}, as that of 1 % of the sample was when it was held out"
        )


def unreliable(spearman: float) -> str:
    """For a person: that a confidence with this rank correlation is not to be used."""
    return (
        f"the confidence is not to be used: it ranks held-out documents by their true cosine with Spearman "
        f"{spearman:.2f}, below {LEAST_SPEARMAN}"
    )


def stored_confidence(store: Store) -> Vectors | None:
    """As `read_confidence`; None of a store that nothing lies beside."""
    folder = store.folder
    return None if folder is None else read_confidence(folder, store.info.count)


def distrust(store: Store) -> str | None:
    """Why the confidence of a translated store is not to be used; None where it is, or nobody measured it."""
    manifest = store.info.manifest
    spearman = manifest.store.confidence_spearman if manifest else None
    return None if spearman is None or spearman >= LEAST_SPEARMAN else unreliable(spearman)


def usable_confidence(store: Store) -> Vectors | None:
    """As `read_confidence`, and None where it is not to be used.

    Raises
    ------
    StoreError
        `confidence.npy` is damaged, or of another store.
    """
    return stored_confidence(store) if distrust(store) is None else None


def find_outside(store: Store) -> Outside | None:
    """The documents of a translated store that its sample does not cover.

    None where nothing is known of it, or the confidence that would say so is not to be used.

    Raises
    ------
    StoreError
        `confidence.npy` is damaged, or of another store.
    """
    manifest = store.info.manifest
    lowest = manifest.store.confidence_lowest if manifest else None
    values = usable_confidence(store)
    if lowest is None or values is None:
        return None
    below = np.flatnonzero(values < lowest)
    worst = below[np.argsort(values[below], kind="stable")[:_EXAMPLES]]
    return Outside(len(below), len(values), float(lowest), tuple(store.get(worst).ids) if len(worst) else ())
