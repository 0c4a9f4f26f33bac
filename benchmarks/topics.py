"""How often a verdict is wrong where queries are not independent of each other, with groups and without.

    python benchmarks/topics.py [DATA] [--audits 2000] [--resamples 1000]

Queries come in topics, and a translation loses topics as a whole, so many that the truth is exactly at the margin:
SAFE, and NOT SAFE, may each be said in 5 % of the audits. With DATA, laid out as for `retrieval.py`, queries are real
ones too.

known groups     a field of the queries names the topics; `independent` has none. Of the last case an audit of 300
                 queries often has no large topic at all, and nothing can show what that would lose: it does not count
power            nothing is lost, but a tenth of the queries gets another one's score: how often SAFE is said
found groups     nothing names the topics, but the vectors of queries of one topic have about a given cosine, those of
                 others one of 0 with a spread of 0.1: how many groups are found, and how often SAFE is said
real queries     how many groups are found among real queries by vectors of real models, and of what size an imagined
                 one is; then topics are clusters of these vectors (k-means), which have no gaps between them: many
                 small ones, 20, and 10

Exits with 1 where groups are known and the tool errs in more than 5 % of a line's audits, by more than chance (the
95 % interval of the line lies above).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from intervals import Sides, grouped_bounds, own_bounds
from simulated_audits import LOST, Labels, Topics

from migrate.audit.bounds import CONFIDENCE, MARGIN, Grouping
from migrate.audit.query_groups import alike
from migrate.report.terminal import table
from migrate.vectors import Vectors

SIZES = (300, 1_000)
CHUNK = 100
_EDGE = 1e-9

CASES = (
    Topics("independent"),
    Topics("topics of 10", size=10),
    Topics("topics of 30", size=30),
    Topics("every 10th of 10", size=10, large=0.1),
    Topics("every 10th of 10, only these lost", size=10, large=0.1, only=True),
    Topics("every 20th of 3, only these lost", size=3, large=0.05, only=True),
    Topics("every 100th of 30", size=30, large=0.01),
    UNSEEN := Topics("every 100th of 30, only these lost", size=30, large=0.01, only=True),
)


@dataclass(frozen=True)
class Effort:
    """How much is simulated."""

    audits: int
    resamples: int
    rng: np.random.Generator

    def shown(self, value: float) -> str:
        """A share with the half width of its 95 % interval, in per cent."""
        return f"{100 * value:.1f} ±{196 * np.sqrt(value * (1 - value) / self.audits):.1f}"

    @property
    def chunks(self) -> Iterator[int]:
        """Numbers of audits that share their resamples."""
        return (min(CHUNK, self.audits - start) for start in range(0, self.audits, CHUNK))

    def errors(self, bounds: list[Sides], truth: float) -> tuple[float, float]:
        """Shares of audits that say SAFE, and NOT SAFE, at a margin that is the truth."""
        low, high = (np.concatenate([sides[side] for sides in bounds]) for side in (0, 1))
        return float((low >= truth + _EDGE).mean()), float((high < truth - _EDGE).mean())

    def bounds(self, case: Topics, topics: Labels, groups: Labels) -> tuple[Sides, Sides]:
        """Those without groups, and with."""
        scores = case.scores(self.rng, topics)
        return (
            own_bounds(*scores, self.rng, self.resamples),
            grouped_bounds(*scores, groups, self.rng, self.resamples),
        )


def known_groups(effort: Effort) -> float:
    """Print how often a verdict is wrong where a field names the topics; the greatest share with groups."""
    rows, worst = [], 0.0
    for case in CASES:
        for n in SIZES:
            found = []
            for audits in effort.chunks:
                topics = case.topics(effort.rng, n, audits)
                found.append(effort.bounds(case, topics, topics))
            without, grouped = (effort.errors([one[m] for one in found], case.truth) for m in (0, 1))
            worst = max(worst, *grouped) if case is not UNSEEN else worst
            rows.append([case.name, f"{n:,}", *map(effort.shown, (without[0], grouped[0], without[1], grouped[1]))])
    head = ["topics", "queries", "SAFE, before", "grouped", "NOT SAFE, before", "grouped"]
    print(f"\nwrong at the margin, % of {effort.audits:,} audits\n\n{table([head, *rows])}", flush=True)
    return worst


def power(effort: Effort) -> None:
    """Print how often SAFE is said of an arm that is, where a field names the topics."""
    rows = []
    for case in CASES[:4]:
        for n in SIZES:
            safe = replace(case, lost=0.0, redrawn=0.1)
            found = []
            for audits in effort.chunks:
                topics = safe.topics(effort.rng, n, audits)
                found.append(effort.bounds(safe, topics, topics))
            shares = (effort.errors([one[m] for one in found], MARGIN)[0] for m in (0, 1))
            rows.append([case.name, f"{n:,}", *(f"{100 * share:.0f}" for share in shares)])
    head = ["topics, none lost", "queries", "SAFE, before", "grouped"]
    print(f"\nSAFE is said at a margin of {MARGIN:g}, %\n\n{table([head, *rows])}", flush=True)


DIMENSIONS = 100
DRAWS = 20
"""Sets of vectors of a line; audits share them."""


def vectors_of(rng: np.random.Generator, topics: Labels, cosine: float) -> Vectors:
    """A vector for each query of an audit, (n, dim), about so near to those of its topic."""
    own, shared = rng.normal(size=(2, len(topics), DIMENSIONS))
    rows: Vectors = (np.sqrt(cosine) * shared[topics] + np.sqrt(1 - cosine) * own).astype(np.float32)
    return rows


def found_groups(effort: Effort) -> None:
    """Print how often SAFE is wrong where vectors alone show the topics, and what that costs where there are none."""
    rows = []
    for case in CASES[:3]:
        for cosine in (0.9, 0.8, 0.7, 0.6, 0.5, 0.4) if case.size > 1 else (0.9,):
            for n in SIZES:
                topics = case.topics(effort.rng, n, 1)
                groups = [alike(vectors_of(effort.rng, topics[:, 0], cosine)) for _ in range(DRAWS)]
                count = int(np.median([len(set(own.tolist())) for own in groups]))
                row = _lost_and_kept(case, np.repeat(topics, effort.audits, axis=1), groups, effort)
                cells = [f"{cosine:g}" if case.size > 1 else "", f"{n:,}", f"{topics.max() + 1:,}", f"{count:,}"]
                rows.append([case.name, *cells, *row])
    head = ["topics", "cosine", "queries", "topics", "groups", *_HEAD]
    print(f"\ngroups by vectors, % of {effort.audits:,} audits\n\n{table([head, *rows])}", flush=True)


_HEAD = ("SAFE, before", "grouped", "none lost: before", "grouped")


def _lost_and_kept(case: Topics, topics: Labels, groups: list[Labels], effort: Effort) -> list[str]:
    """How often SAFE is said at the margin, and of an arm that loses nothing; without groups and with."""
    cells: list[str] = []
    for one, margin in ((case, case.truth), (replace(case, lost=0.0, redrawn=0.1), MARGIN)):
        found, start = [], 0
        for audits in effort.chunks:
            drawn = np.stack([groups[audit % len(groups)] for audit in range(start, start + audits)], axis=1)
            found.append(effort.bounds(one, topics[:, start : start + audits], drawn))
            start += audits
        shares = [effort.errors([each[m] for each in found], margin)[0] for m in (0, 1)]
        cells += (
            [effort.shown(share) for share in shares] if margin == case.truth else [f"{100 * s:.0f}" for s in shares]
        )
    return cells


FEW = (20, 10)
"""Clusters that are as large as the themes of a collection; each is lost as a whole, or not."""

SETS = (("scifact", "minilm"), ("scifact", "mpnet"), ("nfcorpus", "minilm"), ("nfcorpus", "mpnet"))


def real_queries(data: Path, effort: Effort) -> None:
    """Print the groups of real queries, and how often SAFE is wrong where clusters of them are lost."""
    from sklearn.cluster import KMeans

    rows, lines = [], []
    for name, model in SETS:
        queries = np.load(data / "pairs" / f"{name}.{model}.npz")["queries"].astype(np.float32)
        half = len(queries) // 2
        for part, vectors in (("first half", queries[:half]), ("second half", queries[half:]), ("all", queries)):
            groups = alike(vectors)
            one = Grouping(groups)
            cells = [f"{len(groups):,}", f"{one.count:,}", f"{one.sizes.max()}", f"{one.size:.2f}"]
            rows.append([name, model, part, *cells])
        groups = alike(queries)
        n = len(queries)
        for count in dict.fromkeys((n, n // 10, n // 30, *FEW)):
            topics = np.arange(n)
            if count < n:
                topics = KMeans(count, n_init=1, random_state=0).fit_predict(queries)
            case = Topics("", size=n // count, lost=LOST)
            every = np.repeat(topics.astype(np.int64)[:, None], effort.audits, axis=1)
            kind = f"{count:,} clusters" if count < n else "independent"
            lines.append(
                [f"{name}, {model}", kind, f"{len(queries):,}", *_lost_and_kept(case, every, [groups], effort)]
            )
    head = ["queries", "model", "part", "queries", "groups", "largest", "imagined"]
    print(f"\ngroups of real queries\n\n{table([head, *rows])}", flush=True)
    print(f"\n% of {effort.audits:,} audits\n\n{table([['queries', 'lost', 'queries', *_HEAD], *lines])}", flush=True)


def main() -> int:
    """Print all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--audits", type=int, default=2_000)
    parser.add_argument("--resamples", type=int, default=1_000)
    arguments = parser.parse_args()
    effort = Effort(arguments.audits, arguments.resamples, np.random.default_rng(0))
    worst = known_groups(effort)
    power(effort)
    found_groups(effort)
    if arguments.data is not None:
        real_queries(arguments.data, effort)
    print(f"\nwrong at worst where groups are known: {worst:.1%} of a line's audits")
    allowed = 1 - CONFIDENCE
    return int(worst > allowed + 1.96 * np.sqrt(allowed * (1 - allowed) / effort.audits))


if __name__ == "__main__":
    sys.exit(main())
