"""How often a verdict that is looked at after every query is wrong, and how many queries it takes, over simulated runs.

    python benchmarks/sequence.py [--runs 2000] [--queries 2000]

Scores are agreement@10 of single queries, from 0 to 1. Each run is looked at after every query, from the 20th on, and
ends with the first verdict, SAFE or NOT SAFE, as somebody would who waits for one.

runs of a kind   queries come in runs of one kind, and kinds are lost as a whole: how many of the runs ever say SAFE,
                 and NOT SAFE, by all queries as if they were independent, and as the monitor does, by these and by the
                 first query of each kind; kinds that are known, and those that `migrate.live.query_kinds.Kinds` finds
                 by vectors of a given cosine within a kind
wrong verdicts   the mean is exactly at the limit, or just on its wrong side: how many of the runs ever say SAFE, and
                 NOT SAFE, which 5 % may. Beside the confidence sequence stands what the audit uses, a bound for a fixed
                 number of queries, looked at again and again. `getting better` and `getting worse` change while they
                 are watched; a verdict is wrong if the mean so far is on the other side at that look
power            how many queries it takes until the right verdict, where the mean is off the limit, and in how many of
                 the runs it comes
width            how far bounds are from the mean of the scores, beside two others that hold at all looks for one mean
                 that does not change: hedged betting with bets by the variance so far, and predictable empirical
                 Bernstein (both Waudby-Smith & Ramdas 2024); and the time of a score with its bound

Exits with 1 where the confidence sequence errs in more than 5 % of a line's runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.audit.bootstrap import Bootstrap
from migrate.audit.bounds import MARGIN
from migrate.audit.unjudged import limits_of
from migrate.live.confidence_sequence import _BETS, _LOG_WEIGHTS, _PSI, ConfidenceSequence
from migrate.live.monitor import CALIBRATION
from migrate.live.query_kinds import Kinds
from migrate.report.terminal import table

ERROR = 0.05
FEWEST = 20
CHUNK = 100
FIXED_LOOKS = 200
"""Runs in which the bound for a fixed number of queries is looked at: it takes longer."""

Scores = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int], float], Scores]
"""Scores of several runs, (runs, queries), of a mean."""


def lost(rng: np.random.Generator, shape: tuple[int, int], mean: float) -> Scores:
    """Few queries lose all, the others nothing."""
    return (rng.random(shape) < mean).astype(np.float64)


def all_a_little(rng: np.random.Generator, shape: tuple[int, int], mean: float) -> Scores:
    """Each query loses a little."""
    return rng.beta(40 * mean, 40 * (1 - mean), shape)


def uneven(rng: np.random.Generator, shape: tuple[int, int], mean: float) -> Scores:
    """Most lose nothing, the others half."""
    return np.where(rng.random(shape) < 2 * (1 - mean), 0.5, 1.0)


def noisy(rng: np.random.Generator, shape: tuple[int, int], mean: float) -> Scores:
    """Much noise: many perfect ones, and the others anywhere."""
    share = 2 * (1 - mean)
    return np.where(rng.random(shape) < share, rng.random(shape), 1.0)


def mixed(rng: np.random.Generator, shape: tuple[int, int], mean: float) -> Scores:
    """One in a hundred loses all, or fewer, the others a little."""
    share = min(0.01, (1 - mean) / 2)
    rest = mean / (1 - share)
    return np.where(rng.random(shape) < share, 0.0, rng.beta(60 * rest, 60 * (1 - rest), shape))


KINDS: dict[str, Draw] = {
    "few lose all": lost,
    "all lose a little": all_a_little,
    "some lose half": uneven,
    "some lose anything": noisy,
    "1 % lose all, all a little": mixed,
}


@dataclass(frozen=True)
class Effort:
    """How much is simulated."""

    runs: int
    queries: int
    rng: np.random.Generator

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Shapes of some runs at a time."""
        for start in range(0, self.runs, CHUNK):
            yield min(CHUNK, self.runs - start), self.queries


