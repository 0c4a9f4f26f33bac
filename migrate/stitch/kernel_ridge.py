"""Stitches that read texts: kernel ridge regression over a weighted sum of views, one of them the old vector.

    text          the texts alone: the control that shows what the old vectors are worth
    ridge+near    the old vector, linearly and through a Gaussian kernel, no texts
    ridge+text    the old vector, linearly and through a Gaussian kernel, and the texts

`ridge+text` is an average of three regressions: over all views, over the texts alone, and over the old vector alone.

Each view's kernel is divided by its spread over the sample, so that weights are comparable. Where there are too many
pairs to solve the system exactly, coefficients are fitted for a random subset of them, the landmarks.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StitchError
from migrate.stitch.affine import AffineMap
from migrate.stitch.base import Arrays, Pairing, Prediction, Split, StretchableStitch, check_pairs
from migrate.stitch.kernel import GaussianPart, KernelPart, KernelSystem, combined, gaussian, spread
from migrate.stitch.kernel_map import KernelMap, Solved
from migrate.stitch.reach import DIRECTIONS
from migrate.stitch.text_features import DenseView, Matrix, TextRows, View, gram
from migrate.stitch.view_weights import NEARBY, SEARCH_SIZE, Search, Weighing
from migrate.vectors import Vectors, unit_rows

VECTOR = "vector"
NEAR = "near"

_STARTS_AT_HALF = ("ngrams", "topics", NEAR)
"""Views from which the search for weights starts with `_HALF_WEIGHT`: they repeat what other views tell."""

_HALF_WEIGHT = 0.5

# Half of the pairs that are solved exactly: so many lose 0.012 to 0.017 of overlap@10, and take half of the time.
LANDMARKS = 4_000

LARGEST_EXACT = 8_000
"""Pairs up to which the system is solved exactly; with more, landmarks are used."""

_JITTER = 1e-8
"""Share of the mean diagonal that is added to it, so that a matrix of rounding errors is still positive definite."""

_DAMPING = 1e-3
"""The same share for the nearest linear map."""

_NARROWEST = 1e-6
"""The least width of a Gaussian kernel, where all rows are the same."""


@dataclass(frozen=True, eq=False)
class Kernels:
    """Views of n documents, what each kernel is divided by, and the Gram matrices, (n, n), where they are needed.

    `widths` are those of the views with a Gaussian kernel; the others enter linearly.
    """

    views: Mapping[str, View]
    scales: Mapping[str, float]
    widths: Mapping[str, float]
    grams: Mapping[str, Matrix] = field(default_factory=dict)

    def total(self, weighing: Weighing) -> Matrix:
        """The weighted sum of the Gram matrices."""
        weights = {name: weight for name, weight in weighing.weights.items() if name in self.grams}
        return combined([self.grams[name] for name in weights], list(weights.values()))

    def parts(self, weighing: Weighing) -> list[KernelPart]:
        """The views that have a weight, with these documents to predict from."""
        parts: list[KernelPart] = []
        for name, weight in weighing.weights.items():
            if name not in self.scales:
                continue
            shares: tuple[float, ...] = ()
            if weighing.companions:
                others = [share * companion.weights.get(name, 0.0) for share, companion in weighing.companions]
                shares = (weighing.own_share, *(share / weight for share in others))
            rows = self.views[name].matrix()
            scale = weight * self.scales[name]
            if name in self.widths:
                parts.append(GaussianPart(name, rows, scale, shares, width=self.widths[name]))
            else:
                parts.append(KernelPart(name, rows, scale, shares))
        return parts


def measure(views: Mapping[str, View], texts: TextRows | None, gaussians: Collection[str]) -> Kernels:
    """The kernels between documents; those of the views `gaussians` are Gaussian."""
    grams: dict[str, Matrix] = {}
    widths: dict[str, float] = {}
    for name, view in views.items():
        if texts is not None and name in texts.views:
            grams[name] = texts.gram(name)
        elif name in gaussians:
            rows = np.asarray(view.matrix())
            squared_mean = np.square(rows.mean(axis=0, dtype=np.float64)).sum()
            distance = 2 * float(1 - squared_mean)  # the mean squared distance of two unit rows
            widths[name] = max(distance, _NARROWEST)
            grams[name] = gaussian(rows, rows, widths[name]).astype(np.float64)
        else:
            grams[name] = gram(view.matrix())
    scales = {name: 1 / spread(matrix) for name, matrix in grams.items()}
    return Kernels(views, scales, widths, {name: matrix * scales[name] for name, matrix in grams.items()})


def draw_landmarks(n: int, count: int = LANDMARKS) -> NDArray[np.int64]:
    """Rows of the landmarks among n pairs, ascending; drawn at random, always the same."""
    return np.sort(np.random.default_rng(0).permutation(n)[:count])


def solve_on_landmarks(
    parts: Sequence[KernelPart], landmarks: NDArray[np.int64], target: Matrix, penalty: float
) -> Solved:
    """Solve for coefficients of the landmarks, (m, q), with the means of the kernel to each, (m,).

    The subset of regressors (Rasmussen & Williams 2006, eq. 8.11): minimises the squared error over all n pairs plus
    λ times the norm of the function, among functions of the landmarks; the intercept is free.
    """
    from scipy.linalg import cho_factor, cho_solve

    cross = np.asarray(np.sum([kernel.cross(landmarks) for kernel in parts], axis=0))
    means = cross.mean(axis=0)
    among = cross[landmarks].copy()
    cross -= means
    system = cross.T @ cross + penalty * among
    # Without it, the factorisation fails where landmarks are nearly the same
    system[np.diag_indices_from(system)] += _JITTER * np.trace(system) / len(system)
    factor = cho_factor(system, lower=True, overwrite_a=True)
    coefficients = cho_solve(factor, cross.T @ (target - target.mean(axis=0)))
    return Solved(coefficients, means)


def choose_weights(kernels: Kernels, target: Vectors, with_companions: bool) -> Weighing:
    """Choose weights and penalty for targets, (n, q), on up to `SEARCH_SIZE` of them.

    The shares of companions are chosen as well where a stitch has them (`with_companions`).
    """
    # Always the same pairs: stitches are compared with each other, and a fit twice is the same
    rows = np.sort(np.random.default_rng(0).permutation(len(target))[:SEARCH_SIZE])
    grams = {name: kernel[np.ix_(rows, rows)] for name, kernel in kernels.grams.items()}
    start = {name: _HALF_WEIGHT if name in _STARTS_AT_HALF else 1.0 for name in grams}
    search = Search(grams, target[rows].astype(np.float64))
    weighing = search.best(start)
    if not with_companions:
        return weighing
    return search.accompanied(weighing, [name for name in grams if name not in (VECTOR, NEAR)])


class Additive(StretchableStitch):
    """Kernel ridge regression over views; `weighing` is found by `tuned`, or else by `fit`.

    `landmarks` is the number of landmarks; by default `LANDMARKS` for more than `LARGEST_EXACT` pairs, while fewer are
    solved exactly.

    Attributes
    ----------
    map_ : the learned map
    penalty_ : the penalty of the fit, which for more pairs than the search looks at is tried again on all
    """

    reads_vectors: ClassVar[bool] = True
    has_companions: ClassVar[bool] = False
    """True if regressions over the texts alone and over the old vector alone may be averaged in."""
    gaussians: ClassVar[frozenset[str]] = frozenset()
    """Views of the old vector with a Gaussian kernel: `VECTOR` itself, or `NEAR` beside it."""
    map_: KernelMap
    penalty_: float

    def __init__(self, weighing: Weighing | None = None, *, landmarks: int | None = None) -> None:
        self.weighing = weighing
        self.landmarks = landmarks

    def tuned(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """A stitch of this kind, not fitted, with weights and penalty chosen on up to `SEARCH_SIZE` pairs."""
        check_pairs(source, target)
        _check_texts(self, source, texts)
        tuned = copy.copy(self)
        tuned.weighing = choose_weights(self._kernels(source, texts, _mean(source)), target, self.has_companions)
        return tuned

    def fit(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """Solve for all pairs, exactly or on landmarks; StitchError for fewer than two pairs, or for missing texts."""
        check_pairs(source, target)
        _check_texts(self, source, texts)
        if self.landmarks is not None or len(source) > LARGEST_EXACT:
            return self._fit_on_landmarks(source, target, texts)
        mean = _mean(source)
        kernels = self._kernels(source, texts, mean)
        if self.weighing is None:
            self.weighing = choose_weights(kernels, target, self.has_companions)
        weighing = self.weighing
        truth = target.astype(np.float64)
        system = KernelSystem.of(kernels.total(weighing), truth)
        penalty = weighing.total_penalty
        if len(target) > SEARCH_SIZE:
            # The penalty was chosen on fewer pairs, and more of them want another
            search = Search({"all": system.gram}, truth)
            penalty = search.best_penalty({"all": 1.0}, [penalty * near for near in NEARBY]).penalty
        solved = [Solved(system.coefficients(penalty), system.means)]
        # What more pairs want of the penalty holds for the companions too, which are not searched again
        factor = penalty / weighing.total_penalty
        for _, companion_weighing in weighing.companions:
            companion = KernelSystem.of(kernels.total(companion_weighing), system.target)
            coefficients = companion.coefficients(companion_weighing.total_penalty * factor)
            solved.append(Solved(coefficients, companion.means))
        self.map_ = KernelMap.of(mean, kernels.parts(weighing), weighing, system, solved, penalty)
        self.penalty_ = penalty
        return self

    def _fit_on_landmarks(self, source: Vectors, target: Vectors, texts: TextRows | None) -> Self:
        rows = draw_landmarks(len(target), self.landmarks or LANDMARKS)
        landmark_texts = None if texts is None else texts.take(rows)
        mean = _mean(source)
        kernels = self._kernels(source[rows], landmark_texts, mean)
        if self.weighing is None:
            self.weighing = choose_weights(kernels, target[rows], self.has_companions)
        weighing = self.weighing
        # The scales of the landmarks: a Gram matrix of all pairs is what they are there to avoid
        every = Kernels(self._views(source, texts, mean), kernels.scales, kernels.widths)
        truth = target.astype(np.float64)
        solved = [
            solve_on_landmarks(every.parts(regression), rows, truth, regression.total_penalty)
            for _, regression in weighing.regressions
        ]
        system = KernelSystem.of(kernels.total(weighing), truth)
        penalty = weighing.total_penalty
        self.map_ = KernelMap.of(mean, kernels.parts(weighing), weighing, system, solved, penalty)
        self.penalty_ = penalty
        return self

    def cross_predict(
        self, pairs: Pairing, splits: Sequence[Split], *, with_variance: bool = True
    ) -> Iterator[Prediction]:
        """Predict from one Gram matrix of all pairs: a fold is a part of it."""
        target = pairs.target
        kernels = self._kernels(pairs.source, pairs.texts, _mean(pairs.source))
        weighing = self.weighing or choose_weights(kernels, target, self.has_companions)
        truth = target.astype(np.float64)
        # Once for all folds: a fold's matrix is a part of that of all pairs
        several = [(share, regression, kernels.total(regression)) for share, regression in weighing.regressions]
        for fit_rows, held_out in splits:
            vectors = np.zeros((len(held_out), target.shape[1]))
            predictions: list[Prediction] = []
            for share, regression, total in several:
                system = KernelSystem.of(total[np.ix_(fit_rows, fit_rows)], truth[fit_rows])
                prior = None
                if with_variance and not predictions:  # the variance is that of the first regression, over all views
                    prior = np.diag(total)[held_out]
                predictions.append(_predict(system, total[np.ix_(held_out, fit_rows)], prior, regression.total_penalty))
                vectors += share * predictions[-1].vectors
            yield replace(predictions[0], vectors=vectors.astype(np.float32))

    def _kernels(self, source: Vectors, texts: TextRows | None, mean: Vectors) -> Kernels:
        return measure(self._views(source, texts, mean), texts, self.gaussians)

    def _views(self, vectors: Vectors, texts: TextRows | None, mean: Vectors) -> dict[str, View]:
        views: dict[str, View] = {}
        if self.reads_vectors:
            centred = vectors - mean
            if VECTOR in self.gaussians:
                centred = unit_rows(centred)
            views[VECTOR] = DenseView(centred)
        if self.reads_texts and texts is not None:
            views |= texts.views
        if NEAR in self.gaussians:  # last: the search for weights leaves it out where the others do without
            views[NEAR] = DenseView(unit_rows(vectors - mean))
        return views

    def predict(self, vectors: Vectors, texts: TextRows | None = None) -> Prediction:
        """Vectors and their posterior variance, in units of the prior's, up to the noise."""
        _check_texts(self, vectors, texts)
        return self.map_.predict(self._views(vectors, texts, self.map_.mean), len(vectors))

    def stretch(self, spread: AffineMap) -> Self:
        """Multiply the coefficients and the offset of the prediction."""
        self.map_ = self.map_.stretched(spread)
        return self

    @property
    def views(self) -> Collection[str]:
        """Names of the views that have a weight, the old vector's among them."""
        return [kernel.name for kernel in self.map_.parts]

    def with_reach(self, source: Vectors) -> Self:
        """Return self: `predict` has the posterior variance of the views."""
        return self

    def transform(self, vectors: Vectors, texts: TextRows | None = None) -> Vectors:
        """The vectors of `predict`."""
        return self.predict(vectors, texts).vectors

    def arrays(self) -> Arrays:
        """Coefficients, offset, mean, and what each view saw of the fit documents."""
        return self.map_.arrays()

    def restore(self, arrays: Arrays) -> Self:
        """Restore what `arrays` returned."""
        self.map_ = KernelMap.restore(arrays)
        return self

    def kind_facts(self) -> dict[str, float]:
        """Weights, and the penalty in units of their sum, where the stitch was fitted in this process."""
        if self.weighing is None:
            return {}
        weights = self.weighing.weights
        shown = {f"weight {name}": weight for name, weight in weights.items()}
        for share_of, companion in self.weighing.companions:
            name = "texts alone"
            if companion.weights.keys() <= {VECTOR, NEAR}:
                name = "vector alone"
            shown[f"share {name}"] = share_of
        return {"lambda": self.penalty_ / sum(weights.values()), **shown}


