"""How often plans that rank again are wrongly SAFE by many queries of which some are ranked: simulated audits.

    python benchmarks/inclusion.py [--runs 1000]

Each run draws queries whose truth is at the margin: 5 % of the full re-embed's nDCG@10 is lost where the first
documents lack what is relevant (`migrate.audit.inclusion`), and nowhere is anything won. Of a plan that is SAFE there
the verdict is wrong. Printed is in what share of the runs the lower bound reaches the margin, with the half width of
its 95 % interval, for kinds of scores and numbers of queries; then the same for a plan that keeps more. Exits with 1
where more than 5 % of the runs are wrong by more than that half width.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from migrate.audit.bounds import MARGIN, UNGROUPED
from migrate.audit.inclusion import bounds_of_lost
from migrate.report.terminal import table

ERROR = 0.05
Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]


def ranks(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """One relevant document: first for half of the queries, further down or nowhere for the others."""
    discounts = np.append(1 / np.log2(np.arange(2, 12)), 0)
    places = np.where(rng.random(n) < 0.5, 0, rng.integers(1, 11, n))
    return discounts[places]


def perfect(_rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """The full re-embed is always right."""
    return np.ones(n)


def rare(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """It hardly ever is."""
    return (rng.random(n) < 0.2).astype(np.float64)


def many(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Many relevant documents of which some are found."""
    return rng.beta(2, 2, n)


KINDS: dict[str, Draw] = {"one document": ranks, "always right": perfect, "hardly ever": rare, "many documents": many}


def share_safe(draw: Draw, lost: float, n_queries: int, n_ranked: int, runs: int, rng: np.random.Generator) -> float:
    """In which share of the runs the lower bound reaches the margin, where a share `lost` of all is lost."""
    safe = 0
    for _ in range(runs):
        full = draw(rng, n_queries)
        # Lost whatever they score, so that what is lost is this share of all
        found = rng.random(n_queries) >= lost
        ranked = (full * found)[:n_ranked]
        bounds = bounds_of_lost(
            ranked, full * ~found, UNGROUPED, UNGROUPED, seed=0, confidence=1 - ERROR, resamples=1_000
        )
        safe += bounds.lower >= MARGIN
    return safe / runs


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1_000)
    runs = parser.parse_args().runs
    rng = np.random.default_rng(0)
    sizes = ((100, 30), (300, 30), (1_500, 30))
    head = ["scores", *(f"{n:,} queries, {ranked} ranked" for n, ranked in sizes)]
    worst = 0.0
    for title, lost in (("wrongly SAFE, at the margin", 1 - MARGIN), ("SAFE, where 98.5 % is kept", 0.015)):
        rows = []
        for name, draw in KINDS.items():
            shares = [share_safe(draw, lost, *size, runs, rng) for size in sizes]
            halves = [1.96 * np.sqrt(share * (1 - share) / runs) for share in shares]
            rows.append([name, *(f"{share:.1%} ±{half:.1%}" for share, half in zip(shares, halves, strict=True))])
            if lost == 1 - MARGIN:
                worst = max(worst, *(share - half for share, half in zip(shares, halves, strict=True)))
        print(f"{title}, of {runs:,} runs\n\n{table([head, *rows])}\n", flush=True)
    sys.exit(worst > ERROR)


if __name__ == "__main__":
    main()
