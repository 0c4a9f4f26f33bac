"""Speed and memory of translating and fitting, as ratios against named baselines in the same run.

    python benchmarks/speed.py [--kind flat|parquet] [--rows 500000] [--dim 384] [--folder DIR]

The first line names the processor. OMP_NUM_THREADS=1 measures both sides with one BLAS thread, and
OPENSSL_ia32cap=:~0x20000000 as on a processor without the SHA instructions.

1. Translating a flat index of ROWS x DIM (`migrate.translate`: read, check, map, normalise, write, fsync) against a
   bare numpy loop over the same memory-mapped rows (matrix product, normalise, write); or Parquet files of ids, texts
   of about 60 words and vectors, against a bare loop of pyarrow and numpy (read a row group, matrix product, normalise,
   write it with the same settings). Each in a process of its own, in turn; the rate ratio of each round and their
   median, that of the processor time, and the peak memory of the translation for ROWS and 2 x ROWS.
2. With a flat index: ridge with exact leave-one-out error over 13 penalties on 4,000 x 768 pairs against scikit-learn's
   RidgeCV on the same grid; both must agree on the penalty.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from migrate.stitch.text_features import Matrix
from migrate.threads import available_cores, thread_count

DIM = 384
BLOCK = 8_192
FILE_ROWS = 16 * BLOCK
HEADER_BYTES = 45
TEXTS = ["id", "text"]


def write_index(path: Path, rows: int, dim: int = DIM) -> None:
    """A flat inner-product index of random unit rows, as `faiss.write_index` would write it."""
    import faiss

    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        empty = faiss.serialize_index(faiss.IndexFlatIP(dim)).tobytes()
        header = bytearray(empty[:HEADER_BYTES])
        header[8:16] = rows.to_bytes(8, "little")
        header[37:45] = (rows * dim).to_bytes(8, "little")
        file.write(header)
        for start in range(0, rows, BLOCK):
            block = rng.standard_normal((min(BLOCK, rows - start), dim), dtype=np.float32)
            block /= np.linalg.norm(block, axis=1, keepdims=True)
            file.write(block.tobytes())


def write_parquet(folder: Path, rows: int, dim: int = DIM) -> None:
    """Files of ids, texts and random unit vectors, with row groups as this tool writes them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    words = np.array([rng.bytes(n).hex() for n in rng.integers(1, 6, 5_000)], dtype=object)
    kind = pa.list_(pa.float32(), dim)
    schema = pa.schema([("id", pa.string()), ("text", pa.string()), ("vector", kind)])
    folder.mkdir()
    for first in range(0, rows, FILE_ROWS):
        stop = min(first + FILE_ROWS, rows)
        with pq.ParquetWriter(
            folder / f"part-{first // FILE_ROWS:05d}.parquet", schema, use_dictionary=TEXTS
        ) as writer:
            for start in range(first, stop, BLOCK):
                count = min(BLOCK, stop - start)
                block = rng.standard_normal((count, dim), dtype=np.float32)
                block /= np.linalg.norm(block, axis=1, keepdims=True)
                ids = [str(row) for row in range(start, start + count)]
                texts = [" ".join(some) for some in words[rng.integers(len(words), size=(count, 60))]]
                vectors = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), type=kind)
                writer.write_table(pa.Table.from_arrays([pa.array(ids), pa.array(texts), vectors], schema=schema))


