"""Speed and memory of translating and fitting, as ratios against named baselines in the same run.

    python benchmarks/speed.py [--rows 500000] [--dim 384] [--folder DIR]

1. Translating a flat index of ROWS x DIM (`migrate.translate`: read, check, map, normalise, write, fsync) against a
   bare numpy loop over the same memory-mapped rows (matrix product, normalise, write). Each in a process of its own, in
   turn; the rate ratio of each round and their median, and the peak memory of the translation for ROWS and 2 x ROWS.
2. Ridge with exact leave-one-out error over 13 penalties on 4,000 x 768 pairs against scikit-learn's RidgeCV on the
   same grid; both must agree on the penalty.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from migrate.stitch.text_features import Matrix

DIM = 384
BLOCK = 8_192
HEADER_BYTES = 45


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


def make_stitch(index: Path, folder: Path) -> None:
    """A stitch for the index, fitted on 1,000 of its rows and a rotation of them."""
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


def bare_loop(index: Path, stitch: Path, output: Path) -> None:
    """The least that could be done: no checks, no ids, no patching, no fsync."""
    from safetensors.numpy import load_file

    matrix = load_file(stitch / "weights.safetensors")["stitch.matrix"]
    rows = np.memmap(index, dtype="<f4", mode="r", offset=HEADER_BYTES).reshape(-1, len(matrix))
    with output.open("wb") as file:
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK] @ matrix
            block /= np.linalg.norm(block, axis=1, keepdims=True)
            file.write(block.data)


JOBS: dict[str, Callable[[Path, Path, Path], None]] = {"translate": translate, "bare": bare_loop}


def run_job(job: str, index: Path, stitch: Path, output: Path) -> tuple[float, float]:
    """Seconds and peak MB of a job in a process of its own; imports and loading the interpreter are not timed."""
    done = subprocess.run(
        [sys.executable, __file__, "--job", job, str(index), str(stitch), str(output)],
        check=True,
        capture_output=True,
        text=True,
    )
    facts = json.loads(done.stdout)
    subprocess.run(["rm", "-rf", str(output)], check=True)
    return facts["seconds"], facts["peak_mb"]


def timed_job(job: str, index: str, stitch: str, output: str) -> None:
    """The inside of `run_job`."""
    import migrate.steps.translate.job  # noqa: F401 - what is imported here is not timed

    started = time.perf_counter()
    JOBS[job](Path(index), Path(stitch), Path(output))
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def compare_translation(folder: Path, rows: int, dim: int, rounds: int) -> None:
    """Print the rate ratio of translating against the bare loop, and the peak memory."""
    index, stitch = folder / "index.faiss", folder / "stitch"
    write_index(index, rows, dim)
    make_stitch(index, stitch)
    ratios, rates = [], []
    for number in range(rounds + 1):
        bare_s, _ = run_job("bare", index, stitch, folder / "bare")
        seconds, peak_mb = run_job("translate", index, stitch, folder / "translated")
        if number:  # the first round fills the page cache
            ratios.append(bare_s / seconds)
            rates.append((rows / seconds, rows / bare_s))
            print(f"  round {number}: bare {bare_s:.2f} s, translate {seconds:.2f} s, ratio {ratios[-1]:.2f}")
    own, bare = (statistics.median(side) for side in zip(*rates, strict=True))
    print(f"translate {rows:,} x {dim}: {own:,.0f} vectors/s, bare numpy loop {bare:,.0f}")
    print(f"rate ratio translate / bare loop: {statistics.median(ratios):.2f}")
    big = folder / "twice" / "index.faiss"
    big.parent.mkdir()
    index.unlink()
    write_index(big, 2 * rows, dim)
    subprocess.run(["rm", "-rf", str(stitch)], check=True)
    make_stitch(big, stitch)
    _, twice_mb = run_job("translate", big, stitch, folder / "translated")
    print(f"peak memory of translate: {peak_mb:.0f} MB for {rows:,} rows, {twice_mb:.0f} MB for {2 * rows:,}")


def compare_ridge(rounds: int) -> None:
    """Print the time ratio of RidgeCV against the ridge path."""
    from sklearn.linear_model import RidgeCV

    from migrate.stitch.linear import ridge_path

    rng = np.random.default_rng(0)
    source = rng.standard_normal((4_000, 768))
    target = source @ rng.standard_normal((768, 768)) * 0.03 + rng.standard_normal((4_000, 768))
    grid: Matrix = np.logspace(0, 6, 13)
    ratios = []
    for number in range(rounds + 1):
        started = time.perf_counter()
        theirs = RidgeCV(alphas=grid).fit(source, target)
        middle = time.perf_counter()
        ours = ridge_path(source - source.mean(axis=0), target - target.mean(axis=0), grid)
        ended = time.perf_counter()
        if number:
            ratios.append((middle - started) / (ended - middle))
            print(f"  round {number}: RidgeCV {middle - started:.2f} s, ridge path {ended - middle:.2f} s")
    difference = float(np.abs(theirs.coef_.T - ours.coefficients).max())
    same = "agree" if theirs.alpha_ == ours.best_lambda else "DISAGREE"
    print(f"penalties {same} ({ours.best_lambda:g}); greatest difference of a coefficient {difference:.1e}")
    print(f"time ratio RidgeCV / ridge with leave-one-out over 13 penalties: {statistics.median(ratios):.2f}")


def main() -> None:
    """Print both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--dim", type=int, default=DIM)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to put the index (default: the temporary folder)")
    parser.add_argument("--job", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        timed_job(*arguments.job)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        compare_translation(Path(folder), arguments.rows, arguments.dim, arguments.rounds)
    compare_ridge(arguments.rounds)


if __name__ == "__main__":
    main()
