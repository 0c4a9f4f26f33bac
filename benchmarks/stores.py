"""How fast indexes of each kind are read, beside the fastest simple way, and how much memory it takes.

    python benchmarks/stores.py [--rows 200000] [--factories Flat IVF256,Flat ...]

Each index of ROWS x 384 is built by FAISS and written; then, in processes of their own, warm, the better of two rounds:

- *ours*: `open_store` and every batch of it, with peak memory (FAISS decodes most kinds in a child of that process,
  started for each opening and included in the time, but not in the memory);
- *simple*: `faiss.read_index` and, where it is right, `reconstruct_n` into one array, loading included. It is right
  for none that has inverted lists with ids of its own, and aborts the process for some; see the notes in the table;
- for flat and IVF-flat: a copy of the vectors through a raw memory map, block by block, and the ratio to it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from migrate.report.terminal import table

DIM = 384
BLOCK = 8_192
FACTORIES = (
    "Flat", "IDMap2,Flat", "IVF256,Flat", "HNSW16,Flat", "SQ8", "SQfp16", "IVF256,SQ8", "PQ48", "IVF256,PQ48",
    "PQ48x4fs", "PCA128,Flat", "IVF256,PQ48,RFlat",
)  # fmt: skip
RAW = ("Flat", "IDMap2,Flat", "IVF256,Flat")
ABORTS = ("IDMap2,Flat",)


def build(factory: str, rows: int, path: Path) -> None:
    """An index of random unit rows with a few directions more frequent than others."""
    import faiss

    rng = np.random.default_rng(0)
    vectors = (
        rng.standard_normal((rows, DIM), dtype=np.float32)
        + rng.standard_normal((64, DIM), dtype=np.float32)[rng.integers(64, size=rows)]
    )
    faiss.normalize_L2(vectors)
    index = faiss.index_factory(DIM, factory, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors[: min(rows, 20_000)])
    index.add_with_ids(vectors, np.arange(rows) * 3) if factory.startswith("IDMap") else index.add(vectors)
    faiss.write_index(index, str(path))


def ours(path: Path) -> int:
    """Read through the store."""
    from migrate.stores import open_store

    return sum(len(batch) for batch in open_store(path).batches(BLOCK))


def simple(path: Path) -> int:
    """Read as most programs do."""
    import faiss

    index = faiss.read_index(str(path))
    if hasattr(index, "make_direct_map"):
        index.make_direct_map()
    return len(index.reconstruct_n(0, index.ntotal))


def raw(path: Path) -> int:
    """Copy the bytes of the vectors, or of as many bytes, through a memory map."""
    size = path.stat().st_size // (4 * DIM) * DIM
    rows = np.memmap(path, dtype="u1", mode="r", offset=path.stat().st_size - 4 * size)
    buffer = np.empty(BLOCK * DIM * 4, dtype="u1")
    for start in range(0, len(rows), len(buffer)):
        part = rows[start : start + len(buffer)]
        buffer[: len(part)] = part
    return size // DIM


JOBS: dict[str, Callable[[Path], int]] = {"ours": ours, "simple": simple, "raw": raw}


def run_job(job: str, path: Path) -> tuple[float, float]:
    """Best vectors/s of two rounds, and peak MB, of a job in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--job", job, str(path)], check=True, capture_output=True, text=True
    )
    facts = json.loads(done.stdout)
    return facts["rate"], facts["peak_mb"]


def inside(job: str, path: Path) -> None:
    """The inside of `run_job`."""
    rates = []
    for _ in range(2):
        started = time.perf_counter()
        rows = JOBS[job](path)
        rates.append(rows / (time.perf_counter() - started))
    print(json.dumps({"rate": max(rates), "peak_mb": peak_mb()}))


def peak_mb() -> float:
    """Greatest resident memory of this process; getrusage would count the process it was started from too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--factories", nargs="+", default=list(FACTORIES))
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        inside(arguments.job[0], Path(arguments.job[1]))
        return
    lines = [["index", "vectors/s", "peak MB", "simple way", "its peak MB", "raw copy", "ratio to raw"]]
    with tempfile.TemporaryDirectory() as folder:
        for factory in arguments.factories:
            path = Path(folder) / "index.faiss"
            build(factory, arguments.rows, path)
            rate, peak = run_job("ours", path)
            other = run_job("simple", path) if factory not in ABORTS else None
            copied = run_job("raw", path)[0] if factory in RAW else None
            lines.append([
                factory, f"{rate:,.0f}", f"{peak:.0f}",
                *((f"{other[0]:,.0f}", f"{other[1]:.0f}") if other else ("aborts", "")),
                *((f"{copied:,.0f}", f"{rate / copied:.2f}") if copied else ("", "")),
            ])  # fmt: skip
            print(table([lines[0], lines[-1]]), flush=True)
    print(f"\n{arguments.rows:,} x {DIM}\n\n{table(lines)}")


if __name__ == "__main__":
    main()
