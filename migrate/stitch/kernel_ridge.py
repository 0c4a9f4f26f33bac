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
from migrate.stitch.kernel import (
    GaussianPart,
    KernelPart,
    KernelSystem,
    Product,
    combined,
    gaussian,
    in_order,
    restore_parts,
    spread,
)
from migrate.stitch.reach import DIRECTIONS
from migrate.stitch.text_features import DenseView, Matrix, TextRows, View, gram
from migrate.stitch.view_weights import NEARBY, SEARCH_SIZE, Search, Weighing
from migrate.vectors import Vectors, squared_norms, unit_rows

VECTOR, NEAR = "vector", "near"

LANDMARKS = 4_000

LARGEST_EXACT = 8_000
"""Pairs up to which the system is solved exactly; with more, landmarks are used."""


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
    grams, widths = {}, {}
    for name, view in views.items():
        if texts is not None and name in texts.views:
            grams[name] = texts.gram(name)
        elif name in gaussians:
            rows = np.asarray(view.matrix())
            # the mean squared distance of two unit rows
            widths[name] = max(2 * float(1 - np.square(rows.mean(axis=0, dtype=np.float64)).sum()), 1e-6)
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
) -> tuple[Matrix, Matrix]:
    """Coefficients of the landmarks, (m, q), and the means of the kernel to each, (m,).

    The subset of regressors (Rasmussen & Williams 2006, eq. 8.11): minimises the squared error over all n pairs plus
    λ times the norm of the function, among functions of the landmarks; the intercept is free.
    """
    from scipy.linalg import cho_factor, cho_solve

    cross = np.asarray(np.sum([kernel.cross(landmarks) for kernel in parts], axis=0))
    means = cross.mean(axis=0)
    among = cross[landmarks].copy()
    cross -= means
    system = cross.T @ cross + penalty * among
    system[np.diag_indices_from(system)] += 1e-8 * np.trace(system) / len(system)
    alpha = cho_solve(cho_factor(system, lower=True, overwrite_a=True), cross.T @ (target - target.mean(axis=0)))
    return alpha, means


