"""The comparison of two spaces of the same documents by every measure, and the measures of their shapes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.errors import VectorError
from migrate.lab.similarity.neighbours import (
    DIMENSION_NEIGHBOURS,
    check_same_documents,
    local_dimensions,
    mean_dimension,
    neighbour_jaccard,
    rank_similarity,
    some_rows,
    two_nn_dimension,
)
from migrate.lab.similarity.stitching import FEWEST, Stitching, gaussian_like, judge_stitching
from migrate.stitch.confidence import spearman
from migrate.stitch.nearest import NEIGHBOURS, Nearest, find_nearest
from migrate.stitch.text_features import Matrix
from migrate.vectors import Vectors, unit_rows


def relative_orientation(a: Vectors, b: Vectors, *, seed: int = 0) -> float:
    """Return the Pearson correlation of the cosines of all pairs of documents in two spaces, (n, p) and (n, q).

    The comparison of similarity matrices of Kriegeskorte, Mur & Bandettini 2008, on up to 1,000 documents drawn by
    `seed`; 0 where all cosines of a space are the same.
    """
    check_same_documents(a, b, 3)
    rows = some_rows(len(a), seed=seed)
    # Each pair once, and no document with itself, whose cosine is 1 in any space
    above = np.triu_indices(len(rows), 1)
    units = (unit_rows(side[rows]).astype(np.float64) for side in (a, b))
    cosines = [(side @ side.T)[above] for side in units]
    x, y = (values - values.mean() for values in cosines)
    scale = float(np.sqrt((x @ x) * (y @ y)))
    if scale <= 0:
        return 0.0
    return float(x @ y) / scale


def local_geometry(a: Vectors, b: Vectors, *both: Nearest) -> float:
    """Return how alike documents are put together from their neighbours in two spaces of unit rows: -1 to 1.

    The mean correlation of the weights that rebuild a document's direction from its nearest documents in the one
    space and from the same documents in the other, for the neighbours of either space.
    """
    agreements = [_weight_agreement(reconstruction_weights(a, near), reconstruction_weights(b, near)) for near in both]
    return float(np.mean(agreements))


def reconstruction_weights(vectors: Vectors, near: Nearest) -> NDArray[np.float64]:
    """Return weights, (m, k), each row with sum 1, that best rebuild documents from `near.rows`.

    Roweis & Saul 2000, eq. 1; as in scikit-learn, 0.001 of the trace of a Gram matrix is added to its diagonal.
    """
    weights = np.empty(near.rows.shape)
    for start in range(0, len(near.query_rows), 256):
        block = slice(start, start + 256)
        edges = vectors[near.rows[block]].astype(np.float64) - vectors[near.query_rows[block]][:, None]
        gram = edges @ edges.transpose(0, 2, 1)
        trace = np.einsum("mkk->m", gram)
        gram += 1e-3 * np.where(trace > 0, trace, 1)[:, None, None] * np.eye(gram.shape[1])
        weights[block] = np.linalg.solve(gram, np.ones((*gram.shape[:2], 1)))[:, :, 0]
    weights /= weights.sum(axis=1, keepdims=True)
    return weights


def _weight_agreement(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the mean over rows of the correlation of weights, (m, k); equal weights agree with equal ones only."""
    x, y = (side - side.mean(axis=1, keepdims=True) for side in (a, b))
    scale = np.sqrt(np.einsum("mk,mk->m", x, x) * np.einsum("mk,mk->m", y, y))
    products = np.einsum("mk,mk->m", x, y)
    same = np.isclose(x, y).all(axis=1)
    return float(np.where(scale > 0, products / np.where(scale > 0, scale, 1), same).mean())


def unbiased_hsic(a: Matrix, b: Matrix) -> float:
    """Return the unbiased Hilbert-Schmidt independence criterion of two Gram matrices, (n, n), n >= 4.

    Song et al. 2012; HSIC₁ in Nguyen, Raghu & Kornblith 2021, eq. 3. The diagonals are left out.
    """
    n = len(a)
    # The letters of the formula
    k = a.copy()
    l = b.copy()  # noqa: E741
    np.fill_diagonal(k, 0)
    np.fill_diagonal(l, 0)
    k_sums = k.sum(axis=0)
    l_sums = l.sum(axis=0)
    total = np.einsum("ij,ij->", k, l)
    total += k_sums.sum() * l_sums.sum() / ((n - 1) * (n - 2))
    total -= 2 / (n - 2) * (k_sums @ l_sums)
    return float(total) / (n * (n - 3))


