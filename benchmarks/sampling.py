"""Which documents to embed again: the strategies compared, on real embedding pairs.

    python benchmarks/sampling.py DATA [--stitch ridge]

DATA is laid out as for `retrieval.py`, whose target space this takes. Each strategy draws its sample from a store of
the source space by the tool's own code; a stitch is fitted on it, and judged twice, by retention of nDCG@10 (that of
the full re-embed on the same documents is 1) and by overlap@10:

whole collection      every document in the index, the sample with its true vectors: what a user gets
held-out collection   without the sample, in the index and in the judgements: what the stitch has learned

The query log of a set is its train queries, where it has train judgements, and it is judged on the test queries; of
other sets every second query is the log, and the others are judged. No judged query is in the log.
`query-log: both` searches the source space for the log's queries and the texts for their words, as the tool does where
the source model is named; `query-log: words` does without the model.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from retrieval import AUTO, TARGET, TARGET_MODEL, Collection, Space, load_space, read_texts, run_over

from migrate.audit.measures import ndcg, overlap
from migrate.datasets.beir import load_beir
from migrate.embedders import load_embedder
from migrate.report.terminal import table
from migrate.selection import QueryLog, draw_sample
from migrate.stitch.base import Pairing, Stitch
from migrate.stitch.fitted import fit_norm
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import select_stitch
from migrate.stitch.text_features import TextRows
from migrate.stores import create_store, open_store
from migrate.stores.base import Store
from migrate.vectors import Query, Vectors, unit_rows

SETS = ("scifact", "nfcorpus")
SPACES = ("wordpieces", "layer4-mean", "layer5-mean")
ARMS = ("random", "diverse", "query-log: both", "query-log: words")
MEASURES = (
    "retention of nDCG@10, whole collection",
    "retention of nDCG@10, held-out collection",
    "overlap@10, whole collection",
    "overlap@10, held-out collection",
)

Cell = tuple[str, str, int]
"""Set, source space, pairs."""


@dataclass(frozen=True)
class Setting:
    """One source space of one set: the store that samples are drawn from, and all that they are judged by."""

    collection: Collection
    store: Store
    source: Space
    target: Space
    texts: TextRows | None
    logs: Mapping[str, QueryLog]


def load_set(data: Path, name: str) -> tuple[Collection, tuple[Query, ...]]:
    """A set with the queries that are judged, and those of its log."""
    found = load_beir(data / name)
    documents = tuple(found.documents())
    if (data / name / "qrels" / "train.tsv").exists():
        judged = {query.text for query in found.queries}
        train = load_beir(data / name, split="train").queries
        return Collection(found, documents), tuple(query for query in train if query.text not in judged)
    return Collection(replace(found, queries=found.queries[::2]), documents), found.queries[1::2]


def settings(
    data: Path, folder: Path, sets: Sequence[str], spaces: Sequence[str], stitch: str
) -> Iterator[tuple[str, str, Setting]]:
    """Every source space of every set, its store written to `folder`; with texts where the stitch may read them."""
    reads = stitch == AUTO or new_stitch(stitch).reads_texts
    tokens = load_embedder(TARGET_MODEL).token_table() if reads else None
    for name in sets:
        collection, log = load_set(data, name)
        target = load_space(data, name, TARGET, collection)
        texts = read_texts(collection, tokens) if reads else None
        for space in spaces:
            source = load_space(data, name, space, collection)
            embedder = load_embedder(f"file:{data / 'pairs' / f'{name}.{space}.npz'}")
            logs = {"query-log: both": QueryLog(log, embedder), "query-log: words": QueryLog(log)}
            store = write_store(folder / f"{name}.{space}", collection, source.documents)
            yield name, space, Setting(collection, store, source, target, texts, logs)


def write_store(folder: Path, collection: Collection, vectors: Vectors) -> Store:
    """A store of a collection."""
    folder.mkdir()
    writer = create_store(folder, format="faiss", dim=vectors.shape[1], metric="ip")
    writer.append(collection.documents, vectors)
    writer.finish()
    return open_store(folder)


def sample_rows(setting: Setting, arm: str, size: int, seed: int) -> NDArray[np.int64]:
    """The rows that a strategy takes."""
    strategy = arm.partition(":")[0]
    return draw_sample(setting.store, size, strategy=strategy, query_log=setting.logs.get(arm), seed=seed).rows


def judge(setting: Setting, stitch: str, fit: NDArray[np.int64]) -> tuple[float, float, float, float]:
    """The four measures of a stitch that was fitted on some rows."""
    texts = setting.texts
    pairs = Pairing(setting.source.documents[fit], setting.target.documents[fit], texts and texts.take(fit))
    fitted = pairs.fit(tuned(stitch, pairs))
    found = fitted.predict(setting.source.documents, texts if fitted.reads_texts else None)
    translated = unit_rows(found.vectors) * np.float32(fit_norm(pairs.target))
    translated[fit] = pairs.target
    everything = np.arange(len(translated))
    whole = compare(setting, everything, translated)
    held_out = compare(setting, np.setdiff1d(everything, fit), translated)
    return whole[0], held_out[0], whole[1], held_out[1]


def tuned(spec: str, pairs: Pairing) -> Stitch:
    """The stitch of a spec, or the one that selection takes; those that read texts are tuned by it."""
    if spec != AUTO and not new_stitch(spec).reads_texts:
        return new_stitch(spec)
    chosen = select_stitch(pairs, specs=[] if spec == AUTO else [spec]).stitch
    assert chosen is not None
    return chosen


def compare(setting: Setting, rows: NDArray[np.int64], translated: Vectors) -> tuple[float, float]:
    """Retention and overlap@10 over the documents in `rows`, for the queries that have a relevant one among them."""
    collection, target = setting.collection, setting.target
    inside = {collection.documents[row].id for row in rows}
    qrels = {q: {d: g for d, g in collection.qrels[q].items() if d in inside} for q in collection.query_ids}
    asked = [query_id for query_id, grades in qrels.items() if any(grade > 0 for grade in grades.values())]
    full = run_over(collection, rows, target.documents[rows], target.queries)
    run = run_over(collection, rows, translated[rows], target.queries)
    retention = ndcg(run, qrels, asked, 10).mean() / ndcg(full, qrels, asked, 10).mean()
    return float(retention), float(overlap(run, full, asked, 10).mean())


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--stitch", default="ridge")
    parser.add_argument("--pairs", type=int, nargs="+", default=[500, 1_000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--spaces", nargs="+", default=list(SPACES))
    arguments = parser.parse_args()
    started = time.perf_counter()
    cells: dict[Cell, NDArray[np.float64]] = {}
    with tempfile.TemporaryDirectory() as folder:
        wanted = settings(arguments.data, Path(folder), arguments.sets, arguments.spaces, arguments.stitch)
        for name, space, setting in wanted:
            for pairs in arguments.pairs:
                cells[name, space, pairs] = mean_scores(setting, arguments.stitch, pairs, arguments.seeds)
    print_tables(cells)
    print(f"\nstitch {arguments.stitch}, seeds {arguments.seeds}, {time.perf_counter() - started:.0f} s")


def mean_scores(setting: Setting, stitch: str, pairs: int, seeds: Sequence[int]) -> NDArray[np.float64]:
    """The measures, (4, arms), averaged over seeds. A log that touches enough documents leaves nothing to chance."""
    known: dict[bytes, tuple[float, float, float, float]] = {}
    scores = np.empty((len(seeds), len(ARMS), len(MEASURES)))
    for i, seed in enumerate(seeds):
        for j, arm in enumerate(ARMS):
            rows = sample_rows(setting, arm, pairs, seed)
            if rows.tobytes() not in known:
                known[rows.tobytes()] = judge(setting, stitch, rows)
            scores[i, j] = known[rows.tobytes()]
    means: NDArray[np.float64] = scores.mean(axis=0).T
    return means


def print_tables(cells: Mapping[Cell, NDArray[np.float64]]) -> None:
    """One table for each measure: a row a cell, a column an arm, then the means, and how often random is beaten."""
    for number, measure in enumerate(MEASURES):
        rows = [
            [f"{name} {space}", f"{pairs:,}", *shown(scores[number])] for (name, space, pairs), scores in cells.items()
        ]
        for pairs in sorted({cell[2] for cell in cells}):
            means = np.mean([scores[number] for cell, scores in cells.items() if cell[2] == pairs], axis=0)
            rows.append(["mean", f"{pairs:,}", *shown(means)])
        better = np.sum([scores[number] > scores[number][0] for scores in cells.values()], axis=0).tolist()
        rows.append(["better than random", "", "", *(f"{wins} of {len(cells)}" for wins in better[1:])])
        print(f"\n{measure}\n")
        print(table([["set and source", "pairs", *ARMS], *rows]))


def shown(scores: NDArray[np.float64]) -> list[str]:
    """Scores as a table shows them."""
    return [f"{score:.3f}" for score in scores]


if __name__ == "__main__":
    main()
