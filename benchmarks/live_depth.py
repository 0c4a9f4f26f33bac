"""Whether a depth set by the fit's confidence is cheaper for live serving than one depth for all queries.

    python benchmarks/live_depth.py DATA [--pairs 750] [--stitch ridge] [--depths 20 50 100 200]

DATA as for `unjudged.py`. A stitch to all-MiniLM-L6-v2 is fitted on some documents, which have their true vectors from
then on; of each query a pool of documents is ranked by true vectors. Three ways to choose it:

- fixed: the first K of the translated store;
- confidence: all whose score + z * (expected error) reaches the score of the 10th. A translation of cosine c to the
  true vector errs by sqrt((1 - c²) (1 - s²) / (dim - 1)) in a query's score s, where it errs in no certain direction;
- stepwise: the highest such sum first, until none that is left reaches the 10th best true score so far.

z is chosen on one half of the queries, so that both ways cost what the fixed depth costs in true vectors; figures are
of the other half, beside the fixed depths that cost there as much as they do: retention of nDCG@10 over that of a full
re-embed, mean of five splits both ways. Exits with 1 where choosing by confidence wins at least 0.005 in most cells,
as the pages would be wrong then.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from unjudged import load

from migrate.audit.measures import Qrels, Scores, ndcg
from migrate.report.terminal import table
from migrate.search.runs import Rankings
from migrate.stitch.base import Pairing
from migrate.stitch.select import select_stitch
from migrate.vectors import Vectors, unit_rows

TARGET = "minilm"
SOURCES = ("wordpieces", "layer3-cls", "layer4-mean", "layer5-mean", "mpnet")
MOST = 1_000
TOP = 10
SPLITS = 5
DEPTHS = (*range(10, 60, 4), *range(60, 200, 20), *range(200, MOST + 1, 100))
Z = (*np.arange(0, 4, 0.2), *np.arange(4, 12, 0.5))
WINS = 0.005

Pools = NDArray[np.bool_]
"""Which of its first documents each query is to have ranked by true vectors, (q, MOST)."""


@dataclass(frozen=True)
class Found:
    """The first documents of each query in a translated store, (q, MOST): scores, errors, true scores, what lacks."""

    query_ids: Sequence[str]
    ids: NDArray[np.object_]
    scores: Vectors
    errors: Vectors
    true: Vectors
    lacking: Pools

    def costs(self, pools: Pools) -> NDArray[np.float64]:
        """True vectors that each query needs."""
        return np.asarray((pools & self.lacking).sum(axis=1), np.float64)

    def quality(self, pools: Pools, qrels: Qrels) -> Scores:
        """NDCG@10 of each query, its pool ranked by true vectors."""
        best = np.argsort(-np.where(pools, self.true, -np.inf), axis=1, kind="stable")[:, :TOP]
        rankings = {one: tuple(self.ids[row, best[row]]) for row, one in enumerate(self.query_ids)}
        return ndcg(Rankings(rankings), qrels, self.query_ids, TOP)

    def fixed(self, depth: float) -> Pools:
        """The first `depth` of each query."""
        return np.broadcast_to(np.arange(self.ids.shape[1]) < depth, self.ids.shape)

    def by_confidence(self, z: float) -> Pools:
        """All that may be among the best."""
        return self.scores + z * self.errors >= self.scores[:, TOP - 1 : TOP]

    def stepwise(self, z: float) -> Pools:
        """One after another, the most hopeful first, while one that is left may be among the best."""
        hopes = self.scores + z * self.errors
        order = np.argsort(-hopes, axis=1, kind="stable")
        hopes, true = (np.take_along_axis(one, order, axis=1) for one in (hopes, self.true))
        pools, best = np.zeros(self.ids.shape, bool), np.full((len(true), TOP), -np.inf)
        for place in range(true.shape[1]):
            goes_on = hopes[:, place] >= best.min(axis=1)
            if not goes_on.any():
                break
            rows = np.flatnonzero(goes_on)
            pools[rows, order[rows, place]] = True
            worst = best[rows].argmin(axis=1)
            best[rows, worst] = np.maximum(best[rows, worst], true[rows, place])
        return pools


def find(source: Vectors, true: Vectors, queries: Vectors, ids: Sequence[str], query_ids: Sequence[str],
         stitch: str, n_pairs: int) -> Found:  # fmt: skip
    """Fit on some documents, and search the translated store."""
    pairs = np.sort(np.random.default_rng(0).permutation(len(true))[:n_pairs])
    known = Pairing(source[pairs], true[pairs])
    selection = select_stitch(known, specs=[stitch])
    assert selection.stitch is not None and selection.confidence is not None
    found = known.fit(selection.stitch).predict(source)
    sure = np.clip(selection.confidence.of(found).astype(np.float64), 0, 1)
    store = unit_rows(found.vectors)
    store[pairs], sure[pairs] = true[pairs], 1
    scores = queries @ store.T
    first = np.argsort(-scores, axis=1, kind="stable")[:, :MOST]
    scores = np.take_along_axis(scores, first, axis=1)
    error = np.sqrt(np.maximum(1 - sure**2, 0))[first] * np.sqrt((1 - scores**2) / (true.shape[1] - 1))
    lacking = np.ones(len(true), bool)
    lacking[pairs] = False
    exact = np.take_along_axis(queries @ true.T, first, axis=1)
    return Found(query_ids, np.array(ids, object)[first], scores, error, exact, lacking[first])


@dataclass(frozen=True)
class Way:
    """A way to choose pools, by a number that grows with them: costs and nDCG@10 at each number, (numbers, q)."""

    costs: NDArray[np.float64]
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, found: Found, qrels: Qrels, pools: Callable[[float], Pools], numbers: Sequence[float]) -> Way:
        """At some numbers."""
        chosen = [pools(number) for number in numbers]
        costs, scores = [found.costs(one) for one in chosen], [found.quality(one, qrels) for one in chosen]
        return cls(np.array(costs), np.array(scores))

    def at_cost(self, cost: float, half: NDArray[np.bool_]) -> int:
        """Which of the numbers costs about so much."""
        return int(np.abs(self.costs[:, half].mean(axis=1) - cost).argmin())

    def retention(self, cost: float, half: NDArray[np.bool_], full: Scores) -> float:
        """What is kept at a cost between those of two numbers."""
        kept = self.scores[:, half].sum(axis=1) / full[half].sum()
        return float(np.interp(cost, self.costs[:, half].mean(axis=1), kept))


def compare(found: Found, qrels: Qrels, depths: Sequence[int], full: Scores) -> list[list[float]]:
    """For each depth: retention of the fixed one; what confidence and steps gain over fixed ones at their costs."""
    fixed = Way.of(found, qrels, found.fixed, DEPTHS)
    ways = [Way.of(found, qrels, pools, Z) for pools in (found.by_confidence, found.stepwise)]
    rng, count = np.random.default_rng(1), len(found.query_ids)
    figures: dict[int, list[list[float]]] = {depth: [] for depth in depths}
    for _ in range(SPLITS):
        half = rng.permutation(count) < count // 2
        for (learn, judge), depth in product(((half, ~half), (~half, half)), depths):
            wanted = [float(found.costs(found.fixed(depth))[part].mean()) for part in (learn, judge)]
            row = [fixed.retention(wanted[1], judge, full)]
            for way in ways:
                number = way.at_cost(wanted[0], learn)
                cost, kept = way.costs[number, judge].mean(), way.scores[number, judge].sum() / full[judge].sum()
                row.append(float(kept - fixed.retention(cost, judge, full)))
            figures[depth].append(row)
    return [np.mean(figures[depth], axis=0).tolist() for depth in depths]


def main() -> int:
    """Print the table; 1 where the pages would be wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--pairs", type=int, default=750)
    parser.add_argument("--stitch", default="ridge")
    parser.add_argument("--depths", type=int, nargs="+", default=[20, 50, 100, 200])
    parser.add_argument("--sets", nargs="+", default=["scifact", "nfcorpus"])
    arguments = parser.parse_args()
    rows, gains = [["set and source", "fixed depth", "retention", "confidence", "stepwise"]], []
    for name in arguments.sets:
        collection, spaces = load(arguments.data, name)
        true, queries = (unit_rows(one) for one in (spaces[TARGET].documents, spaces[TARGET].queries))
        ids = [document.id for document in collection.documents]
        for space in SOURCES:
            found = find(
                spaces[space].documents, true, queries, ids, collection.query_ids, arguments.stitch, arguments.pairs
            )
            everything = np.argsort(-(queries @ true.T), axis=1, kind="stable")[:, :TOP]
            names = np.array(ids, object)[everything]
            run = Rankings({one: tuple(names[row]) for row, one in enumerate(collection.query_ids)})
            full = ndcg(run, collection.qrels, collection.query_ids, TOP)
            cells = compare(found, collection.qrels, arguments.depths, full)
            for depth, (kept, *gained) in zip(arguments.depths, cells, strict=True):
                gains.append(gained)
                rows.append([f"{name} {space}", f"{depth}", f"{kept:.3f}", *(f"{one:+.3f}" for one in gained)])
    wins = (np.array(gains) >= WINS).sum(axis=0)
    print(table(rows))
    print(
        f"\n{arguments.pairs} pairs, {arguments.stitch}: retention of nDCG@10 at the fixed depth, and what is gained "
        f"over fixed depths at equal cost\nat least {WINS} better in {wins[0]} of {len(gains)} cells by confidence, in "
        f"{wins[1]} stepwise"
    )
    return int(wins.max() > len(gains) / 2)


if __name__ == "__main__":
    sys.exit(main())
