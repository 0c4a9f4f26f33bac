"""Numbers beside a store, one a document, in a `.npy` that is written by rows and read without trusting its header."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.files import sha256_file
from migrate.manifest import StoreFacts
from migrate.stores.base import Store

_ROWS_AT_ONCE: Final = 1 << 20


class RowValues:
    """Writes rows of the file in any order; what other writers have left in it stays. A context manager.

    Parameters
    ----------
    path
        The file.
    dtype
        Of each number, as NumPy writes it: `<f4`.
    count
        How many there are.
    """

    def __init__(self, path: Path, dtype: str, count: int) -> None:
        self._dtype = np.dtype(dtype)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": (count,)})
        self._start = len(header.getvalue())
        os.truncate(self._file, self._start + self._dtype.itemsize * count)
        _write(self._file, header.getvalue(), 0)

    def put(self, row: int, values: NDArray[Any]) -> None:
        """Write the values of rows `row` and on, (n,)."""
        _write(self._file, values.astype(self._dtype).tobytes(), self._start + self._dtype.itemsize * row)

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


def read_row_values(
    path: Path, dtype: str, count: int, *, advice: str, sha256: str | None = None
) -> NDArray[Any] | None:
    """The numbers of a file, (count,), or None where there is none; `advice` is what to do where it is damaged.

    `sha256` is what the manifest has noted of it, None where it has nothing.

    Raises
    ------
    StoreError
        The file is damaged, or of another store.
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


def place_row_values(scratch: Path, content: Path, order: NDArray[np.int64] | None) -> dict[str, Any]:
    """Put all numbers that lie in `scratch`, in the order of the source, beside the new store, in that of its rows.

    Whatever is kept of each document goes this way: rows of another index may lie in another order. `order` is that of
    the store's writer, see `StoreWriter.order`. Returns the details that the manifest of the new store has of them.
    """
    hashes = {}
    for path in sorted(scratch.glob("*.npy")):
        values = np.load(path, mmap_mode="r", allow_pickle=False)
        with RowValues(content / path.name, values.dtype.str, len(values)) as file:
            for start in range(0, len(values), _ROWS_AT_ONCE):
                rows = slice(start, start + _ROWS_AT_ONCE)
                file.put(start, values[rows] if order is None else values[order[rows]])
            file.sync()
        hashes[path.name] = sha256_file(content / path.name)
    return StoreFacts(beside_sha256=hashes).as_details()
