"""What agreement@10 says of retention of nDCG@10: many stores, good and bad, by both.

    python benchmarks/unjudged.py DATA [--points FILE] [--resamples 2000]

DATA is as `benchmarks/retrieval.py` reads it. Stores are translations to `minilm` and to `mpnet` from all other spaces,
by ridges on 50 to 2,000 pairs and by Procrustes, with and without true vectors, and true vectors with noise, in fewer
directions, of one bit, or with some documents lost. All are searched, scored and judged by the audit's own code.

choice       measures that need no judgements, on one half of SciFact's queries: rank correlation with retention;
             how much retention is lost for a unit of the measure, by 95 % of the stores (95 % confidence, see `rate`);
             the margin that follows for a retention of 0.95, and the share of good stores that reach it
relation     retention of stores by their agreement@10, there, on the other half and on NFCorpus
verdicts     SAFE and NOT SAFE by the audit's bounds and limits, and how often retention is on the other side; nDCG@10
             is that of the full re-embed
other models the same where the target is a poor model, or TF-IDF
synthetic    agreement by synthetic queries, and retention of the queries that people asked; the target is minilm

Retention is what the judgements at hand say; it has an error of its own, as they are few. Exits with 1 where the limits
of `migrate.audit.unjudged` are not on the safe side of what is found on the half that chose them, or where SAFE is
wrong of more than 5 % of the stores elsewhere, poor targets aside.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
from intervals import own_bounds
from numpy.typing import NDArray
from retrieval import TARGET_MODEL, Collection, Space, load_space
from scipy.stats import beta, binom, spearmanr

from migrate.audit.bounds import MARGIN
from migrate.audit.measures import Scores, ndcg
from migrate.audit.query_set import SYNTHETIC_QUERIES
from migrate.audit.unjudged import LOSS_AT_LEAST, LOSS_AT_MOST, TEMPERATURE, TopScores, agreement, limits_of
from migrate.datasets.beir import BeirSet, load_beir
from migrate.datasets.synthetic import make_queries
from migrate.embedders import load_embedder
from migrate.report.terminal import table
from migrate.search.runs import search
from migrate.stitch.registry import new_stitch
from migrate.vectors import Batch, Query, Vectors, unit_rows

SETS = {"scifact": ("test", "train"), "nfcorpus": ("test",)}
SPACES = ("minilm", "mpnet", "layer5-mean", "layer4-mean", "layer3-cls", "wordpieces", "tfidf:256")
TARGETS = ("minilm", "mpnet")
OTHER_TARGETS = ("tfidf:256", "wordpieces", "layer5-mean")
K = 10
PAIRS = (50, 250, 1_000, 2_000)
SHARES = {100: (0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98), 1_000: (0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98)}
"""Of true vectors in stores by a ridge on so many pairs."""
NOISE = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.7, 1.0)
DIRECTIONS = (320, 256, 192, 160, 128, 112, 96, 80, 64, 48, 32)
LOST = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2)
NEAR = (0.85, 0.98)
"""Retention of the stores that a rate is taken of: nearer to 1 it is all noise, farther off nobody asks."""
GOOD = 0.97
OTHER_MARGINS = (0.98, 0.9, 0.8)
BINS = (0.0, 0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96, 0.97, 0.98, 0.99, 1.01)


@dataclass(frozen=True)
class Point:
    """A store: the true scores of its first ten documents, (q, 10), those of the reference's, and nDCG@10 of both."""

    collection: str
    target: str
    name: str
    top: TopScores
    best: TopScores
    ndcg: Scores
    full: Scores

    def of(self, rows: slice) -> Point:
        """Some of the queries."""
        parts = (values[rows] for values in (self.top, self.best, self.ndcg, self.full))
        return Point(self.collection, self.target, self.name, *parts)

    @property
    def retention(self) -> float:
        """Of nDCG@10."""
        return float(self.ndcg.mean() / self.full.mean())

    @property
    def agreement(self) -> float:
        """Mean agreement@10."""
        return float(agreement(self.top, self.best).mean())