def says(scores: Scores, limit: float, *, above: bool) -> NDArray[np.bool_]:
    """After which queries of each run the lower bound is at least `limit`, or the upper one below it, (runs, queries).

    That is where the mixture at the limit has reached 1 / error: no bound has to be found for it.
    """
    counts = np.arange(1, scores.shape[1] + 1)
    totals = np.cumsum(scores, axis=1)
    guesses = (1 + totals - scores) / counts
    variation = np.cumsum((scores - guesses) ** 2, axis=1)
    ahead = (totals - limit * counts) * (1 if above else -1)
    terms = _LOG_WEIGHTS + ahead[..., None] * _BETS - variation[..., None] * _PSI
    said: NDArray[np.bool_] = np.logaddexp.reduce(terms, axis=2) >= -np.log(ERROR)
    said &= ahead > 0
    said[:, : FEWEST - 1] = False
    return said


def check_against_bounds(scores: Scores, limit: float) -> None:
    """Hold the above against the bounds of the package themselves."""
    safe, unsafe = (says(scores[None], limit, above=above)[0] for above in (True, False))
    sequence = ConfidenceSequence()
    for place, score in enumerate(scores):
        sequence = sequence.with_score(float(score))
        if place >= FEWEST - 1:
            found = sequence.lower(ERROR) >= limit, sequence.upper(ERROR) < limit
            if (
                found != (safe[place], unsafe[place])
                and min(abs(sequence.lower(ERROR) - limit), abs(sequence.upper(ERROR) - limit)) > 1e-9
            ):
                raise AssertionError(f"another verdict by the bounds after query {place + 1}: {found}")


def fixed_says(scores: Scores, limit: float) -> tuple[float, float]:
    """In which shares of some runs the audit's bounds say SAFE, and NOT SAFE, at any look."""
    safe = unsafe = 0
    ones = np.ones(scores.shape[1])
    for run in scores:
        looks = np.unique(np.geomspace(FEWEST, len(run), 60).astype(int))
        found = [Bootstrap(seed=0, resamples=400).retention(run[:n], ones[:n]) for n in looks]
        safe += any(bounds.lower >= limit for bounds in found)
        unsafe += any(bounds.upper < limit for bounds in found)
    return safe / len(scores), unsafe / len(scores)


def shown(share: float, runs: int) -> str:
    """A share with the half width of its 95 % interval, in per cent."""
    return f"{100 * share:.1f} ±{196 * np.sqrt(share * (1 - share) / runs):.1f}"


def wrong_verdicts(effort: Effort) -> float:
    """Print how often a verdict is wrong; the greatest share."""
    limits = limits_of(MARGIN)
    rows, worst = [], 0.0
    for side, limit in (("SAFE", limits.safe), ("NOT SAFE", limits.harmful)):
        above = side == "SAFE"
        for name, draw in KINDS.items():
            for off in (0.0, 0.005):
                mean = limit - off if above else limit + off
                parts = [draw(effort.rng, shape, mean) for shape in effort.chunks()]
                share = float(np.mean([says(part, limit, above=above).any(axis=1).mean() for part in parts]))
                check_against_bounds(parts[0][0], limit)
                fixed = fixed_says(np.concatenate(parts)[:FIXED_LOOKS], limit)[0 if above else 1]
                worst = max(worst, share)
                rows.append([side, name, f"{mean:.3f}", shown(share, effort.runs), shown(fixed, FIXED_LOOKS)])
                print(".", end="", flush=True, file=sys.stderr)
    for name, sign in (("getting better", 1), ("getting worse", -1)):
        means = limits.safe + sign * np.linspace(-0.03, 0.05, effort.queries)
        truths = np.cumsum(means) / np.arange(1, effort.queries + 1)
        wrong = {True: 0.0, False: 0.0}
        for shape in effort.chunks():
            scores = (effort.rng.random(shape) < np.minimum(means, 1)).astype(np.float64)
            for above in wrong:
                false = truths < limits.safe if above else truths >= limits.safe
                wrong[above] += (says(scores, limits.safe, above=above) & false).any(axis=1).sum() / effort.runs
        for above, share in wrong.items():
            worst = max(worst, share)
            rows.append(["SAFE" if above else "NOT SAFE", name, "changes", shown(share, effort.runs), ""])
    head = ["said", "scores", "mean", "confidence sequence", "fixed bound, many looks"]
    print(f"\n\nwrong verdicts, % of {effort.runs:,} runs with a look after each of {effort.queries:,} queries")
    print(f"({FIXED_LOOKS} runs and 60 looks for the fixed bound)\n\n{table([head, *rows])}", flush=True)
    return worst


