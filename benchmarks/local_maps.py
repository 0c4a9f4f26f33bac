"""Local maps on a large store: a map for each cell of the old space, fitted to what one map for all leaves over.

    python benchmarks/local_maps.py DATA --vectors FOLDER [--documents 200000] [--pairs 1000 4000 8000]

DATA holds `scifact/` and `nfcorpus/` in BEIR layout. The documents are sentences of SciFact, pieces of NFCorpus and
paragraphs of the strings in triple quotes of installed packages, 40 words at most and none twice. The sources are
layers of all-MiniLM-L6-v2, the target is its last; one pass in bfloat16, cut at 64 word pieces, gives them all, and is
kept in FOLDER: 21 minutes of two processes for 200,000. The queries are those of both sets, titles of SciFact, and the
first paragraphs of strings; the last two should find a passage that stood below them, which is `known`.

The cells are k-means of the old vectors; in each is a ridge of the residuals of held-out predictions of the map for
all, weighted by a softmax of the distances to the nearest four centres. The number of cells and the penalty are chosen
by held-out retrieval, and there are none where it gains no more than its standard error; `CELLS` and `PENALTIES` were
settled on layer4-mean. Printed, on the documents that are no pairs (the same for each number of them): overlap@10 with
the target's own answers, `known` as a share of what the target finds, and what local maps gain of both, with 95 %
bounds by the differences of the queries.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from retrieval import TARGET_MODEL

from migrate.audit.measures import overlap
from migrate.embedders import load_embedder
from migrate.report.terminal import table
from migrate.search.runs import Rankings, search
from migrate.stitch.affine import fit_spread
from migrate.stitch.base import Pairing, Stitch, cross_predict, fold_rows
from migrate.stitch.scores import Neighbours, Sphere, standard_error
from migrate.stitch.select import some_of, tune
from migrate.stitch.text_features import TextRows
from migrate.stitch.text_reader import TextReader
from migrate.vectors import Batch, Vectors, squared_norms, unit_rows

SPACES = ("wordpieces", "layer3-cls", "layer4-mean", "layer5-mean")
TARGET = "minilm"
STITCHES = ("ridge", "ridge+near")
CELLS, PENALTIES = (4, 8, 16, 32), (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
WORDS, WORD_PIECES, TITLES, PART = 40, 64, 500, 10_000
NEAREST, SHARPNESS, LEAST_WEIGHT = 4, 0.3, 1e-3
HEAD = ["source", "pairs", "stitch", "overlap@10", "known", "cells", "gain of overlap@10", "gain of known"]


@dataclass(frozen=True)
class Texts:
    """Passages, the number of the text that each comes from, queries, and the text that each asks for, if any."""

    passages: list[str]
    origins: list[int]
    queries: list[str]
    asked_for: list[int | None]


def sources_of_text(data: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Where a text is from, its title, and the passages below it."""
    for line in (data / "scifact" / "corpus.jsonl").open():
        document = json.loads(line)
        sentences = re.split(r"(?<=[.?!])\s+", document["text"])
        yield "scifact", document["title"], [shorten(one) for one in sentences if len(one.split()) >= 5]
    for line in (data / "nfcorpus" / "corpus.jsonl").open():
        words = json.loads(line)["text"].split()
        pieces = [words[start : start + 24] for start in range(0, len(words), 24)]
        yield "nfcorpus", "", [" ".join(piece) for piece in pieces if len(piece) >= 8]
    numpy = find_spec("numpy")
    assert numpy is not None and numpy.origin is not None
    packages = Path(numpy.origin).parents[1]
    files = sorted(path for path in packages.rglob("*.py") if not {"tests", "test"} & set(path.parts))
    for number in np.random.default_rng(0).permutation(len(files)):
        for string in re.findall(r'"""(.+?)"""', files[number].read_text(errors="replace"), re.DOTALL):
            paragraphs = [shorten(paragraph) for paragraph in re.split(r"\n\s*\n", string)]
            below = [one for one in paragraphs[1:] if len(one.split()) >= 8 and len(one) < 400]
            yield "strings", paragraphs[0], below


def shorten(text: str) -> str:
    """The first words of a text."""
    return " ".join(text.split()[:WORDS])


