"""Reads the structure of a FAISS file without FAISS: headers, counts and labels, but no vectors.

The layout is that of FAISS's `impl/index_write.cpp`. The files carry neither a checksum nor a version, so all facts
are checked against each other, and nothing is allocated for a count that the file is too short for.

`read_layout` starts with the header that every index has. `read_lists` finds the vectors and labels of inverted lists;
`find_lists` finds the second file of an index that keeps its lists on disk, and checks its size: FAISS maps that file
into memory, and one that is too short kills the process.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.stores.binary_reader import FileCursor, malformed, read_errors
from migrate.stores.faiss import fourcc
from migrate.stores.faiss.layout import FLOAT_BYTES, Flat, Header, Hnsw, IdMap, Ivf, Layout, Plain, Segments
from migrate.stores.sniff import HEAD_BYTES, describe_content

_LARGEST_DIM: Final = 1 << 20
_RESERVED: Final = 1 << 20


_LABEL_BYTES: Final = 8

_CODE: Final = b"ilod"
_LIST_ID_BYTES: Final = 8

_LARGEST_SETTING: Final = 1 << 31


def read_header(cursor: FileCursor, code: str) -> Header:
    """Read a header, of an index of the kind `code`; the code itself has been read."""
    name = fourcc.CLASS_NAMES[code]
    dim, count, first, second, trained, metric = cursor.unpack("iqqqBi", f"the header of {name}")
    if not 0 < dim <= _LARGEST_DIM:
        raise malformed(cursor.path, f"a dimension of 1 to {_LARGEST_DIM} in {name}", dim)
    if count < 0:
        raise malformed(cursor.path, f"a count of vectors in {name}", count)
    if (first, second) != (_RESERVED, _RESERVED) or trained not in {0, 1}:
        raise malformed(cursor.path, f"the header of {name}", "other bytes")
    if metric not in fourcc.METRICS:
        _refuse_metric(cursor.path, name, metric)
    if not trained:
        raise StoreError(f"{cursor.path}: the {name} is not trained; train and fill it first")
    return Header(code, dim, count, fourcc.METRICS[metric])


def _refuse_metric(path: Path, name: str, number: int) -> None:
    if number not in fourcc.OTHER_METRICS:
        raise malformed(path, f"a metric of FAISS in {name}", f"number {number}")
    raise UnsupportedStoreError(
        f"{path}: {name} uses the metric {fourcc.OTHER_METRICS[number]}, but only L2 and inner product "
        "are read; build the index with one of these first"
    )


def read_flat(cursor: FileCursor, code: str) -> Flat:
    """Read the header of a flat index and pass its vectors."""
    header = read_header(cursor, code)
    if (code, header.metric) in {("IxF2", "ip"), ("IxFI", "l2")}:
        raise malformed(cursor.path, f"the metric of {fourcc.FLAT[code]}", f"{header.metric!r}")
    (count,) = cursor.unpack("Q", "the count of numbers")
    if count != header.count * header.dim:
        raise malformed(cursor.path, f"{header.count} x {header.dim} numbers", count)
    return Flat(header, cursor.skip(count * FLOAT_BYTES, f"{header.count} vectors"))


def expect_same_shape(path: Path, outer: Header, inner: Header) -> None:
    """Make sure that an index and the one inside agree on count and dimension."""
    if (outer.dim, outer.count) != (inner.dim, inner.count):
        expected = f"{outer.count} vectors of dimension {outer.dim} in {fourcc.CLASS_NAMES[inner.code]}"
        raise malformed(path, expected, f"{inner.count} of dimension {inner.dim}")


class NeedsFaissError(Exception):
    """An index whose outermost header is fine, and whose vectors only FAISS itself can tell; not for users.

    Parameters
    ----------
    header
        The header.
    """

    def __init__(self, header: Header) -> None:
        super().__init__(header.code)
        self.header = header


def skip_direct_map(cursor: FileCursor) -> None:
    """Pass the map from labels to places: it is not needed, the lists are walked."""
    (kind,) = cursor.unpack("B", "the kind of direct map")
    if kind > 2:
        raise malformed(cursor.path, "a direct map of kind 0, 1 or 2", kind)
    cursor.vector(_LABEL_BYTES, "the direct map")
    if kind == 2:
        cursor.vector(2 * _LABEL_BYTES, "the direct map")


def read_lists(cursor: FileCursor, header: Header, nlist: int) -> tuple[Segments, NDArray[np.int64]]:
    """Where the vectors of all lists lie, and their labels in the same order."""
    kind = cursor.fourcc("the kind of inverted lists")
    if kind == "ilod":
        raise NeedsFaissError(header)
    if kind != "ilar":
        raise malformed(cursor.path, "inverted lists", f"the code {kind!r}")
    lists, code_bytes = cursor.unpack("QQ", "the shape of the inverted lists")
    row_bytes = header.dim * FLOAT_BYTES
    if (lists, code_bytes) != (nlist, row_bytes):
        raise malformed(cursor.path, f"{nlist} lists of {row_bytes} bytes a vector", f"{lists} of {code_bytes}")
    sizes = _read_sizes(cursor, nlist)
    # Python's integers: sums of hostile sizes overflow NumPy's
    stored = sum(sizes.tolist())
    if stored != header.count:
        advice = "FAISS drops NaN vectors from the lists yet counts them; build it again without them"
        raise malformed(cursor.path, f"{header.count} vectors in the lists", stored, advice)
    return _place_lists(cursor, sizes[sizes > 0].astype(np.int64), row_bytes)


def _read_sizes(cursor: FileCursor, nlist: int) -> NDArray[np.uint64]:
    """The sizes of the lists that are stored, in the order of the file."""
    form = cursor.fourcc("the form of the list sizes")
    (count,) = cursor.unpack("Q", "the count of list sizes")
    if form == "full" and count == nlist:
        return cursor.array("<u8", count, "list sizes")
    if form == "sprs" and count % 2 == 0 and count <= 2 * nlist:
        pairs = cursor.array("<u8", count, "list sizes").reshape(-1, 2)
        numbers = pairs[:, 0]
        if numbers.size and (numbers[-1] >= nlist or (numbers[1:] <= numbers[:-1]).any()):
            raise malformed(cursor.path, f"list numbers that rise up to {nlist - 1}", "others")
        return pairs[:, 1]
    raise malformed(cursor.path, f"the sizes of {nlist} lists", f"{count} numbers of form {form!r}")


def _place_lists(cursor: FileCursor, sizes: NDArray[np.int64], row_bytes: int) -> tuple[Segments, NDArray[np.int64]]:
    """Where each list's vectors begin, and all labels; a list is its vectors, then its labels."""
    first_rows = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    count = int(first_rows[-1])
    start = cursor.skip(count * (row_bytes + _LABEL_BYTES), f"{count} vectors and labels")
    offsets = start + first_rows[:-1] * (row_bytes + _LABEL_BYTES)
    labels = np.empty(count, np.int64)
    for first, last, offset in zip(first_rows[:-1].tolist(), first_rows[1:].tolist(), offsets.tolist(), strict=True):
        labels[first:last] = cursor.array_at(np.dtype("<i8"), offset + (last - first) * row_bytes, last - first)
    return Segments(first_rows, offsets, row_bytes), labels


