"""Whether documents of low local dimension form coherent clusters, by texts that the space has not been asked about.

    python benchmarks/dimension.py DATA [--sets scifact nfcorpus] [--spaces minilm mpnet ...]

DATA is that of `benchmarks/retrieval.py`. The dimension near every document is the maximum likelihood estimate from its
20 nearest, as `lead-migrate compare` has it. How coherent its neighbourhood is, is the mean TF-IDF cosine of its text
with those of its 10 nearest documents: words that they share, whatever the space is.

Printed for each space: the mean dimension of the tenth of the documents where it is lowest, of all, and of the tenth
where it is highest; the coherence of the same three; Spearman's correlation of dimension and coherence with 95 %
bounds of a bootstrap over documents; and the share of the 10 nearest of documents of the lowest tenth that are of the
lowest tenth themselves, which is 0.1 by chance.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrate.datasets.beir import load_beir
from migrate.embedders import load_embedder
from migrate.lab.similarity.neighbours import DIMENSION_NEIGHBOURS, local_dimensions, mean_dimension
from migrate.report.terminal import table
from migrate.stitch.confidence import spearman
from migrate.stitch.nearest import find_nearest
from migrate.vectors import unit_rows

SETS = ("scifact", "nfcorpus")
SPACES = ("minilm", "mpnet", "layer5-mean", "layer4-mean", "wordpieces")
NEAREST = 10
DRAWS = 1_000


def coherence_of(texts: list[str], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean TF-IDF cosine of each text with those in its row of `rows`, (n, k)."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    weights = TfidfVectorizer(sublinear_tf=True, stop_words="english").fit_transform(texts)
    return np.array([(weights[near] @ weights[row].T).mean() for row, near in enumerate(rows)])


def correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> str:
    """Spearman's, with bounds."""
    rng = np.random.default_rng(0)
    drawn = [spearman(a[rows], b[rows]) for rows in rng.integers(0, len(a), size=(DRAWS, len(a)))]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return f"{spearman(a, b):+.3f} ({low:+.3f} to {high:+.3f})"


def rows_of(data: Path, name: str, space: str) -> Iterator[str]:
    """The cells of one space."""
    documents = list(load_beir(data / name).documents())
    vectors = load_embedder(f"file:{data / 'pairs' / f'{name}.{space}.npz'}").embed_documents(documents)
    near = find_nearest(unit_rows(vectors), DIMENSION_NEIGHBOURS)
    dimensions = local_dimensions(near)
    coherence = coherence_of([document.text for document in documents], near.rows[:, :NEAREST])
    known = np.flatnonzero(np.isfinite(dimensions))
    order = known[np.argsort(dimensions[known], kind="stable")]
    tenth = len(order) // 10
    parts = (order[:tenth], order, order[-tenth:])
    yield from (f"{mean_dimension(dimensions[part]):.1f}" for part in parts)
    yield from (f"{coherence[part].mean():.3f}" for part in parts)
    yield correlation(dimensions[known], coherence[known])
    yield f"{np.isin(near.rows[order[:tenth], :NEAREST], order[:tenth]).mean():.3f}"


def main() -> None:
    """Print a row for each set and space."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--spaces", nargs="+", default=SPACES)
    given = parser.parse_args()
    head = ["", "dim low", "all", "high", "coherence low", "all", "high", "Spearman", "low beside low"]
    rows = [[f"{name} {space}", *rows_of(given.data, name, space)] for name in given.sets for space in given.spaces]
    print(table([head, *rows]))


if __name__ == "__main__":
    main()
