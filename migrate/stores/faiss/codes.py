"""Decodes indexes that keep their codes in a row: scalar, product, additive quantizers, LSH. In the child only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.stores.faiss.coding import describe_coding
from migrate.stores.faiss.parts import Part, Rows, block_rows, borrow, class_name, library
from migrate.stores.frames import RefusedError

Codes = NDArray[np.uint8]

_BLOCK: Final = 32
_PLACES: Final = [*range(0, 16, 2), *range(1, 16, 2)]


def decode_codes(index: Any) -> Part:
    """The vectors of an IndexFlatCodes or IndexFastScan."""
    faiss = library()

    coding = describe_coding(index)
    packing = Packing(index) if isinstance(index, faiss.IndexFastScan) else None
    expected = index.ntotal * index.code_size if packing is None else packing.bytes_of(index.ntotal)
    if index.codes.size() < expected:
        raise RefusedError(f"expected {expected} bytes of codes, found {index.codes.size()}; copy the file again")
    decode = standalone_decoder(index) if packing is None else quantizer_decoder(index)

    def chunks() -> Iterator[Codes]:
        if index.ntotal:
            pointer = index.codes.data() if packing is None else index.codes.get()
            yield from code_blocks(index, pointer, index.ntotal, packing)

    def rows() -> Iterator[Rows]:
        return (decode(codes) for codes in chunks())

    coding.check(chunks)
    return Part(class_name(index), coding.recipe, rows, exact=coding.exact, remarks=coding.remarks)


def code_blocks(index: Any, pointer: Any, count: int, packing: Packing | None) -> Iterator[Codes]:
    """Yield codes that lie one after the other, or as they are packed, in blocks of about 4 MiB of vectors."""
    step = block_rows(4 * index.d)
    if packing is not None:
        yield from packing.unpack(borrow(pointer, packing.bytes_of(count)), count, step)
    else:
        codes = borrow(pointer, count * index.code_size).reshape(count, index.code_size)
        yield from (codes[first : first + step] for first in range(0, count, step))


class Packing:
    """The order in which FastScan interleaves codes of four bits (`pq4_fast_scan.cpp`): 32 rows, in blocks of `bbs`.

    FAISS's own way back (`get_CodePacker`, `reconstruct`) is right for `bbs` = 32 only.
    """

    def __init__(self, index: Any) -> None:
        self._larger, self._pairs = index.bbs // _BLOCK, index.M2 // 2
        if index.bbs % _BLOCK or not self._larger or not self._pairs:
            raise RefusedError(
                f"expected FastScan blocks of a multiple of 32 rows, found {index.bbs}; copy the file again"
            )

    def bytes_of(self, count: int) -> int:
        """Bytes that this many rows take."""
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