def collect(data: Path, count: int) -> Texts:
    """As many passages, none twice, and the queries."""
    passages, origins, seen, titles = list[str](), list[int](), set[str](), list[tuple[str, int, str]]()
    for number, (origin, title, below) in enumerate(sources_of_text(data)):
        new = [passage for passage in dict.fromkeys(below) if passage not in seen][: count - len(passages)]
        seen.update(new)
        passages += new
        origins += [number] * len(new)
        if new and len(title.split()) >= 4 and title not in seen:
            titles.append((origin, number, title))
        if len(passages) == count:
            break
    queries = [json.loads(line)["text"] for name in ("scifact", "nfcorpus") for line in open_queries(data, name)]
    asked_for: list[int | None] = [None] * len(queries)
    rng = np.random.default_rng(1)
    for name in ("scifact", "strings"):
        own = [(number, title) for origin, number, title in titles if origin == name]
        for row in np.sort(rng.permutation(len(own))[:TITLES]):
            asked_for.append(own[row][0])
            queries.append(own[row][1])
    return Texts(passages, origins, queries, asked_for)


def open_queries(data: Path, name: str) -> list[str]:
    """The lines of a set's queries."""
    return (data / name / "queries.jsonl").read_text().splitlines()


def embed_layers(texts: list[str]) -> NDArray[np.float16]:
    """Unit vectors of the spaces and the target, (n, s, 384), from one pass through the network."""
    import torch

    torch.set_num_threads(1)
    model = load_embedder(TARGET_MODEL).model  # type: ignore[attr-defined]
    network, tokenizer = model[0].auto_model, model.tokenizer
    found = np.empty((len(texts), len(SPACES) + 1, 384), dtype=np.float16)
    longest_first = np.argsort([-len(text) for text in texts], kind="stable")
    for start in range(0, len(texts), 64):
        rows = longest_first[start : start + 64]
        batch = tokenizer(
            [texts[row] for row in rows], padding=True, truncation=True, max_length=WORD_PIECES, return_tensors="pt"
        )
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            layers = [layer.float() for layer in network(**batch, output_hidden_states=True).hidden_states]
        with torch.inference_mode():
            weights = batch["attention_mask"].unsqueeze(-1).float()
            weights /= weights.sum(1, keepdim=True)
            pooled = [network.get_input_embeddings()(batch["input_ids"]), layers[4], layers[5], layers[6]]
            means = [(rows_of_layer * weights).sum(1) for rows_of_layer in pooled]
            vectors = torch.stack([means[0], layers[3][:, 0], *means[1:]], 1)
            found[rows] = torch.nn.functional.normalize(vectors, dim=-1).numpy()
    return found


def make_vectors(texts: Texts, folder: Path) -> None:
    """Embed passages and queries, in two processes, unless the same are in the folder already."""
    every, names = [*texts.passages, *texts.queries], folder / "texts.json"
    if names.exists() and json.loads(names.read_text()) == every:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with get_context("spawn").Pool(2) as pool:
        halves = pool.map(embed_layers, [every[0::2], every[1::2]])
    vectors = np.empty((len(every), *halves[0].shape[1:]), dtype=np.float16)
    vectors[0::2], vectors[1::2] = halves
    for number, space in enumerate((*SPACES, TARGET)):
        np.save(folder / f"{space}.npy", vectors[:, number])
    names.write_text(json.dumps(every))


@dataclass(frozen=True)
class Answers:
    """The share of the target's first ten that each query finds, and whether it finds what it asks for."""

    overlaps: NDArray[np.float64]
    known: NDArray[np.float64]


@dataclass(frozen=True)
class LargeStore:
    """Documents in a source space and the target, and queries in the target; `largest` pairs are judged by none."""

    source: Vectors
    target: Vectors
    queries: Vectors
    texts: Texts
    views: TextRows | None
    largest: int

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """All rows, those of the pairs first."""
        return np.random.default_rng(0).permutation(len(self.source))

    @cached_property
    def rest(self) -> NDArray[np.int64]:
        """Rows of the documents that are searched."""
        return np.sort(self.order[self.largest :])

    def pairing(self, count: int) -> Pairing:
        """So many pairs."""
        rows = np.sort(self.order[:count])
        views = None if self.views is None else self.views.take(rows)
        return Pairing(self.source[rows], self.target[rows], views).in_own_order()

    def find(self, vectors: Vectors) -> Rankings:
        """Search the documents that are left by these vectors of theirs."""
        ids = [str(row) for row in self.rest]
        parts = range(0, len(ids), PART)
        batches = [Batch(ids[start : start + PART], vectors[start : start + PART]) for start in parts]
        names = [str(row) for row in range(len(self.queries))]
        return search(batches, names, self.queries, metric="ip", depth=10)

    @cached_property
    def full(self) -> Rankings:
        """The target's own answers."""
        return self.find(self.target[self.rest])

    def judge(self, vectors: Vectors) -> Answers:
        """Compare the answers with the target's own."""
        found = self.find(vectors)
        return Answers(
            np.asarray(overlap(found, self.full, list(found.rankings), 10), dtype=np.float64), self.known(found)
        )

    def known(self, found: Rankings) -> NDArray[np.float64]:
        """Return 1 for each query that finds a passage below it among ten, 0 for others; those that ask for one."""
        return np.array(
            [
                any(self.texts.origins[int(row)] == wanted for row in ranking[:10])
                for ranking, wanted in zip(found.rankings.values(), self.texts.asked_for, strict=True)
                if wanted is not None
            ],
            dtype=np.float64,
        )


