"""Retrieval after translation, on real embedding pairs: every stitch, every source space, two BEIR sets.

    python benchmarks/retrieval.py DATA [--pairs 1000 ...] [--no-tokens] [--tokens-of MODEL]
        [--stitches ridge+text auto ...]

DATA holds `scifact/` and `nfcorpus/` in BEIR layout, and `pairs/SET.SPACE.npz` with `doc_ids`, `docs`, `query_ids`
and `queries`; the target space is `minilm` (all-MiniLM-L6-v2). A further source, `tfidf:256`, is computed.

Printed first: nDCG@10 of the full re-embed, by the audit's own code and by ir_measures, query by query. Then, for each
source space and stitch: retention of nDCG@10 and overlap@10 on the held-out collection, which is the collection
without the documents that the stitch was fitted on, in the index and in the judgements; mean over seeds. At last,
for the stitches that read texts, how well the confidence ranks the true errors of the held-out documents; and, where
`auto` is among the stitches, what it took, and what that keeps less than the best of the others does: by the queries
that say which is the best, and by others, since the best of several is ahead by chance alone.

The target's own token embeddings are read where a stitch reads texts, but not with `--no-tokens`, as it would be if the
target were behind an API; with `--tokens-of` they are those of another model, as a stitch reads those of a free one
then. `vectors` is `auto` among the stitches that read no texts; `staying`, if it is asked for, is the old model, asked
in its own space, and `together` what `auto` finds and what the old model finds, fused by rank.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from migrate.audit.measures import Qrels, ndcg, overlap
from migrate.datasets.beir import BeirSet, load_beir
from migrate.embedders import load_embedder
from migrate.embedders.abilities import TokenTable, token_table_of
from migrate.report.terminal import table
from migrate.search.fusion import RankComparison, reciprocal_rank_fusion
from migrate.search.runs import Rankings, search
from migrate.stitch.base import Pairing, Stitch
from migrate.stitch.confidence import spearman
from migrate.stitch.registry import KINDS
from migrate.stitch.scores import Sphere, standard_error
from migrate.stitch.select import AUTO_CANDIDATES, Selection, applicable, select_stitch, tune
from migrate.stitch.text_features import TextRows
from migrate.stitch.text_reader import TextReader
from migrate.vectors import Batch, Document, Query, Vectors, unit_rows

SETS = ("scifact", "nfcorpus")
SPACES = ("tfidf:256", "wordpieces", "layer3-cls", "layer4-mean", "layer5-mean")
TARGET, TARGET_MODEL = "minilm", "packaged:all-MiniLM-L6-v2"
VECTORS, AUTO, STAYING, TOGETHER = "vectors", "auto", "staying", "together"
STITCHES = ("mean", *AUTO_CANDIDATES, "text", VECTORS, AUTO)


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
    """A space from a file of vectors in DATA, or computed from the texts."""
    spec = space if space.startswith("tfidf:") else f"file:{data / 'pairs' / f'{name}.{space}.npz'}"
    embedder = load_embedder(spec)
    embedder.fit(collection.documents)
    return Space(embedder.embed_documents(collection.documents), embedder.embed_queries(collection.queries))


def run_over(collection: Collection, rows: NDArray[np.int64], vectors: Vectors, queries: Vectors) -> Rankings:
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


@dataclass(frozen=True)
class Result:
    """What a stitch does on the held-out collection; `rank` is Spearman's correlation of confidence and cosine.

    `scores` and `shares` are the parts of `retention` and `overlap` that each query has, (k,), so that these are means.
    """

    retention: float
    overlap: float
    rank: float = np.nan
    chosen: str = ""
    scores: NDArray[np.float64] = field(default_factory=lambda: np.empty(0), compare=False, repr=False)
    shares: NDArray[np.float64] = field(default_factory=lambda: np.empty(0), compare=False, repr=False)


NOT_APPLICABLE = Result(np.nan, np.nan, scores=np.array([np.nan]), shares=np.array([np.nan]))


@dataclass(frozen=True)
class HeldOut:
    """A collection without the documents of a sample, and the pairs of the sample."""

    collection: Collection
    source: Space
    target: Space
    texts: TextRows
    pairs: int
    seed: int

    @cached_property
    def rows(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of the sample, and the others."""
        order = np.random.default_rng(self.seed).permutation(len(self.collection.documents))
        return np.sort(order[: self.pairs]), np.sort(order[self.pairs :])

    @cached_property
    def pairing(self) -> Pairing:
        """The pairs of the sample."""
        fit = self.rows[0]
        return Pairing(
            self.source.documents[fit], self.target.documents[fit], self.texts.take(fit), self.seed
        ).in_own_order()

    @cached_property
    def qrels(self) -> Qrels:
        """Judgements of the documents that are left."""
        inside = {self.collection.documents[row].id for row in self.rows[1]}
        return {q: {d: g for d, g in grades.items() if d in inside} for q, grades in self.collection.qrels.items()}

    @cached_property
    def asked(self) -> list[str]:
        """Queries with a relevant document left."""
        return [q for q in self.collection.query_ids if any(grade > 0 for grade in self.qrels[q].values())]

    @cached_property
    def full(self) -> Rankings:
        """What the full re-embed answers."""
        rest = self.rows[1]
        return run_over(self.collection, rest, self.target.documents[rest], self.target.queries)

    def select(self, spec: str, tuned: Mapping[str, Stitch] | None = None) -> Selection:
        """The stitch of a spec, tuned; of `auto` and `vectors` the one that selection takes."""
        pairs = self.pairing
        if spec == AUTO:
            return select_stitch(pairs, tuned=tuned)
        if spec == VECTORS:
            return select_stitch(replace(pairs, texts=None))
        if spec not in KINDS or not KINDS[spec].reads_texts:
            return Selection(spec, (), tuned={spec: tune(spec, pairs)[0]})
        return select_stitch(pairs, specs=[spec])

    def judge(self, selection: Selection) -> Result:
        """Fit the chosen stitch and translate what is left."""
        translated, confidence = self.translated(selection)
        rank = np.nan
        if confidence is not None:
            cosine = np.einsum("ij,ij->i", translated, unit_rows(self.target.documents[self.rows[1]]))
            rank = spearman(confidence.astype(np.float64), cosine.astype(np.float64))
        return replace(self.compare(translated, self.target.queries), rank=rank, chosen=selection.chosen)

    def translated(self, selection: Selection) -> tuple[Vectors, Vectors | None]:
        """The vectors, (m, dim), of what is left, by a stitch that is fitted now, and the confidence of each, (m,)."""
        assert selection.stitch is not None
        rest = self.rows[1]
        fitted = self.pairing.fit(selection.stitch)
        found = fitted.predict(self.source.documents[rest], self.texts.take(rest) if fitted.reads_texts else None)
        confidence = None if selection.confidence is None else selection.confidence.of(found)
        return Sphere.fit(self.pairing.target).of(found.vectors), confidence

    @cached_property
    def stayed(self) -> Rankings:
        """What the old model answers from what is left."""
        rest = self.rows[1]
        documents, queries = unit_rows(self.source.documents[rest]), unit_rows(self.source.queries)
        return run_over(self.collection, rest, documents, queries)

    def together(self, selection: Selection) -> Result:
        """The translated documents and the old model, by the ranks in both, as the audit's arm has them."""
        translated = run_over(self.collection, self.rows[1], self.translated(selection)[0], self.target.queries)
        weight = RankComparison.of(translated, self.stayed).weight(len(self.rows[1]))
        return self.compare_run(reciprocal_rank_fusion([translated, self.stayed], weights=(2 - weight, weight)))

    def compare(self, documents: Vectors, queries: Vectors) -> Result:
        """Retrieval from what is left, by unit vectors of its documents, (m, d), and of all queries, (k, d)."""
        return self.compare_run(run_over(self.collection, self.rows[1], documents, queries))

    def compare_run(self, run: Rankings) -> Result:
        """The same for answers that are there already."""
        scores, standard = (ndcg(one, self.qrels, self.asked, 10) for one in (run, self.full))
        scores, shares = scores / standard.mean(), overlap(run, self.full, self.asked, 10)
        return Result(float(scores.mean()), float(shares.mean()), scores=scores, shares=shares)