def stores_of(spaces: Mapping[str, Space], target: str, *, few: bool, seed: int) -> Iterator[tuple[str, Vectors]]:
    """Stores to search in the place of the target's true vectors, by name."""
    true, rng = spaces[target].documents, np.random.default_rng(seed)
    order = rng.permutation(len(true))
    for name, space in spaces.items():
        if name == target:
            continue
        for n in () if few else PAIRS:
            rows = np.sort(order[:n])
            made = translated("ridge", space.documents, true, rows)
            yield f"{name}: ridge on {n}", made
            yield f"{name}: ridge on {n}, with its sample", with_true(made, true, rows)
        rows = np.sort(order[:1_000])
        yield f"{name}: procrustes on 1000", translated("procrustes", space.documents, true, rows)
        for n, shares in SHARES.items():
            made = translated("ridge", space.documents, true, np.sort(order[:n]))
            for share in shares[:: 2 if few else 1]:
                rows = rng.permutation(len(true))[: round(share * len(true))]
                yield f"{name}: ridge on {n}, {share:.0%} true", with_true(made, true, rows)
    yield from degraded(true, rng)


def translated(kind: str, source: Vectors, true: Vectors, rows: NDArray[np.int64]) -> Vectors:
    """All documents by a stitch that was fitted on some."""
    return unit_rows(new_stitch(kind).fit(source[rows], true[rows]).transform(source))


def with_true(made: Vectors, true: Vectors, rows: NDArray[np.int64]) -> Vectors:
    """Some rows replaced by true ones."""
    mixed = made.copy()
    mixed[rows] = true[rows]
    return mixed


def degraded(true: Vectors, rng: np.random.Generator) -> Iterator[tuple[str, Vectors]]:
    """True vectors, spoilt."""
    noise = rng.standard_normal(true.shape).astype(np.float32) / np.sqrt(true.shape[1])
    for size in NOISE:
        yield f"noise of {size:g}", true + np.float32(size) * noise
    mean = true.mean(axis=0)
    basis = np.linalg.svd((true - mean)[:2_000], full_matrices=False)[2]
    for count in DIRECTIONS:
        yield f"{count} directions", (true - mean) @ basis[:count].T @ basis[:count] + mean
    for share in LOST:
        rows = rng.permutation(len(true))[: round(share * len(true))]
        yield f"{share:.0%} lost", with_true(true, unit_rows(noise), rows)
    yield "one bit", np.where(true > 0, 1, -1).astype(np.float32)


@dataclass(frozen=True)
class Searched:
    """A collection with the queries that are asked of it, by their target vectors."""

    collection: Collection
    queries: Sequence[Query]
    vectors: Vectors
    true: Vectors
    exclude_self: bool = False

    def tops(self, documents: Vectors) -> tuple[TopScores, list[tuple[str, ...]]]:
        """The true scores of each query's first ten documents in a store, (q, 10), and these documents."""
        ids = [document.id for document in self.collection.documents]
        row = {doc_id: place for place, doc_id in enumerate(ids)}
        asked = [query.id for query in self.queries]
        run = search([Batch(ids, unit_rows(documents))], asked, self.vectors, metric="ip", depth=K + 1)
        found = [[d for d in run.rankings[q] if not (self.exclude_self and d == q)][:K] for q in asked]
        scores = np.array([self.true[[row[d] for d in top]] @ self.vectors[i] for i, top in enumerate(found)])
        return scores.astype(np.float64), [tuple(top) for top in found]


def points_of(
    name: str, collection: Collection, spaces: Mapping[str, Space], target: str, *, few: bool = False
) -> Iterator[Point]:
    """All stores of a collection for one target."""
    space = spaces[target]
    asked = Searched(collection, collection.queries, space.queries, space.documents)
    best, full = judged(asked, space.documents)
    for store, vectors in stores_of(spaces, target, few=few, seed=0):
        top, scores = judged(asked, vectors)
        yield Point(name, target, store, top, best, scores, full)


