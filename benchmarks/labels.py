"""How to get more out of few judged queries: unlabelled queries as control variates, bounded losses, drawn queries.

    python benchmarks/labels.py DATA [--audits 500] [--resamples 1000]

DATA is laid out as for `retrieval.py`, with qrels of all splits; target is `minilm`. Arms of four source spaces on two
sets: ridge regression on random pairs (1,000, or 50 and 70 % of the documents, which keep their true vectors), and two
stages that rank the first 20, 50 or 200 again by true vectors. Audits draw their queries from the judged ones.

ways to use queries that nobody judged
  control     arm - c * (agreement - its mean over all queries), graded by the target model's scores; the
              mean is taken as known, c is fitted to the labelled queries (PPI++; Angelopoulos et al. 2023)
  limited     the imagined worst query loses what the worst rankings of all queries allow, not everything
  drawn       queries are labelled that are drawn by what their judgements could change (`migrate.audit.drawn_queries`)

Half of the queries chose the least chance to be drawn (first table); the other half is what the rest is printed for.
Exits with 1 where bounds of drawn audits err in more than 5 % of a line's audits, but for chance.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from intervals import Sides, drawn_bounds, own_bounds
from numpy.typing import NDArray
from retrieval import SETS, TARGET, Collection, Space, load_space
from simulated_audits import Pool, Table, translated

from migrate.audit.drawn_queries import FLOOR, greatest_change
from migrate.audit.measures import Scores, ndcg
from migrate.audit.verdict import CONFIDENCE, MARGIN, Weighting, ratio_bounds, weighted_sums
from migrate.datasets.beir import load_beir
from migrate.report.terminal import table
from migrate.search.runs import Rankings

SOURCES = ("wordpieces", "layer4-mean", "layer5-mean", "mpnet")
DEPTHS = (20, 50, 200)
SHARES = (0.5, 0.7)
PAIRS, K = 1_000, 10
SIZES = (50, 100, 150, 300)
FLOORS = (0.03, 0.05, 0.1, 0.2, 0.4, 1.0)
_WORST, _NEAR = 0.9, 0.005
"""Arms that keep less are NOT SAFE by any bound; at the margin itself there is nothing to decide."""


@dataclass(frozen=True, eq=False)
class Labelled(Pool):
    """A pool with the agreement of each query's ranking with the full re-embed's."""

    agreement: Scores = field(default_factory=lambda: np.empty(0))

    def half(self, which: int) -> Labelled:
        """Every other query."""
        rows = slice(which, None, 2)
        return Labelled(
            self.name, self.arm[rows], self.full[rows], changes=self.changes[rows], agreement=self.agreement[rows]
        )

    @property
    def loss(self) -> Scores:
        """What the verdict is about: the mean of arm - margin * full."""
        return np.asarray(self.arm - MARGIN * self.full)


def judged_everywhere(folder: Path) -> Collection:
    """A set with the judgements of all its splits."""
    sets = [load_beir(folder, split=path.stem) for path in sorted((folder / "qrels").glob("*.tsv"))]
    qrels = {query: grades for found in sets for query, grades in (found.qrels or {}).items()}
    merged = replace(sets[0], queries=tuple(query for found in sets for query in found.queries), qrels=qrels)
    return Collection(merged, tuple(merged.documents()))


def arms_of(data: Path) -> Iterator[Labelled]:
    """Every arm of every source space and set."""
    for name in SETS:
        collection = judged_everywhere(data / name)
        target = load_space(data, name, TARGET, collection)
        true = (target.queries @ target.documents.T).astype(np.float64)
        full = np.argsort(-true, axis=1, kind="stable")[:, :K]
        for space in SOURCES:
            source = load_space(data, name, space, collection)
            for arm, found in _rankings(source, target, true):
                yield _labelled(f"{name} {space} {arm}", collection, true, found, full)


def _rankings(source: Space, target: Space, true: Table) -> Iterator[tuple[str, NDArray[np.int64]]]:
    for share in (None, *SHARES):
        vectors = translated(source, target, PAIRS if share is None else int(share * len(source.documents)))
        order = np.argsort(-(target.queries @ vectors.T), axis=1, kind="stable")
        yield "translated" if share is None else f"{share:.0%} true", order[:, :K]
        for depth in DEPTHS if share is None else ():
            first = order[:, :depth]
            again = np.argsort(-np.take_along_axis(true, first, 1), axis=1, kind="stable")[:, :K]
            yield f"two-stage {depth}", np.take_along_axis(first, again, 1)


def _labelled(
    name: str, collection: Collection, true: Table, found: NDArray[np.int64], full: NDArray[np.int64]
) -> Labelled:
    ids, documents = collection.query_ids, [document.id for document in collection.documents]
    runs = [
        Rankings({q: tuple(documents[row] for row in rows) for q, rows in zip(ids, tops.tolist(), strict=True)})
        for tops in (found, full)
    ]
    arm, standard = (ndcg(run, collection.qrels, ids, K) for run in runs)
    changes = greatest_change(runs[0], runs[1], ids)
    return Labelled(name, arm, standard, changes=changes, agreement=_agreement(true, found, full))


def _agreement(true: Table, found: NDArray[np.int64], full: NDArray[np.int64]) -> Scores:
    """An nDCG whose gains are exp(score / t) of the target model's own scores."""
    tops = [np.take_along_axis(true, rows, 1) for rows in (found, full)]
    scale = 0.15 * float(np.median(tops[1][:, 0] - tops[1][:, -1]))
    discounts = 1 / np.log2(np.arange(K) + 2)
    reached, possible = (np.exp((top - tops[1][:, :1]) / scale) @ discounts for top in tops)
    return np.asarray(reached / possible, dtype=np.float64)


