"""How well the confidence tells good translations from bad ones, on documents that no stitch was fitted on.

    python benchmarks/confidence.py DATA [--pairs 750] [--stitches ridge ...]

DATA is as `benchmarks/retrieval.py` reads it; the target space is `minilm`. For each set, source space and stitch:
Spearman's rank correlation of confidence and true cosine, as `fit` promises it and as it is on the documents that are
left, the mean confidence, the mean true cosine, and the share of the squared error that the least confident tenth has.
A stitch is judged inside its sample as `fit` judges one that was asked for by name. Mean over seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from retrieval import SETS, TARGET, Collection, load_space, read_texts

from migrate.datasets.beir import load_beir
from migrate.report.terminal import table
from migrate.stitch.base import Pairing
from migrate.stitch.confidence import spearman
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import select_stitch
from migrate.vectors import unit_rows

SPACES = ("wordpieces", "layer3-cls", "layer4-mean", "layer5-mean", "mpnet")
STITCHES = ("procrustes", "ridge", "lowrank", "kernel", "mlp:1", "ridge+text")
_HEAD = ("set and source", "stitch", "promised", "Spearman", "confidence", "true", "worst tenth")


def measure(spec: str, pairs: Pairing, rest: Pairing) -> NDArray[np.float64]:
    """The figures of a row, (5,)."""
    selection = select_stitch(pairs, specs=[spec])
    assert selection.stitch is not None and selection.confidence is not None
    found = pairs.fit(selection.stitch).predict(rest.source, rest.texts)
    judged = selection.confidence.of(found).astype(np.float64)
    cosine = np.einsum("ij,ij->i", unit_rows(found.vectors), unit_rows(rest.target)).astype(np.float64)
    error = 1 - cosine
    worst = np.argsort(judged, kind="stable")[: len(judged) // 10]
    share = error[worst].sum() / error.sum()
    return np.array([selection.confidence.spearman, spearman(judged, cosine), judged.mean(), cosine.mean(), share])


def rows_of(
    data: Path, name: str, spaces: Sequence[str], stitches: Sequence[str], n_pairs: int, seeds: Sequence[int]
) -> Iterator[list[str]]:
    """The rows of a set; texts are read where a stitch reads them."""
    beir = load_beir(data / name)
    collection = Collection(beir, tuple(beir.documents()))
    reading = {spec for spec in stitches if new_stitch(spec).reads_texts}
    texts = read_texts(collection, None) if reading else None
    target = load_space(data, name, TARGET, collection).documents
    for space in spaces:
        source = load_space(data, name, space, collection).documents
        for spec in stitches:
            every = Pairing(source, target, texts if spec in reading else None)
            orders = {seed: np.random.default_rng(seed).permutation(len(every)) for seed in seeds}
            figures = np.mean(
                [
                    measure(
                        spec,
                        replace(every.take(np.sort(order[:n_pairs])), seed=seed),
                        every.take(np.sort(order[n_pairs:])),
                    )
                    for seed, order in orders.items()
                ],
                axis=0,
            )
            ranks, means = (f"{value:.2f}" for value in figures[:2]), (f"{value:.3f}" for value in figures[2:4])
            yield [f"{name} {space}", spec, *ranks, *means, f"{figures[4]:.0%}"]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=750)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--spaces", nargs="+", default=list(SPACES))
    parser.add_argument("--stitches", nargs="+", default=list(STITCHES))
    arguments = parser.parse_args()
    rows = [
        row
        for name in arguments.sets
        for row in rows_of(arguments.data, name, arguments.spaces, arguments.stitches, arguments.pairs, arguments.seeds)
    ]
    print(f"\n{table([list(_HEAD), *rows])}\n\n{arguments.pairs} pairs, seeds {arguments.seeds}; the rest is held out")


if __name__ == "__main__":
    main()
