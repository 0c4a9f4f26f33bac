"""How often the audit's verdict is wrong, and how many queries it takes, over simulated audits whose truth is known.

    python benchmarks/verdicts.py [DATA] [--audits 2000] [--resamples 2000]

Scores of the full re-embed are 0 for 20 % of the queries, 1 for 40 %, and Beta(2, 2) for the others, which is nearly
what nDCG@10 of a good model looks like on SciFact; `simulated_audits.Harm` tells what arms do to them. With DATA, laid
out as for `retrieval.py`, queries are drawn from the real ones of two sets as well, with the scores of real arms.

wrong verdicts   the truth is exactly at the margin: SAFE, and NOT SAFE, may each be said in 5 % of the audits. Beside
                 the tool's bounds stand the percentile bootstrap, BCa, Student's t, and the percentile bootstrap with
                 one worst-case query added
staying          the arm is as good as staying on average: how often it is said to be worse, or better
several arms     six arms, all at the margin: how often any of their lower bounds is above
power            how often the verdict is what it should be
queries needed   what inconclusive audits ask for, and how many of new audits with so many queries are settled

Resamples are fewer than the tool's 10,000; printed at last is how many verdicts of the tool itself are the same.
Exits with 1 where the tool errs in more than 5 % of a line's audits.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from intervals import (
    Sides,
    bootstrap_bounds,
    own_bounds,
    own_difference,
    own_lower,
    t_bounds,
    t_difference,
)
from numpy.typing import NDArray
from simulated_audits import (
    AT_THE_MARGIN,
    MEAN,
    WINS,
    Case,
    Harm,
    Table,
    full_scores,
    graded_cases,
    real_cases,
)

from migrate.audit.bootstrap import Bootstrap
from migrate.audit.bounds import CONFIDENCE, MARGIN, Outcome
from migrate.audit.verdict import verdict_of
from migrate.report.terminal import table

SIZES = (50, 100, 300, 1_000)
CHUNK = 200
"""Audits that share their resamples."""

ARMS = 6
_EDGE = 1e-9
"""A bound that equals the margin but for rounding is not above it."""


@dataclass(frozen=True)
class Effort:
    """How much is simulated."""

    audits: int
    resamples: int
    rng: np.random.Generator

    def chunks(self, case: Case, n: int) -> Iterator[tuple[Table, Table]]:
        """Scores of all audits, in pieces."""
        for audits in self.sizes:
            yield case.draw(self.rng, n, audits)

    @property
    def sizes(self) -> list[int]:
        """Numbers of audits of the pieces."""
        return [min(CHUNK, self.audits - start) for start in range(0, self.audits, CHUNK)]

    def shown(self, value: float) -> str:
        """A share with the half width of its 95 % interval, in per cent."""
        return f"{100 * value:.1f} ±{196 * np.sqrt(value * (1 - value) / self.audits):.1f}"


def share(said: Sequence[NDArray[np.bool_]]) -> float:
    """Share of audits of which something is said."""
    return float(np.concatenate(said).mean())


def every_bound(arm: Table, full: Table, effort: Effort) -> dict[str, Sides]:
    """Bounds by all methods, the tool's own first."""
    own = own_bounds(arm, full, effort.rng, effort.resamples)
    return {"own": own, **bootstrap_bounds(arm, full, effort.rng, effort.resamples), "t": t_bounds(arm, full)}


def wrong_verdicts(cases: Sequence[Case], effort: Effort) -> tuple[float, float]:
    """Print how often SAFE, and NOT SAFE, is said at the margin; the tool's greatest share of each."""
    safe: list[list[str]] = []
    unsafe: list[list[str]] = []
    worst = [0.0, 0.0]
    for case in cases:
        for n in SIZES:
            found = [every_bound(arm, full, effort) for arm, full in effort.chunks(case, n)]
            low = {m: share([f[m][0] >= case.truth + _EDGE for f in found]) for m in found[0]}
            high = {m: share([f[m][1] < case.truth - _EDGE for f in found]) for m in found[0]}
            for said, (rows, shares) in enumerate(((safe, low), (unsafe, high))):
                rest = [f"{100 * value:.1f}" for method, value in shares.items() if method != "own"]
                rows.append([case.name, f"{case.truth:.3f}", f"{n:,}", effort.shown(shares["own"]), *rest])
                worst[said] = max(worst[said], shares["own"])
    head = ["truth at the margin", "margin", "queries", "own", "percentile", "BCa", "worst query", "t"]
    for outcome, rows in ((Outcome.SAFE, safe), (Outcome.NOT_SAFE, unsafe)):
        print(f"\n{outcome} is said, % of {effort.audits:,} audits\n\n{table([head, *rows])}", flush=True)
    return worst[0], worst[1]


