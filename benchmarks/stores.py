"""How fast indexes of each kind are read, beside the fastest simple way, and how much memory it takes.

    python benchmarks/stores.py [--rows 200000] [--folder DIR] [--factories Flat IVF256,Flat ...]

Each index of ROWS x 384 (the kinds of `store_kinds.py`; a few that take long to build have fewer rows, as their column
says) is built by FAISS and written; then, in processes of their own, warm, the better of two rounds:

- *ours*: `open_store` and every batch of it. FAISS decodes most kinds in a child of that process, started for each
  opening and included in the time;
- *simple*: `faiss.read_index` and `reconstruct_n` into one array, loading included; of an id map that of the index
  inside, because its own aborts. Every 97th row is then held against ours: "wrong" where one differs by more than 1e-4;
- for kinds whose vectors lie plain in the file: a copy of as many bytes through a raw memory map, block by block.

Peak MB is the greatest resident memory of the process (VmHWM) plus that of its largest child (RUSAGE_CHILDREN), which
need not fall together: an upper bound. With --folder, indexes are kept there and not built again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from store_kinds import DIM, KINDS, Kind, build, kind_of

from migrate.report.terminal import table

BLOCK = 8_192
ROUNDS = 2
CHECKED_EVERY = 97
RAW = ("Flat", "IVF256,Flat", "IVF256_HNSW32,Flat", "HNSW16,Flat", "IDMap,Flat", "IDMap2,IVF256,Flat")
HEAD = ["index", "rows", "vectors/s", "peak MB", "simple way", "ours/simple", "its peak MB", "raw copy", "ours/raw"]
Facts = dict[str, Any]


def ours(path: Path) -> int:
    """Read through the store."""
    from migrate.stores import open_store

    return sum(len(batch) for batch in open_store(path).scan(batch_size=BLOCK))


def simple(path: Path) -> int:
    """Read as most programs do."""
    return len(reconstruct(path)[1])


def reconstruct(path: Path) -> tuple[Any, Any]:
    """Labels, and the vectors that `reconstruct_n` gives for them."""
    import faiss

    outer: Any = faiss.read_index(str(path))
    mapped = hasattr(outer, "id_map")
    index: Any = faiss.downcast_index(outer.index) if mapped else outer
    if hasattr(index, "make_direct_map"):
        index.make_direct_map()
    vectors = index.reconstruct_n(0, index.ntotal)
    return faiss.vector_to_array(outer.id_map) if mapped else np.arange(len(vectors)), vectors


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


def inside(job: str, path: Path) -> Facts:
    """Best vectors/s of the rounds, peak memory, and whether the vectors were right; in a process of its own."""
    rates = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        rows = JOBS[job](path)
        rates.append(rows / (time.perf_counter() - started))
    facts = {"rate": max(rates), "peak_mb": peak_mb(), "right": True}
    return {**facts, "right": is_right(path)} if job == "simple" else facts


def is_right(path: Path) -> bool:
    """Whether `reconstruct_n` gives about what the store gives."""
    from migrate.stores.faiss.store import FaissKind

    labels, vectors = reconstruct(path)
    store, chosen = FaissKind().open(str(path)), slice(None, None, CHECKED_EVERY)
    rows = {doc_id: row for row, doc_id in enumerate(store.ids(range(store.info.count)))}
    expected = store.get(np.array([rows[str(label)] for label in labels[chosen].tolist()])).vectors
    return bool(np.allclose(vectors[chosen], expected, rtol=0, atol=1e-4))


def peak_mb() -> float:
    """Greatest resident memory of this process and of its largest child.

    getrusage would count for this process the one that it was started from, so the kernel's own figure is taken.
    """
    own_kb = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
    return (own_kb + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024


def run_job(job: str, path: Path, *more: str) -> Facts | str:
    """What a job found in a process of its own, or how that process ended."""
    command = [sys.executable, __file__, "--job", job, str(path), *more]
    # threads that spin while they wait take a busy machine's time from each other
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if done.returncode < 0:
        return signal.Signals(-done.returncode).name
    if done.returncode:
        return f"raises: {done.stderr.strip().splitlines()[-1]}"
    facts: Facts = json.loads(done.stdout.splitlines()[-1])
    return facts


def measure(kind: Kind, path: Path) -> Iterator[str]:
    """The cells of a kind's row, after the count of rows."""
    mine, other = run_job("ours", path), run_job("simple", path)
    if isinstance(mine, str):
        raise SystemExit(f"{kind.factory}: {mine}")
    yield from (f"{mine['rate']:,.0f}", f"{mine['peak_mb']:.0f}")
    if isinstance(other, str):
        print(f"{kind.factory}: the simple way {other}")
        yield from (other.partition(":")[0], "", "")
    else:
        fits = f"{other['rate']:,.0f}", f"{mine['rate'] / other['rate']:.2f}", f"{other['peak_mb']:.0f}"
        yield from fits if other["right"] else ("wrong", "", fits[2])
    copied = run_job("raw", path) if kind.factory in RAW else ""
    yield from ("", "") if isinstance(copied, str) else (
        f"{copied['rate']:,.0f}", f"{mine['rate'] / copied['rate']:.2f}"
    )  # fmt: skip


def built(kind: Kind, rows: int, path: Path) -> int:
    """The rows of the index at a path, built in a process of its own unless it is there."""
    if not path.exists():
        started, part = time.perf_counter(), path.with_suffix(".part")
        facts = run_job("build", part, kind.factory, str(rows))
        if isinstance(facts, str):
            raise SystemExit(f"{kind.factory}: {facts}")
        part.rename(path)
        print(f"{kind.factory}: built in {time.perf_counter() - started:.0f} s", flush=True)
    return min(rows, kind.most)


def main() -> None:
    """Print a row as soon as it is known, and the table in the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--factories", nargs="+", default=[kind.factory for kind in KINDS])
    parser.add_argument("--folder", type=Path, help="keep the indexes here")
    parser.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        job, path, *more = arguments.job
        made = {"rows": build(kind_of(more[0]), int(more[1]), Path(path))} if more else inside(job, Path(path))
        print(json.dumps(made))
        return
    lines = [HEAD]
    with tempfile.TemporaryDirectory() as scratch:
        for kind in map(kind_of, arguments.factories):
            path = (arguments.folder or Path(scratch)) / f"{kind.factory}-{arguments.rows}.faiss"
            lines.append([kind.factory, f"{built(kind, arguments.rows, path):,}", *measure(kind, path)])
            print(table([HEAD, lines[-1]]), flush=True)
            if arguments.folder is None:
                path.unlink()
    print(f"\n{arguments.rows:,} x {DIM}\n\n{table(lines)}")


if __name__ == "__main__":
    main()
