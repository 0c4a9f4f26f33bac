"""Prints a hash of the ids and vectors that each kind of FAISS index is read as, to compare two versions of this tool.

    python benchmarks/faiss_rows.py make FOLDER
    python benchmarks/faiss_rows.py read FOLDER > ROWS

`make` builds each kind in tests/stores/faiss_support.py, alone and in an IDMap and an IDMap2, by both metrics, with
its inverted lists in a second file, and after rows were removed. `read` opens them: where two versions print the same
lines over one folder, they read the same ids and vectors, to the bit and in the same order. Training an index depends
on the machine, so the folder is made once.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError
from migrate.stores import open_store

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "stores"))

ROWS, DIM = 600, 32
METRICS = {"l2": faiss.METRIC_L2, "ip": faiss.METRIC_INNER_PRODUCT}
REMOVED = 100


def kinds() -> list[str]:
    """The factory strings of the table, and some plain kinds with other settings."""
    support = import_module("faiss_support").SUPPORT  # of the tests, which are no package
    return [row.factory for row in support] + ["IVF300,Flat", "IVF8_HNSW8,Flat", "HNSW12,Flat"]


def build(factory: str, metric: int, rows: NDArray[np.float32]) -> Any:
    """A trained index with the rows; ids of the user's choice where it takes any."""
    index: Any = faiss.index_factory(DIM, factory, metric)
    for part in parts(index):
        if hasattr(part, "do_polysemous_training"):
            part.do_polysemous_training = False
    index.train(rows)
    labels = np.random.default_rng(1).permutation(ROWS) * 5 - 40
    index.add_with_ids(rows, labels) if factory.startswith(("IDMap", "IVF", "IMI")) else index.add(rows)
    return index


def parts(index: Any) -> Iterator[Any]:
    """An index and those inside."""
    yield index
    for name in ("index", "base_index", "storage"):
        inner = getattr(index, name, None)
        if inner is not None:
            yield from parts(faiss.downcast_index(inner))


def make(folder: Path) -> None:
    """Build all indexes; what FAISS cannot build is left out."""
    faiss.omp_set_num_threads(1)
    rows = np.random.default_rng(8).normal(size=(ROWS, DIM)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for factory in kinds():
        own = np.round(rows * 100 + 100).astype(np.float32) if factory == "SQ8_direct" else rows
        for wrapped in (factory, f"IDMap,{factory}", f"IDMap2,{factory}"):
            for name, metric in METRICS.items():
                if factory.startswith("IDMap") and wrapped != factory:
                    continue
                with suppress(RuntimeError):
                    index = build(wrapped, metric, own)
                    write(index, folder / f"{wrapped} {name}")
                    vary(index, folder, f"{wrapped} {name}")


def vary(index: Any, folder: Path, name: str) -> None:
    """Write the index with fewer rows, and with its lists in a second file, where it can do that."""
    with suppress(RuntimeError):
        lists: Any = faiss.downcast_index(index)
        if isinstance(lists, faiss.IndexIVF):
            there = folder / f"{name} on disk"
            there.mkdir(parents=True)
            data: Any = faiss.OnDiskInvertedLists(lists.nlist, lists.code_size, str(there / "lists.ivfdata"))
            data.merge_from_1(lists.invlists)
            ours: Any = faiss.clone_index(lists)
            ours.replace_invlists(data, False)
            write(ours, there)
    with suppress(RuntimeError):
        index.remove_ids(np.arange(REMOVED, dtype=np.int64) * 5)
        write(index, folder / f"{name} removed")


def write(index: Any, folder: Path) -> None:
    """Write an index into a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    faiss.write_index(index, str(folder / "index.faiss"))


def read(folder: Path) -> Iterator[str]:
    """A line an index: its folder, how it is read, its shape, hashes of ids and of vectors."""
    for path in sorted(folder.iterdir()):
        try:
            store = open_store(path / "index.faiss")
        except StoreError:
            yield f"{path.name}: refused"
            continue
        ids, vectors = hashlib.sha256(), hashlib.sha256()
        for batch in store.scan(batch_size=97):
            ids.update("\n".join([*batch.ids, ""]).encode())
            vectors.update(batch.vectors.tobytes())
        info = store.info
        reading = f"{info.details['reading']} {info.count} x {info.dim} {info.metric} {info.details['factory']}"
        yield f"{path.name}: {reading} {ids.hexdigest()[:16]} {vectors.hexdigest()[:16]}"


def main() -> None:
    """Make the indexes, or read them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["make", "read"])
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    if arguments.do == "make":
        make(arguments.folder)
        return
    for line in read(arguments.folder):
        print(line, flush=True)


if __name__ == "__main__":
    main()
