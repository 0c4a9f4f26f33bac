"""Scores of a full re-embed and of an arm, query by query: what tests of bounds, power and verdicts share."""

import numpy as np

from migrate.audit.bootstrap import Bootstrap
from migrate.audit.verdict import verdict_of


def make(n, *, loss=0.03, noise=0.15, seed=0):
    """Scores of a full re-embed, between 0 and 1 with many zeros, and of an arm that loses `loss` of them."""
    rng = np.random.default_rng(seed)
    full = rng.choice([0, 0.3, 0.5, 0.63, 1], size=n)
    arm = np.where(full > 0, np.clip(full * (1 - loss) + noise * rng.normal(size=n), 0, 1), 0)
    return arm, full


def alternating(n, retained, spread):
    """Scores that retain `retained` exactly, half of the queries `spread` more and half of them less."""
    full = np.repeat([0.3, 0.5, 0.63, 1], n // 4)
    return full * (retained + spread * np.tile([-1, 1], n // 2)), full


def judge(*scores, margin=0.95, provisional=False, **rules):
    """The verdict on scores by the rules of a bootstrap."""
    return verdict_of(*scores, margin=margin, provisional=provisional, bootstrap=Bootstrap(**rules))


def all_of(bootstrap, arm, full):
    """Everything that a bootstrap says of two arms' scores."""
    bounds = bootstrap.retention(arm, full), bootstrap.difference(arm, full)
    return *bounds, bootstrap.family({"a": arm}, full), bootstrap.queries_needed(arm, full, 0.9)