def judged(asked: Searched, documents: Vectors) -> tuple[TopScores, Scores]:
    """True scores of the first ten documents, and nDCG@10."""
    from migrate.search.runs import Rankings

    scores, found = asked.tops(documents)
    ids = asked.collection.query_ids
    return scores, ndcg(Rankings(dict(zip(ids, found, strict=True))), asked.collection.qrels, ids, K)


def load(data: Path, name: str) -> tuple[Collection, dict[str, Space]]:
    """A collection with the queries of all its splits, and its spaces."""
    splits = [load_beir(data / name, split=split) for split in SETS[name]]
    first = splits[0]
    qrels = {query_id: grades for part in splits for query_id, grades in (part.qrels or {}).items()}
    queries = tuple(query for part in splits for query in part.queries)
    beir = BeirSet(first.name, "all", first.corpus_path, queries, qrels)
    collection = Collection(beir, tuple(beir.documents()))
    return collection, {space: load_space(data, name, space, collection) for space in SPACES}


# Measures to choose from.

Measure = Callable[[Point], float]


def _graded(gains: Callable[[TopScores, TopScores], TopScores]) -> Measure:
    discounts = 1 / np.log2(np.arange(K) + 2)

    def measure(point: Point) -> float:
        arm, full = gains(point.top, point.best), gains(point.best, point.best)
        return float(((arm @ discounts) / (full @ discounts)).mean())

    return measure


def _softmax(share: float, *, own: bool) -> Measure:
    """Gains exp(score / t), t a share of the gap between first and tenth: the median one, or each query's own."""

    def gains(top: TopScores, best: TopScores) -> TopScores:
        gap = best[:, :1] - best[:, -1:]
        return np.exp((top - best[:, :1]) / (share * (gap if own else np.median(gap))))

    return _graded(gains)


def _overlap(point: Point) -> float:
    return float((point.top >= point.best[:, -1:] - 1e-9).mean())


def _first(point: Point) -> float:
    discounts = 1 / np.log2(np.arange(K) + 2)
    return float(((point.top >= point.best[:, :1] - 1e-9) @ discounts).mean())


MEASURES: dict[str, Measure] = {
    "overlap@10": _overlap,
    "place of the first": _first,
    "score over that of the 10th": _graded(lambda top, best: np.maximum(top - best[:, -1:], 0) + 1e-12),
    "score to the 8th": _graded(lambda top, _: np.maximum(top, 0) ** 8),
    "softmax, 0.1 of each gap": _softmax(0.1, own=True),
    "softmax, 0.25 of each gap": _softmax(0.25, own=True),
    "softmax, 0.5 of each gap": _softmax(0.5, own=True),
    "softmax, 0.1 of the gap": _softmax(0.1, own=False),
    f"agreement@10 ({TEMPERATURE:g} of the gap)": lambda point: point.agreement,
    "softmax, 0.25 of the gap": _softmax(0.25, own=False),
    "softmax, 0.5 of the gap": _softmax(0.5, own=False),
    "softmax, the gap": _softmax(1.0, own=False),
}


def rates(points: Sequence[Point], measure: Measure) -> NDArray[np.float64]:
    """Retention lost for a unit of the measure, of the stores near the margin, in order."""
    near = [point for point in points if NEAR[0] <= point.retention <= NEAR[1]]
    return np.sort([(1 - point.retention) / max(1 - measure(point), 1e-9) for point in near])


def bound(values: NDArray[np.float64], share: float = 0.95, confidence: float = 0.95) -> float:
    """What `share` of stores like these stay below, with confidence (Wilks 1941); infinite where they are too few."""
    n = len(values)
    ranks = np.arange(1, n + 1)
    enough = ranks[binom.cdf(ranks - 1, n, share) >= confidence]
    return float(values[enough[0] - 1]) if len(enough) else np.inf