class TextAlone(Additive):
    """The texts alone, as if there were no old vectors."""

    kind: ClassVar[str] = "text"
    cost: ClassVar[int] = 8
    reads_texts: ClassVar[bool] = True
    reads_vectors: ClassVar[bool] = False


class RidgeText(Additive):
    """The old vector, linearly and, where that helps, by its neighbourhood, and the texts."""

    kind: ClassVar[str] = "ridge+text"
    has_companions: ClassVar[bool] = True
    gaussians: ClassVar[frozenset[str]] = frozenset({NEAR})
    cost: ClassVar[int] = 9
    reads_texts: ClassVar[bool] = True

    def texts_alone(self) -> TextAlone | None:
        """The companion that reads the texts alone, as a stitch that is tuned; None where there is none."""
        if self.weighing is None:
            return None
        for _, companion in self.weighing.companions:
            if not companion.weights.keys() <= {VECTOR, NEAR}:
                return TextAlone(companion)
        return None


class RidgeNear(Additive):
    """The old vector, linearly and, where that helps, by its neighbourhood; no texts."""

    kind: ClassVar[str] = "ridge+near"
    gaussians: ClassVar[frozenset[str]] = frozenset({NEAR})
    cost: ClassVar[int] = 6

    def nearest_affine(self, dim: int) -> AffineMap | None:
        """Return the map that is nearest to this one on the fit documents; None where the vector has no weight."""
        kernel = next((kernel for kernel in self.map_.parts if kernel.name == VECTOR), None)
        if kernel is None:
            return None
        rows_kept = np.asarray(kernel.rows, dtype=np.float64)
        predicted = self.transform((rows_kept + self.map_.mean).astype(np.float32)).astype(np.float64)
        rows = rows_kept - rows_kept.mean(axis=0)
        mean = rows_kept.mean(axis=0) + self.map_.mean
        system = rows.T @ rows
        # For more dimensions than fit documents, where the system has no single solution
        system[np.diag_indices_from(system)] += _DAMPING * np.trace(system) / len(system)
        matrix = np.linalg.solve(system, rows.T @ (predicted - predicted.mean(axis=0)))
        return AffineMap(matrix, predicted.mean(axis=0) - mean @ matrix)


def _check_texts(stitch: Additive, vectors: Vectors, texts: TextRows | None) -> None:
    """Make sure that a stitch that reads texts has one for each vector, or raise StitchError."""
    if stitch.reads_texts and (texts is None or len(texts) != len(vectors)):
        raise StitchError(f"the {stitch.kind} stitch reads texts, but there are none; choose a stitch of vectors only")


def _mean(vectors: Vectors) -> Vectors:
    return np.asarray(vectors.mean(axis=0, dtype=np.float64), dtype=np.float32)


def _predict(system: KernelSystem, kernel: Matrix, prior: Matrix | None, penalty: float) -> Prediction:
    """Predictions of a system for documents whose kernel with its own is `kernel`, (m, n); `prior` is `k(x, x)`."""
    centred = kernel - system.means
    vectors = system.mean + centred @ system.coefficients(penalty)
    if prior is None:
        return Prediction(vectors.astype(np.float32))
    explained = np.square(centred @ system.directions(penalty, DIRECTIONS)).sum(axis=1)
    variance = prior - 2 * kernel.mean(axis=1) + system.means.mean() - explained
    return Prediction(vectors.astype(np.float32), variance.astype(np.float32))