@dataclass(frozen=True)
class LocalMaps:
    """Maps of residuals: `centres`, (k, p), the distance at which cells overlap, and `matrices`, (k, p + 1, q)."""

    mean: Vectors
    centres: Vectors
    width: float
    matrices: Vectors

    @classmethod
    def fit(
        cls, source: Vectors, residuals: Vectors, cells: int, penalties: Sequence[float] = PENALTIES
    ) -> list[LocalMaps]:
        """Fit to residuals, (n, q): for each penalty, in units of the mean variance of the n old vectors times n."""
        from sklearn.cluster import KMeans

        mean = source.mean(axis=0)
        rows = source - mean
        centres = KMeans(cells, n_init=1, max_iter=30, random_state=0).fit(rows).cluster_centers_.astype(np.float32)
        width = float(_distances(rows, centres).min(axis=1).mean())
        unit = float(squared_norms(rows).sum()) / rows.shape[1]
        matrices = np.empty((len(penalties), cells, rows.shape[1] + 1, residuals.shape[1]), dtype=np.float32)
        weights = cls(mean, centres, width, matrices[0]).weights(rows)
        for number, centre in enumerate(centres):
            near = weights[:, number] > LEAST_WEIGHT
            inside = np.hstack([rows[near] - centre, np.ones((int(near.sum()), 1), dtype=np.float32)])
            weighted = inside * weights[near, number, None]
            gram, moments = (weighted.T @ inside).astype(np.float64), weighted.T @ residuals[near]
            for index, penalty in enumerate(penalties):
                matrices[index, number] = np.linalg.solve(gram + penalty * unit * np.eye(len(gram)), moments)
        return [cls(mean, centres, width, matrices_of_penalty) for matrices_of_penalty in matrices]

    def weights(self, rows: Vectors) -> Vectors:
        """How much each centred row, (m, p), belongs to each cell: (m, k)."""
        distances = _distances(rows, self.centres)
        weights = np.exp((distances.min(axis=1, keepdims=True) - distances) / np.float32(SHARPNESS * self.width))
        if len(self.centres) > NEAREST:
            weights[distances > np.partition(distances, NEAREST - 1, axis=1)[:, NEAREST - 1, None]] = 0
        return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)

    def of(self, source: Vectors) -> Vectors:
        """What to add to the prediction of each old vector, (m, q)."""
        rows = source - self.mean
        weights, found = self.weights(rows), np.zeros((len(rows), self.matrices.shape[2]), dtype=np.float32)
        for number, matrix in enumerate(self.matrices):
            near = weights[:, number] > LEAST_WEIGHT
            mapped = (rows[near] - self.centres[number]) @ matrix[:-1] + matrix[-1]
            found[near] += weights[near, number, None] * mapped
        return found


def _distances(rows: Vectors, centres: Vectors) -> Vectors:
    return np.asarray(squared_norms(rows)[:, None] + squared_norms(centres) - 2 * rows @ centres.T)


@dataclass(frozen=True)
class Variant:
    """A stitch with local maps or without, and its held-out predictions, (n, q)."""

    maps: LocalMaps | None
    held_out: Vectors