LENGTHS = (1, 10, 30)
DIMENSIONS = 100
LOOK = 50
BY_VECTORS = 100
"""Runs in which kinds are found by vectors."""


def kinds_of(rng: np.random.Generator, shape: tuple[int, int], length: int) -> NDArray[np.int64]:
    """The kind of each query: runs of about `length` queries of a new kind."""
    return np.cumsum(rng.random(shape) < 1 / length, axis=1)


def found_firsts(rng: np.random.Generator, kinds: NDArray[np.int64], cosine: float) -> NDArray[np.bool_]:
    """Which queries of a run are taken for the first of their kind, by vectors that are so near within a kind."""
    own = rng.normal(size=(len(kinds), DIMENSIONS))
    shared = rng.normal(size=(int(kinds.max()) + 1, DIMENSIONS))[kinds]
    vectors = (np.sqrt(cosine) * shared + np.sqrt(1 - cosine) * own).astype(np.float32)
    found, parts = Kinds().with_usual(vectors[:CALIBRATION]), []
    for start in range(CALIBRATION, len(kinds), LOOK):
        found, is_first = found.with_new(vectors[start : start + LOOK])
        parts.append(is_first)
    return np.concatenate(parts)


def says_of_kinds(scores: Scores, is_first: NDArray[np.bool_], limit: float, *, above: bool) -> bool:
    """Whether a run ever says it both by all of its queries and by the first of each kind, as the monitor does."""
    by_all = says(scores[None], limit, above=above)[0]
    by_kinds = says(scores[is_first][None], limit, above=above)[0] if is_first.any() else np.zeros(0, dtype=bool)
    so_far = np.cumsum(is_first)
    return bool((by_all & np.concatenate([[False], by_kinds])[so_far]).any())


def runs_of_a_kind(effort: Effort) -> float:
    """Print how often a verdict is wrong where queries come in runs; the greatest share where kinds are known."""
    limits = limits_of(MARGIN)
    rows, worst, count = [], 0.0, effort.queries
    for side, limit in (("SAFE", limits.safe), ("NOT SAFE", limits.harmful)):
        for length in LENGTHS:
            for cosine in (None, 0.9, 0.7, 0.6, 0.5):
                runs = effort.runs if cosine is None else BY_VECTORS
                before = after = 0
                firsts = []
                for _ in range(runs):
                    kinds = kinds_of(effort.rng, (1, CALIBRATION + count), length)[0]
                    scores = (effort.rng.random(int(kinds.max()) + 1) < limit)[kinds].astype(np.float64)[CALIBRATION:]
                    is_first = np.diff(kinds[CALIBRATION - 1 :]) > 0
                    if cosine is not None:
                        is_first = found_firsts(effort.rng, kinds, cosine)
                    before += bool(says(scores[None], limit, above=side == "SAFE").any())
                    after += says_of_kinds(scores, is_first, limit, above=side == "SAFE")
                    firsts.append(int(is_first.sum()))
                worst = max(worst, after / runs) if cosine is None else worst
                known = "known" if cosine is None else f"{cosine:g}"
                shares = (shown(said / runs, runs) for said in (before, after))
                rows.append([side, f"{length}", known, f"{count / length:,.0f}", f"{np.median(firsts):,.0f}", *shares])
                print(".", end="", flush=True, file=sys.stderr)
    head = ["said", "a run", "cosine", "kinds", "found", "by all queries", "by kinds too"]
    print(f"\n\nin runs of one kind, % of runs of {count:,} queries\n\n{table([head, *rows])}", flush=True)
    return worst