def print_choice(points: Sequence[Point]) -> None:
    """What each measure would be worth, on the half that chooses."""
    rows = []
    for name, measure in MEASURES.items():
        found = rates(points, measure)
        worst = bound(found)
        margin = 1 - (1 - MARGIN) / worst
        values = np.array([(measure(point), point.retention) for point in points])
        good = values[values[:, 1] >= GOOD, 0]
        rank = spearmanr(values[:, 0], values[:, 1]).statistic
        rows.append([
            name, f"{rank:.3f}", f"{np.median(found):.2f}", f"{worst:.2f}", f"{margin:.3f}",
            f"{(good >= margin).mean():.0%}",
        ])  # fmt: skip
    head = ["measure", "Spearman", "rate, median", "rate, 95 %", "margin", f"of retention {GOOD} reach it"]
    near = len(rates(points, MEASURES["overlap@10"]))
    print(f"\nchoice: {len(points)} stores, {near} of them near the margin\n\n{table([head, *rows])}", flush=True)


def print_relation(parts: Mapping[str, Sequence[Point]]) -> None:
    """Least, median and greatest retention of the stores between two values of agreement."""
    rows = []
    for low, high in pairwise(BINS):
        cells = []
        for points in parts.values():
            found = sorted(point.retention for point in points if low <= point.agreement < high)
            three = f"{found[0]:.3f} {np.median(found):.3f} {found[-1]:.3f}" if found else "-"
            cells += [str(len(found)), three]
        rows.append([f"{low:.2f} to {min(high, 1):.2f}", *cells])
    heads = [head for name in parts for head in ("stores", name)]
    print(f"\nleast, median and greatest retention\n\n{table([['agreement@10', *heads], *rows[::-1]])}")
    ranks = [
        f"{name} {spearmanr([p.agreement for p in points], [p.retention for p in points]).statistic:.3f}"
        for name, points in parts.items()
    ]
    print(f"\nSpearman: {', '.join(ranks)}", flush=True)