def choose_local(stitch: Stitch, pairs: Pairing) -> list[Variant]:
    """An unfitted stitch without local maps, and with them where held-out retrieval says so."""
    judge, plain = Neighbours(pairs.target), cross_predict(stitch, pairs, with_variance=False).vectors
    tried = {(cells, penalty): plain.copy() for cells in CELLS for penalty in PENALTIES}
    for fold in fold_rows(len(pairs), seed=pairs.seed):
        others = pairs.take(np.setdiff1d(np.arange(len(pairs)), fold))
        residuals = others.target - cross_predict(stitch, others, with_variance=False).vectors
        for cells in CELLS:
            fitted = LocalMaps.fit(others.source, residuals, cells)
            for penalty, maps in zip(PENALTIES, fitted, strict=True):
                tried[cells, penalty][fold] += maps.of(pairs.source[fold])
    shares = judge.overlap(stretched(plain, pairs))
    gains = {option: judge.overlap(stretched(vectors, pairs)) - shares for option, vectors in tried.items()}
    (cells, penalty), gain = max(gains.items(), key=lambda option: float(option[1].mean()))
    print(
        f"  held out: {shares.mean():.4f}, {cells} cells {gain.mean():+.4f} ± {1.96 * standard_error(gain):.4f}",
        flush=True,
    )
    if gain.mean() <= standard_error(gain):
        return [Variant(None, plain)]
    maps = LocalMaps.fit(pairs.source, pairs.target - plain, cells, [penalty])[0]
    return [Variant(None, plain), Variant(maps, tried[cells, penalty])]


def stretched(predicted: Vectors, pairs: Pairing) -> Vectors:
    """Held-out predictions with the spread of true vectors."""
    return fit_spread(predicted, pairs.target).of(predicted).astype(np.float32)


def translate(store: LargeStore, pairs: Pairing, variants: Sequence[Variant], stitch: Stitch) -> list[Vectors]:
    """Translate what is left, stretched as the held-out predictions of each variant have to be."""
    spreads, sphere = [fit_spread(variant.held_out, pairs.target) for variant in variants], Sphere.fit(pairs.target)
    translated = [np.empty((len(store.rest), store.target.shape[1]), dtype=np.float32) for _ in variants]
    for start in range(0, len(store.rest), PART):
        rows = store.rest[start : start + PART]
        views = store.views.take(rows) if stitch.reads_texts and store.views is not None else None
        predicted = stitch.transform(store.source[rows], views)
        for variant, spread, vectors in zip(variants, spreads, translated, strict=True):
            whole = predicted if variant.maps is None else predicted + variant.maps.of(store.source[rows])
            vectors[start : start + PART] = sphere.of(spread.of(whole).astype(np.float32))
    return translated


def compare(store: LargeStore, spec: str, count: int) -> list[str]:
    """A stitch without local maps and with them."""
    pairs = store.pairing(count)
    stitch = tune(spec, some_of(pairs))[0]
    stitch.spread = None  # type: ignore[attr-defined]
    variants = choose_local(stitch, pairs)
    plain, *local = [store.judge(vectors) for vectors in translate(store, pairs, variants, pairs.fit(stitch))]
    best = store.known(store.full).mean()
    columns = [f"{plain.overlaps.mean():.3f}", f"{plain.known.mean() / best:.3f}"]
    if not local:
        return [*columns, "none", "", ""]
    gains = local[0].overlaps - plain.overlaps, (local[0].known - plain.known) / best
    bounds = [f"{gain.mean():+.4f} ± {1.96 * standard_error(gain):.4f}" for gain in gains]
    maps = variants[1].maps
    return [*columns, "" if maps is None else str(len(maps.centres)), *bounds]


def read_space(folder: Path, space: str) -> Vectors:
    """Unit vectors of passages and queries."""
    return unit_rows(np.load(folder / f"{space}.npy").astype(np.float32))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000, 4_000, 8_000])
    parser.add_argument("--spaces", nargs="+", default=list(SPACES))
    parser.add_argument("--stitches", nargs="+", default=list(STITCHES), help="ridge+text reads the texts as well")
    arguments = parser.parse_args()
    texts = collect(arguments.data, arguments.documents)
    make_vectors(texts, arguments.vectors)
    views, started, rows = None, time.perf_counter(), [HEAD]
    if any("text" in spec for spec in arguments.stitches):
        views = TextReader.fit(texts.passages, load_embedder(TARGET_MODEL).token_table()).read(texts.passages)
    target, largest = read_space(arguments.vectors, TARGET), max(arguments.pairs)
    count = len(texts.passages)
    for space in arguments.spaces:
        source = read_space(arguments.vectors, space)
        store = LargeStore(source[:count], target[:count], target[count:], texts, views, largest)
        for pairs in arguments.pairs:
            for spec in arguments.stitches:
                rows.append([space, f"{pairs:,}", spec, *compare(store, spec, pairs)])
                print(*rows[-1], f"{time.perf_counter() - started:.0f} s", sep="  ", flush=True)
    print(f"\n{table(rows)}\n\n{count - largest:,} documents searched, {len(texts.queries):,} queries")


if __name__ == "__main__":
    main()