LEVEL = 0.9
"""What staying scores, as a share of a full re-embed, so that an arm can be better."""

AS_GOOD = (
    Harm("as good, much noise", redrawn=0.3),
    Harm("2 % lose all, others gain", kept=1 / (1 - WINS), lost=WINS),
    Harm("2 % win all, others lose", kept=(MEAN - WINS) / ((1 - WINS) * MEAN), won=WINS),
)


def staying(effort: Effort) -> float:
    """Print how often an arm that is as good as staying on average is said to be worse, or better."""
    rows: list[list[str]] = []
    worst = 0.0
    for case in AS_GOOD:
        for n in SIZES:
            pairs = ((LEVEL * arm, LEVEL * stay) for arm, stay in effort.chunks(case, n))
            found = [(own_difference(*pair, effort.rng, effort.resamples), t_difference(*pair)) for pair in pairs]
            said = [[(f[m][1] < -_EDGE, f[m][0] > _EDGE) for f in found] for m in (0, 1)]
            shares = [share([one[side] for one in method]) for method in said for side in (0, 1)]
            worst = max(worst, *shares[:2])
            rows.append([case.name, f"{n:,}", *map(effort.shown, shares[:2]), *(f"{100 * s:.1f}" for s in shares[2:])])
    head = ["arm against staying", "queries", "worse", "better", "worse by t", "better by t"]
    print(f"\nsaid of the arm, % of {effort.audits:,} audits\n\n{table([head, *rows])}", flush=True)
    return worst


FAMILIES = tuple(case for case in AT_THE_MARGIN if not case.won and case.name != "2 % lose all, others 3 %, noise")


def several_arms(effort: Effort) -> float:
    """Print how often any of six arms at the margin, each with harm of its own, has a lower bound above it."""
    rows: list[list[str]] = []
    worst = 0.0
    for case in FAMILIES:
        for n in (100, 300):
            found = [_any_above(case, n, size, effort) for size in effort.sizes]
            family, alone = (share([one[column] for one in found]) for column in range(2))
            worst = max(worst, family)
            rows.append([case.name, f"{n:,}", effort.shown(family), f"{100 * alone:.1f}"])
    head = [f"{ARMS} arms at the margin", "queries", "family", "each alone"]
    print(f"\nany arm above the margin, % of {effort.audits:,} audits\n\n{table([head, *rows])}", flush=True)
    return worst


def _any_above(case: Harm, n: int, audits: int, effort: Effort) -> NDArray[np.bool_]:
    """Whether any arm is above the margin by family bounds, and by its own, (2, audits)."""
    full = np.ones((n, audits)) if case.perfect else full_scores(effort.rng, n, audits)
    arms = [case.harm(effort.rng, full) for _ in range(ARMS)]
    levels = (1 - (1 - CONFIDENCE) / ARMS, CONFIDENCE)
    lower = own_lower(arms, full, effort.rng, effort.resamples, levels)
    return np.asarray((lower >= case.truth + _EDGE).any(axis=0))


def power(effort: Effort) -> None:
    """Print how often the verdict is what it should be, by the tool's bounds and by Student's t."""
    rows = []
    for noise in (0.05, 0.1, 0.3):
        for truth in (1.0, 0.99, 0.98, 0.97, 0.93, 0.90):
            case = Harm(f"{noise:.0%} of queries differ", kept=truth, redrawn=noise)
            cells = [_right(case, n, effort) for n in SIZES]
            outcome = Outcome.SAFE if truth > MARGIN else Outcome.NOT_SAFE
            rows.append([case.name, f"{truth:.2f}", outcome, *cells])
    head = ["arm", "truth", "verdict", *(f"{n:,} queries" for n in SIZES)]
    print(f"\n% of audits that say it at the margin of {MARGIN:g} (by t)\n\n{table([head, *rows])}", flush=True)


def _right(case: Harm, n: int, effort: Effort) -> str:
    found = [
        (own_bounds(arm, full, effort.rng, effort.resamples), t_bounds(arm, full))
        for arm, full in effort.chunks(case, n)
    ]
    said = [share([said_of(one[m], MARGIN) == np.sign(case.truth - MARGIN) for one in found]) for m in (0, 1)]
    return f"{100 * said[0]:.0f} ({100 * said[1]:.0f})"