class Additive(StretchableStitch):
    """Kernel ridge regression over views; `weighing` is found by `tuned`, or else by `fit`.

    `landmarks` is the number of landmarks; by default `LANDMARKS` for more than `LARGEST_EXACT` pairs, while fewer are
    solved exactly.

    Attributes
    ----------
    mean_ : (p,) float32, mean of the old vectors
    alpha_ : (n, q + 1 + r) float32, coefficients of the fit documents: of the prediction, of the mean of the kernel
        over them, and of the directions that explain the variance
    offset_ : (q + 1 + r,) float32, to be added to `k(x) @ alpha_`; at q what makes the variance of the mean
    companions_ : (c, n, q) float32, coefficients of the prediction of each companion
    penalty_ : the penalty of the fit, which for more pairs than the search looks at is tried again on all
    parts_ : the views, with the fit documents as they see them
    products_ : what multiplies the parts with their coefficients; made by the first prediction, since a stitch that is
        only loaded, saved or shown needs none
    """

    reads_vectors: ClassVar[bool] = True
    has_companions: ClassVar[bool] = False
    """True if regressions over the texts alone and over the old vector alone may be averaged in."""
    gaussians: ClassVar[frozenset[str]] = frozenset()
    """Views of the old vector with a Gaussian kernel: `VECTOR` itself, or `NEAR` beside it."""
    mean_: Vectors
    alpha_: Vectors
    offset_: Vectors
    companions_: Vectors
    dim_: int
    penalty_: float
    parts_: tuple[KernelPart, ...]
    products_: tuple[Product, ...] | None = None

    def __init__(self, weighing: Weighing | None = None, *, landmarks: int | None = None) -> None:
        self.weighing = weighing
        self.landmarks = landmarks

    def tuned(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """A stitch of this kind, not fitted, with weights and penalty chosen on up to `SEARCH_SIZE` pairs."""
        check_pairs(source, target)
        self._check_texts(source, texts)
        tuned = copy.copy(self)
        tuned.weighing = self._weigh(self._kernels(source, texts), source, target, texts)
        return tuned

    def _weigh(self, kernels: Kernels, source: Vectors, target: Vectors, texts: TextRows | None) -> Weighing:
        rows = np.sort(np.random.default_rng(0).permutation(len(target))[:SEARCH_SIZE])
        grams = {name: kernel[np.ix_(rows, rows)] for name, kernel in kernels.grams.items()}
        start = {name: 0.5 if name in ("ngrams", "topics", NEAR) else 1.0 for name in grams}
        truth = target[rows].astype(np.float64)
        search = Search(grams, truth)
        weighing = search.best(start)
        if not self.has_companions:
            return weighing
        return search.accompanied(weighing, [name for name in grams if name not in (VECTOR, NEAR)])

    def fit(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """Solve for all pairs, exactly or on landmarks; StitchError for fewer than two pairs, or for missing texts."""
        check_pairs(source, target)
        self._check_texts(source, texts)
        self.mean_, self.dim_ = _mean(source), target.shape[1]
        if self.landmarks is not None or len(source) > LARGEST_EXACT:
            return self._fit_on_landmarks(source, target, texts)
        kernels = self._kernels(source, texts)
        weighing = self.weighing = self.weighing or self._weigh(kernels, source, target, texts)
        truth = target.astype(np.float64)
        system = KernelSystem.of(kernels.total(weighing), truth)
        penalty = weighing.total_penalty
        if len(target) > SEARCH_SIZE:
            search = Search({"all": system.gram}, truth)
            penalty = search.best_penalty({"all": 1.0}, [penalty * near for near in NEARBY]).penalty
        solved = [(system.coefficients(penalty), system.means)]
        factor = penalty / weighing.total_penalty
        for _, companion_weighing in weighing.companions:
            companion = KernelSystem.of(kernels.total(companion_weighing), system.target)
            solved.append((companion.coefficients(companion_weighing.total_penalty * factor), companion.means))
        self._keep(kernels.parts(weighing), weighing, system, solved, penalty)
        return self

    def _fit_on_landmarks(self, source: Vectors, target: Vectors, texts: TextRows | None) -> Self:
        rows = draw_landmarks(len(target), self.landmarks or LANDMARKS)
        landmark_texts = None if texts is None else texts.take(rows)
        kernels = self._kernels(source[rows], landmark_texts, self.mean_)
        weighing = self.weighing = self.weighing or self._weigh(kernels, source[rows], target[rows], landmark_texts)
        every = Kernels(self._views(source, texts, self.mean_), kernels.scales, kernels.widths)
        truth = target.astype(np.float64)
        solved = [
            solve_on_landmarks(every.parts(regression), rows, truth, regression.total_penalty)
            for _, regression in weighing.regressions
        ]
        system = KernelSystem.of(kernels.total(weighing), truth)
        self._keep(kernels.parts(weighing), weighing, system, solved, weighing.total_penalty)
        return self

    def cross_predict(
        self, pairs: Pairing, splits: Sequence[Split], *, with_variance: bool = True
    ) -> Iterator[Prediction]:
        """Predict from one Gram matrix of all pairs: a fold is a part of it."""
        source, target, texts = pairs.source, pairs.target, pairs.texts
        kernels = self._kernels(source, texts)
        weighing = self.weighing or self._weigh(kernels, source, target, texts)
        truth = target.astype(np.float64)
        several = [(share, regression, kernels.total(regression)) for share, regression in weighing.regressions]
        for fit_rows, held_out in splits:
            vectors = np.zeros((len(held_out), target.shape[1]))
            predictions: list[Prediction] = []
            for share, regression, total in several:
                system = KernelSystem.of(total[np.ix_(fit_rows, fit_rows)], truth[fit_rows])
                prior = np.diag(total)[held_out] if with_variance and not predictions else None
                predictions.append(_predict(system, total[np.ix_(held_out, fit_rows)], prior, regression.total_penalty))
                vectors += share * predictions[-1].vectors
            yield replace(predictions[0], vectors=vectors.astype(np.float32))

    def _kernels(self, source: Vectors, texts: TextRows | None, mean: Vectors | None = None) -> Kernels:
        return measure(self._views(source, texts, _mean(source) if mean is None else mean), texts, self.gaussians)

    def _check_texts(self, vectors: Vectors, texts: TextRows | None) -> None:
        if self.reads_texts and (texts is None or len(texts) != len(vectors)):
            raise StitchError(
                f"the {self.kind} stitch reads texts, but there are none; choose a stitch of vectors only"
            )

    def _views(self, vectors: Vectors, texts: TextRows | None, mean: Vectors) -> dict[str, View]:
        views: dict[str, View] = {}
        if self.reads_vectors:
            centred = vectors - mean
            views[VECTOR] = DenseView(unit_rows(centred) if VECTOR in self.gaussians else centred)
        if self.reads_texts and texts is not None:
            views |= texts.views
        if NEAR in self.gaussians:  # last: the search for weights leaves it out where the others do without
            views[NEAR] = DenseView(unit_rows(vectors - mean))
        return views

    def _keep(
        self,
        parts: Sequence[KernelPart],
        weighing: Weighing,
        system: KernelSystem,
        solved: Sequence[tuple[Matrix, Matrix]],
        penalty: float,
    ) -> None:
        """Put the columns of the prediction, of the mean and of the directions side by side.

        `solved` are the coefficients and the means of the kernel, the own ones first and then those of each companion.
        """
        directions = system.directions(penalty, DIRECTIONS)
        alpha = solved[0][0]
        mean = np.full((len(alpha), 1), 1 / len(alpha))
        self.alpha_ = np.hstack([alpha, mean, directions]).astype(np.float32)
        self.companions_ = np.array([coefficients for coefficients, _ in solved[1:]], dtype=np.float32).reshape(
            -1, *alpha.shape
        )
        pairs = zip(weighing.regressions, solved, strict=True)
        shift = np.sum([share * (means @ coefficients) for (share, _), (coefficients, means) in pairs], axis=0)
        offset = np.r_[system.mean - shift, system.means.mean(), -system.means @ directions]
        self.offset_ = offset.astype(np.float32)
        self.penalty_ = penalty
        self.parts_ = in_order(parts)
        self.products_ = None

    def predict(self, vectors: Vectors, texts: TextRows | None = None) -> Prediction:
        """Vectors and their posterior variance, in units of the prior's, up to the noise."""
        self._check_texts(vectors, texts)
        views = self._views(vectors, texts, self.mean_)
        columns = np.zeros((len(vectors), self.alpha_.shape[1]), dtype=np.float32)
        prior = np.zeros(len(vectors), dtype=np.float32)
        products = self.products_
        if products is None:
            products = self.products_ = self._products()  # as a whole, since several threads predict at once
        for kernel, product in zip(self.parts_, products, strict=True):
            columns += product(views[kernel.name])
            prior += kernel.diagonal(views[kernel.name])
        q = self.dim_
        prior += self.offset_[q] - 2 * columns[:, q]
        explained = squared_norms(columns[:, q + 1 :] + self.offset_[q + 1 :])
        predicted = np.ascontiguousarray(columns[:, :q] + self.offset_[:q])
        return Prediction(predicted, prior - explained)

    def _products(self) -> tuple[Product, ...]:
        """Return what multiplies each part with its coefficients, (n, q + 1 + r), averaged over the regressions."""
        products = []
        for kernel in self.parts_:
            mixed, q = self.alpha_, self.dim_
            if kernel.shares:
                mixed = mixed.copy()
                mixed[:, :q] *= np.float32(kernel.shares[0])
                for share, alpha in zip(kernel.shares[1:], self.companions_, strict=True):
                    mixed[:, :q] += np.float32(share) * alpha
            products.append(kernel.product(mixed))
        return tuple(products)

    def stretch(self, spread: AffineMap) -> Self:
        """Multiply the coefficients and the offset of the prediction."""
        q = self.dim_
        self.companions_ = (self.companions_ @ spread.matrix).astype(np.float32)
        self.alpha_ = np.hstack([(self.alpha_[:, :q] @ spread.matrix).astype(np.float32), self.alpha_[:, q:]])
        self.offset_ = np.r_[spread.of(self.offset_[:q]).astype(np.float32), self.offset_[q:]]
        self.products_ = None
        return self

    @property
    def views(self) -> Collection[str]:
        """Names of the views that have a weight, the old vector's among them."""
        return [kernel.name for kernel in self.parts_]

    def with_reach(self, source: Vectors) -> Self:
        """Return self: `predict` has the posterior variance of the views."""
        return self

    def transform(self, vectors: Vectors, texts: TextRows | None = None) -> Vectors:
        """The vectors of `predict`."""
        return self.predict(vectors, texts).vectors

    def arrays(self) -> Arrays:
        """Coefficients, offset, mean, and what each view saw of the fit documents."""
        arrays = {"alpha": self.alpha_, "offset": self.offset_, "mean": self.mean_}
        arrays["dim"] = np.array([self.dim_], dtype=np.int64)
        if len(self.companions_):
            arrays["companions"] = self.companions_
        for kernel in self.parts_:
            arrays |= kernel.arrays()
        return arrays

    def restore(self, arrays: Arrays) -> Self:
        """Restore what `arrays` returned."""
        self.alpha_, self.offset_, self.mean_ = arrays["alpha"], arrays["offset"], arrays["mean"]
        self.dim_ = int(arrays["dim"][0])
        self.parts_ = restore_parts(arrays, len(self.alpha_))
        self.products_ = None
        none = np.empty((0, len(self.alpha_), self.dim_), dtype=np.float32)
        self.companions_ = arrays.get("companions", none)
        counts = {len(kernel.shares) for kernel in self.parts_} - {1 + len(self.companions_)}
        if self.companions_.shape[1:] != none.shape[1:] or counts - ({0} if not len(self.companions_) else set()):
            raise ValueError(f"coefficients of companions {self.companions_.shape} that views do not share")
        if self.offset_.shape != self.alpha_.shape[1:] or not 0 < self.dim_ < len(self.offset_):
            raise ValueError(
                f"coefficients {self.alpha_.shape}, offset {self.offset_.shape} for {self.dim_} dimensions"
            )
        return self

    def kind_facts(self) -> dict[str, float]:
        """Weights, and the penalty in units of their sum, where the stitch was fitted in this process."""
        if self.weighing is None:
            return {}
        weights = self.weighing.weights
        shown = {f"weight {name}": weight for name, weight in weights.items()}
        for share_of, companion in self.weighing.companions:
            name = "vector alone" if companion.weights.keys() <= {VECTOR, NEAR} else "texts alone"
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
        companions = () if self.weighing is None else self.weighing.companions
        without_vector = [companion for _, companion in companions if not companion.weights.keys() <= {VECTOR, NEAR}]
        return TextAlone(without_vector[0]) if without_vector else None


class RidgeNear(Additive):
    """The old vector, linearly and, where that helps, by its neighbourhood; no texts."""

    kind: ClassVar[str] = "ridge+near"
    gaussians: ClassVar[frozenset[str]] = frozenset({NEAR})
    cost: ClassVar[int] = 6

    def nearest_affine(self, dim: int) -> AffineMap | None:
        """Return the map that is nearest to this one on the fit documents; None where the vector has no weight."""
        rows_kept = next(
            (np.asarray(kernel.rows, dtype=np.float64) for kernel in self.parts_ if kernel.name == VECTOR), None
        )
        if rows_kept is None:
            return None
        predicted = self.transform((rows_kept + self.mean_).astype(np.float32)).astype(np.float64)
        rows, mean = rows_kept - rows_kept.mean(axis=0), rows_kept.mean(axis=0) + self.mean_
        system = rows.T @ rows
        # For more dimensions than fit documents
        system[np.diag_indices_from(system)] += 1e-3 * np.trace(system) / len(system)
        matrix = np.linalg.solve(system, rows.T @ (predicted - predicted.mean(axis=0)))
        return AffineMap(matrix, predicted.mean(axis=0) - mean @ matrix)


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
