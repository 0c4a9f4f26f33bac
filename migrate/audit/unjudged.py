"""Agreement of an arm with the full re-embed where nothing is judged, and what that says of retention.

agreement@k is an nDCG whose gains are exp(score / t) of the target model's own scores:

    agreement@k of a query = sum_i d_i exp(a_i / t) / sum_i d_i exp(f_i / t),   d_i = 1 / log2(i + 1),

where f are the scores of the first k documents of the full re-embed, and a those of the first k of the arm, in the
arm's order. The temperature t is `TEMPERATURE` times the median over all queries of f_1 - f_k, so that unit and offset
of the scores mean nothing. `benchmarks/unjudged.py` prints how it relates to retention on real judgements, and what
`LOSS_AT_MOST` and `LOSS_AT_LEAST` come from; docs/statistics.md says what they are worth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.audit.measures import Scores

TopScores = NDArray[np.float64]
"""The target model's scores of the first k documents of each query, (q, k), a greater one nearer; -inf where a ranking
is shorter."""

TEMPERATURE = 0.15

LOSS_AT_MOST = 1.3
"""Retention lost for each unit of agreement that is lost, at most: SAFE rests on it."""

LOSS_AT_LEAST = 0.4
"""And at least: NOT SAFE rests on it."""


def agreement(arm: TopScores, full: TopScores, *, temperature: float | None = None) -> Scores:
    """Return the graded agreement of rankings with those of the full re-embed, (q,), 0 to 1; both are (q, k).

    1 for the full re-embed's own ranking and for any other whose documents score as much, about 0 for documents drawn
    at random, 0 where the full re-embed answers nothing.

    Depends on nothing but these scores, so that true vectors of a pool of documents can stand in for the full
    re-embed, if the pool has what the arm ranks first. It errs upwards then: what is not in the pool, and would rank
    among the first k, makes `full` look worse than it is. That is so for each query at one temperature; a pool's own,
    which is taken where none is given, may be off either way.
    """
    if not full.size:
        return np.zeros(len(full))
    best = full[:, :1]
    answered = np.isfinite(best[:, 0])
    if temperature is None:
        temperature = temperature_of(full[answered])
    discounts = 1 / np.log2(np.arange(full.shape[1]) + 2)
    best = np.where(np.isfinite(best), best, 0)
    reached, possible = (_gains(scores, best, temperature) @ discounts for scores in (arm, full))
    values: Scores = np.divide(reached, possible, out=np.zeros(len(full)), where=answered)
    # Above it by rounding alone: no ranking scores more than the full re-embed's
    return np.minimum(values, 1.0)


def temperature_of(full: TopScores) -> float:
    """Return the temperature of the gains, in the unit of the scores; next to nothing where all are equal."""
    last = np.where(np.isfinite(full), full, np.inf).min(axis=1)  # of a shorter ranking, its last document
    spread = 0.0
    if len(full):
        spread = float(np.median(full[:, 0] - last))
    return max(TEMPERATURE * spread, float(np.finfo(np.float64).tiny))


def _gains(scores: TopScores, best: TopScores, temperature: float) -> TopScores:
    # A score far below the best, by a tiny temperature: the gain is 0 all the same
    with np.errstate(over="ignore"):
        gains: TopScores = np.exp(np.minimum((scores - best) / temperature, 0))
    return gains


@dataclass(frozen=True, slots=True)
class Limits:
    """Agreement by which a verdict is given: SAFE from `safe` on, NOT SAFE below `harmful`, in between nothing."""

    safe: float
    harmful: float

    @property
    def sentence(self) -> str:
        """Both in words: at a low margin there is no agreement that shows harm.

        >>> limits_of(0.5).sentence
        'SAFE needs at least 0.615, none is NOT SAFE by agreement at this margin'
        """
        harmful = f"{self.harmful:.3f}"
        if float(harmful) == 0:
            return f"SAFE needs at least {self.safe:.3f}, none is NOT SAFE by agreement at this margin"
        return f"SAFE needs at least {self.safe:.3f}, below {harmful} is NOT SAFE"


def limits_of(margin: float) -> Limits:
    """Return the agreement that stands for a retention of at least `margin`, and that below which it is less.

    >>> limits_of(1.0)
    Limits(safe=1.0, harmful=1.0)
    """
    return Limits(1 - (1 - margin) / LOSS_AT_MOST, max(1 - (1 - margin) / LOSS_AT_LEAST, 0.0))
