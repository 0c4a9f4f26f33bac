"""What directions and probes are worth when they are carried to the new space: `lead-migrate carry` on real layers.

    python benchmarks/carry.py DATA [--set scifact] [--concepts 30] [--probes 10] [--pairs 1000] [--seed 0]

DATA holds BEIR folders and `pairs/SET.SPACE.npz` with `doc_ids` and `docs`. A concept is a word that 5 to 30 % of the
documents have: its direction is the mean vector of those that have it minus that of the others, its probe a logistic
regression. The target is minilm. Some pairs are the sample; the other documents make the directions, one half of them
the probes, and the other half judges these.

Of directions: mean and least cosine to the direction that the same documents make in the new space, as carried; the
same through the whole stitch, offset and all; the cosine of a direction made anew from the sample alone; and what
`carry` says of them without labels and, of the first ones, with those of the sample. Of probes: AUC in the old space,
as carried, sent like a direction, and trained anew on the sample. Exits with 1 where a mean cosine is below 0.93.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from migrate.datasets.beir import load_beir
from migrate.lab.carry.carry import INTERCEPT, carry
from migrate.manifest import Manifest
from migrate.selection import Pairs
from migrate.steps.fit.job import fit_pairs
from migrate.stores import open_store
from migrate.vectors import Vectors

TARGET = "minilm"
SOURCES = ("layer3-cls", "layer4-mean", "layer5-mean")
LEAST = 0.93
SHARES = (0.05, 0.3)

Mask = NDArray[np.bool_]


def concepts(texts: list[str], most: int) -> dict[str, Mask]:
    """The most frequent words, and which of the texts have them."""
    words = [set(re.findall(r"[a-z]{4,}", text.lower())) for text in texts]
    counts = Counter(word for there in words for word in there)
    low, high = (share * len(texts) for share in SHARES)
    usual = [word for word, count in counts.most_common() if low <= count <= high and word not in ENGLISH_STOP_WORDS]
    return {word: np.array([word in there for there in words]) for word in usual[:most]}


def difference(vectors: Vectors, has: Mask) -> Vectors:
    """The direction of a concept: (d,)."""
    return np.asarray(vectors[has].mean(axis=0) - vectors[~has].mean(axis=0))


def cosine(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Between two vectors."""
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def train(vectors: Vectors, has: Mask) -> LogisticRegression:
    """A probe."""
    return LogisticRegression(C=10, max_iter=1_000).fit(vectors, has)


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Directions and probes, carried.")
    parser.add_argument("data", type=Path)
    parser.add_argument("--set", default="scifact")
    parser.add_argument("--concepts", type=int, default=30)
    parser.add_argument("--probes", type=int, default=10)
    parser.add_argument("--pairs", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    texts = {document.id: document.text for document in load_beir(arguments.data / arguments.set).documents()}
    spaces = {space: np.load(arguments.data / "pairs" / f"{arguments.set}.{space}.npz") for space in (TARGET, *SOURCES)}
    ids, new = spaces[TARGET]["doc_ids"], spaces[TARGET]["docs"].astype(np.float32)
    has = concepts([texts[str(doc_id)] for doc_id in ids], arguments.concepts)
    order = np.random.default_rng(arguments.seed).permutation(len(ids))
    sample, others = order[: arguments.pairs], order[arguments.pairs :]
    made, judge = others[: len(others) // 2], others[len(others) // 2 :]
    print(f"{arguments.set}: {len(has)} concepts, {len(sample):,} pairs, target {TARGET}\n")
    directions, probes = [], []
    for space in SOURCES:
        old = spaces[space]["docs"].astype(np.float32)
        row, probe = measure(old, new, has, (sample, made, judge), arguments.probes)
        directions.append(row)
        probes.append(probe)
    show(
        "directions",
        ["cosine", "least", "offset min", "offset max", "from sample", "says without", "says with"],
        directions,
    )
    print()
    show("probes, AUC", ["before", "carried", "as direction", "from sample"], probes)
    return 0 if min(row[0] for row in directions) >= LEAST else 1


def show(title: str, head: list[str], rows: list[list[float]]) -> None:
    """Print a table with a row for each old space."""
    print(f"{title:12}" + "".join(f"{name:>13}" for name in head))
    for space, row in zip(SOURCES, rows, strict=True):
        print(f"{space:12}" + "".join(f"{value:13.3f}" for value in row))


def measure(
    old: Vectors, new: Vectors, has: dict[str, Mask], rows: tuple[NDArray[np.int64], ...], most: int
) -> tuple[list[float], list[float]]:
    """A row of each table for one old space."""
    sample, made, judge = rows
    others = np.concatenate([made, judge])
    directions = {word: difference(old[others], there[others]) for word, there in has.items()}
    trained = {word: train(old[made], has[word][made]) for word in list(has)[:most]}
    probes = {word: model.coef_[0].astype(np.float32) for word, model in trained.items()}
    probes |= {word + INTERCEPT: model.intercept_.astype(np.float32) for word, model in trained.items()}
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "old.npy", old[sample])
        store = open_store(Path(folder) / "old.npy")
        ids = tuple(next(iter(store.scan())).ids)
        manifest = Manifest("stitch", details={"fingerprint": store.snapshot().fingerprint})
        fitted = fit_pairs(Pairs(ids, old[sample], new[sample]), ["ridge"], manifest=manifest, state={}, seed=0)
        done = carry(store, fitted, directions=directions, probes=probes)
        said = [[row.cosine.estimate for row in done.judgements if row.cosine is not None]]
        said += [[]]
        for word in trained:
            labels = {doc_id: word if there else "" for doc_id, there in zip(ids, has[word][sample], strict=True)}
            judged = carry(store, fitted, directions={word: directions[word]}, labels=labels).judgements[0]
            said[1] += [] if judged.cosine is None else [judged.cosine.estimate]
    affine = fitted.stitch.affine(fitted.dim)
    assert affine is not None
    truth = {word: difference(new[others], there[others]) for word, there in has.items()}
    cosines = [cosine(done.directions[word], truth[word]) for word in has if word in done.directions]
    offset = [cosine(directions[word] @ affine.matrix + affine.offset, truth[word]) for word in has]
    anew = [cosine(difference(new[sample], there[sample]), truth[word]) for word, there in has.items()]
    scores = []
    for word, model in trained.items():
        again = train(new[sample], has[word][sample])
        carried = done.probes.get(word)
        if carried is not None:
            ways = (old[judge] @ model.coef_[0], new[judge] @ carried, new[judge] @ (model.coef_[0] @ affine.matrix))
            scores.append([roc_auc_score(has[word][judge], way) for way in (*ways, new[judge] @ again.coef_[0])])
    means = [float(np.mean(values)) for values in (cosines, anew, *said)]
    first = [means[0], min(cosines), min(offset), max(offset), *means[1:]]
    return first, [float(value) for value in np.mean(scores, axis=0)]


if __name__ == "__main__":
    sys.exit(main())