@dataclass(frozen=True)
class Effort:
    """How much is simulated."""

    audits: int
    resamples: int
    rng: np.random.Generator

    def sums(self, *columns: Table) -> tuple[list[Table], NDArray[np.float64]]:
        """Weighted sums of scores, (resamples, audits) each, and the weights of the imagined query."""
        seed = int(self.rng.integers(1 << 32))
        sums, unseen = weighted_sums(np.hstack(columns), seed=seed, resamples=self.resamples)
        return np.split(sums, len(columns), axis=1), unseen[:, None]

    def rows(self, arm: Labelled, n: int) -> NDArray[np.int64]:
        """Queries of each audit, at random, (n, audits)."""
        return self.rng.integers(len(arm.full), size=(n, self.audits))


def at_random(arm: Labelled, n: int, effort: Effort) -> Sides:
    """Bounds as they are of queries that were drawn evenly."""
    rows = effort.rows(arm, n)
    return own_bounds(arm.arm[rows], arm.full[rows], effort.rng, effort.resamples)


def controlled(arm: Labelled, n: int, effort: Effort) -> Sides:
    """The same with the control variate, its mean being known; for the imagined query it is as bad as can be."""
    rows = effort.rows(arm, n)
    agreement, mean = arm.agreement[rows], arm.agreement.mean()
    spread = agreement - agreement.mean(axis=0)
    fitted = (arm.loss[rows] * spread).sum(axis=0) / np.maximum((spread**2).sum(axis=0), 1e-12)
    slope = np.clip(fitted, 0, 1.5)
    (adjusted, full), spare = effort.sums(arm.arm[rows] - slope * (agreement - mean), arm.full[rows])
    lower = np.quantile((adjusted - spare * slope * (1 - mean)) / (full + spare), 1 - CONFIDENCE, axis=0)
    return lower, np.quantile((adjusted + spare * (1 + slope * mean)) / full, CONFIDENCE, axis=0)


def limited(arm: Labelled, n: int, effort: Effort) -> Sides:
    """The same, the weight of the imagined query being on the queries that could change most, and by no more."""
    rows = effort.rows(arm, n)
    (scores, full, counts), unseen = effort.sums(arm.arm[rows], arm.full[rows], np.ones((n, effort.audits)))
    total = counts[:, :1] + unseen
    tail = np.append(0, np.cumsum(np.sort(arm.changes)[::-1])) / len(arm.changes)
    spare = np.interp(unseen / total, np.linspace(0, 1, len(tail)), tail) * total
    lower = np.quantile(scores / (full + spare), 1 - CONFIDENCE, axis=0)
    return lower, np.quantile((scores + spare) / full, CONFIDENCE, axis=0)


def drawn(arm: Labelled, n: int, effort: Effort) -> Sides:
    """Bounds of queries that were drawn by what their judgements could change."""
    return drawn_bounds(*arm.draw_chosen(effort.rng, n, effort.audits), effort.rng, effort.resamples)


WAYS: dict[str, Callable[[Labelled, int, Effort], Sides]] = {
    "at random": at_random,
    "control": controlled,
    "limited": limited,
    "drawn": drawn,
}


def right(bounds: Sides, arm: Labelled) -> float:
    """Share of audits that say what is true of the arm."""
    return float(np.mean(bounds[0] >= MARGIN if arm.truth > MARGIN else bounds[1] < MARGIN))


