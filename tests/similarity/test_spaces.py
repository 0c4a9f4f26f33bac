import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from migrate.errors import VectorError
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
    units = [unit_rows(side) for side in (x, y)]
    wide = [find_nearest(side, 20, query_rows=some_rows(len(x), seed=4)) for side in units]
    near = [side.first(10) for side in wide]
    assert found.cka == linear_cka(x, y, seed=4)
    assert found.cka_distance == math.acos(found.cka)
    assert found.jaccard == neighbour_jaccard(*near)
    assert found.rank_similarity == rank_similarity(*near)
    assert found.relative_orientation == relative_orientation(x, y, seed=4)
    assert found.local_geometry == pytest.approx(local_geometry(*units, *near))
    assert found.dimensions == tuple(mean_dimension(local_dimensions(side)) for side in wide)
    assert found.forth == judge_stitching(x, y, seed=4)
    assert found.back == judge_stitching(y, x, seed=4)
    assert found.documents == 1_300


def test_dimension_agreement_is_spearmans_correlation_near_the_same_documents():
    x, y = make()
    asked = some_rows(len(x), seed=0)
    one, other = (local_dimensions(find_nearest(unit_rows(side), 20, query_rows=asked)) for side in (x, y))
    assert len(asked) == 1_000
    assert compare_spaces(x, y).dimension_agreement == pytest.approx(spearmanr(one, other).statistic)


def test_a_space_is_like_itself():
    x, _ = make(n=300)
    found = compare_spaces(x, x)
    for figure in ("cka", "jaccard", "rank_similarity", "relative_orientation", "local_geometry"):
        assert getattr(found, figure) == pytest.approx(1)
    assert found.dimension_agreement == pytest.approx(1)
    assert found.forth.identity.r2 == 1
    assert found.forth == found.back


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


@pytest.mark.parametrize(
    "spoil",
    [
        lambda x: np.ones_like(x),
        lambda x: x[:, :1] ** 2 + 1,
        lambda x: np.repeat(x[: len(x) // 4], 4, axis=0),
        lambda x: x * 1e-6,
        lambda x: x * 1e6,
    ],
    ids=["all equal", "one dimension", "copies", "small", "great"],
)
def test_a_strange_space_is_no_obstacle(spoil):
    x, y = make(n=80)
    strange = spoil(x).astype(np.float32)
    found = compare_spaces(strange, y)
    for figure in ("cka", "jaccard", "rank_similarity", "relative_orientation", "local_geometry"):
        assert -1 <= getattr(found, figure) <= 1
    assert all(math.isfinite(scores.r2) for way in (found.forth, found.back) for scores in (way.stitch, way.mean))


def test_both_sides_must_have_the_same_documents():
    x, y = make(n=20)
    with pytest.raises(VectorError, match="found 20 and 19"):
        compare_spaces(x, y[1:])
