"""Whether a depth set by the fit's confidence is cheaper for live serving than one depth for all queries.

    python benchmarks/live_depth.py DATA [--pairs 750] [--stitch ridge] [--depths 20 50 100 200]

DATA as for `unjudged.py`. A stitch to all-MiniLM-L6-v2 is fitted on some documents, which have their true vectors from
then on; of each query a pool of documents is ranked by true vectors. Three ways to choose it:

- fixed: the first K of the translated store;
- confidence: all whose score + z * (expected error) reaches the score of the 10th. A translation of cosine c to the true
  vector errs by sqrt((1 - c²) (1 - s²) / (dim - 1)) in a query's score s, where it errs in no certain direction;
- stepwise: the highest such sum first, until none that is left reaches the 10th best true score so far.

z is chosen on one half of the queries, so that both ways cost what the fixed depth costs in true vectors; figures are of
the other half, beside the fixed depths that cost there as much as they do: retention of nDCG@10 over that of a full
re-embed, mean of five splits both ways. Exits with 1 where choosing by confidence wins at least 0.005 in most cells, as
the pages would be wrong then.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappush, heappushpop
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from unjudged import load

from migrate.audit.measures import Scores, ndcg
from migrate.report.terminal import table
from migrate.search.runs import Run
from migrate.stitch.base import Pairing
from migrate.stitch.select import select_stitch
from migrate.vectors import Vectors, unit_rows

TARGET = "minilm"
SOURCES = ("wordpieces", "layer3-cls", "layer4-mean", "layer5-mean", "mpnet")
MOST = 1_000
TOP = 10
SPLITS = 5
STEPS = 14
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

    def quality(self, pools: Pools, qrels: dict[str, dict[str, int]]) -> Scores:
        """NDCG@10 of each query, its pool ranked by true vectors."""
        best = np.argsort(-np.where(pools, self.true, -np.inf), axis=1, kind="stable")[:, :TOP]
        rankings = {one: tuple(self.ids[row, best[row]]) for row, one in enumerate(self.query_ids)}
        return ndcg(Run(rankings), qrels, self.query_ids, TOP)

    def fixed(self, depth: float) -> Pools:
        """The first `depth` of each query."""
        return np.broadcast_to(np.arange(self.ids.shape[1]) < depth, self.ids.shape)

    def by_confidence(self, z: float) -> Pools:
        """All that may be among the best."""
        return self.scores + z * self.errors >= self.scores[:, TOP - 1 : TOP]

    def stepwise(self, z: float) -> Pools:
        """One after another, while any that is left may be among the best."""
        pools = np.zeros(self.ids.shape, bool)
        hopes = self.scores + z * self.errors
        orders = np.argsort(-hopes, axis=1)
        for row, order in enumerate(orders):
            best: list[float] = []
            for place in order.tolist():
                if len(best) == TOP and hopes[row, place] < best[0]:
                    break
                pools[row, place] = True
                if len(best) < TOP:
                    heappush(best, float(self.true[row, place]))
                else:
                    heappushpop(best, float(self.true[row, place]))
        return pools


def find(source: Vectors, true: Vectors, queries: Vectors, ids: Sequence[str], query_ids: Sequence[str],
         stitch: str, n_pairs: int) -> Found:  # fmt: skip
    """Fit on some documents, and search the translated store."""
    pairs = np.sort(np.random.default_rng(0).permutation(len(true))[:n_pairs])
    known = Pairing(source[pairs], true[pairs])
    selection = select_stitch(known, specs=[stitch], seed=0)
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


def choose(costs_at: Callable[[float], float], wanted: float) -> float:
    """The z at which pools cost what is wanted, between 0 and 100."""
    low, high = 0.0, 100.0
    for _ in range(STEPS):
        middle = (low + high) / 2 if high - low < 8 else low + 4
        low, high = (middle, high) if costs_at(middle) < wanted else (low, middle)
    return (low + high) / 2


def compare(found: Found, qrels: dict[str, dict[str, int]], depths: Sequence[int], full: Scores) -> list[list[float]]:
    """For each depth: retention of the fixed one, of confidence and of steps, with those of fixed ones at their costs."""
    grid = sorted({*range(10, 60, 5), *range(60, 300, 20), *range(300, MOST + 1, 100), *depths})
    fixed = {depth: (found.costs(found.fixed(depth)), found.quality(found.fixed(depth), qrels)) for depth in grid}
    ways = [found.by_confidence, found.stepwise]
    pools = [lru_cache(maxsize=None)(way) for way in ways]
    rng, count = np.random.default_rng(1), len(found.query_ids)
    figures: dict[int, list[list[float]]] = {depth: [] for depth in depths}
    for _ in range(SPLITS):
        half = rng.permutation(count) < count // 2
        for learn, judge in ((half, ~half), (~half, half)):
            curve = [(costs[judge].mean(), scores[judge].sum() / full[judge].sum()) for costs, scores in fixed.values()]
            for depth in depths:
                wanted, row = fixed[depth][0][learn].mean(), [curve[grid.index(depth)][1]]
                for pool in pools:
                    chosen = pool(round(choose(lambda z: found.costs(pool(z))[learn].mean(), wanted), 2))  # noqa: B023
                    cost = found.costs(chosen)[judge].mean()
                    same = float(np.interp(cost, [one for one, _ in curve], [one for _, one in curve]))
                    row += [float(found.quality(chosen, qrels)[judge].sum() / full[judge].sum()) - same]
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
            run = Run({one: tuple(names[row]) for row, one in enumerate(collection.query_ids)})
            full = ndcg(run, collection.qrels, collection.query_ids, TOP)
            for depth, figures in zip(
                arguments.depths, compare(found, collection.qrels, arguments.depths, full), strict=True
            ):
                gains.append(figures[1:])
                rows.append([f"{name} {space}", f"{depth}", f"{figures[0]:.3f}", *(f"{one:+.3f}" for one in figures[1:])])
    wins = (np.array(gains) >= WINS).sum(axis=0)
    print(table(rows))
    print(
        f"\n{arguments.pairs} pairs, {arguments.stitch}: retention of nDCG@10 at the fixed depth, and what is gained over "
        f"fixed depths at equal cost\nat least {WINS} better in {wins[0]} of {len(gains)} cells by confidence, in "
        f"{wins[1]} stepwise"
    )
    return int(wins.max() > len(gains) / 2)


if __name__ == "__main__":
    sys.exit(main())
