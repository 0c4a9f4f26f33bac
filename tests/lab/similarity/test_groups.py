import numpy as np
import pytest

from migrate.errors import UsageError
from migrate.lab.compare.groups import check_groups, contrast, layer_distances


def by_loops(matrix, groups, draws, seed):
    """The same bootstrap as a list of drawn stores, pair by pair."""
    rng = np.random.default_rng(seed)
    counts = [rng.multinomial(len(group), [1 / len(group)] * len(group), size=draws) for group in groups]
    found = []
    for draw in range(draws):
        drawn = [
            (number, place)
            for number, group in enumerate(groups)
            for place, times in zip(group, counts[number][draw], strict=True)
            for _ in range(times)
        ]
        pairs = [(a, b) for a in drawn for b in drawn if a[1] != b[1]]
        within = [matrix[a[1], b[1]] for a, b in pairs if a[0] == b[0]]
        between = [matrix[a[1], b[1]] for a, b in pairs if a[0] != b[0]]
        found.append((np.mean(within) if within else np.nan, np.mean(between)))
    return np.array(found)


def test_bounds_are_those_of_stores_drawn_one_by_one():
    rng = np.random.default_rng(1)
    matrix = rng.uniform(size=(8, 8))
    groups = [[0, 2, 4], [1, 3, 5, 6]]  # 7 is in none
    drawn = by_loops(matrix, groups, 300, seed=3)
    within, between, difference = contrast(matrix, groups, seed=3, draws=300)
    for interval, values in ((within, drawn[:, 0]), (between, drawn[:, 1]), (difference, drawn[:, 0] - drawn[:, 1])):
        np.testing.assert_allclose([interval.lower, interval.upper], np.nanpercentile(values, [2.5, 97.5]))
    of_group = [matrix[np.ix_(group, group)][~np.eye(len(group), dtype=bool)] for group in groups]
    assert within.mean == pytest.approx(np.concatenate(of_group).mean())
    across = np.concatenate([matrix[np.ix_(*groups)].ravel(), matrix[np.ix_(*groups[::-1])].ravel()])
    assert between.mean == pytest.approx(across.mean())
    assert difference.mean == pytest.approx(within.mean - between.mean)


def test_what_has_no_figure_does_not_count_and_few_stores_have_no_bounds():
    matrix = np.array([[1.0, 0.5, np.nan], [0.5, 1.0, 0.2], [np.nan, 0.2, 1.0]])
    within, between, _ = contrast(matrix, [[0, 1], [2]])
    assert (within.mean, between.mean) == (0.5, pytest.approx(0.2))
    assert (within.lower, between.upper) == (None, None)
    assert contrast(matrix, [[0], [1]])[0] is None


def test_layers_are_as_far_as_the_root_of_their_squared_angles():
    angles = np.arange(25.0).reshape(5, 5)
    found = layer_distances(angles, [[0, 1], [2, 3], [4]])
    assert found[0][1] == pytest.approx(np.sqrt(angles[0, 2] ** 2 + angles[1, 3] ** 2))
    assert (found[0][0], found[0][2], found[2][2]) == (0.0, None, 0.0)


@pytest.mark.parametrize(
    "places",
    [{"a": [0, 1]}, {"a": [0], "b": []}, {"a": [0, 1], "b": [1]}, {"a": [0, 0], "b": [1]}, {"a": [0], "b": [9]}],
)
def test_groups_that_cannot_be_compared_are_refused(places):
    with pytest.raises(UsageError, match=r"group"):
        check_groups(places, 3)
