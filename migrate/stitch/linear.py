"""Stitches that read the old vector alone: identity, mean, procrustes, ridge, and adjoint for queries.

`ridge_path` solves ridge regression for many λ from one decomposition, with the exact leave-one-out error of each.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Self

import numpy as np

from migrate.errors import StitchError
from migrate.stitch.affine import AffineMap
from migrate.stitch.base import Stitch, StretchableStitch, centred, check_pairs
from migrate.stitch.scores import Neighbours, standard_error
from migrate.stitch.text_features import AnyMatrix, Matrix, TextRows
from migrate.vectors import Vectors, squared_norms, unit_rows

RELATIVE_GRID = np.logspace(-4, 2, 13)
"""The default λ grid, in units of the mean non-zero eigenvalue of the centred Gram matrix."""


Loss = Callable[[AnyMatrix], float]
"""Judgement of a λ: a number from the leave-one-out residuals, (n, q); less is better."""


@dataclass(frozen=True)
class RidgePath:
    """Ridge solutions over a λ grid, for centred pairs X (n, p) and Y (n, q).

    The intercept is not penalised: centring solves it exactly, and it puts 1/n into the leverage of every row. The
    leave-one-out residual of a linear smoother is r_i / (1 - h_ii), exactly (Allen 1974, PRESS; Hastie, Tibshirani &
    Friedman 2009, eq. 7.64); means and all are refitted without row i. `loo_mse`, (l,), is the mean of its squares for
    each λ, from products in float32; `best` is the index of the λ with the least loss, whose `coefficients`, (p, q),
    and `loo_residuals`, (n, q), these are, in float64.
    """

    lambdas: Matrix
    loo_mse: Matrix
    best: int
    coefficients: Matrix
    loo_residuals: Matrix

    @property
    def best_lambda(self) -> float:
        """The λ with the least leave-one-out loss."""
        return float(self.lambdas[self.best])


def mean_square(residuals: AnyMatrix) -> float:
    """Mean over rows and columns of the squared residual."""
    return float(squared_norms(residuals).sum(dtype=np.float64)) / residuals.size


def ridge_path(
    x: Matrix, y: Matrix, lambdas: Matrix | None = None, *, loss: Loss = mean_square, relative: Matrix = RELATIVE_GRID
) -> RidgePath:
    """Solve the ridge problem for each λ and keep the one with the least `loss`, then with the least MSE.

    Without `lambdas` these are `relative` ones, in units of the mean non-zero eigenvalue. Ties go to the larger λ.

    `x`, (n, p), and `y`, (n, q), are centred, n >= 2. One symmetric eigendecomposition, of XᵀX where n > p and of XXᵀ
    otherwise, serves all λ.
    """
    n, p = x.shape
    is_primal = n > p
    gram = x.T @ x if is_primal else x @ x.T
    eigenvalues, basis = np.linalg.eigh(gram)
    if is_primal:
        eigenvalues = np.maximum(eigenvalues, 0)
    else:  # what is 0 comes out as rounding, which a tiny λ must not be held against
        eigenvalues[eigenvalues < n * np.finfo(np.float64).eps * eigenvalues[-1]] = 0
    scores = x @ basis if is_primal else basis
    moments = scores.T @ y
    squares = scores**2
    grid = lambdas
    if grid is None:
        grid = relative * _scale_of(eigenvalues, min(n - 1, p))
    # Residuals of the smallest λ, from which those of a larger one differ by a sum of which no part is taken away again
    least = float(grid.min())
    residuals = np.zeros_like(y)
    if is_primal:
        residuals = y - scores @ (moments / (eigenvalues + least)[:, None])

    def errors_of(penalty: float, scores: AnyMatrix, residuals: AnyMatrix) -> AnyMatrix:
        """Return the leave-one-out errors for a λ, in the precision of what is given."""
        if is_primal:
            factors = (penalty - least) / ((eigenvalues + least) * (eigenvalues + penalty))
            slack = 1 - 1 / n - squares @ (1 / (eigenvalues + penalty))
        else:
            # Both parts of the quotient vanish with λ, so neither may be a difference of larger numbers: I - H is
            # written with the factors λ/(e+λ). The constant vector has eigenvalue 0 and factor 1, but belongs to the
            # intercept: its 1/n leaves the denominator, and it is orthogonal to the centred y.
            factors = penalty / (eigenvalues + penalty)
            slack = squares @ factors - 1 / n
        errors: AnyMatrix = scores @ (moments * factors[:, None]).astype(scores.dtype)
        errors += residuals
        errors /= slack[:, None].astype(scores.dtype)
        return errors

    # float32 is enough to tell one λ from the next
    narrow_scores = scores.astype(np.float32)
    narrow_residuals = residuals.astype(np.float32)
    loo_mse = np.empty(len(grid))
    best = 0
    best_loss = (np.inf, np.inf)
    for index, penalty in enumerate(grid.tolist()):
        errors = errors_of(penalty, narrow_scores, narrow_residuals)
        loo_mse[index] = mean_square(errors)
        retrieval = 0.0
        if len(grid) > 1:  # of one λ there is nothing to choose, and retrieval is dear
            retrieval = loss(errors)
        current_loss = (retrieval, float(loo_mse[index]))
        if current_loss <= best_loss:
            best = index
            best_loss = current_loss
    best_errors = errors_of(float(grid[best]), scores, residuals)
    coefficients = basis @ (moments / (eigenvalues + grid[best])[:, None])
    if not is_primal:
        coefficients = x.T @ coefficients
    return RidgePath(grid, loo_mse, best, coefficients, best_errors)


def ridge_solution(x: Matrix, y: Matrix, relative: float) -> tuple[float, Matrix]:
    """λ and the coefficients, (p, q), for one λ in units of the mean non-zero eigenvalue: a fifth of `ridge_path`."""
    from scipy.linalg import solve

    n, p = x.shape
    is_primal = n > p
    gram = x.T @ x if is_primal else x @ x.T
    penalty = relative * _scale_of(np.diag(gram), min(n - 1, p))
    gram[np.diag_indices_from(gram)] += penalty
    if is_primal:
        return penalty, np.asarray(solve(gram, x.T @ y, assume_a="pos", check_finite=False))
    return penalty, np.asarray(x.T @ solve(gram, y, assume_a="pos", check_finite=False))


def _scale_of(eigenvalues: Matrix, rank: int) -> float:
    """Return the mean non-zero eigenvalue, the unit of relative penalties."""
    scale = float(eigenvalues.sum() / max(rank, 1))
    if scale > 0:
        return scale
    return 1.0  # all rows are the same


class Identity(Stitch):
    """Leave the vectors as they are: right where the store only looks foreign."""

    kind: ClassVar[str] = "identity"
    cost: ClassVar[int] = 0

    def fit(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """Learn nothing."""
        check_pairs(source, target)
        if source.shape[1] != target.shape[1]:
            raise StitchError(
                f"the identity stitch needs equal dimensions, but they are {source.shape[1]} and "
                f"{target.shape[1]}; choose another --kind"
            )
        return self

    def transform(self, vectors: Vectors, texts: TextRows | None = None) -> Vectors:
        """Return the rows unchanged."""
        return vectors

    def affine(self, dim: int) -> AffineMap:
        """Return the identity matrix."""
        return AffineMap(np.eye(dim), np.zeros(dim))


class MeanVector(Stitch):
    """Map everything to the mean target vector: LEAD's control, that any stitch worth its name must beat."""

    kind: ClassVar[str] = "mean"
    cost: ClassVar[int] = 1
    learned: ClassVar[Sequence[str]] = ("mean",)
    mean_: Vectors

    def fit(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """Learn the mean of the target side."""
        check_pairs(source, target)
        self.mean_ = target.mean(axis=0, dtype=np.float64).astype(np.float32)
        return self

    def transform(self, vectors: Vectors, texts: TextRows | None = None) -> Vectors:
        """Repeat the mean for each row."""
        return np.tile(self.mean_, (len(vectors), 1))


def retrieval_loss(y: Matrix, mean: Matrix) -> Loss:
    """Judge leave-one-out residuals by the neighbours that the left-out predictions would find.

    The least squared error shrinks predictions further than is good for retrieval: shrunken documents gather near the
    mean and win queries that are not theirs. `y`, (n, q), is centred at `mean`.
    """
    truth = (y + mean).astype(np.float32)

    # Found when first asked for: of a single λ nobody asks
    @cache
    def neighbours() -> Neighbours:
        return Neighbours(truth)

    def loss(residuals: AnyMatrix) -> float:
        return 1 - float(neighbours().overlap(truth - residuals.astype(np.float32, copy=False)).mean())

    return loss


class Affine(StretchableStitch):
    """A stitch of the form x @ matrix_ + offset_; subclasses say how the matrix is found from centred pairs."""

    learned: ClassVar[Sequence[str]] = ("matrix", "offset")
    matrix_: Vectors
    offset_: Vectors

    @abstractmethod
    def solve(self, x: Matrix, y: Matrix, mean: Matrix) -> Matrix:
        """The (p, q) matrix for centred pairs `x`, (n, p), and `y`, (n, q); `mean` is that of the target, (q,)."""

    def fit(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """Centre both sides, solve, and put the means into the offset."""
        check_pairs(source, target)
        x, source_mean = centred(source)
        y, target_mean = centred(target)
        matrix = self.solve(x, y, target_mean)
        self.matrix_ = matrix.astype(np.float32)
        self.offset_ = (target_mean - source_mean @ matrix).astype(np.float32)
        return self

    def transform(self, vectors: Vectors, texts: TextRows | None = None) -> Vectors:
        """One matrix product and one sum."""
        return mapped(vectors, self.matrix_, self.offset_)

    def affine(self, dim: int) -> AffineMap:
        """Return matrix and offset."""
        return AffineMap(self.matrix_.astype(np.float64), self.offset_.astype(np.float64))

    def stretch(self, spread: AffineMap) -> Self:
        """Multiply matrix and offset."""
        self.matrix_ = (self.matrix_ @ spread.matrix).astype(np.float32)
        self.offset_ = narrow(spread.of(self.offset_))
        return self


def mapped(rows: Vectors, matrix: Vectors, offset: Vectors) -> Vectors:
    """Return `rows @ matrix + offset`, by one array."""
    out: Vectors = rows @ matrix
    out += offset
    return out


def thin_svd(matrix: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """The thin singular value decomposition of a matrix, (n, m): U, S and Vᵀ.

    LAPACK's divide and conquer, which NumPy takes, gives up on some matrices of a low rank, such as those of a store
    of few documents; its QR iteration is slower, and does not.
    """
    try:
        left_vectors, values, right = np.linalg.svd(matrix, full_matrices=False)
    except np.linalg.LinAlgError:
        from scipy.linalg import svd

        left_vectors, values, right = svd(matrix, full_matrices=False, lapack_driver="gesvd")
    return left_vectors, values, right


class Procrustes(Affine):
    """Rotation, scale and shift (Schönemann 1966; with scale, Schönemann & Carroll 1970).

    Where the dimensions differ the rotation is the semi-orthogonal matrix that zero-padding the shorter side would
    give. Learns few degrees of freedom, so it is hard to beat with few pairs.
    """

    kind: ClassVar[str] = "procrustes"
    cost: ClassVar[int] = 2

    def solve(self, x: Matrix, y: Matrix, mean: Matrix) -> Matrix:
        """Scale times U Vᵀ, from the singular value decomposition U S Vᵀ of xᵀy."""
        left_vectors, singular, right = thin_svd(x.T @ y)
        spread = float(np.einsum("ij,ij->", x, x))
        scale = 0.0
        if spread > 0:
            scale = singular.sum() / spread
        rotation: Matrix = scale * (left_vectors @ right)
        return rotation


_SHARES = (0.5, 1.0)
"""Shares of a prior that are tried, besides nothing."""

_CLEARLY = 2.0
"""Standard errors of the gain from which on a prior helps: by one, a tenth of random maps would seem to."""


class Ridge(Affine):
    """Least squares with a penalty whose weight λ is chosen by retrieval among exact leave-one-out predictions.

    With a `prior` P, a map of the same two models from another corpus, it shrinks towards a `share` of that in the
    place of 0: it predicts share * P(x) and a regression of what that leaves over. The share, 0 among others, is chosen
    by retrieval among predictions for pairs that were left out; the prior has not seen any of them.
    """

    kind: ClassVar[str] = "ridge"
    cost: ClassVar[int] = 5
    lambda_: float

    def __init__(
        self, penalties: Matrix = RELATIVE_GRID, *, prior: AffineMap | None = None, share: float = 0.0
    ) -> None:
        self.penalties = penalties
        self.prior = prior
        self.share = share

    def tuned(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """A ridge with the one penalty, in units of the mean eigenvalue, that is best for these pairs.

        It leans on `prior`, if there is one, where that clearly helps.
        """
        check_pairs(source, target)
        x, _ = centred(source)
        y, mean = centred(target)
        loss = retrieval_loss(y, mean)
        path = ridge_path(x, y, loss=loss)
        tuned = copy.copy(self)
        tuned.share = 0.0
        if self.prior is not None:
            predicted = self.prior.of(source)
            judge = Neighbours(target)
            shares = judge.overlap(narrow(target - path.loo_residuals))
            best_gain = 0.0
            for share in _SHARES:
                left_over, _ = centred(narrow(target - share * predicted))
                leaned = ridge_path(x, left_over, loss=loss)
                gain = judge.overlap(narrow(target - leaned.loo_residuals)) - shares
                if gain.mean() > max(_CLEARLY * standard_error(gain), best_gain):
                    tuned.share = share
                    path = leaned
                    best_gain = float(gain.mean())
        # In relative units, so that it suits a fit to a part of the pairs too
        tuned.penalties = RELATIVE_GRID[path.best : path.best + 1]
        return tuned

    def fit(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """Fit the affine map of what the share of the prior leaves over."""
        if self.prior is None or not self.share:
            return super().fit(source, target)
        check_pairs(source, target)
        super().fit(source, narrow(target - self.share * self.prior.of(source)))
        self.matrix_ = narrow(self.matrix_ + self.share * self.prior.matrix)
        self.offset_ = narrow(self.offset_ + self.share * self.prior.offset)
        return self

    def solve(self, x: Matrix, y: Matrix, mean: Matrix) -> Matrix:
        """The ridge solution of the best λ."""
        if len(self.penalties) == 1:
            self.lambda_, coefficients = ridge_solution(x, y, float(self.penalties[0]))
            return coefficients
        path = ridge_path(x, y, loss=retrieval_loss(y, mean), relative=self.penalties)
        self.lambda_ = path.best_lambda
        return path.coefficients

    def kind_facts(self) -> dict[str, float]:
        """The chosen λ and the share of the prior, where the stitch was fitted in this process."""
        if not hasattr(self, "lambda_"):  # it was loaded
            return {}
        facts = {"lambda": self.lambda_}
        if self.prior is not None:
            facts["share of prior"] = self.share
        return facts


def narrow(rows: Matrix) -> Vectors:
    """Return rows in float32."""
    return np.asarray(rows, dtype=np.float32)


class Adjoint(Stitch):
    """Transpose of a linear map from the old space to the new one, without its offset; `base` is ridge or procrustes.

    Where a document with the old vector s has about the new vector s M + b, a query q scores it (q Mᵀ)·s plus a
    constant: searching the old store with q Mᵀ ranks as searching the translated one with q does. Regressing old
    vectors on new ones, as Drift-Adapter does (EMNLP 2025), gives the answers of the old model, and learns from
    documents although queries differ from them. The ranking holds for stores that are searched by inner products, or
    hold unit vectors.

    A translated store gives all its vectors one length, which a query cannot do for it: documents whose new vectors are
    predicted short are found too rarely. So ridge is fitted twice, the second time to its own predictions brought to
    one length. Procrustes keeps lengths.
    """

    kind: ClassVar[str] = "adjoint"
    cost: ClassVar[int] = 11
    learned: ClassVar[Sequence[str]] = ("matrix",)
    matrix_: Vectors

    @classmethod
    def from_option(cls, option: str | None) -> Self | None:
        """`adjoint`, or `adjoint:procrustes`."""
        if option is None:
            return cls()
        if option == Procrustes.kind:
            return cls(option)
        return None

    def __init__(self, base: str = Ridge.kind) -> None:
        self.base = base

    @property
    def spec(self) -> str:
        """`adjoint`, or `adjoint:procrustes`."""
        if self.base == Ridge.kind:
            return self.kind
        return f"{self.kind}:{self.base}"

    def fit(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """Learn from the new vectors, `source`, (n, p), and the old ones, `target`, (n, q)."""
        forward: Affine
        if self.base == Ridge.kind:
            first = Ridge().fit(target, source)
            # Once more, to its predictions at one length: a translated store has all its vectors of that
            forward = Ridge().fit(target, unit_rows(first.transform(target)))
        else:
            forward = Procrustes().fit(target, source)
        self.matrix_ = np.ascontiguousarray(forward.matrix_.T)
        return self

    def transform(self, vectors: Vectors, texts: TextRows | None = None) -> Vectors:
        """One matrix product."""
        return vectors @ self.matrix_