def results(held_out: HeldOut, stitches: Sequence[str]) -> Iterator[tuple[str, Result]]:
    """Every stitch on one held-out collection, or staying; one that was chosen before is not fitted again."""
    known, tuned = dict[str, Result](), dict[str, Stitch]()
    for spec in stitches:
        if spec == STAYING:
            yield spec, held_out.compare_run(held_out.stayed)
            continue
        if spec == TOGETHER:
            yield spec, held_out.together(held_out.select(AUTO, tuned))
            continue
        if spec == "identity" and spec not in applicable(held_out.pairing):
            yield spec, NOT_APPLICABLE
            continue
        selection = held_out.select(spec, tuned) if spec not in known else None
        name = selection.chosen if selection is not None else spec
        tuned |= {} if selection is None or spec == VECTORS else selection.tuned
        if selection is not None and (name not in known or np.isnan(known[name].rank)):
            known[name] = held_out.judge(selection)
        yield spec, known[name]


Extend = Callable[[TextReader, Sequence[str]], TextReader]
"""Adds to a reader of the texts what else it reads."""


def read_texts(collection: Collection, table: TokenTable | None, extend: Extend | None = None) -> TextRows:
    """The texts of a collection as stitches see them; with what the model makes of its tokens, if the table has it."""
    texts = [document.text for document in collection.documents]
    reader = TextReader.fit(texts, table)
    if table is not None:
        reader = reader.with_outputs(table)
    if extend is not None:
        reader = extend(reader, texts)
    return reader.read(texts)


