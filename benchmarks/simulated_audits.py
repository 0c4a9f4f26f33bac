"""Simulated audits whose truth is known, for `verdicts.py`: scores of a full re-embed and of an arm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from retrieval import TARGET, Collection, Space, load_space, run_over

from migrate.audit.measures import Scores, ndcg
from migrate.datasets.beir import load_beir
from migrate.search.runs import Rankings
from migrate.stitch.base import Pairing
from migrate.stitch.fitted import fit_norm
from migrate.stitch.registry import new_stitch
from migrate.vectors import Vectors, unit_rows

ZEROS, ONES = 0.2, 0.4
"""Shares of queries that a full re-embed scores 0 and 1, nearly those of SciFact; the others lie between."""

MEAN = ONES + (1 - ZEROS - ONES) / 2

Table = NDArray[np.float64]
"""One value a query and audit, (n, audits)."""


class Case(Protocol):
    """Audits of one kind: their truth, and how to draw some."""

    @property
    def name(self) -> str:
        """What a table calls it."""

    @property
    def truth(self) -> float:
        """Retention over all queries there are."""

    def draw(self, rng: np.random.Generator, n: int, audits: int) -> tuple[Table, Table]:
        """Scores of the arm and of the full re-embed."""


def full_scores(rng: np.random.Generator, n: int, audits: int) -> Table:
    """Like nDCG@10 of a good model: many zeros, many ones, and Beta(2, 2) between."""
    kind = rng.random((n, audits))
    return np.where(kind < ZEROS, 0.0, np.where(kind < ZEROS + ONES, 1.0, rng.beta(2, 2, (n, audits))))


@dataclass(frozen=True)
class Harm:
    """What becomes of queries, each for itself.

    A share `redrawn` gets another query's score, so that some win and some lose, and the mean stays; all keep the share
    `kept` of their scores; a share `lost` then loses everything, a share `won` is answered perfectly instead. `perfect`
    full re-embeds score 1 always, as overlap@10 has it.
    """

    name: str
    kept: float = 1.0
    lost: float = 0.0
    redrawn: float = 0.0
    won: float = 0.0
    perfect: bool = False

    @property
    def truth(self) -> float:
        """Retention over all queries there are."""
        mean = 1.0 if self.perfect else MEAN
        return ((1 - self.won) * (1 - self.lost) * self.kept * mean + self.won) / mean

    def draw(self, rng: np.random.Generator, n: int, audits: int) -> tuple[Table, Table]:
        """Scores of the arm and of the full re-embed."""
        full = np.ones((n, audits)) if self.perfect else full_scores(rng, n, audits)
        return self.harm(rng, full), full

    def harm(self, rng: np.random.Generator, full: Table) -> Table:
        """Scores of an arm, given those of the full re-embed."""
        arm = full * self.kept
        if self.redrawn:
            arm = np.where(rng.random(full.shape) < self.redrawn, self.kept * full_scores(rng, *full.shape), arm)
        arm = np.where(rng.random(full.shape) < self.lost, 0.0, arm)
        return np.where(rng.random(full.shape) < self.won, 1.0, arm)


WINS = 0.02
AT_THE_MARGIN = (
    Harm("all lose 5 %, much noise", kept=0.95, redrawn=0.3),
    Harm("all lose 5 %, little noise", kept=0.95, redrawn=0.05),
    Harm("2 % lose all", lost=0.02),
    Harm("2 % lose all, noise", lost=0.02, redrawn=0.1),
    Harm("2 % lose all, others 3 %, noise", kept=0.95 / 0.98, lost=0.02, redrawn=0.1),
    Harm("5 % lose all", lost=0.05),
    Harm("2 % lose all, full perfect", lost=0.02, perfect=True),
    Harm("5 % lose all, full perfect", lost=0.05, perfect=True),
    Harm("2 % win all, others lose", kept=(0.95 * MEAN - WINS) / ((1 - WINS) * MEAN), won=WINS),
    Harm("15 % lose all, gains hide it", lost=0.15, won=0.1 * MEAN / (1 - 0.85 * MEAN)),
)
"""The margin of each is its truth: to say SAFE or NOT SAFE is an error."""


@dataclass(frozen=True, eq=False)
class Resampled:
    """Audits whose queries are drawn from real ones, with the scores that these have; a share `lost` loses all."""

    name: str
    arm: Scores
    full: Scores
    lost: float = 0.0

    @property
    def truth(self) -> float:
        """Retention over all queries there are."""
        return float((1 - self.lost) * self.arm.mean() / self.full.mean())

    def draw(self, rng: np.random.Generator, n: int, audits: int) -> tuple[Table, Table]:
        """Scores of the arm and of the full re-embed."""
        drawn = rng.integers(len(self.full), size=(n, audits))
        return np.where(rng.random((n, audits)) < self.lost, 0.0, self.arm[drawn]), self.full[drawn]


Labels = NDArray[np.int64]
"""The topic of each query of each audit, (n, audits)."""

LOST = 0.05


@dataclass(frozen=True)
class Topics:
    """Queries come in topics, and topics are lost as a whole; the others keep all, but a share `redrawn` of queries.

    Topics have `size` queries in a share `large` of them, and 1 otherwise. Any may be lost, or large ones `only`; in
    all as many that a share `lost` of queries is lost on average.
    """

    name: str
    size: int = 1
    large: float = 1.0
    only: bool = False
    lost: float = LOST
    redrawn: float = 0.0

    @property
    def truth(self) -> float:
        """Retention over all queries there are."""
        return 1 - self.lost

    def topics(self, rng: np.random.Generator, n: int, audits: int) -> Labels:
        """The topics of n queries; the last of an audit may have fewer queries than it would."""
        sizes = np.where(rng.random((n, audits)) < self.large, self.size, 1)
        starts = np.cumsum(sizes, axis=0)
        return np.stack([np.searchsorted(own, np.arange(n), side="right") for own in starts.T], axis=1)

    def scores(self, rng: np.random.Generator, topics: Labels) -> tuple[Table, Table]:
        """Scores of the arm and of the full re-embed."""
        full = full_scores(rng, *topics.shape)
        sizes = np.stack([np.bincount(own, minlength=len(own)) for own in topics.T], axis=1)
        share = self.large * self.size / (self.large * self.size + 1 - self.large) if self.only else 1.0
        chance = np.where((sizes > 1) | (not self.only), self.lost / share, 0.0)
        is_lost = np.take_along_axis(rng.random(sizes.shape) < chance, topics, axis=0)
        kept = np.where(rng.random(full.shape) < self.redrawn, full_scores(rng, *full.shape), full)
        return np.where(is_lost, 0.0, kept), full


TOPICS, CANDIDATES = 40, 30
_GRADES = (0.88, 0.06, 0.04, 0.02)


def graded_pool(name: str, *, noise: float, same: float = 0.0, lost: float = 0.0, topics: int = 0) -> Resampled:
    """Rankings of 5,000 queries with graded judgements, from 0 to 3, of some of 30 candidates each.

    The arm's scores have `noise` of their own, but for a share `same` of queries. A share `lost` of queries, or all
    queries of some `topics` of 40, is ranked the wrong way round.
    """
    rng = np.random.default_rng(0)
    shape = (5_000, CANDIDATES)
    grades = rng.choice(len(_GRADES), p=_GRADES, size=shape)
    full = 0.8 * grades + rng.normal(size=shape)
    arm = full + noise * (rng.random((len(full), 1)) >= same) * rng.normal(size=shape)
    spoilt = rng.random(len(full)) < lost if lost else rng.integers(TOPICS, size=len(full)) < topics
    arm[spoilt] *= -1
    ids = [str(row) for row in range(len(full))]
    qrels = {q: {str(d): int(g) for d, g in enumerate(row) if g} for q, row in zip(ids, grades, strict=True)}
    runs = [
        Rankings({q: tuple(map(str, row)) for q, row in zip(ids, np.argsort(-scores, axis=1).tolist(), strict=True)})
        for scores in (arm, full)
    ]
    reached, possible = (ndcg(run, qrels, ids, 10) for run in runs)
    return Resampled(name, reached, possible)


def graded_cases() -> tuple[Resampled, ...]:
    """Graded judgements; harm of single queries and of whole topics."""
    return (
        graded_pool("graded, noise everywhere", noise=0.5),
        graded_pool("graded, noise in 30 %", noise=1.0, same=0.7),
        graded_pool("graded, 3 % the wrong way round", noise=0.2, same=0.5, lost=0.03),
        graded_pool("graded, 2 topics of 40 the wrong way round", noise=0.1, same=0.8, topics=2),
    )


def real_cases(data: Path, pairs: int = 2_000) -> Iterator[Resampled]:
    """Two sets: 2 % lose all, and stores from two source spaces, translated by ridge regression on random pairs."""
    for name in ("scifact", "nfcorpus"):
        found = load_beir(data / name)
        collection = Collection(found, tuple(found.documents()))
        target = load_space(data, name, TARGET, collection)
        full_run = _run(collection, target, target.documents)
        full = ndcg(full_run, collection.qrels, collection.query_ids, 10)
        yield Resampled(f"{name}: 2 % lose all", full, full, lost=0.02)
        for space in ("wordpieces", "layer5-mean"):
            source = load_space(data, name, space, collection)
            run = _run(collection, target, translated(source, target, pairs))
            arm = ndcg(run, collection.qrels, collection.query_ids, 10)
            yield Resampled(f"{name} from {space}", arm, full)


def _run(collection: Collection, target: Space, vectors: Vectors) -> Rankings:
    return run_over(collection, np.arange(len(vectors)), vectors, target.queries)


def translated(source: Space, target: Space, pairs: int) -> Vectors:
    """All documents by ridge regression on random pairs, which keep their true vectors."""
    fit = np.sort(np.random.default_rng(0).permutation(len(source.documents))[:pairs])
    known = Pairing(source.documents[fit], target.documents[fit])
    found: Vectors = unit_rows(known.fit(new_stitch("ridge")).transform(source.documents))
    found *= np.float32(fit_norm(known.target))
    found[fit] = known.target
    return found