@dataclass(frozen=True, slots=True)
class OnDiskLists:
    """The second file."""

    path: Path
    size: int


def find_lists(index: Path) -> OnDiskLists | None:
    """The file of inverted lists that belongs to an index; None where there is none."""
    with read_errors(index), index.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            place = content.find(_CODE)
        while place >= 0:
            cursor = FileCursor(index, file.fileno())
            cursor.position = place + len(_CODE)
            try:
                name, needed = _read_claims(cursor)
            except StoreError:
                # four letters among the vectors that happen to spell the code
                place = _next_place(file.fileno(), place + 1)
                continue
            return _checked(index, name, needed)
    return None


def _next_place(descriptor: int, start: int) -> int:
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
        return content.find(_CODE, start)


def _read_claims(cursor: FileCursor) -> tuple[str, int]:
    """The name of the file, and how many bytes it must have."""
    lists, code_bytes = cursor.unpack("QQ", "the shape of the lists")
    (count,) = cursor.unpack("Q", "the count of lists")
    if (count != 3 * lists and count != lists) or not lists:
        raise StoreError("other lists")
    table = cursor.array("<u8", 3 * lists, "lists").reshape(-1, 3)
    cursor.vector(2 * _LIST_ID_BYTES, "free places")
    at, length = cursor.vector(1, "the name")
    (total,) = cursor.unpack("Q", "the size")
    name = cursor.array_at(np.dtype(np.uint8), at, length).tobytes()
    row_bytes = code_bytes + _LIST_ID_BYTES
    ends = [offset + capacity * row_bytes for _, capacity, offset in table.tolist() if capacity]
    try:
        return name.decode(), max([total, *ends])
    except UnicodeDecodeError as error:
        raise StoreError("another name") from error


