"""Reads the vectors back out of any index that FAISS has loaded, part by part. Runs in the child process only.

`reconstruct_n` is never called: it aborts on id maps, and gives uninitialised memory for ids that are not 0, 1, 2 ...
The codes are decoded instead, and the inverted lists are walked.

Decodes indexes that keep one code after the other: scalar, product, additive quantizers, LSH. In the child only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.stores.faiss.coding import describe_coding
from migrate.stores.faiss.inverted import decode_lists
from migrate.stores.faiss.parts import (
    Part,
    Recipe,
    RefusedError,
    Rows,
    block_rows,
    borrow,
    class_name,
    flat_rows,
    library,
    open_index,
)
from migrate.stores.faiss.undo import undo_transforms

Codes = NDArray[np.uint8]

_BLOCK: Final = 32
_PLACES: Final = [*range(0, 16, 2), *range(1, 16, 2)]


def decode_codes(index: Any) -> Part:
    """The vectors of an IndexFlatCodes or IndexFastScan."""
    faiss = library()

    coding = describe_coding(index)
    packed = isinstance(index, faiss.IndexFastScan)
    chunks = packed_codes(index) if packed else plain_codes(index)
    decode = quantizer_decoder(index) if packed else standalone_decoder(index)

    def rows() -> Iterator[Rows]:
        return (decode(codes) for codes in chunks())

    coding.check(chunks)
    return Part(class_name(index), coding.recipe, rows, exact=coding.exact, remarks=coding.remarks)


def plain_codes(index: Any) -> Callable[[], Iterator[Codes]]:
    """The codes of an IndexFlatCodes in blocks, (n, code_size)."""
    count, size = index.ntotal, index.code_size
    if index.codes.size() < count * size:
        raise RefusedError(f"expected {count * size} bytes of codes, found {index.codes.size()}; copy the file again")
    step = block_rows(4 * index.d)

    def chunks() -> Iterator[Codes]:
        if count:
            codes = borrow(index.codes.data(), count * size).reshape(count, size)
            yield from (codes[first : first + step] for first in range(0, count, step))

    return chunks


def packed_codes(index: Any) -> Callable[[], Iterator[Codes]]:
    """The codes of an IndexFastScan, which lie interleaved, 32 or more rows together."""
    packing = Packing(index)
    expected = packing.bytes_of(index.ntotal)
    if index.codes.size() < expected:
        raise RefusedError(f"expected {expected} bytes of codes, found {index.codes.size()}; copy the file again")

    def chunks() -> Iterator[Codes]:
        if index.ntotal:
            content = borrow(index.codes.get(), expected)
            yield from packing.unpack(content, index.ntotal, block_rows(4 * index.d))

    return chunks


class Packing:
    """How FastScan interleaves codes of four bits (`pq4_fast_scan.cpp`): 32 rows together, in blocks of `bbs` rows.

    FAISS's own way back (`get_CodePacker`, `reconstruct`) is right for `bbs` = 32 only.
    """

    def __init__(self, index: Any) -> None:
        self._larger, self._pairs = index.bbs // _BLOCK, index.M2 // 2
        if index.bbs % _BLOCK or not self._larger or not self._pairs:
            raise RefusedError(
                f"expected FastScan blocks of a multiple of 32 rows, found {index.bbs}; copy the file again"
            )

    def bytes_of(self, count: int) -> int:
        """Bytes that so many rows take."""
        rows = self._larger * _BLOCK
        return int(-(-count // rows) * rows * self._pairs)

    def unpack(self, content: Codes, count: int, step: int) -> Iterator[Codes]:
        """Interleaved blocks as codes, about `step` of `count` at a time."""
        blocks = content.reshape(-1, self._pairs, self._larger, _BLOCK)
        at_once = max(1, step // (self._larger * _BLOCK))
        done = 0
        for first in range(0, len(blocks), at_once):
            codes = _unpack_blocks(blocks[first : first + at_once])
            yield codes[: count - done]
            done += len(codes)


def _unpack_blocks(blocks: Codes) -> Codes:
    """(n, pairs, larger, 32) interleaved bytes as (n * larger * 32, pairs) codes.

    Byte j < 16 holds the even quantizer's nibbles of rows p(j) and p(j) + 16, byte j + 16 the odd one's.
    """
    even, odd = blocks[..., :16][..., _PLACES], blocks[..., 16:][..., _PLACES]
    rows = np.concatenate([even & 15 | odd << 4, even >> 4 | odd & 0xF0], axis=-1)
    codes: Codes = np.ascontiguousarray(rows.transpose(0, 2, 3, 1)).reshape(-1, blocks.shape[1])
    return codes


def standalone_decoder(index: Any) -> Callable[[Codes], Rows]:
    """Decodes what `sa_encode` would have given."""
    return lambda codes: index.sa_decode(np.ascontiguousarray(codes))


def quantizer_decoder(index: Any) -> Callable[[Codes], Rows]:
    """Decodes the codes of a FastScan index with the quantizer inside.

    Its own `sa_decode` needs a pointer that is not set after reading and crashes the process.
    """
    faiss = library()

    quantizer = getattr(index, "pq", None) or getattr(index, "aq", None)
    if quantizer is None:
        raise RefusedError(f"expected FastScan codes of a product or additive quantizer, found {class_name(index)}")
    if isinstance(quantizer, faiss.AdditiveQuantizer) and not isinstance(quantizer, faiss.ProductQuantizer):
        quantizer = faiss.downcast_AdditiveQuantizer(quantizer)
    width = quantizer.code_size
    return lambda codes: quantizer.decode(np.ascontiguousarray(codes[:, :width]))


def decode_index(loaded: Any) -> Part:
    """What an index holds.

    Raises
    ------
    RefusedError
        Its vectors cannot be told, or not all of them are there.
    """
    index: Any = open_index(loaded)
    name = class_name(index)
    for family, decode in _families():
        if isinstance(index, family):
            part = decode(index)
            break
    else:
        raise RefusedError(f"expected an index whose vectors can be told, found {name}; {_ADVICE}")
    if part.labels is not None and len(part.labels) != index.ntotal:
        raise RefusedError(
            f"expected {index.ntotal} vectors in {name}, found {len(part.labels)}; FAISS drops NaN vectors from the "
            "lists yet counts them: build it again without them"
        )
    return part


_ADVICE = "write the vectors to a flat index first"


def _families() -> Iterator[tuple[Any, Callable[[Any], Part]]]:
    """The classes of FAISS with what reads them, derived ones before their bases."""
    faiss = library()

    yield faiss.IndexIDMap, _id_map
    yield faiss.IndexPreTransform, _transformed
    yield faiss.IndexRefine, _refined
    yield faiss.IndexHNSW, _hnsw
    yield faiss.IndexNSG, _nsg
    yield faiss.IndexIVF, decode_lists
    yield faiss.IndexFlat, _flat
    yield faiss.IndexFlatCodes, decode_codes
    yield faiss.IndexFastScan, decode_codes


def _flat(index: Any) -> Part:
    if class_name(index) not in {"IndexFlat", "IndexFlatL2", "IndexFlatIP"}:
        # Panorama lays the vectors out level by level, and FAISS gives zeros where they are asked for
        raise RefusedError(f"expected vectors that lie one after the other, found {class_name(index)}; {_ADVICE}")
    return Part(class_name(index), {"kind": "Flat"}, flat_rows(index), exact=True)


def _id_map(index: Any) -> Part:
    faiss = library()

    inner = decode_index(index.index)
    ids = faiss.vector_to_array(index.id_map).astype(np.int64)
    if ids.size != index.ntotal or index.index.ntotal != index.ntotal:
        raise RefusedError(
            f"expected {index.ntotal} ids, found {ids.size} for {index.index.ntotal} vectors; copy it again"
        )
    if inner.labels is not None:
        if inner.labels.size and not 0 <= inner.labels.min() <= inner.labels.max() < ids.size:
            raise RefusedError(f"expected inner labels 0 to {ids.size - 1}, found others; build the index again")
        ids = ids[inner.labels]
    kind = "IDMap2" if isinstance(index, faiss.IndexIDMap2) else "IDMap"
    chain = f"Index{kind}({inner.chain})"
    return inner.like(chain=chain, recipe={"kind": kind, "inner": inner.recipe}, labels=ids)


def _transformed(index: Any) -> Part:
    inner = decode_index(index.index)
    undo = undo_transforms(index)

    def rows() -> Iterator[Rows]:
        return (undo.apply(block) for block in inner.rows())

    return inner.like(
        chain=f"IndexPreTransform({', '.join([*undo.names, inner.chain])})",
        recipe={"kind": "PreTransform", "transforms": undo.recipes, "inner": inner.recipe},
        rows=rows,
        exact=inner.exact and undo.exact,
        remarks=(*undo.remarks, *inner.remarks),
    )


def _refined(index: Any) -> Part:
    base, refine = open_index(index.base_index), open_index(index.refine_index)
    if not base.ntotal == refine.ntotal == index.ntotal:
        raise RefusedError(
            f"expected {index.ntotal} vectors to search and to refine with, found {base.ntotal} and "
            f"{refine.ntotal}; build the index again"
        )
    kept = decode_index(refine)
    # the base is looked at for its settings; its rows are the worse copy
    found = decode_index(base)
    recipe = {"kind": "Refine", "base": found.recipe, "refine": kept.recipe, "k_factor": float(index.k_factor)}
    chain = f"{class_name(index)}({found.chain}, {kept.chain})"
    return kept.like(chain=chain, recipe=recipe)


def _hnsw(index: Any) -> Part:
    faiss = library()

    if index.storage is None:
        raise RefusedError(
            "expected the vectors after the graph, found none; save the index without IO_FLAG_SKIP_STORAGE"
        )
    stored = decode_index(index.storage)
    graph = index.hnsw
    neighbours = faiss.vector_to_array(graph.cum_nneighbor_per_level)
    recipe = {
        "kind": "HNSW",
        "M": int(neighbours[1]) // 2 if neighbours.size > 1 else 32,
        "efConstruction": int(graph.efConstruction),
        "efSearch": int(graph.efSearch),
        "storage": stored.recipe,
    }
    return _over_storage(index, stored, recipe)


def _nsg(index: Any) -> Part:
    if index.storage is None:
        raise RefusedError("expected the vectors after the graph, found none; save the index with its storage")
    stored = decode_index(index.storage)
    recipe = {
        "kind": "NSG",
        "R": int(index.nsg.R),
        "search_L": int(index.nsg.search_L),
        "GK": int(index.GK),
        "storage": stored.recipe,
    }
    return _over_storage(index, stored, recipe)


def _over_storage(index: Any, stored: Part, recipe: Recipe) -> Part:
    if index.storage.ntotal != index.ntotal:
        raise RefusedError(
            f"expected {index.ntotal} vectors below the graph, found {index.storage.ntotal}; copy it again"
        )
    return stored.like(chain=class_name(index), recipe=recipe)
