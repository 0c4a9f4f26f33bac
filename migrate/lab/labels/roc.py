"""The area under the ROC curve: how well scores tell one kind of documents from the others, with bounds.

Bounds are those of DeLong, DeLong & Clarke-Pearson (1988), one-sided, 95 % each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

Z_95 = 1.6448536269514722
"""The 95 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Bounded:
    """An estimate between one-sided 95 % bounds."""

    estimate: float
    lower: float
    upper: float


def _placements(scores: Matrix, positive: Mask) -> tuple[Matrix, Matrix]:
    """For each positive the share of negatives below it, for each negative that of positives above; ties count half."""
    from scipy.stats import rankdata

    ranks = rankdata(scores)
    # A rank among all less the rank among its own is the number of the others below it
    above = (ranks[positive] - rankdata(scores[positive])) / (~positive).sum()
    below = 1 - (ranks[~positive] - rankdata(scores[~positive])) / positive.sum()
    return above, below


def _error(above: Matrix, below: Matrix) -> float:
    """Standard error of a mean of placements, by DeLong."""
    return float(np.sqrt(above.var(ddof=1) / len(above) + below.var(ddof=1) / len(below)))


def auc(scores: Matrix, positive: Mask) -> Bounded:
    """Area under the ROC curve of scores, (n,), with DeLong's bounds; those of Clopper and Pearson at 0 and 1.

    At least two documents are positive and two are not.
    """
    above, below = _placements(scores, positive)
    estimate = float(above.mean())
    margin = Z_95 * _error(above, below)
    # Where all are in order DeLong's error is 0, of however few documents
    if estimate in (0.0, 1.0):
        fewest = min(len(above), len(below))
        margin = max(margin, 1 - 0.05 ** (1 / fewest))
    return Bounded(estimate, max(estimate - margin, 0.0), min(estimate + margin, 1.0))


def auc_difference(first: Matrix, second: Matrix, positive: Mask) -> Bounded:
    """AUC of the first scores minus that of the second, of the same documents, with DeLong's bounds."""
    pairs = zip(_placements(first, positive), _placements(second, positive), strict=True)
    above, below = (auc - rival for auc, rival in pairs)
    estimate = float(above.mean())
    error = Z_95 * _error(above, below)
    return Bounded(estimate, estimate - error, estimate + error)