def said_of(bounds: Sides, margin: float) -> NDArray[np.int_]:
    """1 for SAFE, -1 for NOT SAFE, 0 for neither."""
    return np.asarray((bounds[0] >= margin).astype(int) - (bounds[1] < margin))


def queries_asked_for(effort: Effort) -> None:
    """Print how many queries inconclusive audits ask for, and the share of new audits of that size that are settled."""
    sizes = np.unique(np.geomspace(50, 20_000, 14).astype(int))
    rows = []
    for noise in (0.05, 0.3):
        for truth in (1.0, 0.98, 0.97, 0.93, 0.90):
            case = Harm(f"{noise:.0%} of queries differ", kept=truth, redrawn=noise)
            curve = np.array([np.mean(_settled(case, int(n), effort)) for n in sizes])
            rows += [[case.name, f"{truth:.2f}", f"{n:,}", *_asked(case, n, sizes, curve, effort)] for n in SIZES[:3]]
    head = ["arm", "truth", "queries", "inconclusive", "80 % need", "asked for", "middle half", "settled"]
    print(f"\nmargin {MARGIN:g}; medians, and the mean share settled\n\n{table([head, *rows])}", flush=True)


def _settled(case: Harm, n: int, effort: Effort, audits: int = CHUNK) -> NDArray[np.bool_]:
    bounds = own_bounds(*case.draw(effort.rng, n, audits), effort.rng, effort.resamples // 4)
    return np.asarray(said_of(bounds, MARGIN) != 0)


def _asked(case: Harm, n: int, sizes: NDArray[np.int_], curve: NDArray[np.float64], effort: Effort) -> list[str]:
    arm, full = case.draw(effort.rng, n, 2 * CHUNK)
    unsure = np.flatnonzero(said_of(own_bounds(arm, full, effort.rng, effort.resamples), MARGIN) == 0)
    share_unsure = f"{len(unsure) / (2 * CHUNK):.0%}"
    enough = f"{np.interp(0.8, np.maximum.accumulate(curve), sizes):,.0f}"
    if len(unsure) < 20:
        return [share_unsure, enough, "", "", ""]
    asked = [Bootstrap().queries_needed(arm[:, i], full[:, i], MARGIN) or np.inf for i in unsure]
    settled = np.interp(np.log(np.minimum(asked, sizes[-1])), np.log(sizes), curve).mean()
    low, middle, high = (_number(q) for q in np.quantile(asked, [0.25, 0.5, 0.75], method="lower"))
    return [share_unsure, enough, middle, f"{low} to {high}", f"{settled:.0%}"]


def _number(value: float) -> str:
    return f"{value:,.0f}" if np.isfinite(value) else "more"


def same_as_the_tool(effort: Effort, audits: int = 100, n: int = 300) -> None:
    """Print how many verdicts, and significances, of the tool with all its resamples are those counted above."""
    case, seconds = AT_THE_MARGIN[5], time.perf_counter()
    arm, full = case.draw(effort.rng, n, audits)
    own = said_of(own_bounds(arm, full, effort.rng, effort.resamples), MARGIN)
    signs = {Outcome.SAFE: 1, Outcome.NOT_SAFE: -1, Outcome.INCONCLUSIVE: 0}
    tool = [
        signs[verdict_of(arm[:, i], full[:, i], margin=MARGIN, bootstrap=Bootstrap(seed=i)).outcome]
        for i in range(audits)
    ]
    each = (time.perf_counter() - seconds) / audits
    print(f"\n{(own == tool).sum()} of {audits} verdicts are the tool's own, at {each:.2f} s for {n} queries")


def main() -> int:
    """Print everything; 1 where the tool errs too often."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--audits", type=int, default=2_000)
    parser.add_argument("--resamples", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    started = time.perf_counter()
    effort = Effort(arguments.audits, arguments.resamples, np.random.default_rng(arguments.seed))
    pools, real = graded_cases(), tuple(real_cases(arguments.data)) if arguments.data else ()
    safe, unsafe = wrong_verdicts([*AT_THE_MARGIN, *pools, *real], effort)
    others = max(staying(effort), several_arms(effort))
    power(replace(effort, audits=min(500, effort.audits)))
    queries_asked_for(effort)
    same_as_the_tool(effort)
    print(
        f"\nwrong at worst, of a line's audits: SAFE {safe:.1%}, NOT SAFE {unsafe:.1%}, all else {others:.1%}; "
        f"{time.perf_counter() - started:.0f} s"
    )
    return 1 if max(safe, unsafe, others) > 1 - CONFIDENCE + _EDGE else 0


if __name__ == "__main__":
    sys.exit(main())