def _checked(index: Path, name: str, needed: int) -> OnDiskLists:
    # Beside the index only: a path out of a stranger's file must not lead to what is not his.
    path = index.with_name(Path(name).name or "lists")
    if not path.is_file():
        raise StoreError(
            f"{index}: its inverted lists should be in {path.name} beside it, but that file is missing; "
            f"copy or link {name} there"
        )
    size = path.stat().st_size
    if size < needed:
        raise StoreError(f"{path}: holds {size} of the {needed} bytes of inverted lists; copy it again")
    return OnDiskLists(path, size)


def read_layout(path: Path) -> Layout:
    """The structure of a FAISS file.

    Raises
    ------
    StoreError
        It is no FAISS file, or a damaged one.
    UnsupportedStoreError
        It is a FAISS file of a kind that is not read.
    NeedsFaissError
        It is one that only FAISS itself can read.
    OutputError
        The operating system refused.
    """
    with read_errors(path), path.open("rb", buffering=0) as file:
        cursor = FileCursor(path, file.fileno())
        head = os.pread(file.fileno(), HEAD_BYTES, 0)
        if not fourcc.is_known(head[:4].decode("latin-1")):
            raise StoreError(f"{path}: expected a FAISS index, found {describe_content(head)}")
        layout = _read_index(cursor)
        if cursor.remaining:
            raise malformed(path, f"the index to end at byte {cursor.position}", f"{cursor.remaining} more bytes")
        return layout


def _read_index(cursor: FileCursor) -> Layout:
    code = cursor.fourcc("the kind of index")
    if code not in fourcc.ID_MAPS:
        return _read_plain(cursor, code, "")
    header = read_header(cursor, code)
    try:
        inner = _read_plain(cursor, cursor.fourcc("the kind of the inner index"), f" inside {fourcc.ID_MAPS[code]}")
    except NeedsFaissError as error:
        expect_same_shape(cursor.path, header, error.header)
        raise NeedsFaissError(header) from error
    expect_same_shape(cursor.path, header, inner.header)
    count = cursor.unpack("Q", "the count of ids")[0]
    if count != header.count:
        raise malformed(cursor.path, f"{header.count} ids", count)
    id_map = cursor.array("<i8", count, "ids")
    if inner.labels is not None and count:
        _expect_positions(cursor.path, inner.labels, count)
    return IdMap(header, inner, id_map)


def _read_plain(cursor: FileCursor, code: str, where: str) -> Plain:
    if code in fourcc.FLAT:
        return read_flat(cursor, code)
    if code == fourcc.HNSW:
        return _read_hnsw(cursor, code)
    if code == fourcc.IVF:
        return _read_ivf(cursor, code)
    if code in fourcc.BINARY_CLASS_NAMES:
        raise UnsupportedStoreError(
            f"{cursor.path}: a binary index ({fourcc.BINARY_CLASS_NAMES[code]}); its vectors are bits, "
            "which no map between embedding spaces applies to: use the index of the float vectors"
        )
    if code in fourcc.PANORAMA:
        raise UnsupportedStoreError(
            f"{cursor.path}: the vectors of {fourcc.CLASS_NAMES[code]} ({code}) cannot be read; write them "
            "to a flat index first"
        )
    if code in fourcc.CLASS_NAMES:
        raise NeedsFaissError(read_header(cursor, code))
    raise malformed(cursor.path, f"a kind of FAISS index{where}", f"the code {code!r}")


