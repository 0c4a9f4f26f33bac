"""Trying ways of embedding on the documents that disagree: a few first, then all where these agree."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.check.comparison import Comparison, Mask, pairwise, spread
from migrate.check.hypotheses import Hypothesis, hypotheses
from migrate.check.model import Trial
from migrate.embedders.base import Embedder
from migrate.vectors import Progress

_PROBES: Final = 4
_NEARER: Final = 0.875
_CHANCE: Final = 1e-4
"""How likely a way may be nearer to so many documents by chance; about 20 ways are tried."""


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """A way of embedding that gives some of the stored vectors: `agreeing` says which, (n,)."""

    hypothesis: Hypothesis
    agreeing: Mask
    cosines: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Tried:
    """All that was tried, and what explains most documents, if anything explains some."""

    trials: tuple[Trial, ...]
    best: Explanation | None


def try_hypotheses(compared: Comparison, embedder: Embedder, progress: Progress) -> Tried:
    """Try every way until one explains all the documents.

    Where the tolerance is loose, agreeing proves nothing: there a way counts only if it is nearer than the plain one.
    """
    trials: list[Trial] = []
    best: Explanation | None = None
    doubtful = np.arange(len(compared)) if compared.tolerance.loose else np.flatnonzero(~compared.agreeing)
    probes = doubtful[spread(len(doubtful), _PROBES)]
    ways = hypotheses(embedder, compared.documents, texts_may_differ=bool(compared.near[probes].any()))
    for number, hypothesis in enumerate(ways):
        progress("try other ways", number, None)
        trial, found = _try(compared, hypothesis, probes)
        trials.append(trial)
        if found is not None and (best is None or found.agreeing.sum() > best.agreeing.sum()):
            best = found
        if best is not None and best.agreeing.all() and not compared.tolerance.loose:
            break
    return Tried(tuple(trials), best)


def _try(compared: Comparison, hypothesis: Hypothesis, probes: NDArray[np.int64]) -> tuple[Trial, Explanation | None]:
    cosines, agreeing = _judge(compared, hypothesis, probes)
    enough = agreeing.mean() >= _NEARER if compared.tolerance.loose else agreeing.any()
    if not enough:
        return _trial(hypothesis, cosines, agreeing), None
    cosines, agreeing = _judge(compared, hypothesis, np.arange(len(compared)))
    if compared.tolerance.loose and sign_test(int(agreeing.sum()), len(agreeing)) > _CHANCE:
        return _trial(hypothesis, cosines, agreeing), None
    return _trial(hypothesis, cosines, agreeing), Explanation(hypothesis, agreeing, cosines)


def sign_test(better: int, n: int) -> float:
    """How likely a fair coin falls one way `better` times of `n` or more often.

    >>> sign_test(3, 3)
    0.125
    """
    return sum(comb(n, number) for number in range(better, n + 1)) / (1 << n)


def _judge(compared: Comparison, hypothesis: Hypothesis, rows: NDArray[np.int64]) -> tuple[NDArray[np.float64], Mask]:
    """Cosines of some documents when embedded so, and which of them agree."""
    stored = compared.stored[rows]
    fresh = hypothesis.embed([compared.documents[row] for row in rows])
    cosines = pairwise(stored, fresh)
    agreeing = cosines >= compared.tolerance.least(stored, fresh)
    if compared.tolerance.loose:
        agreeing &= cosines > compared.cosines[rows] + np.finfo(np.float32).eps
    return cosines, agreeing


def _trial(hypothesis: Hypothesis, cosines: NDArray[np.float64], agreeing: Mask) -> Trial:
    return Trial(hypothesis.cause, hypothesis.meaning, len(cosines), int(agreeing.sum()), float(np.median(cosines)))
