import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from migrate.similarity.neighbours import (
    find_nearest,
    local_dimensions,
    mean_dimension,
    neighbour_jaccard,
    rank_similarity,
    some_rows,
)
from migrate.similarity.spaces import compare_spaces, linear_cka, local_geometry, relative_orientation
from migrate.similarity.stitching import judge_stitching
from migrate.vectors import unit_rows

pytestmark = pytest.mark.slow


def make(n=1_300, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 12)).astype(np.float32)
    return x, (np.tanh(x @ rng.normal(size=(12, 9))) + 0.1 * rng.normal(size=(n, 9))).astype(np.float32)


def test_every_figure_is_that_of_its_function():
    x, y = make()
    found = compare_spaces(x, y, seed=4)
    units, asked = [unit_rows(side) for side in (x, y)], some_rows(len(x), seed=4)
    assert len(asked) == 1_000
    wide = [find_nearest(side, 20, query_rows=asked) for side in units]
    dimensions = [local_dimensions(side) for side in wide]
    near = [side.first(10) for side in wide]
    assert found.cka == linear_cka(x, y, seed=4)
    assert found.cka_distance == math.acos(found.cka)
    assert found.jaccard == neighbour_jaccard(*near)
    assert found.rank_similarity == rank_similarity(*near)
    assert found.relative_orientation == relative_orientation(x, y, seed=4)
    assert found.local_geometry == pytest.approx(local_geometry(*units, *near))
    assert found.dimensions == tuple(map(mean_dimension, dimensions))
    assert found.dimension_agreement == pytest.approx(spearmanr(*dimensions).statistic)
    assert found.forth == judge_stitching(x, y, seed=4)
    assert found.back == judge_stitching(y, x, seed=4)
    assert found.documents == 1_300


def test_the_same_seed_gives_the_same_and_nothing_is_changed():
    x, y = make(n=1_010)
    before = x.copy(), y.copy()
    found = compare_spaces(x, y, seed=2)
    assert found == compare_spaces(x, y, seed=2)
    assert found.jaccard != compare_spaces(x, y, seed=3).jaccard
    assert np.array_equal(x, before[0]) and np.array_equal(y, before[1])


@pytest.mark.parametrize("n", [4, 5, 12])
def test_few_documents_are_enough(n):
    x, y = make(n=n)
    found = dataclasses.asdict(compare_spaces(x, y))
    assert all(math.isfinite(found[name]) for name in ("cka", "jaccard", "relative_orientation", "local_geometry"))


X, Y = make(n=80)
STRANGE = {
    "all equal": np.ones_like(X),
    "one dimension": X[:, :1] ** 2 + 1,
    "copies": np.repeat(X[:20], 4, axis=0),
    "small": X * np.float32(1e-6),
    "great": X * np.float32(1e6),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_strange_space_is_no_obstacle(kind):
    found = compare_spaces(STRANGE[kind], Y)
    for figure in ("cka", "jaccard", "rank_similarity", "relative_orientation", "local_geometry"):
        assert -1 <= getattr(found, figure) <= 1
    assert all(math.isfinite(scores.r2) for way in (found.forth, found.back) for scores in (way.stitch, way.mean))
