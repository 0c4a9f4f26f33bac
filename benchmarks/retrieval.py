"""Retrieval after translation, on real embedding pairs: every stitch, every source space, two BEIR sets.

    python benchmarks/retrieval.py DATA

DATA holds `scifact/` and `nfcorpus/` in BEIR layout, and `pairs/SET.SPACE.npz` with `doc_ids`, `docs`, `query_ids`
and `queries`; the target space is `minilm` (all-MiniLM-L6-v2). A further source, `tfidf:256`, is computed.

Printed first: nDCG@10 of the full re-embed, by the audit's own code and by ir_measures, query by query. Then, for each
source space and stitch: retention of nDCG@10 and overlap@10 on the held-out collection, which is the collection
without the documents that the stitch was fitted on, in the index and in the judgements; mean over seeds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrate.audit.measures import Qrels, Scores, ndcg, overlap
from migrate.datasets.beir import BeirSet, load_beir
from migrate.documents import Document, Query
from migrate.embedders import load_embedder
from migrate.report.terminal import table
from migrate.search.runs import Run, search
from migrate.stitch.fitted import fit_norm
from migrate.stitch.select import AUTO_CANDIDATES, new_stitch, select_stitch
from migrate.vectors import Batch, Vectors, unit_rows

SETS = ("scifact", "nfcorpus")
SPACES = ("tfidf:256", "wordpieces", "layer3-cls", "layer4-mean", "layer5-mean")
TARGET = "minilm"
STITCHES = ("mean", *AUTO_CANDIDATES, "auto")


@dataclass(frozen=True)
class Collection:
    """A BEIR set in memory."""

    data: BeirSet
    documents: tuple[Document, ...]

    @property
    def queries(self) -> tuple[Query, ...]:
        """The judged queries."""
        return self.data.queries

    @property
    def query_ids(self) -> tuple[str, ...]:
        """Their ids."""
        return tuple(query.id for query in self.queries)

    @property
    def qrels(self) -> Qrels:
        """The judgements."""
        assert self.data.qrels is not None
        return self.data.qrels


@dataclass(frozen=True)
class Space:
    """Documents and queries of a collection in one embedding space."""

    documents: Vectors
    queries: Vectors


def load_space(data: Path, name: str, space: str, collection: Collection) -> Space:
    """A space from a file of vectors, or computed from the texts."""
    spec = space if space.startswith("tfidf:") else f"file:{data / 'pairs' / f'{name}.{space}.npz'}"
    embedder = load_embedder(spec)
    embedder.fit(collection.documents)
    return Space(embedder.embed_documents(collection.documents), embedder.embed_queries(collection.queries))


def run_over(collection: Collection, rows: NDArray[np.int64], vectors: Vectors, queries: Vectors) -> Run:
    """Rank the documents in `rows`, whose vectors these are."""
    ids = [collection.documents[row].id for row in rows]
    return search([Batch(ids, vectors)], collection.query_ids, queries, metric="ip")


def print_full_reembed(name: str, collection: Collection, target: Space) -> None:
    """NDCG@10 of the full re-embed by the audit's code and by ir_measures."""
    import ir_measures

    rows = np.arange(len(collection.documents))
    run = run_over(collection, rows, target.documents, target.queries)
    own = ndcg(run, collection.qrels, collection.query_ids, 10)
    # Scores that fall with the rank: the ranking is judged, not how somebody else breaks ties.
    as_scores = {q: {d: -float(i) for i, d in enumerate(docs)} for q, docs in run.rankings.items()}
    judged = {q: dict(grades) for q, grades in collection.qrels.items()}
    theirs = {m.query_id: m.value for m in ir_measures.iter_calc([ir_measures.nDCG @ 10], judged, as_scores)}
    worst = max(abs(theirs[q] - value) for q, value in zip(collection.query_ids, own, strict=True))
    print(
        f"{name}: {len(rows):,} documents, {len(own)} queries; full re-embed nDCG@10 = {own.mean():.4f}, "
        f"by ir_measures {statistics.mean(theirs.values()):.4f}, greatest difference of a query {worst:.1e}"
    )


def held_out_scores(
    collection: Collection, source: Space, target: Space, stitches: Sequence[str], pairs: int, seed: int
) -> Iterator[tuple[str, float, float]]:
    """(stitch, retention, overlap@10) with the fit documents taken out of index and judgements."""
    order = np.random.default_rng(seed).permutation(len(collection.documents))
    fit, rest = np.sort(order[:pairs]), np.sort(order[pairs:])
    inside = {collection.documents[row].id for row in rest}
    qrels = {q: {d: g for d, g in grades.items() if d in inside} for q, grades in collection.qrels.items()}
    asked = [query_id for query_id in collection.query_ids if any(grade > 0 for grade in qrels[query_id].values())]
    full = run_over(collection, rest, target.documents[rest], target.queries)
    standard = ndcg(full, qrels, asked, 10)
    known: dict[str, tuple[Scores, Scores]] = {}
    for spec in stitches:
        fit_source, fit_target = source.documents[fit], target.documents[fit]
        if spec == "identity" and fit_source.shape[1] != fit_target.shape[1]:
            yield spec, np.nan, np.nan
            continue
        chosen = select_stitch(fit_source, fit_target, seed=seed).chosen if spec == "auto" else spec
        if chosen not in known:
            stitch = new_stitch(chosen).fit(fit_source, fit_target)
            translated = unit_rows(stitch.transform(source.documents[rest])) * np.float32(fit_norm(fit_target))
            run = run_over(collection, rest, translated, target.queries)
            known[chosen] = ndcg(run, qrels, asked, 10), overlap(run, full, asked, 10)
        scores, shares = known[chosen]
        yield spec, float(scores.mean() / standard.mean()), float(shares.mean())


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--stitches", nargs="+", default=list(STITCHES))
    arguments = parser.parse_args()
    started = time.perf_counter()
    cells: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    for name in SETS:
        data = load_beir(arguments.data / name)
        collection = Collection(data, tuple(data.documents()))
        target = load_space(arguments.data, name, TARGET, collection)
        print_full_reembed(name, collection, target)
        for space in SPACES:
            source = load_space(arguments.data, name, space, collection)
            found: dict[str, list[tuple[float, float]]] = {}
            for seed in arguments.seeds:
                scores = held_out_scores(collection, source, target, arguments.stitches, arguments.pairs, seed)
                for stitch, retention, share in scores:
                    found.setdefault(stitch, []).append((retention, share))
            cells[name, space] = {s: tuple(np.mean(v, axis=0).tolist()) for s, v in found.items()}
    print_cells(cells, arguments.stitches)
    print(f"\n{arguments.pairs:,} pairs, seeds {arguments.seeds}, {time.perf_counter() - started:.0f} s")


def print_cells(cells: dict[tuple[str, str], dict[str, tuple[float, float]]], stitches: Sequence[str]) -> None:
    """One table for each measure: a row a cell, a column a stitch, the mean last."""
    for index, measure in enumerate(("retention of nDCG@10", "overlap@10")):
        values = {cell: [scores[stitch][index] for stitch in stitches] for cell, scores in cells.items()}
        means = np.nanmean(list(values.values()), axis=0).tolist()
        rows = [[f"{name} {space}", *(f"{v:.3f}" for v in row)] for (name, space), row in values.items()]
        print(f"\n{measure}, held-out collection\n")
        print(table([["set and source", *stitches], *rows, ["mean", *(f"{mean:.3f}" for mean in means)]]))


if __name__ == "__main__":
    main()