def make_stitch(index: Path, folder: Path) -> None:
    """A stitch for the store, fitted on 1,000 of its rows and a rotation of them."""
    from migrate.manifest import Manifest
    from migrate.selection import Pairs
    from migrate.steps.fit.job import fit_pairs
    from migrate.stores import open_store

    store = open_store(index)
    dim = store.info.dim
    batch = store.get(np.arange(0, store.info.count, store.info.count // 1_000)[:1_000])
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((dim, dim)))[0].astype(np.float32)
    pairs = Pairs(tuple(batch.ids), batch.vectors, batch.vectors @ rotation)
    manifest = Manifest("stitch", details={"fingerprint": store.snapshot().fingerprint})
    fit_pairs(pairs, ["ridge"], manifest=manifest, state={}, seed=0).save(folder)


def translate(index: Path, stitch: Path, output: Path) -> None:
    """What `lead-migrate translate` does."""
    import migrate
    from migrate.stitch.persistence import load_stitch
    from migrate.stores import open_store

    migrate.translate(open_store(index), load_stitch(stitch), output)


def matrix_of(stitch: Path) -> np.ndarray:
    """The matrix of a linear stitch."""
    from safetensors.numpy import load_file

    return load_file(stitch / "weights.safetensors")["stitch.matrix"]


def bare_loop(index: Path, stitch: Path, output: Path) -> None:
    """The least that could be done: no checks, no ids, no patching, no fsync."""
    matrix = matrix_of(stitch)
    rows = np.memmap(index, dtype="<f4", mode="r", offset=HEADER_BYTES).reshape(-1, len(matrix))
    with output.open("wb") as file:
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK] @ matrix
            block /= np.linalg.norm(block, axis=1, keepdims=True)
            file.write(block.data)