def _read_hnsw(cursor: FileCursor, code: str) -> Hnsw:
    header = read_header(cursor, code)
    cursor.vector(8, "level probabilities")
    (levels,) = cursor.unpack("Q", "the count of levels")
    neighbours = cursor.array("<i4", levels, "neighbours per level")
    if levels < 2 or neighbours[1] < 2:
        raise malformed(cursor.path, "an HNSW graph with links", "none")
    for what, item_bytes, expected in (("levels", 4, header.count), ("link offsets", 8, header.count + 1)):
        _, count = cursor.vector(item_bytes, what)
        if count != expected:
            raise malformed(cursor.path, f"{expected} {what}", count)
    cursor.vector(4, "links")
    _, _, ef_construction, ef_search, _ = cursor.unpack("5i", "the settings of the graph")
    if ef_construction < 1 or ef_search < 1:
        raise malformed(cursor.path, "efConstruction and efSearch of 1 or more", f"{ef_construction} and {ef_search}")
    storage = _read_storage(cursor)
    expect_same_shape(cursor.path, header, storage.header)
    return Hnsw(header, storage, int(neighbours[1]) // 2, ef_construction, ef_search)


def _read_storage(cursor: FileCursor) -> Flat:
    code = cursor.fourcc("the kind of the stored vectors")
    if code == fourcc.NULL:
        raise StoreError(
            f"{cursor.path}: holds an HNSW graph but not its vectors, for it was saved with "
            "IO_FLAG_SKIP_STORAGE; save it without"
        )
    if code not in fourcc.FLAT:
        kind = fourcc.CLASS_NAMES.get(code, f"the code {code!r}")
        raise malformed(cursor.path, "flat vectors after the HNSW graph", kind)
    return read_flat(cursor, code)


def _read_ivf(cursor: FileCursor, code: str) -> Ivf:
    header = read_header(cursor, code)
    nlist, nprobe = cursor.unpack("QQ", "nlist and nprobe")
    if not 0 < nprobe < _LARGEST_SETTING:
        raise malformed(cursor.path, "an nprobe of 1 or more", nprobe)
    quantizer = _read_quantizer(cursor, header)
    # A file of `shard_ivf_index_centroids` has fewer centroids than lists; the lists are all there.
    if quantizer.header.dim != header.dim or not 0 < quantizer.header.count <= nlist:
        centroids = f"{quantizer.header.count} of dimension {quantizer.header.dim}"
        raise malformed(cursor.path, f"{nlist} centroids of dimension {header.dim}", centroids)
    skip_direct_map(cursor)
    segments, labels = read_lists(cursor, header, nlist)
    return Ivf(header, quantizer, nlist, nprobe, segments, labels)


def _read_quantizer(cursor: FileCursor, header: Header) -> Flat | Hnsw:
    code = cursor.fourcc("the kind of quantizer")
    if code not in fourcc.FLAT and code != fourcc.HNSW and code in fourcc.CLASS_NAMES:
        raise NeedsFaissError(header)
    quantizer = _read_plain(cursor, code, " as quantizer")
    if isinstance(quantizer, Ivf):  # its code was refused above
        raise malformed(cursor.path, "a flat quantizer", "inverted lists")
    return quantizer


def _expect_positions(path: Path, labels: NDArray[np.int64], count: int) -> None:
    if labels.min() < 0 or labels.max() >= count:
        raise malformed(
            path, f"inner labels 0 to {count - 1}", f"{labels.min()} to {labels.max()}", "build the index again"
        )