def verdicts(points: Sequence[Point], resamples: int, margin: float) -> NDArray[np.int_]:
    """1 for SAFE, -1 for NOT SAFE and 0 for neither, by the audit's bounds and limits."""
    limits = limits_of(margin)
    arms = np.column_stack([agreement(point.top, point.best) for point in points])
    rng = np.random.default_rng(0)
    blocks = np.array_split(np.arange(arms.shape[1]), max(arms.shape[1] // 100, 1))
    sides = [own_bounds(arms[:, block], np.ones((len(arms), len(block))), rng, resamples) for block in blocks]
    lower, upper = (np.concatenate(side) for side in zip(*sides, strict=True))
    return np.asarray((lower >= limits.safe).astype(int) - (upper < limits.harmful))


def print_verdicts(parts: Mapping[str, Sequence[Point]], resamples: int, margin: float = MARGIN) -> dict[str, float]:
    """What would be said of the stores, and how often it is wrong; the share of wrong SAFE by part."""
    limits = limits_of(margin)
    rows, wrong = [], {}
    for name, points in parts.items():
        said, kept = verdicts(points, resamples, margin), np.array([point.retention for point in points])
        cells = []
        for outcome, bad in ((1, kept < margin), (-1, kept >= margin)):
            count, errors = int((said == outcome).sum()), int(((said == outcome) & bad).sum())
            most = float(beta.ppf(0.95, errors + 1, count - errors)) if count > errors else 1.0
            cells += [f"{count}", f"{errors} (at most {most:.0%})"]
            if outcome == 1:
                wrong[name] = errors / max(count, 1)
        least = f"{kept[said == 1].min():.3f}" if (said == 1).any() else "-"
        good = f"{(said[kept >= GOOD] == 1).mean():.0%}" if (kept >= GOOD).any() else "-"
        reference = f"{np.mean([point.full.mean() for point in points]):.2f}"
        rows.append([name, str(len(points[0].full)), reference, str(len(points)), *cells[:2], least, good, *cells[2:]])
    head = ["", "queries", "nDCG@10", "stores", "SAFE", "wrong", "least", f"SAFE of {GOOD}", "NOT SAFE", "wrong"]
    print(
        f"\nSAFE: agreement@10 at least {limits.safe:.3f}; NOT SAFE: below {limits.harmful:.3f}; wrong: retention is "
        f"on the other side of {margin:g}\n\n{table([head, *rows])}",
        flush=True,
    )
    return wrong


def print_synthetic(name: str, collection: Collection, spaces: Mapping[str, Space], points: Sequence[Point]) -> None:
    """Agreement of the same stores by synthetic queries, and what would be said of them."""
    order = np.random.default_rng(0).permutation(len(collection.documents))
    drawn = (collection.documents[row] for row in order)
    made = make_queries(drawn, lambda document: document.id)
    queries = [Query(doc_id, query.text) for doc_id, query in islice(made, SYNTHETIC_QUERIES)]
    space = spaces["minilm"]
    vectors = load_embedder(TARGET_MODEL).embed_queries(queries)
    asked = Searched(collection, queries, vectors, space.documents, exclude_self=True)
    best = asked.tops(space.documents)[0]
    known = {point.name: point for point in points}
    asking = [
        Point(name, "minilm", store, asked.tops(stored)[0], best, known[store].ndcg, known[store].full)
        for store, stored in stores_of(spaces, "minilm", few=False, seed=0)
    ]
    differences = [point.agreement - known[point.name].agreement for point in asking]
    rank = spearmanr([p.agreement for p in asking], [p.retention for p in asking]).statistic
    print(
        f"\nsynthetic, {name}: {len(queries)} such as {queries[0].text[:60]!r}; Spearman with retention {rank:.3f}; "
        f"agreement less that by real queries: median {np.median(differences):+.3f}, "
        f"{np.min(differences):+.3f} to {np.max(differences):+.3f}"
    )
    print_relation({f"{name}, synthetic": asking})
    print_verdicts({f"{name}, synthetic": asking}, 2_000)


def main() -> int:
    """Print everything; 1 where the limits are not on the safe side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--points", type=Path, help="a file for all stores as CSV")
    parser.add_argument("--resamples", type=int, default=2_000)
    arguments = parser.parse_args()
    halves: dict[str, list[Point]] = {"SciFact, first half": [], "SciFact, second half": [], "NFCorpus": []}
    poor: dict[str, list[Point]] = {}
    synthetic = []
    for name in SETS:
        collection, spaces = load(arguments.data, name)
        points = [point for target in TARGETS for point in points_of(name, collection, spaces, target)]
        if name == "scifact":
            halves["SciFact, first half"] = [point.of(slice(0, None, 2)) for point in points]
            halves["SciFact, second half"] = [point.of(slice(1, None, 2)) for point in points]
        else:
            halves["NFCorpus"] = points
        for target in OTHER_TARGETS:
            poor[f"{name}, {target}"] = list(points_of(name, collection, spaces, target, few=True))
        synthetic.append((name, collection, spaces, [point for point in points if point.target == "minilm"]))
    if arguments.points:
        write_points(arguments.points, halves | poor)
    chosen = halves["SciFact, first half"]
    print_choice(chosen)
    found = rates(chosen, lambda point: point.agreement)
    most, least = bound(found), -bound(np.sort(-found))
    print(
        f"\nretention lost for a unit of agreement, 95 % of the stores with 95 % confidence: at most {most:.2f} "
        f"(taken: {LOSS_AT_MOST:g}), at least {least:.2f} (taken: {LOSS_AT_LEAST:g})"
    )
    print_relation(halves)
    wrong = print_verdicts(halves, arguments.resamples)
    print("\nother margins")
    for margin in OTHER_MARGINS:
        print_verdicts(halves, arguments.resamples, margin)
    print("\nother targets")
    print_verdicts(poor, arguments.resamples)
    for parts in synthetic:
        print_synthetic(*parts)
    fine = most <= LOSS_AT_MOST and all(share <= 0.05 for share in wrong.values())
    return 0 if fine else 1


def write_points(path: Path, parts: Mapping[str, Sequence[Point]]) -> None:
    """All stores as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["part", "target", "store", "agreement@10", "retention"])
        for name, points in parts.items():
            for point in points:
                writer.writerow([name, point.target, point.name, f"{point.agreement:.4f}", f"{point.retention:.4f}"])


if __name__ == "__main__":
    sys.exit(main())
