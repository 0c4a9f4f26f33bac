"""Pairs for linear stitches, and predictions of left-out rows by another implementation."""

import numpy as np
from sklearn.linear_model import Ridge as SklearnRidge


def make_pairs(n, p, q, *, noise=0.3, seed=0):
    """Related pairs with means away from zero; singular values fall, as those of embeddings do."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p)) * np.geomspace(2, 0.3, p) + rng.normal(size=p)
    y = x @ rng.normal(size=(p, q)) / np.sqrt(p) + noise * rng.normal(size=(n, q)) + rng.normal(size=q)
    return x.astype(np.float32), y.astype(np.float32)


def refitted_predictions(x, y, penalty):
    """Predict each row by scikit-learn's ridge, fitted, means and all, on all the others."""
    x, y, rows = x.astype(float), y.astype(float), np.arange(len(x))
    fits = (SklearnRidge(penalty).fit(x[rows != i], y[rows != i]) for i in rows)
    return np.array([fit.predict(x[i : i + 1])[0] for i, fit in enumerate(fits)])
