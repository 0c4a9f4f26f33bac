import numpy as np
import pytest
from scipy.linalg import norm

from migrate.errors import VectorError
from migrate.vectors import (
    UNIT_TOLERANCE,
    NormSummary,
    as_vectors,
    check_vectors,
    squared_norms,
    summarize_norms,
    unit_rows,
)

ROWS = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
IDS = [f"d{row}" for row in range(len(ROWS))]


def spoiled(value, row=4):
    rows = ROWS.copy()
    rows[row, 2] = value
    return rows


def test_norms_are_those_of_scipy():
    norms = [norm(row) for row in ROWS.astype(float)]
    np.testing.assert_allclose(squared_norms(ROWS), np.square(norms), rtol=1e-6)
    np.testing.assert_array_equal(check_vectors(IDS, ROWS, source="s"), squared_norms(ROWS))
    found = summarize_norms(ROWS)
    assert (found.mean, found.minimum, found.maximum) == pytest.approx((np.mean(norms), min(norms), max(norms)))


@pytest.mark.parametrize(
    ("least", "greatest", "expected"),
    [
        (1.0, 1.0, True),
        (1 - 0.9 * UNIT_TOLERANCE, 1 + 0.9 * UNIT_TOLERANCE, True),
        (1 - 1.1 * UNIT_TOLERANCE, 1.0, False),
        (1.0, 1 + 1.1 * UNIT_TOLERANCE, False),
    ],
)
def test_rows_are_of_unit_length_when_all_of_them_are(least, greatest, expected):
    assert NormSummary(1.0, least, greatest).is_unit is expected


def test_vectors_are_float32_and_contiguous_and_not_copied_where_they_are_so_already():
    found = as_vectors(np.asfortranarray(ROWS.astype(np.float64)))
    assert found.dtype == np.float32 and found.flags.c_contiguous
    assert np.array_equal(found, ROWS)
    assert np.shares_memory(as_vectors(ROWS, dim=5), ROWS)


@pytest.mark.parametrize(
    ("rows", "dim", "named"),
    [(ROWS[0], None, "1 dimensions"), (ROWS[None], None, "3 dimensions"), (ROWS, 6, "dimension 5, not 6")],
)
def test_other_shapes_are_refused(rows, dim, named):
    with pytest.raises(VectorError, match=f"^here: .*{named}"):
        as_vectors(rows, dim=dim, source="here")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, np.float32(3e19)])
@pytest.mark.parametrize("row", [0, 6])
def test_a_bad_vector_is_named(value, row):
    with pytest.raises(VectorError, match=rf"^the store: NaN, Inf or overflowing .* 'd{row}' \(1 bad of 7"):
        check_vectors(IDS, spoiled(value, row), source="the store")


def test_the_first_bad_vector_is_named_and_all_are_counted():
    rows = spoiled(np.nan, 5)
    rows[2] = 0
    with pytest.raises(VectorError, match=r"zero vector for document 'd2' \(2 bad of 7"):
        check_vectors(IDS, rows, source="s")


def test_zero_vectors_pass_only_where_they_are_allowed():
    rows = ROWS.copy()
    rows[3] = 0
    assert check_vectors(IDS, rows, source="s", allow_zero=True)[3] == 0
    rows[1, 1] = np.nan
    with pytest.raises(VectorError, match=r"'d1' \(1 bad"):
        check_vectors(IDS, rows, source="s", allow_zero=True)


def test_unit_rows_keep_the_direction_and_zero_stays_zero():
    rows = ROWS.copy()
    rows[3] = 0
    before = rows.copy()
    found = unit_rows(rows)
    assert found.dtype == np.float32
    assert np.array_equal(rows, before)
    assert not found[3].any()
    others = [0, 1, 2, 4, 5, 6]
    np.testing.assert_allclose([norm(row) for row in found[others]], 1, rtol=1e-6)
    np.testing.assert_allclose([row @ found[i] / norm(row) for i, row in enumerate(rows) if i != 3], 1, rtol=1e-6)
