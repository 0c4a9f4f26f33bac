"""Reads the structure of a FAISS file without FAISS: headers, counts and labels, but no vector.

The layout is that of FAISS's `impl/index_write.cpp`; the files carry neither a checksum nor a version, so everything
that can contradict something else is held against it. Nothing is allocated for a count the file cannot hold.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.stores import fourcc
from migrate.stores.content import HEAD_BYTES, describe_content
from migrate.stores.cursor import FileCursor, malformed, read_errors
from migrate.stores.faiss_flat import expect_same_shape, read_flat, read_header
from migrate.stores.faiss_layout import Flat, Header, Hnsw, IdMap, Ivf, Layout, Plain
from migrate.stores.faiss_lists import NeedsFaissError, read_lists, skip_direct_map

_LARGEST_SETTING: Final = 1 << 31


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
            f"{cursor.path}: expected float vectors, found a binary index ({fourcc.BINARY_CLASS_NAMES[code]}); "
            "its vectors are bits, which no map between embedding spaces applies to: use the index of the float vectors"
        )
    if code in fourcc.PANORAMA:
        raise UnsupportedStoreError(
            f"{cursor.path}: expected vectors that lie one after the other, found {fourcc.CLASS_NAMES[code]} ({code}); "
            "write them to a flat index first"
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
            f"{cursor.path}: expected the vectors after the HNSW graph, found none; "
            "it was saved with IO_FLAG_SKIP_STORAGE: save it without"
        )
    if code not in fourcc.FLAT:
        found = fourcc.CLASS_NAMES.get(code, f"the code {code!r}")
        raise malformed(cursor.path, "flat vectors after the HNSW graph", found)
    return read_flat(cursor, code)


def _read_ivf(cursor: FileCursor, code: str) -> Ivf:
    header = read_header(cursor, code)
    nlist, nprobe = cursor.unpack("QQ", "nlist and nprobe")
    if not 0 < nprobe < _LARGEST_SETTING:
        raise malformed(cursor.path, "an nprobe of 1 or more", nprobe)
    quantizer = _read_quantizer(cursor, header)
    # A file of `shard_ivf_index_centroids` has fewer centroids than lists; the lists are all there.
    if quantizer.header.dim != header.dim or not 0 < quantizer.header.count <= nlist:
        found = f"{quantizer.header.count} of dimension {quantizer.header.dim}"
        raise malformed(cursor.path, f"{nlist} centroids of dimension {header.dim}", found)
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