def bare_parquet(folder: Path, stitch: Path, output: Path) -> None:
    """The same for Parquet: no checks, no patching, no list of files, no fsync."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    matrix = matrix_of(stitch)
    output.mkdir()
    for path in sorted(folder.glob("*.parquet")):
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
        with pq.ParquetWriter(output / path.name, schema, use_dictionary=TEXTS) as writer:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                vectors = table.column("vector").combine_chunks().flatten().to_numpy().reshape(-1, len(matrix))
                block = vectors @ matrix
                block /= np.linalg.norm(block, axis=1, keepdims=True)
                lists = pa.FixedSizeListArray.from_arrays(pa.array(block.reshape(-1)), type=schema.field("vector").type)
                writer.write_table(table.set_column(table.schema.get_field_index("vector"), "vector", lists))


Job = Callable[[Path, Path, Path], None]


@dataclass(frozen=True)
class Kind:
    """A kind of store: the name of one, the function that writes it, and the bare loop over it."""

    name: str
    write: Callable[[Path, int, int], None]
    bare: Job
    baseline: str


KINDS = {
    "flat": Kind("index.faiss", write_index, bare_loop, "bare numpy loop"),
    "parquet": Kind("store", write_parquet, bare_parquet, "bare pyarrow loop"),
}


def run_job(kind: str, job: str, store: Path, stitch: Path, output: Path) -> dict[str, float]:
    """Seconds and peak MB of a job in a process of its own; imports and loading the interpreter are not timed."""
    done = subprocess.run(
        [sys.executable, __file__, "--kind", kind, "--job", job, str(store), str(stitch), str(output)],
        check=True,
        capture_output=True,
        text=True,
    )
    measured: dict[str, float] = json.loads(done.stdout)
    subprocess.run(["rm", "-rf", str(output)], check=True)
    return measured


def processor() -> str:
    """The name of the processor, its cores and BLAS threads, and whether OpenSSL sees its SHA instructions."""
    described = Path("/proc/cpuinfo")
    facts = described.read_text() if described.exists() else ""
    names = re.findall(r"^model name\s*: (.+)$", facts, re.MULTILINE) or [platform.processor()]
    sha = "without SHA instructions"
    if re.search(r"\bsha_ni\b|\bsha2\b", facts):
        sha = "SHA instructions hidden" if "OPENSSL_ia32cap" in os.environ else "with SHA instructions"
    return f"{names[0]}, {sha}; {available_cores()} cores, BLAS threads {thread_count()}"


def timed_job(kind: str, job: str, store: str, stitch: str, output: str) -> None:
    """The inside of `run_job`."""
    import migrate
    import migrate.databases
    import migrate.stitch.persistence

    getattr(migrate, "translate")  # noqa: B009 - what is imported by that is not timed
    run = translate if job == "translate" else KINDS[kind].bare
    if kind == "parquet":
        import pyarrow.parquet  # noqa: F401
    started, cpu_started = time.perf_counter(), time.process_time()
    run(Path(store), Path(stitch), Path(output))
    measured = {"wall": time.perf_counter() - started, "cpu": time.process_time() - cpu_started}
    print(json.dumps({**measured, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def compare_translation(folder: Path, kind_name: str, rows: int, dim: int, rounds: int) -> None:
    """Print the rate ratio of translating against the bare loop, and the peak memory."""
    kind = KINDS[kind_name]
    store, stitch = folder / kind.name, folder / "stitch"
    kind.write(store, rows, dim)
    make_stitch(store, stitch)
    measured: list[tuple[dict[str, float], dict[str, float]]] = []
    for number in range(rounds + 1):
        bare = run_job(kind_name, "bare", store, stitch, folder / "bare")
        own = run_job(kind_name, "translate", store, stitch, folder / "translated")
        if number:  # the first round fills the page cache
            measured.append((bare, own))
            ratio = bare["wall"] / own["wall"]
            print(f"  round {number}: bare {bare['wall']:.2f} s, translate {own['wall']:.2f} s, ratio {ratio:.2f}")
    bare_s, own_s = (statistics.median(side["wall"] for side in sides) for sides in zip(*measured, strict=True))
    print(f"translate {rows:,} x {dim}: {rows / own_s:,.0f} vectors/s, {kind.baseline} {rows / bare_s:,.0f}")
    ratios = {key: statistics.median(bare[key] / own[key] for bare, own in measured) for key in ("wall", "cpu")}
    print(f"rate ratio translate / bare loop: {ratios['wall']:.2f}; by processor time {ratios['cpu']:.2f}")
    big = folder / "twice" / kind.name
    big.parent.mkdir()
    subprocess.run(["rm", "-rf", str(store), str(stitch)], check=True)
    kind.write(big, 2 * rows, dim)
    make_stitch(big, stitch)
    twice = run_job(kind_name, "translate", big, stitch, folder / "translated")
    peak_mb, twice_mb = (peak["peak_mb"] for peak in (own, twice))
    print(f"peak memory of translate: {peak_mb:.0f} MB for {rows:,} rows, {twice_mb:.0f} MB for {2 * rows:,}")


def compare_ridge(rounds: int) -> None:
    """Print the ratio of processor time of RidgeCV against the ridge path."""
    from sklearn.linear_model import RidgeCV

    from migrate.stitch.linear import ridge_path

    rng = np.random.default_rng(0)
    source = rng.standard_normal((4_000, 768))
    target = source @ rng.standard_normal((768, 768)) * 0.03 + rng.standard_normal((4_000, 768))
    grid: Matrix = np.logspace(0, 6, 13)
    ratios = []
    for number in range(rounds + 1):
        started = time.process_time()
        theirs = RidgeCV(alphas=grid).fit(source, target)
        middle = time.process_time()
        ours = ridge_path(source - source.mean(axis=0), target - target.mean(axis=0), grid)
        ended = time.process_time()
        if number:
            ratios.append((middle - started) / (ended - middle))
            print(f"  round {number}: RidgeCV {middle - started:.2f} s, ridge path {ended - middle:.2f} s")
    difference = float(np.abs(theirs.coef_.T - ours.coefficients).max())
    same = "agree" if theirs.alpha_ == ours.best_lambda else "DISAGREE"
    print(f"penalties {same} ({ours.best_lambda:g}); greatest difference of a coefficient {difference:.1e}")
    print(f"processor time ratio RidgeCV / ridge with leave-one-out over 13 penalties: {statistics.median(ratios):.2f}")


def main() -> None:
    """Print both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, default="flat")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--dim", type=int, default=DIM)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to put the index (default: the temporary folder)")
    parser.add_argument("--job", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        timed_job(arguments.kind, *arguments.job)
        return
    print(processor())
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        compare_translation(Path(folder), arguments.kind, arguments.rows, arguments.dim, arguments.rounds)
    if arguments.kind == "flat":
        compare_ridge(arguments.rounds)


if __name__ == "__main__":
    main()
