"""The sound indexes that the fuzzer begins with, and the harm it does to them. Opens nothing."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

FACTORIES = (
    "IDMap2,Flat",
    "IVF8,Flat",
    "HNSW8,Flat",
    "IVF8,SQ8",
    "PQ4x4fs",
    "IDMap,IVF8,PQ4x4",
    "PCA6,SQ8",
    "PQ4x4,RFlat",
)
ROWS, DIM = 200, 8

Rows = NDArray[np.float32]


def sample() -> tuple[NDArray[np.int64], Rows]:
    """The ids and vectors that the sound indexes are made of."""
    return np.arange(ROWS, dtype=np.int64) * 3, np.random.default_rng(1).normal(size=(ROWS, DIM)).astype(np.float32)


def build_index(factory: str) -> bytes:
    """A sound index, as bytes; only an id map keeps the ids."""
    import faiss

    ids, rows = sample()
    index: Any = faiss.index_factory(DIM, factory)
    index.train(rows)
    index.add_with_ids(rows, ids) if factory.startswith("IDMap") else index.add(rows)
    content: bytes = faiss.serialize_index(index).tobytes()
    return content


def spoil(content: bytes, other: bytes, random: np.random.Generator) -> bytes:
    """Flip bits, cut, write an absurd count, or splice in a piece of another index."""
    spoiled = bytearray(content)
    # half of all harm is done to the first bytes, where the structure is told
    reach = min(256, len(spoiled)) if random.random() < 0.5 else len(spoiled)
    place = int(random.integers(0, reach - 8))
    kind = int(random.integers(0, 4))
    if kind == 0:
        for _ in range(int(random.integers(1, 4))):
            spoiled[int(random.integers(0, reach))] ^= 1 << int(random.integers(0, 8))
    elif kind == 1:
        del spoiled[place:]
    elif kind == 2:
        absurd = (-1, 0, 1, 1 << 31, 1 << 40, (1 << 63) - 1, ROWS + 1)[int(random.integers(0, 7))]
        struct.pack_into("<q", spoiled, place, absurd)
    else:
        start, size = int(random.integers(0, len(other))), int(random.integers(1, 200))
        spoiled[place : place + size] = other[start : start + size]
    return bytes(spoiled)


def spoiled_case(contents: dict[str, bytes], factory: str, seed: int, number: int) -> bytes:
    """The spoiled index of a case, whatever cases came before."""
    random = np.random.default_rng((seed, FACTORIES.index(factory), number))
    other = contents[FACTORIES[int(random.integers(0, len(FACTORIES)))]]
    return spoil(contents[factory], other, random)