def print_floors(arms: Sequence[Labelled], effort: Effort) -> None:
    """The mean share of decided audits by the least chance to be drawn."""
    rows = []
    for floor in FLOORS:
        shares = [[right(_with_floor(arm, n, floor, effort), arm) for arm in arms] for n in SIZES[:3]]
        rows.append(
            [f"{floor:g}{' (taken)' if floor == FLOOR else ''}", *(f"{100 * np.mean(one):.1f}" for one in shares)]
        )
    print(f"\ndecided audits, %, mean of {len(arms)} arms\n\n{table([['least chance', *map(str, SIZES[:3])], *rows])}")


def _with_floor(arm: Labelled, n: int, floor: float, effort: Effort) -> Sides:
    chances = np.maximum(arm.changes, floor)
    rows = effort.rng.choice(len(chances), size=(n, effort.audits), p=chances / chances.sum())
    picked = chances[rows]
    (scores, full), unseen = effort.sums(arm.arm[rows] / picked, arm.full[rows] / picked)
    weighting = Weighting(1 / picked[:, 0], 1 / floor, limited=True)
    return ratio_bounds(scores, full, unseen[:, 0], CONFIDENCE, weighting=weighting)


def print_arms(arms: Sequence[Labelled], effort: Effort) -> list[float]:
    """What unlabelled queries know, and the share of decided audits by every way; how often drawn audits err."""
    facts, rows, errors = [], [], []
    decided: dict[tuple[str, int], list[float]] = {(way, n): [] for way in WAYS for n in SIZES}
    for arm in arms:
        known = float(np.corrcoef(arm.loss, arm.agreement)[0, 1])
        facts.append(
            [arm.name, f"{arm.truth:.3f}", f"{known:.2f}", f"{1 - known**2:.2f}", f"{np.mean(arm.changes == 0):.2f}",
             f"{arm.changes.mean():.2f}", f"{np.quantile(arm.changes, 0.95):.2f}"]
        )  # fmt: skip
        cells = []
        for n in SIZES:
            bounds = {way: of(arm, n, effort) for way, of in WAYS.items()}
            shares = {way: right(sides, arm) for way, sides in bounds.items()}
            for way, value in shares.items():
                decided[way, n].append(value)
            cells.append(" ".join(f"{100 * value:3.0f}" for value in shares.values()))
            lower, upper = bounds["drawn"]
            errors += [float(np.mean(lower >= arm.truth + 1e-9)), float(np.mean(upper < arm.truth - 1e-9))]
        rows.append([arm.name, f"{arm.truth:.3f}", *cells])
    means = [" ".join(f"{100 * np.mean(decided[way, n]):3.0f}" for way in WAYS) for n in SIZES]
    head = ["arm", "retention", "correlation", "variance left", "same ranking", "mean change", "95 % below"]
    print(f"\nagreement and loss; the greatest change that judgements could make\n\n{table([head, *facts])}")
    head = ["arm", "retention", *(f"{n} queries" for n in SIZES)]
    print(
        f"\ndecided, % of {effort.audits:,} audits: {', '.join(WAYS)}\n\n{table([head, *rows, ['mean', '', *means]])}"
    )
    better = sum(a >= b for a, b in zip(decided["drawn", 150], decided["at random", 300], strict=True))
    print(f"\n150 drawn queries decide at least as many audits as 300 at random for {better} of {len(arms)} arms")
    better = sum(a >= b for a, b in zip(decided["drawn", 100], decided["at random", 300], strict=True))
    print(f"100 drawn queries decide at least as many audits as 300 at random for {better} of {len(arms)} arms")
    return errors


def main() -> int:
    """Print everything; 1 where drawn audits err too often."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--audits", type=int, default=500)
    parser.add_argument("--resamples", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    effort = Effort(arguments.audits, arguments.resamples, np.random.default_rng(arguments.seed))
    arms = list(arms_of(arguments.data))
    halves = [[arm.half(which) for arm in arms] for which in (0, 1)]
    first, second = ([arm for arm in half if arm.truth > _WORST and abs(arm.truth - MARGIN) > _NEAR] for half in halves)
    print_floors(first, effort)
    errors = print_arms(second, effort)
    sure = 1 - CONFIDENCE + 2.6 * np.sqrt(CONFIDENCE * (1 - CONFIDENCE) / effort.audits)
    print(f"drawn audits err in at most {max(errors):.1%} of {effort.audits:,}, of {len(errors)} bounds")
    return 1 if max(errors) > sure else 0


if __name__ == "__main__":
    sys.exit(main())
