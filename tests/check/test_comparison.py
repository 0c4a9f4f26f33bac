"""The figures of a check: bounds of shares, and how far codes may be off."""

import faiss
import numpy as np
import pytest
from faiss_tools import empty_index
from scipy.stats import binomtest, ortho_group

from migrate.check.comparison import share_of
from migrate.selection.model_match import agree, tolerance_of
from migrate.stores import open_store
from migrate.vectors import unit_rows

# Many small indexes on a busy machine: waiting for threads costs more than they save.
faiss.omp_set_num_threads(1)


@pytest.fixture(scope="module")
def spread():
    """1,000 unit vectors as a model's are: a few directions matter more than others."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(1_000, 48)) / np.arange(1, 49) ** 0.5
    return unit_rows((rows @ ortho_group.rvs(48, random_state=2)).astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize(("factory", "allowed", "loose"), [
    ("Flat", 1e-3, False), ("SQfp16", 1e-3, False), ("SQ8", 2e-3, False), ("IVF4,SQ4", 2e-2, True),
    ("PQ6x4", 0.07, True), ("PCA24,SQ8", 0.07, True),
])  # fmt: skip
def test_the_kind_of_the_index_sets_the_tolerance(factory, allowed, loose, spread, tmp_path):
    index = empty_index(factory, 48)
    index.train(spread)
    index.add(spread)
    faiss.write_index(index, str(tmp_path / "index.faiss"))
    found = tolerance_of(open_store(tmp_path).info)
    assert (found.allowed, found.loose) == (allowed, loose)
    if not found.coded:
        rows = np.arange(len(spread))
        order = [int(doc_id) for doc_id in open_store(tmp_path).get(rows).ids]
        assert agree(open_store(tmp_path).get(rows).vectors, spread[order], found).all()


@pytest.mark.parametrize(("seen", "sampled"), [(1, 32), (9, 32), (31, 32), (3, 7)])
def test_bounds_are_those_of_scipy(seen, sampled):
    judge = binomtest(seen, sampled).proportion_ci(0.95, method="exact")
    found = share_of(seen, sampled, 10**6)
    assert (found.estimate, found.lower, found.upper) == pytest.approx((seen / sampled, judge.low, judge.high))


@pytest.mark.parametrize("sampled", [1, 32, 1_000])
def test_nothing_seen_leaves_what_would_be_missed_once_in_twenty_and_a_sample_of_everything_no_doubt(sampled):
    upper = share_of(0, sampled, 10**6).upper
    assert (1 - upper) ** sampled == pytest.approx(0.05)
    assert share_of(sampled, sampled, 10**6).lower == pytest.approx(1 - upper)
    assert share_of(0, sampled, sampled).upper == 0
    half = share_of(sampled, 2 * sampled, 2 * sampled)
    assert half.lower == half.upper == 0.5
