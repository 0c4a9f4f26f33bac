"""How many neighbours few pairs keep: `auto` beside the plain maps of a dozen lines of NumPy.

    python benchmarks/small_samples.py DATA [--pairs 30 60 125 250 500] [--settled 0 1] [--reported 3 4] [--moves ...]

DATA is as for `benchmarks/models.py`, with `stores/NAME`, LangChain folders of vectors of API models. Their texts are
embedded by the packaged all-MiniLM-L6-v2, so that each is one side of a real move. Duplicate texts are left out.

Each sample is fitted by `identity` (padded with zeros or cut where dimensions differ), Procrustes, scikit-learn's
RidgeCV, and `auto`: with the texts, as `fit` has them (and with the token embeddings of the packaged model), and
without, as `vectors`. overlap@10 is that of up to 1,000 documents outside the sample: the share of the ten nearest
to a true vector that are also the ten nearest of translated ones. Queries are 400 of these documents.

The deficit is the best of the three plain maps, sample by sample, less `auto`; below 0 `auto` keeps more. Its standard
error is over moves: samples of one move are alike. The rules of small samples were settled on the seeds
`--settled`; those `--reported` have had no say in them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeCV

from migrate.datasets.beir import load_beir
from migrate.embedders import load_embedder
from migrate.embedders.abilities import token_table_of
from migrate.report.terminal import table
from migrate.stitch.base import Pairing
from migrate.stitch.scores import Sphere, standard_error
from migrate.stitch.select import select_stitch
from migrate.stitch.text_features import TextRows
from migrate.stitch.text_reader import TextReader
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.vectors import Vectors, unit_rows

MODEL = "packaged:all-MiniLM-L6-v2"
MINILM = "minilm"
SETS = ("scifact", "nfcorpus")
MOVES = (
    "scifact mpnet minilm",
    "scifact minilm mpnet",
    "nfcorpus mpnet minilm",
    "nfcorpus layer5-mean minilm",
    "openai-ada-002 own minilm",
    "openai-ada-002 minilm own",
    "titan-v1 own minilm",
)
"""A set and two spaces of it, or a store, whose own vectors are `own`; `nv-embed-4096 own minilm` is slow."""

PLAIN = ("identity", "procrustes", "ridge")
OURS = ("vectors", "auto")
MOST_JUDGED, QUERIES = 1_000, 400
FEWEST_JUDGED = 60
"""Documents outside the sample, so that ten are not most of them."""


@dataclass(frozen=True)
class Move:
    """Old and new vectors, (n, p) and (n, q), and the same texts as stitches see them."""

    name: str
    old: Vectors
    new: Vectors
    texts: TextRows


def read_move(data: Path, name: str) -> Move:
    """Read the vectors of a move; of a store, one side is embedded now."""
    source, old, new = name.split()
    if source in SETS:
        text_of = {document.id: document.text for document in load_beir(data / source).documents()}
        files = [np.load(data / "pairs" / f"{source}.{space}.npz") for space in (old, new)]
        ids = files[0]["doc_ids"].tolist()
        assert ids == files[1]["doc_ids"].tolist()
        spaces = [file["docs"].astype(np.float32) for file in files]
        return Move(name, spaces[0], spaces[1], read_texts([text_of[doc_id] for doc_id in ids]))
    own, embedded, texts = read_store(data / "stores" / source)
    if old == MINILM:
        return Move(name, embedded, own, texts)
    return Move(name, own, embedded, texts)


@cache
def read_store(folder: Path) -> tuple[Vectors, Vectors, TextRows]:
    """Read a store's own vectors, those of the packaged model, and the texts; each text once, and no blank one."""
    store = open_store(folder)
    documents = list(store.documents())
    first = {document.text: row for row, document in reversed(list(enumerate(documents))) if document.text.strip()}
    rows = sorted(first.values())
    documents = [documents[row] for row in rows]
    own = read_all(store.scan()).vectors[rows]
    embedded = load_embedder(MODEL).embed_documents(documents)
    return own, embedded, read_texts([document.text for document in documents])


def read_texts(texts: Sequence[str]) -> TextRows:
    """Read texts as `fit` does, with the token embeddings of the packaged model."""
    return TextReader.fit(texts, token_table_of(load_embedder(MODEL))).read(texts)


def plain(kind: str, x: Vectors, y: Vectors, rows: Vectors) -> Vectors:
    """Map rows by what a dozen lines of NumPy learn from the pairs, (n, p) and (n, q)."""
    if kind == "identity":
        width = y.shape[1]
        return np.pad(rows, ((0, 0), (0, max(width - rows.shape[1], 0))))[:, :width]
    if kind == "ridge":
        return np.asarray(RidgeCV(alphas=np.logspace(-3, 3, 13)).fit(x, y).predict(rows), dtype=np.float32)
    mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
    left, _, right = np.linalg.svd((x - mean_x).T @ (y - mean_y), full_matrices=False)
    return np.asarray((rows - mean_x) @ left @ right + mean_y)


