"""Kernel stitches of given weights, pairs for them, and what scikit-learn predicts in their place."""

import numpy as np
from scipy.sparse import issparse
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel

from migrate.stitch.base import cross_predict
from migrate.stitch.kernel_ridge import VECTOR
from migrate.stitch.scores import Neighbours
from migrate.stitch.view_weights import Weighing
from migrate.vectors import unit_rows


def made(stitch, penalty=0.1):
    weights = {"vector": 1.0} if stitch.reads_vectors else {}
    if stitch.reads_texts:
        weights |= {"ngrams": 0.5, "topics": 0.25}
    return stitch(Weighing(weights, penalty, 0.0))


def mixed(world, seed=1):
    """A source that knows half of what the words mean, and something else; a target that knows both."""
    rng = np.random.default_rng(seed)
    both = np.hstack([world.wordy, world.hidden])
    source = np.hstack([world.wordy[:, :6], world.hidden]) @ rng.normal(size=(18, 20)) + 2
    return source.astype(np.float32), unit_rows((both @ rng.normal(size=(24, 16))).astype(np.float32))


def overlap(stitch, pairs):
    neighbours = Neighbours(unit_rows(pairs.target))
    if getattr(stitch, "weighing", None) is None:
        stitch = stitch.tuned(pairs.source, pairs.target, pairs.texts)
    return float(neighbours.overlap(unit_rows(cross_predict(stitch, pairs).vectors)).mean())


def plain(view):
    rows = view.matrix()
    return (rows.toarray() if issparse(rows) else rows).astype(np.float64)


def check_against_scikit_learn(make_world, stitch, n, q):
    """Compare predictions with scikit-learn's kernel ridge.

    It is given the weighted sum of the kernels, each divided by its spread.
    """
    world, other = make_world(n), make_world(40, seed=5)
    (x, y), new = mixed(world), mixed(other)[0]
    y = np.ascontiguousarray(np.resize(y.T, (q, n)).T)
    texts, asked_texts = world.reader.read(world.texts), world.reader.read(other.texts)
    fitted = made(stitch).fit(x, y, texts)

    rows = {name: np.vstack([plain(texts.views[name]), plain(asked_texts.views[name])]) for name in texts.views}
    grams = {name: some @ some.T for name, some in rows.items()}
    vectors = np.vstack([x, new]) - x.mean(axis=0)
    grams["vector"] = vectors @ vectors.T
    if VECTOR in stitch.gaussians:
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        width = np.mean([np.square(unit[i] - unit[j]).sum() for i in range(n) for j in range(n)])
        grams["vector"] = rbf_kernel(unit, gamma=1 / width)
    total, penalty = 0, 0.1 * sum(fitted.weighing.weights.values())
    for name, weight in fitted.weighing.weights.items():
        gram = grams[name]
        inner = gram[:n, :n]
        total = total + weight * gram / (np.trace(inner) / n - inner.mean())
    means = total[:n, :n].mean(axis=0)
    inner = total[:n, :n] - means - means[:, None] + means.mean()
    cross = total[n:, :n] - means - total[n:, :n].mean(axis=1)[:, None] + means.mean()
    mean = y.mean(axis=0)
    judge = KernelRidge(alpha=penalty, kernel="precomputed").fit(inner, y - mean)
    found = fitted.predict(new, asked_texts)
    np.testing.assert_allclose(found.vectors, judge.predict(cross) + mean, atol=1e-4)
    np.testing.assert_array_equal(fitted.transform(new, asked_texts), found.vectors)

    own = np.diag(total)[n:] - 2 * total[n:, :n].mean(axis=1) + means.mean()
    solved = np.linalg.solve(inner + penalty * np.eye(n), cross.T)
    exact = own - np.einsum("ij,ji->i", cross, solved)
    if n == 40:  # as many directions as documents
        np.testing.assert_allclose(found.variance, exact, atol=2e-4)
    else:  # directions beyond the leading ones are left out, so that the variance is seen from above
        assert (found.variance > exact - 1e-4).all()
        assert np.corrcoef(found.variance, exact)[0, 1] > 0.8
