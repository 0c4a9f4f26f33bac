"""Chooses the weights of the views and the penalty, by the retrieval that exact leave-one-out predictions give."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from migrate.stitch.kernel import KernelSystem, centre, combined
from migrate.stitch.scores import Neighbours
from migrate.stitch.text_features import AnyMatrix, Matrix

SEARCH_SIZE = 1_000
"""Pairs that the search looks at: more of them change the choice little and cost with their cube."""

PENALTIES = tuple(np.logspace(-4, 0.5, 10).tolist())
"""Penalties to try, in units of the mean diagonal of the centred Gram matrix."""

NEARBY = (1 / 3, 1.0, 3.0)

"""Factors of a penalty that are tried around one that was chosen before."""

_FACTORS = (0.0, 1 / 3, 3.0)
"""Factors of the weight of a view that are tried: out, less and more."""

_COMPANION_FACTORS = (1 / 3, 1.0, 3.0, 10.0)
"""Factors of the penalty for a companion: fewer views want more of it rather than less."""

_SHARES_OF_TEXTS = (0.45, 0.3, 0.15)
_SHARES_OF_OTHERS = (0.0, 0.15, 0.3)
"""Shares in the average that are tried for the texts alone, the most first, and for the other views alone."""

_MOST_LOSS = 0.005
"""Held-out overlap@10 that more of the texts may cost: they answer queries better than they find neighbours."""

_LEAST_GAIN = 0.002
"""Gain of overlap@10 for which a weight is changed: about half a standard error over 1,000 documents."""


@dataclass(frozen=True, slots=True)
class Weighing:
    """Weights by view, the penalty in units of the mean diagonal, and the leave-one-out overlap@10 they give.

    `companions` are regressions of their own over some of the views;
    their predictions enter the average with the shares that stand beside them, this one's with what is left of 1.
    """

    weights: Mapping[str, float]
    penalty: float
    overlap: float
    companions: tuple[tuple[float, Weighing], ...] = ()

    @property
    def own_share(self) -> float:
        """The share of the regression over all views in the average with its companions."""
        return 1 - sum(share for share, _ in self.companions)

    @property
    def regressions(self) -> tuple[tuple[float, Weighing], ...]:
        """The regression and its companions, each with its share in the average."""
        return ((self.own_share, self), *self.companions)

    @property
    def total_penalty(self) -> float:
        """The penalty λ itself: the mean diagonal is the sum of the weights, as each view has spread 1."""
        return self.penalty * sum(self.weights.values())


class Search:
    """Looks for weights and penalty on Gram matrices of spread 1, (n, n), and targets, (n, q).

    In float32, which moves an overlap by less than a document does: the matrices are centred before, since a view of
    little spread consists of its mean.
    """

    def __init__(self, grams: Mapping[str, Matrix], target: Matrix) -> None:
        self.grams = {name: centre(matrix).astype(np.float32) for name, matrix in grams.items()}
        self.target = target.astype(np.float32)
        self.neighbours = Neighbours(self.target)

    def best_penalty(self, weights: Mapping[str, float], penalties: Sequence[float] = PENALTIES) -> Weighing:
        """The penalty with the best overlap; ties go to the larger."""
        system = self._system(weights)
        tried = []
        for penalty in sorted(penalties, reverse=True):  # `max` keeps the first of equal ones
            start = Weighing(weights, penalty, 0.0)
            residuals = system.solve(start.total_penalty).residuals
            tried.append(replace(start, overlap=overlap_of(self.target, residuals, self.neighbours)))
        return max(tried, key=lambda weighing: weighing.overlap)

    def _system(self, weights: Mapping[str, float]) -> KernelSystem:
        return KernelSystem.of(combined([self.grams[name] for name in weights], list(weights.values())), self.target)

    def best(self, start: Mapping[str, float]) -> Weighing:
        """One pass over the views: leave each out, or give it a third or three times its weight, where that helps.

        The three are compared at the penalty so far; only the best of them gets a penalty of its own.
        """
        best = self.best_penalty(start)
        for name in start:
            changed = [{**best.weights, name: best.weights[name] * factor} for factor in _FACTORS]
            tried = [self.best_penalty(weights, [best.penalty]) for weights in changed if any(weights.values())]
            if tried:
                better = max(tried, key=lambda weighing: weighing.overlap)
                # The penalty itself was tried a line above
                near = self.best_penalty(better.weights, [better.penalty * factor for factor in NEARBY if factor != 1])
                better = max(better, near, key=lambda weighing: (weighing.overlap, weighing.penalty))
                if better.overlap > best.overlap + _LEAST_GAIN:
                    best = better
        return replace(best, weights={name: weight for name, weight in best.weights.items() if weight})

    def accompanied(self, weighing: Weighing, texts: Collection[str]) -> Weighing:
        """The weighing with companions: one that reads the views `texts` alone, and one that reads the others alone.

        Of the shares whose average is not found worse by more than 0.005, those with the most of the texts: whole
        documents are alike in more than queries ask for, and what texts tell of one answers queries better than it
        finds its neighbours.
        """
        own_weights = weighing.weights
        # Each with the weights that its views have beside the others, as they were chosen together
        groups = [{n: own_weights[n] for n in own_weights if (n in texts) is is_text} for is_text in (True, False)]
        if not all(groups):
            return weighing
        penalties = [weighing.penalty * factor for factor in _COMPANION_FACTORS]
        several = [weighing, *(self.best_penalty(weights, penalties) for weights in groups)]
        residuals = [self._system(item.weights).solve(item.total_penalty).residuals for item in several]
        predicted = [self.target - rows.astype(np.float32) for rows in residuals]
        overlap = float(self._overlaps(predicted[0]).mean())
        # Regressions of different views err differently, so that their average is nearer
        for of_texts in _SHARES_OF_TEXTS:
            tried = []
            for of_others in _SHARES_OF_OTHERS:
                shares = (1 - of_texts - of_others, of_texts, of_others)
                mean = np.sum([share * item for share, item in zip(shares, predicted, strict=True)], axis=0)
                tried.append((float(self._overlaps(mean).mean()), shares))
            score, best = max(tried)
            if score >= overlap - _MOST_LOSS:
                companions = zip(best[1:], several[1:], strict=True)
                return replace(weighing, overlap=score, companions=tuple(pair for pair in companions if pair[0]))
        return weighing

    def _overlaps(self, predicted: AnyMatrix) -> Matrix:
        return self.neighbours.overlap(predicted.astype(np.float32))


def overlap_of(target: AnyMatrix, residuals: AnyMatrix, neighbours: Neighbours | None = None) -> float:
    """Overlap@10 of leave-one-out predictions, (n, q), inside the sample."""
    truth = neighbours or Neighbours(target.astype(np.float32))
    return float(truth.overlap((target - residuals).astype(np.float32, copy=False)).mean())