def judge(move: Move, n_pairs: int, seed: int) -> dict[str, float] | None:
    """Find the overlap@10 of each map outside one sample; None where too few documents are left."""
    order = np.random.default_rng([seed, n_pairs]).permutation(len(move.old))
    fit = np.sort(order[:n_pairs])
    rest = order[n_pairs : n_pairs + MOST_JUDGED]
    if len(rest) < FEWEST_JUDGED:
        return None
    sample = Pairing(move.old[fit], move.new[fit], move.texts.take(fit), seed).in_own_order()
    truth = Outside.of(move.new[rest])
    found = {
        kind: truth.overlap(unit_rows(plain(kind, sample.source, sample.target, move.old[rest]))) for kind in PLAIN
    }
    for name, pairs in (("vectors", replace(sample, texts=None)), ("auto", sample)):
        selection = select_stitch(pairs)
        assert selection.stitch is not None
        fitted = pairs.fit(selection.stitch)
        predicted = fitted.predict(move.old[rest], move.texts.take(rest) if fitted.reads_texts else None).vectors
        found[name] = truth.overlap(Sphere.fit(sample.target).of(predicted))
    return found


@dataclass(frozen=True)
class Outside:
    """True unit vectors of documents outside a sample, (m, q), and the ten nearest to each query among them."""

    truth: Vectors
    nearest: NDArray[np.int64]

    @classmethod
    def of(cls, vectors: Vectors) -> Outside:
        """Search the true vectors."""
        truth = unit_rows(vectors)
        return cls(truth, nearest(truth, truth))

    def overlap(self, translated: Vectors) -> float:
        """Share of the true ten that translated documents, (m, q), of unit length have too."""
        found = nearest(self.truth, translated)
        return float(np.mean([len({*a} & {*b}) / 10 for a, b in zip(self.nearest, found, strict=True)]))


def nearest(asked: Vectors, documents: Vectors) -> NDArray[np.int64]:
    """The ten documents nearest to each of the first queries, but not the query itself."""
    queries = asked[:QUERIES]
    similarities = queries @ documents.T
    np.fill_diagonal(similarities, -np.inf)
    return np.argpartition(-similarities, 10, axis=1)[:, :10]


@dataclass(frozen=True)
class Sample:
    """The overlap@10 of each map that one sample of a move gives."""

    move: str
    pairs: int
    seed: int
    overlap: dict[str, float]

    def deficit(self, ours: str) -> float:
        """What the best of the plain maps keeps more."""
        return max(self.overlap[kind] for kind in PLAIN) - self.overlap[ours]


def row_of(title: str, samples: Sequence[Sample]) -> list[str]:
    """Mean overlap of each map, and the mean deficits with their standard errors over moves."""
    means = [f"{np.mean([sample.overlap[kind] for sample in samples]):.3f}" for kind in (*PLAIN, *OURS)]
    moves = sorted({sample.move for sample in samples})
    for ours in OURS:
        by_move = [np.mean([one.deficit(ours) for one in samples if one.move == move]) for move in moves]
        mean = np.mean([sample.deficit(ours) for sample in samples])
        error = f" +- {standard_error(np.array(by_move)):.3f}" if len(moves) > 1 else ""
        means.append(f"{mean:.3f}{error}")
    return [title, *means]


def print_half(title: str, samples: Sequence[Sample]) -> None:
    """Print the table of some seeds: a row a move, then a row a number of pairs, and all."""
    head = [*PLAIN, *OURS, *(f"deficit of {ours}" for ours in OURS)]
    moves = list(dict.fromkeys(sample.move for sample in samples))
    counts = sorted({sample.pairs for sample in samples})
    rows = [row_of(move, [sample for sample in samples if sample.move == move]) for move in moves]
    rows += [row_of(f"{count} pairs", [sample for sample in samples if sample.pairs == count]) for count in counts]
    print(f"\n{title}: overlap@10\n\n{table([['', *head], *rows, row_of('all', samples)])}", flush=True)


def main() -> None:
    """Print a table for the seeds that the rules were settled on, and one for the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, nargs="+", default=[30, 60, 125, 250, 500])
    parser.add_argument("--settled", type=int, nargs="*", default=[0, 1])
    parser.add_argument("--reported", type=int, nargs="*", default=[3, 4])
    parser.add_argument("--moves", nargs="+", default=list(MOVES), help='such as "scifact mpnet minilm"')
    arguments = parser.parse_args()
    moves = [read_move(arguments.data, name) for name in arguments.moves]
    for title, seeds in (("reported", arguments.reported), ("settled on", arguments.settled)):
        samples = []
        for move in moves:
            started = time.perf_counter()
            for seed in seeds:
                for n_pairs in arguments.pairs:
                    overlap = judge(move, n_pairs, seed)
                    if overlap is not None:
                        samples.append(Sample(move.name, n_pairs, seed, overlap))
            print(f"  {move.name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
        if samples:
            print_half(f"seeds {' '.join(map(str, seeds))}, {title}", samples)


if __name__ == "__main__":
    main()