def main() -> None:
    """Print the tables of each number of pairs, and the means over them where there are several."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1_000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--stitches", nargs="+", default=list(STITCHES))
    parser.add_argument("--spaces", nargs="+", default=list(SPACES))
    parser.add_argument("--no-tokens", action="store_true", help="read no token embeddings")
    parser.add_argument("--tokens-of", default=TARGET_MODEL, metavar="MODEL", help="whose token embeddings are read")
    arguments = parser.parse_args()
    tokens = None if arguments.no_tokens else token_table_of(load_embedder(arguments.tokens_of))
    if tokens is not None:
        tokens = replace(tokens, outputs=None)
    read = [read_set(arguments.data, name, arguments.spaces, tokens) for name in SETS]
    means: dict[int, dict[str, float]] = {}
    for pairs in arguments.pairs:
        cells = {
            (one.name, space): judge_cell(one, space, pairs, arguments.seeds, arguments.stitches)
            for one in read
            for space in arguments.spaces
        }
        print_cells(cells, arguments.stitches)
        texts_read = "no tokens" if tokens is None else f"tokens of {arguments.tokens_of}"
        print(f"\n{pairs:,} pairs, seeds {arguments.seeds}; read of the texts: {texts_read}")
        means[pairs] = {
            stitch: float(np.nanmean([[one.retention for one in found[stitch]] for found in cells.values()]))
            for stitch in arguments.stitches
        }
    if len(means) > 1:
        print_plot(means, arguments.stitches)


@dataclass(frozen=True)
class ReadSet:
    """A BEIR set with its target space, its source spaces and its texts as the stitches see them."""

    name: str
    collection: Collection
    target: Space
    sources: dict[str, Space]
    texts: TextRows


def read_set(
    data: Path,
    name: str,
    spaces: Sequence[str],
    tokens: TokenTable | None,
    target_space: str = TARGET,
    extend: Extend | None = None,
) -> ReadSet:
    """Read a set, and print what the full re-embed does on it."""
    beir = load_beir(data / name)
    collection = Collection(beir, tuple(beir.documents()))
    target = load_space(data, name, target_space, collection)
    print_full_reembed(name, collection, target)
    sources = {space: load_space(data, name, space, collection) for space in spaces}
    return ReadSet(name, collection, target, sources, read_texts(collection, tokens, extend))


def judge_cell(
    read: ReadSet, space: str, pairs: int, seeds: Sequence[int], stitches: Sequence[str]
) -> dict[str, list[Result]]:
    """Every stitch from one source space, a result a seed."""
    started, found = time.perf_counter(), dict[str, list[Result]]()
    for seed in seeds:
        held_out = HeldOut(read.collection, read.sources[space], read.target, read.texts, pairs, seed)
        for stitch, result in results(held_out, stitches):
            found.setdefault(stitch, []).append(result)
    print(f"  {read.name} {space}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return found


def print_plot(means: Mapping[int, Mapping[str, float]], stitches: Sequence[str]) -> None:
    """Mean retention by the number of pairs: a table, and a bar for each figure."""
    rows = [[f"{pairs:,}", *(f"{found[stitch]:.3f}" for stitch in stitches)] for pairs, found in means.items()]
    print(f"\nmean retention of nDCG@10\n\n{table([['pairs', *stitches], *rows])}\n")
    for stitch in stitches:
        for pairs, found in means.items():
            print(f"{stitch:12} {pairs:>6,}  {'#' * round(60 * found[stitch]):60}  {found[stitch]:.3f}")


Cells = dict[tuple[str, str], dict[str, list[Result]]]


def print_cells(cells: Cells, stitches: Sequence[str]) -> None:
    """One table for each measure: a row a cell, a column a stitch, the mean last."""
    measures: dict[str, Callable[[Result], float]] = {
        "retention of nDCG@10": lambda result: result.retention,
        "overlap@10": lambda result: result.overlap,
        "Spearman of confidence and true cosine": lambda result: result.rank,
    }
    for measure, value in measures.items():
        values = {
            cell: [float(np.mean([value(one) for one in found[stitch]])) for stitch in stitches]
            for cell, found in cells.items()
        }
        shown = [i for i in range(len(stitches)) if not all(np.isnan(row[i]) for row in values.values())]
        means = [float(np.nanmean([row[i] for row in values.values()])) for i in shown]
        rows = [[f"{name} {space}", *(f"{row[i]:.3f}" for i in shown)] for (name, space), row in values.items()]
        print(f"\n{measure}, held-out collection\n")
        print(table([["set and source", *(stitches[i] for i in shown)], *rows, ["mean", *(f"{m:.3f}" for m in means)]]))
    if AUTO in stitches:
        print_choices(cells)


def print_choices(cells: Cells) -> None:
    """What `auto` took, and how much less it keeps than the best of the other stitches, with its standard error.

    The best is that of the mean over seeds. The error is of one seed's queries, asked of both, for seeds share queries.
    The best of several is ahead by chance alone where the queries that choose it judge it, so the last lines have the
    loss by other queries too: see `loss_by_halves`.
    """
    rows, every = [], dict[str, list[tuple[float, float, float]]]()
    for (name, space), found in cells.items():
        taken = Counter(one.chosen for one in found[AUTO])
        row = [f"{name} {space}", ", ".join(f"{spec} {count}" for spec, count in taken.most_common())]
        for measure, parts in (("retention", attrgetter("scores")), ("overlap", attrgetter("shares"))):
            rivals = [several for spec, several in found.items() if spec in KINDS or spec == VECTORS]
            others = [several for several in rivals if NOT_APPLICABLE not in several]
            compared = [[parts(one) for one in several] for several in (found[AUTO], *others)]
            best = max(compared, key=mean_of_means)
            lost = [one - own for one, own in zip(best, compared[0], strict=True)]
            mean = float(np.mean([each.mean() for each in lost]))
            error = float(np.mean([standard_error(each) for each in lost]))
            every.setdefault(measure, []).append((mean, error, loss_by_halves(compared)))
            row.append(f"{mean:.3f} +- {error:.3f}")
        rows.append(row)
    print(f"\nwhat auto took\n\n{table([['set and source', 'taken', 'retention lost', 'overlap lost'], *rows])}")
    for measure, losses in every.items():
        behind = [(mean, error) for mean, error, _ in losses if mean > 0.005]
        clear = sum(mean > 2 * error for mean, error in behind)
        means, _, halved = zip(*losses, strict=True)
        print(
            f"{measure}: lost {np.mean(means):.3f} on average, {max(means):.3f} at worst; more than "
            f".005 in {len(behind)} of {len(losses)} cells, by more than two standard errors in {clear}; "
            f"to the best by half of the queries, on the other half, {np.mean(halved):.3f} on average, "
            f"more than .005 in {sum(lost > 0.005 for lost in halved)}"
        )


def mean_of_means(seeds: Sequence[NDArray[np.float64]]) -> float:
    """The mean over seeds of the mean over queries."""
    return float(np.mean([queries.mean() for queries in seeds]))


def loss_by_halves(compared: Sequence[Sequence[NDArray[np.float64]]], draws: int = 200) -> float:
    """Mean loss of the first stitch to the one that is best by a random half of the queries, on the other half.

    `compared` has the values of each stitch, by seed and query. Below 0 where the best by some queries is not the best.
    """
    rng, losses = np.random.default_rng(0), []
    for _ in range(draws):
        halves = [rng.permutation(len(queries)) % 2 == 0 for queries in compared[0]]
        asked = [[queries[half] for queries, half in zip(one, halves, strict=True)] for one in compared]
        best = compared[max(range(len(compared)), key=lambda number: mean_of_means(asked[number]))]
        others = [queries[~half] for queries, half in zip(best, halves, strict=True)]
        own = [queries[~half] for queries, half in zip(compared[0], halves, strict=True)]
        losses.append(mean_of_means(others) - mean_of_means(own))
    return float(np.mean(losses))


if __name__ == "__main__":
    main()
