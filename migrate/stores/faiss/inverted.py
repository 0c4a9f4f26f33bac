"""Decodes inverted lists one by one, each with its ids. Runs in the child process only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.stores.faiss.codes import Packing, quantizer_decoder, standalone_decoder
from migrate.stores.faiss.coding import Coding, describe_coding
from migrate.stores.faiss.parts import (
    Part,
    Recipe,
    RefusedError,
    Rows,
    block_rows,
    borrow,
    class_name,
    library,
    open_index,
)

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
    labels = _labels(index)
    packed = isinstance(index, faiss.IndexIVFFastScan)
    chunks = _packed(index) if packed else _plain(index)
    decode = _packed_decoder(index) if packed else _plain_decoder(index, coding)

    def rows() -> Iterator[Rows]:
        return (decode(lists, codes) for lists, codes in chunks())

    coding.check(lambda: (codes for _, codes in chunks()))
    return Part(class_name(index), _recipe(index, coding), rows, coding.exact, labels, coding.remarks)


def _recipe(index: Any, coding: Coding) -> Recipe:
    quantizer = open_index(index.quantizer)
    return {
        "kind": "IVF",
        "nlist": int(index.nlist),
        "nprobe": int(index.nprobe),
        "by_residual": bool(index.by_residual),
        "quantizer": _quantizer_recipe(quantizer, index.nlist),
        "code": coding.recipe,
    }


def _quantizer_recipe(quantizer: Any, nlist: int) -> Recipe:
    faiss = library()

    if quantizer is None or quantizer.ntotal != nlist:
        raise RefusedError(f"expected a quantizer of {nlist} centroids, found another; copy the file again")
    if isinstance(quantizer, faiss.IndexHNSW):
        links = faiss.vector_to_array(quantizer.hnsw.cum_nneighbor_per_level)
        graph = quantizer.hnsw
        return {
            "kind": "HNSW",
            "M": int(links[1]) // 2,
            "efConstruction": int(graph.efConstruction),
            "efSearch": int(graph.efSearch),
        }
    if isinstance(quantizer, faiss.MultiIndexQuantizer):
        return {"kind": "IMI", "M": int(quantizer.pq.M), "nbits": int(quantizer.pq.nbits)}
    # a flat quantizer finds the nearest centroid at least as well as any other
    return (
        {"kind": "Flat"} if isinstance(quantizer, faiss.IndexFlat) else {"kind": "Other", "was": class_name(quantizer)}
    )


def _labels(index: Any) -> NDArray[np.int64]:
    lists = index.invlists
    sizes = [lists.list_size(number) for number in range(index.nlist)]
    if sum(sizes) != index.ntotal:
        raise RefusedError(
            f"the index counts {index.ntotal} vectors, but its lists hold {sum(sizes)}: FAISS drops NaN "
            "vectors from the lists yet counts them; build it again without them"
        )
    labels = np.empty(sum(sizes), np.int64)
    first = 0
    for number, size in enumerate(sizes):
        if size:
            pointer = lists.get_ids(number)
            labels[first : first + size] = borrow(pointer, size)
            lists.release_ids(number, pointer)
            first += size
    return labels


def _plain(index: Any) -> Callable[[], Iterator[tuple[NDArray[np.int64], Codes]]]:
    """List numbers and codes, a few thousand rows at a time, for lists of any size."""
    step = block_rows(4 * index.d)
    lists, size = index.invlists, index.code_size
    if lists.code_size != size:
        raise RefusedError(f"expected codes of {size} bytes in the lists, found {lists.code_size}; copy the file again")

    def pieces() -> Iterator[tuple[int, Codes]]:
        for number in range(index.nlist):
            count = lists.list_size(number)
            if count:
                pointer = lists.get_codes(number)
                codes = borrow(pointer, count * size).reshape(count, size)
                yield from ((number, codes[first : first + step]) for first in range(0, count, step))
                lists.release_codes(number, pointer)

    return lambda: _gather(pieces(), step)


def _packed(index: Any) -> Callable[[], Iterator[tuple[NDArray[np.int64], Codes]]]:
    """The same for FastScan, whose lists are interleaved blocks."""
    step = block_rows(4 * index.d)
    lists, packing = index.invlists, Packing(index)

    def pieces() -> Iterator[tuple[int, Codes]]:
        for number in range(index.nlist):
            count = lists.list_size(number)
            if count:
                content = borrow(lists.get_codes(number), packing.bytes_of(count))
                yield from ((number, codes) for codes in packing.unpack(content, count, step))

    return lambda: _gather(pieces(), step)


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
