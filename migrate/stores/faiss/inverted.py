"""Decodes inverted lists one by one, each with its ids. Runs in the child process only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.stores.faiss.codes import Packing, code_blocks, quantizer_decoder, standalone_decoder
from migrate.stores.faiss.coding import Coding, describe_coding
from migrate.stores.faiss.fourcc import METRICS
from migrate.stores.faiss.parts import (
    Part,
    Recipe,
    Rows,
    Stored,
    block_rows,
    borrow,
    class_name,
    graph_recipe,
    library,
    open_index,
)
from migrate.stores.frames import RefusedError

Codes = NDArray[np.uint8]

_REFUSED: Final = {
    "IndexIVFFlatDedup": "expected every vector in the lists, found IndexIVFFlatDedup, which keeps equal ones once and "
    "tells no one where; build the index as IVF,Flat first",
    "IndexIVFFlatPanorama": "expected vectors that lie one after the other, found IndexIVFFlatPanorama; build the "
    "index as IVF,Flat first",
    "IndexIVFSpectralHash": "expected codes that can be decoded, found IndexIVFSpectralHash, which keeps bits that no "
    "vector can be told from; re-embed the documents",
}


def decode_lists(index: Any) -> Part:
    """The vectors of an IndexIVF, in the order of the lists."""
    faiss = library()

    if class_name(index) in _REFUSED:
        raise RefusedError(_REFUSED[class_name(index)])
    if index.invlists is None or index.invlists.nlist != index.nlist:
        raise RefusedError(
            f"the index should have {index.nlist} inverted lists, but has none or another number; copy the file again"
        )
    coding = describe_coding(index)
    labels, stored = _labels(index)
    packed = isinstance(index, faiss.IndexIVFFastScan)
    chunks = _chunks(index, Packing(index) if packed else None)
    decode = _packed_decoder(index) if packed else _plain_decoder(index, coding)

    def rows() -> Iterator[Rows]:
        return (decode(lists, codes) for lists, codes in chunks())

    coding.check(lambda: (codes for _, codes in chunks()))
    remarks = (*_remarks(index), *coding.remarks)
    plain = coding.recipe["kind"] == "Flat" and class_name(index) == "IndexIVFFlat"
    return Part(
        class_name(index), _recipe(index, coding), rows, coding.exact, labels, remarks, stored if plain else None
    )


def _remarks(index: Any) -> Iterator[str]:
    quantizer = index.quantizer
    if quantizer.metric_type != index.metric_type and quantizer.metric_type in METRICS:
        yield f"the quantizer compares by {METRICS[quantizer.metric_type]}, the lists by {METRICS[index.metric_type]}"
    if quantizer.ntotal < index.nlist:
        yield f"a shard: the quantizer holds {quantizer.ntotal} of {index.nlist} centroids, the lists are whole"


def _recipe(index: Any, coding: Coding) -> Recipe:
    quantizer = open_index(index.quantizer)
    return {
        "kind": "IVF",
        "nlist": int(index.nlist),
        "nprobe": int(index.nprobe),
        "by_residual": bool(index.by_residual),
        "quantizer": _quantizer_recipe(quantizer, index.nlist, index.d),
        "code": coding.recipe,
    }


def _quantizer_recipe(quantizer: Any, nlist: int, dim: int) -> Recipe:
    faiss = library()

    # A file of `shard_ivf_index_centroids` has fewer centroids than lists; the lists are all there.
    if quantizer is None or quantizer.d != dim or not 0 < quantizer.ntotal <= nlist:
        raise RefusedError(f"the quantizer does not fit to {nlist} lists of dimension {dim}; copy the file again")
    metric = METRICS.get(quantizer.metric_type, "l2")
    if isinstance(quantizer, faiss.IndexHNSW):
        return {**graph_recipe(quantizer), "metric": metric}
    if isinstance(quantizer, faiss.MultiIndexQuantizer):
        return {"kind": "IMI", "M": int(quantizer.pq.M), "nbits": int(quantizer.pq.nbits)}
    if isinstance(quantizer, faiss.IndexFlat):  # finds the nearest centroid at least as well as any other
        return {"kind": "Flat", "metric": metric}
    return {"kind": "Other", "was": class_name(quantizer)}


def _labels(index: Any) -> tuple[NDArray[np.int64], Stored]:
    """The labels of all lists, and where the codes lie."""
    lists = index.invlists
    sizes = [lists.list_size(number) for number in range(index.nlist)]
    if sum(sizes) != index.ntotal:
        raise RefusedError(
            f"the index counts {index.ntotal} vectors, but its lists hold {sum(sizes)}: FAISS drops NaN "
            "vectors from the lists yet counts them; build it again without them"
        )
    labels = np.empty(sum(sizes), np.int64)
    stored = Stored([], [size for size in sizes if size], None)
    first = end = 0
    for number, size in enumerate(sizes):
        if size:
            ids, codes = lists.get_ids(number), lists.get_codes(number)
            labels[first : first + size] = borrow(ids, size)
            stored.addresses.append(int(codes))
            end = max(end, int(ids) + labels.itemsize * size)
            lists.release_ids(number, ids)
            lists.release_codes(number, codes)
            first += size
    return labels, replace(stored, end=end)


def _chunks(index: Any, packing: Packing | None) -> Callable[[], Iterator[tuple[NDArray[np.int64], Codes]]]:
    """Return what reads list numbers and codes, a few thousand rows at a time, for lists of any size."""
    lists = index.invlists
    if packing is None and lists.code_size != index.code_size:
        raise RefusedError(
            f"expected codes of {index.code_size} bytes in the lists, found {lists.code_size}; copy the file again"
        )

    def pieces() -> Iterator[tuple[int, Codes]]:
        for number in range(index.nlist):
            if count := lists.list_size(number):
                pointer = lists.get_codes(number)
                yield from ((number, codes) for codes in code_blocks(index, pointer, count, packing))
                lists.release_codes(number, pointer)

    return lambda: _gather(pieces(), block_rows(4 * index.d))


def _gather(pieces: Iterator[tuple[int, Codes]], step: int) -> Iterator[tuple[NDArray[np.int64], Codes]]:
    numbers: list[NDArray[np.int64]] = []
    waiting: list[Codes] = []
    rows = 0
    for number, codes in pieces:
        numbers.append(np.full(len(codes), number))
        waiting.append(codes.copy())
        rows += len(codes)
        if rows >= step:
            yield np.concatenate(numbers), np.concatenate(waiting)
            numbers, waiting, rows = [], [], 0
    if rows:
        yield np.concatenate(numbers), np.concatenate(waiting)


def _plain_decoder(index: Any, coding: Coding) -> Callable[[NDArray[np.int64], Codes], Rows]:
    """Decodes a list number in front of each code, which is what `sa_decode` wants."""
    if coding.recipe["kind"] == "Flat" and class_name(index) == "IndexIVFFlat":
        return lambda _, codes: np.ascontiguousarray(codes).view(np.float32)
    decode = standalone_decoder(index)
    width = index.coarse_code_size()

    def rows(lists: NDArray[np.int64], codes: Codes) -> Rows:
        prefix = lists.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width]
        return decode(np.hstack([prefix, codes]))

    return rows


def _packed_decoder(index: Any) -> Callable[[NDArray[np.int64], Codes], Rows]:
    decode = quantizer_decoder(index)
    if not index.by_residual:
        return lambda _, codes: decode(codes)
    centroids = np.stack([index.quantizer.reconstruct(number) for number in range(index.nlist)])
    return lambda lists, codes: decode(codes) + centroids[lists]
