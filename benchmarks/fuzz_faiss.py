"""Spoils FAISS indexes at random and opens them: each must be read as plausible vectors, or refused in one sentence.

    python benchmarks/fuzz_faiss.py [COUNT] [SEED]

Prints a line a kind of index: how many were read, how many refused, the longest time, the largest child in megabytes.
Exits 1 at the first outcome that is neither.
"""

from __future__ import annotations

import resource
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from migrate.errors import StoreError, VectorError
from migrate.stores import open_store

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
LONGEST_S = 60.0


@dataclass
class Tally:
    """What became of the spoiled indexes of one kind."""

    outcomes: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0


def build(factory: str) -> bytes:
    """A sound index, as bytes."""
    import faiss

    rows = np.random.default_rng(1).normal(size=(ROWS, DIM)).astype(np.float32)
    index: Any = faiss.index_factory(DIM, factory)
    index.train(rows)
    if factory.startswith("IDMap"):
        index.add_with_ids(rows, np.arange(ROWS, dtype=np.int64) * 3)
    else:
        index.add(rows)
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


def outcome(path: Path) -> str:
    """Open and read a store; "read", or the name of the error."""
    try:
        store = open_store(path)
        count = 0
        for batch in store.batches():
            count += len(batch)
            if batch.vectors.shape[1:] != (store.info.dim,) or batch.vectors.dtype != np.float32:
                return "broken batch"
    except (StoreError, VectorError) as error:
        return "refused" if "\n" not in str(error) and "expected" in str(error) else f"bad message: {error}"
    plausible = count == store.info.count and len(set(map(str, store.take(np.arange(count)).ids))) == count
    return "read" if plausible else "implausible"


def fuzz(count: int, seed: int, folder: Path) -> Iterator[tuple[str, Tally]]:
    """Spoil `count` indexes, equally many of each kind."""
    random = np.random.default_rng(seed)
    contents = {factory: build(factory) for factory in FACTORIES}
    for factory in FACTORIES:
        tally = Tally()
        for number in range(count // len(FACTORIES)):
            path = folder / "index.faiss"
            other = contents[FACTORIES[int(random.integers(0, len(FACTORIES)))]]
            path.write_bytes(spoil(contents[factory], other, random))
            started = time.perf_counter()
            tally.outcomes[outcome(path)] += 1
            tally.longest_s = max(tally.longest_s, time.perf_counter() - started)
            if set(tally.outcomes) - {"read", "refused"}:
                raise SystemExit(f"{factory}, number {number} of seed {seed}: {dict(tally.outcomes)}")
        yield factory, tally


def main() -> None:
    """Fuzz and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as folder:
        for factory, tally in fuzz(count, seed, Path(folder)):
            largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
            read, refused = tally.outcomes["read"], tally.outcomes["refused"]
            print(
                f"{factory:18} read {read:5}  refused {refused:5}  longest {tally.longest_s:5.2f} s  "
                f"largest child {largest} MB",
                flush=True,
            )
            if tally.longest_s > LONGEST_S:
                raise SystemExit(f"{factory}: an index took {tally.longest_s:.0f} s")


if __name__ == "__main__":
    main()