def power(effort: Effort) -> None:
    """Print how many queries a right verdict takes."""
    limits = limits_of(MARGIN)
    rows = []
    for side, means in (("SAFE", (0.97, 0.98, 0.99, 0.995)), ("NOT SAFE", (0.85, 0.8, 0.7, 0.5))):
        limit = limits.safe if side == "SAFE" else limits.harmful
        for name, draw in KINDS.items():
            row = [side, name]
            for mean in means:
                found = [says(draw(effort.rng, shape, mean), limit, above=side == "SAFE") for shape in effort.chunks()]
                first = np.concatenate([np.where(part.any(axis=1), part.argmax(axis=1) + 1, np.inf) for part in found])
                middle = np.median(first)
                count = f"{middle:,.0f}" if np.isfinite(middle) else f">{effort.queries:,}"
                row.append(f"{count} ({100 * np.isfinite(first).mean():.0f}%)")
            rows.append(row)
        head = ["said", "scores", *[f"mean {mean:g}" for mean in means]]
        print(f"\nqueries to the verdict, median (runs that reach it)\n\n{table([head, *rows])}", flush=True)
        rows = []


def betting_lower(scores: Scores) -> float:
    """The lower bound by hedged betting, bets by the variance so far; on a grid of means as they do."""
    counts = np.arange(1, len(scores) + 1)
    means = (0.5 + np.cumsum(scores)) / (counts + 1)
    variances = (0.25 + np.cumsum((scores - means) ** 2)) / (counts + 1)
    earlier = np.concatenate([[0.25], variances[:-1]])
    bets = np.sqrt(2 * np.log(1 / ERROR) / (earlier * counts * np.log(counts + 1)))
    grid = np.linspace(1e-4, 1, 1_000)
    capital = np.zeros(len(grid))
    for score, bet in zip(scores, bets, strict=True):
        capital += np.log1p(np.minimum(bet, 0.75 / grid) * (score - grid))
    inside = np.flatnonzero(capital < -np.log(ERROR))
    return float(grid[inside[0]]) if len(inside) else 1.0


def predictable_lower(scores: Scores) -> float:
    """The lower bound by predictable empirical Bernstein."""
    counts = np.arange(1, len(scores) + 1)
    means = (0.5 + np.cumsum(scores)) / (counts + 1)
    variances = (0.25 + np.cumsum((scores - means) ** 2)) / (counts + 1)
    earlier = np.concatenate([[0.25], variances[:-1]])
    before = np.concatenate([[0.5], means[:-1]])
    bets = np.minimum(np.sqrt(2 * np.log(1 / ERROR) / (earlier * counts * np.log(counts + 1))), 0.5)
    penalty = (-np.log1p(-bets) - bets) * (scores - before) ** 2
    return float((bets @ scores - np.log(1 / ERROR) - penalty.sum()) / bets.sum())


def own_lower(scores: Scores) -> float:
    """That of the package."""
    sequence = ConfidenceSequence()
    for score in scores:
        sequence = sequence.with_score(float(score))
    return sequence.lower(ERROR)


def width(effort: Effort) -> None:
    """Print how wide bounds are."""
    methods = {"confidence sequence": own_lower, "betting": betting_lower, "predictable": predictable_lower}
    rows = []
    for name, draw in KINDS.items():
        for n in (50, 300, 1_000, 5_000):
            runs = draw(effort.rng, (10, n), 0.98)
            rows.append([name, f"{n:,}"])
            for bound in methods.values():
                rows[-1].append(f"{np.mean([run.mean() - bound(run) for run in runs]):.4f}")
    head = ["scores, mean 0.98", "queries", *methods]
    print(f"\nhow far the lower bound is below the mean\n\n{table([head, *rows])}")
    scores = noisy(effort.rng, (1, 2_000), 0.98)[0]
    sequence, start = ConfidenceSequence(), time.perf_counter()
    for score in scores:
        sequence = sequence.with_score(float(score))
        sequence.lower(ERROR)
    own = (time.perf_counter() - start) / len(scores)
    start = time.perf_counter()
    betting_lower(scores)
    grid = (time.perf_counter() - start) / len(scores)
    print(f"\na score and its bound: {1e6 * own:.0f} us; betting on a grid of 1,000 means: {1e6 * grid:.0f} us")


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--queries", type=int, default=2_000)
    args = parser.parse_args()
    effort = Effort(args.runs, args.queries, np.random.default_rng(0))
    worst = max(runs_of_a_kind(effort), wrong_verdicts(effort))
    power(effort)
    width(effort)
    print(f"\nwrong at worst: {100 * worst:.1f} % of a line's runs")
    sys.exit(worst > ERROR)


if __name__ == "__main__":
    main()
