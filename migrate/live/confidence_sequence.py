"""Bounds of a mean that hold at every look: a confidence sequence for scores between 0 and 1, by empirical Bernstein.

A bound for a fixed number of queries is wrong far more often than it says once somebody looks at it after every query
and stops at the look that suits. Those of a confidence sequence hold at all looks together: the chance that a bound is
ever wrong is at most `error`, however long the sequence gets and whenever somebody stops.

What they bound is the *running mean* of the scores' expectations, each given the past, over the scores so far. So they
hold where quality changes while it is watched, as it does in a store that is getting better. (The bounds by betting of
Waudby-Smith & Ramdas 2024, arXiv:2010.09686, are of one mean that does not change.)

For scores x_i, guesses g_i from the scores before them, and 0 < b < 1,

    exp(b sum (x_i - mu_i) - psi(b) sum (x_i - g_i)**2),   psi(b) = -log(1 - b) - b,

is on average at most 1 at any time that the past decides (Howard, Ramdas, McAuliffe & Sekhon 2021, Time-uniform,
nonparametric, nonasymptotic confidence sequences, Annals of Statistics 49, theorem 4 and its proof; Fan, Grama & Liu
2015). So is a mixture over several b, and it exceeds 1 / error at any time with a chance of at most `error` (Ville
1939). Both bounds are where it does; as it depends on the sums alone, a score costs a few additions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from migrate.errors import UsageError

_BETS: Final = 1 / (1 + np.geomspace(1 / 16, 256, 20))
"""Each b is best at one ratio of the variation to the distance of a bound: b = 1 / (1 + ratio)."""

_PSI: Final = -np.log1p(-_BETS) - _BETS
_SHARES: Final = (np.arange(len(_BETS)) * 12 / 19 + 2.0) ** -1.5
"""How much each b counts: most where scores hardly vary, as those of a good store do."""
_LOG_WEIGHTS: Final = np.log(_SHARES / _SHARES.sum())


@dataclass(frozen=True, slots=True)
class ConfidenceSequence:
    """The scores so far: how many, their sum, and `variation`, the sum of squared distances from what was guessed.

    >>> scores = ConfidenceSequence()
    >>> for _ in range(300):
    ...     scores = scores.with_score(1.0)
    >>> round(scores.lower(0.05), 3), scores.upper(0.05)
    (0.987, 1.0)
    """

    count: int = 0
    total: float = 0.0
    variation: float = 0.0

    def with_score(self, score: float) -> ConfidenceSequence:
        """Return the sequence with one score more."""
        if not 0 <= score <= 1:
            raise UsageError(f"the score {score} is not between 0 and 1; correct it")
        # By the scores before it alone: the proof allows any guess that the past decides
        guess = (1 + self.total) / (1 + self.count)
        return ConfidenceSequence(self.count + 1, self.total + score, self.variation + (score - guess) ** 2)

    @property
    def mean(self) -> float:
        """The mean of the scores; of none, 0."""
        if self.count:
            return self.total / self.count
        return 0.0

    def lower(self, error: float) -> float:
        """Below the running mean at all times, but for a chance of `error`, 0-1."""
        if self.count:
            return max(self.mean - self._distance(error), 0.0)
        return 0.0

    def upper(self, error: float) -> float:
        """Above the running mean at all times, but for a chance of `error`, 0-1."""
        if self.count:
            return min(self.mean + self._distance(error), 1.0)
        return 1.0

    def _distance(self, error: float) -> float:
        """Return the distance of a bound from the mean of the scores: where the mixture reaches 1 / error.

        Its logarithm is convex, so that Newton's method comes down to the root and never falls below it.
        """
        costs = _LOG_WEIGHTS - _PSI * self.variation + np.log(error)
        distance = float((-costs / _BETS).min())  # a single term reaches it here
        for _ in range(60):
            terms = _BETS * distance + costs
            shares = np.exp(terms - terms.max())
            excess = float(terms.max() + np.log(shares.sum()))
            distance -= excess / float(_BETS @ shares / shares.sum())
            if excess < 1e-12:
                break
        return distance / self.count