def linear_cka(a: Vectors, b: Vectors, *, batch_size: int = 256, seed: int = 0) -> float:
    """Return linear CKA of two spaces, (n, p) and (n, q), row i of both for one document.

    The mean unbiased HSIC of both sides over random minibatches, divided by the geometric mean of that of each with
    itself (Nguyen, Raghu & Kornblith 2021, eq. 2). 1: alike up to rotation, scale and shift; about 0, and so by
    chance below: unlike. A minibatch has `batch_size` documents, 256 in that paper, or a few more, so that every
    document counts; with `batch_size` n it is the full-batch figure. A space without any spread has 0.
    """
    check_same_documents(a, b, FEWEST)
    if batch_size < FEWEST:
        raise VectorError(f"minibatches of {batch_size} documents are too small; take {FEWEST} or more")
    means = [side.mean(axis=0, dtype=np.float64) for side in (a, b)]
    order = np.random.default_rng(seed).permutation(len(a))
    sums = np.zeros(3)
    # Parts of nearly one size: a last one of three documents would have no unbiased estimate
    for rows in np.array_split(order, max(len(a) // batch_size, 1)):
        x = a[rows] - means[0]
        y = b[rows] - means[1]
        k = x @ x.T
        l = y @ y.T  # noqa: E741
        sums += unbiased_hsic(k, l), unbiased_hsic(k, k), unbiased_hsic(l, l)
    return _share(*sums.tolist())


def biased_cka(a: Vectors, b: Vectors) -> float:
    """Return linear CKA of two spaces, (n, p) and (n, q), by the biased estimator, from all documents at once.

    Kornblith et al. 2019, eq. 5: ‖AᵀB‖² / (‖AᵀA‖ ‖BᵀB‖), Frobenius norms of centred A and B. It is the figure that is
    mostly published, and rises with p / n and q / n towards 1 whatever the spaces are: see what a Gaussian has. A space
    without any spread has 0.
    """
    check_same_documents(a, b, FEWEST)
    x, y = ((side - side.mean(axis=0, dtype=np.float64)).astype(np.float32) for side in (a, b))
    return _share(_cross_energy(x, y), _cross_energy(x, x), _cross_energy(y, y))


def _share(both: float, first: float, second: float) -> float:
    """Return what two sides have in common over the geometric mean of what each has with itself."""
    # The unbiased estimate of a space without spread may be below 0
    if first <= 0 or second <= 0:
        return 0.0
    return float(both / np.sqrt(first * second))


def _cross_energy(x: Vectors, y: Vectors) -> float:
    """Return ‖XᵀY‖², by way of the smaller of the products that give it."""
    # ‖XᵀY‖² is the sum of the products of both Gram matrices, which are the smaller ones of few documents
    if len(x) < min(x.shape[1], y.shape[1]):
        return float(np.einsum("ij,ij->", x @ x.T, y @ y.T, dtype=np.float64))
    product = x.T @ y
    return float(np.einsum("ij,ij->", product, product, dtype=np.float64))


@dataclass(frozen=True, slots=True)
class ChanceCka:
    """CKA of a space with independent Gaussian vectors of its shape: what is owed to the numbers alone."""

    cka: float
    cka_biased: float


def chance_cka(vectors: Vectors, *, seed: int = 0) -> ChanceCka:
    """Return CKA of (n, d) with n vectors from a Gaussian that has the mean and the deviation of each column."""
    drawn = gaussian_like(vectors, len(vectors), seed=seed)
    return ChanceCka(linear_cka(vectors, drawn, seed=seed), biased_cka(vectors, drawn))


def cka_distance(cka: float) -> float:
    """Return the angle arccos(CKA) in radians, from 0 (alike) to about π/2 (unlike): Williams et al. 2021.

    With the unbiased estimator it is a metric in the limit of many documents only.
    """
    # Rounding may go beyond 1, which has no arccos
    return float(np.arccos(np.clip(cka, -1, 1)))


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """A space with what several comparisons need: neighbours of the query documents and dimensions near them."""

    vectors: Vectors
    near: Nearest
    local: NDArray[np.float64]

    @property
    def dimension(self) -> float:
        """Intrinsic dimension of the directions, from up to 1,000 documents; NaN where it is not known."""
        return mean_dimension(self.local)

    @property
    def two_nn(self) -> float:
        """Intrinsic dimension by TwoNN, from the same documents."""
        return two_nn_dimension(self.near)


@dataclass(frozen=True, slots=True)
class Similarity:
    """Two spaces a and b compared; each function of the same name says what a figure means.

    Attributes
    ----------
    documents : how many were compared
    cka : linear CKA by the unbiased estimator, from all of them
    cka_biased : the same by the biased one
    cka_distance : arccos of it, in radians
    jaccard, rank_similarity : of the 10 nearest documents
    relative_orientation : correlation of the cosines of pairs of documents
    local_geometry : correlation of reconstruction weights
    dimension_agreement : Spearman's correlation of the intrinsic dimensions near the same documents
    dimensions, two_nn : intrinsic dimensions of a and of b
    forth, back : stitches from a to b and from b to a
    """

    documents: int
    cka: float
    cka_biased: float
    cka_distance: float
    jaccard: float
    rank_similarity: float
    relative_orientation: float
    local_geometry: float
    dimension_agreement: float
    dimensions: tuple[float, float]
    two_nn: tuple[float, float]
    forth: Stitching
    back: Stitching


def compare_spaces(a: Vectors, b: Vectors, *, seed: int = 0) -> Similarity:
    """Compare (n, p) and (n, q), finite and without zero rows, whose rows i are of one document.

    Measures whose cost grows with the square or the cube of n use up to 1,000 query documents, drawn by `seed` and
    compared with all n; a ridge is fitted each way, as in `judge_stitching`.
    """
    check_same_documents(a, b, FEWEST)
    forth, back = (judge_stitching(x, y, seed=seed) for x, y in ((a, b), (b, a)))
    return compare_described(describe_space(a, seed=seed), describe_space(b, seed=seed), forth, back, seed=seed)


def describe_space(vectors: Vectors, *, seed: int = 0) -> Space:
    """Prepare (n, d) for comparisons; compare only spaces described with the same seed."""
    query_rows = some_rows(len(vectors), seed=seed)
    near = find_nearest(unit_rows(vectors), max(NEIGHBOURS, DIMENSION_NEIGHBOURS), query_rows=query_rows)
    return Space(vectors, near, local_dimensions(near))


def compare_described(a: Space, b: Space, forth: Stitching, back: Stitching, *, seed: int = 0) -> Similarity:
    """Compare as `compare_spaces`, spaces that are described already, with the stitches from a to b and back."""
    cka = linear_cka(a.vectors, b.vectors, seed=seed)
    a_near = a.near.first(NEIGHBOURS)
    b_near = b.near.first(NEIGHBOURS)
    finite = np.isfinite(a.local) & np.isfinite(b.local)
    dimension_agreement = float("nan")
    if finite.any():
        dimension_agreement = spearman(a.local[finite], b.local[finite])
    return Similarity(
        documents=len(a.vectors),
        cka=cka,
        cka_biased=biased_cka(a.vectors, b.vectors),
        cka_distance=cka_distance(cka),
        jaccard=neighbour_jaccard(a_near, b_near),
        rank_similarity=rank_similarity(a_near, b_near),
        relative_orientation=relative_orientation(a.vectors, b.vectors, seed=seed),
        local_geometry=local_geometry(unit_rows(a.vectors), unit_rows(b.vectors), a_near, b_near),
        dimension_agreement=dimension_agreement,
        dimensions=(a.dimension, b.dimension),
        two_nn=(a.two_nn, b.two_nn),
        forth=forth,
        back=back,
    )
