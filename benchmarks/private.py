"""What translation under encryption costs, and how exact it is, beside TenSEAL's own product of a vector and a matrix.

    python benchmarks/private.py DATA [--vectors 640] [--tenseal 3] [--pairs 1000] [--seed 0]

DATA holds `pairs/scifact.SPACE.npz` with `doc_ids`, `docs`, `query_ids` and `queries`. A ridge from layer5-mean to
minilm (384 -> 384) is fitted on some pairs; the first of the other documents are encrypted, translated and decrypted by
what `lead-migrate private` calls. Printed are milliseconds of CPU and bytes a vector, the largest difference to the
same translation in the clear, in float64, and for how many queries the ten nearest documents are the same ones in the
same order. TenSEAL's product is `CKKSVector.mm` at the same parameters.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from migrate.lab.private.ckks import DEGREE, PRIMES, SCALE
from migrate.lab.private.exchange import decrypt_store, encrypt_store, make_keyring, translate_ciphertext
from migrate.manifest import Manifest
from migrate.selection import Pairs
from migrate.steps.fit.job import fit_pairs
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.vectors import Vectors

T = TypeVar("T")
SOURCE, TARGET = "layer5-mean", "minilm"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Translation under encryption: CPU, bytes, error, top 10.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--vectors", type=int, default=640)
    parser.add_argument("--tenseal", type=int, default=3, metavar="N", help="vectors for TenSEAL's own product")
    parser.add_argument("--pairs", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    source, target = (
        dict(np.load(arguments.data / "pairs" / f"scifact.{space}.npz", allow_pickle=False))
        for space in (SOURCE, TARGET)
    )
    order = np.random.default_rng(arguments.seed).permutation(len(source["docs"]))
    rows, held_out = order[: arguments.pairs], order[arguments.pairs :][: arguments.vectors]
    old, new = (space["docs"].astype(np.float32) for space in (source, target))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        np.save(place / "old.npy", old[held_out])
        store = open_store(place / "old.npy")
        manifest = Manifest("stitch", details={"fingerprint": store.snapshot().fingerprint})
        pairs = Pairs(tuple(str(row) for row in rows), old[rows], new[rows])
        fitted = fit_pairs(pairs, ["ridge"], manifest=manifest, state={}, seed=arguments.seed)
        affine = fitted.stitch.affine(fitted.dim)
        assert affine is not None
        make_keyring(place / "keys")
        print(f"{len(held_out):,} vectors, {old.shape[1]} -> {fitted.dim}, ridge on {len(rows):,} pairs\n")
        print("step                          CPU ms a vector  bytes a vector")
        seconds, sent = timed(lambda: encrypt_store(store, place / "keys", place / "sent"))
        report("encrypt", seconds, len(held_out), sent.bytes)
        seconds, answer = timed(lambda: translate_ciphertext(place / "sent", fitted, place / "answer"))
        report("translate", seconds, len(held_out), answer.bytes)
        own = seconds / len(held_out)
        seconds, _ = timed(lambda: decrypt_store(place / "answer", store, place / "keys", place / "new"))
        report("decrypt", seconds, len(held_out), None)
        theirs = tenseal_s(old[held_out][: arguments.tenseal], affine.matrix)
        report("TenSEAL's own product", theirs * arguments.tenseal, arguments.tenseal, None)
        decrypted = read_all(open_store(place / "new").scan()).vectors
    clear = affine.of(old[held_out].astype(np.float64))
    clear *= fitted.norm / np.linalg.norm(clear, axis=1, keepdims=True)
    queries = target["queries"].astype(np.float64)
    same = (top_ten(queries, clear) == top_ten(queries, decrypted)).all(axis=1).mean()
    print(f"\ntranslating takes 1/{theirs / own:,.0f} of the CPU of TenSEAL's own product")
    print(f"largest difference to the translation in the clear: {np.abs(decrypted - clear).max():.1e}")
    print(f"same ten nearest documents in the same order: {same:.1%} of {len(queries):,} queries")


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds of CPU, of all threads, and what came of it."""
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def report(step: str, seconds: float, count: int, size: int | None) -> None:
    """Print a row."""
    print(f"{step:30}{1_000 * seconds / count:15,.2f}  {'' if size is None else f'{size / count:14,.0f}'}".rstrip())


def top_ten(queries: np.ndarray, documents: np.ndarray | Vectors) -> np.ndarray:
    """Rows of the ten documents with the greatest inner products, the best first: (n, 10)."""
    return np.argsort(-(queries @ documents.T), axis=1, kind="stable")[:, :10]


def tenseal_s(vectors: Vectors, matrix: np.ndarray) -> float:
    """Seconds of CPU that `CKKSVector.mm` takes for a vector."""
    import tenseal

    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, DEGREE, coeff_mod_bit_sizes=list(PRIMES))
    context.global_scale = SCALE
    context.generate_galois_keys()
    encrypted = [tenseal.ckks_vector(context, row.tolist()) for row in vectors]
    plain = matrix.tolist()
    seconds, _ = timed(lambda: [row.mm(plain) for row in encrypted])
    return seconds / len(vectors)


if __name__ == "__main__":
    main()
