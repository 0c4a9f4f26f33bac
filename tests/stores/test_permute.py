"""Vectors are put in order, in memory and through a file."""

import numpy as np
import pytest

from migrate.errors import OutputError
from migrate.stores.permute import in_order


@pytest.mark.parametrize("part_bytes", [1, 100, 1_000, 1 << 20])
@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_rows_come_in_their_order(part_bytes, size, tmp_path):
    rows = np.random.default_rng(size).permutation(257)
    vectors = np.random.default_rng(0).normal(size=(257, 3)).astype(np.float32)
    arrivals = (vectors[first : first + size] for first in range(0, 257, size))
    parts = [part.copy() for part in in_order(arrivals, rows, 3, tmp_path / "new", part_bytes=part_bytes)]
    expected = np.empty_like(vectors)
    expected[rows] = vectors
    assert np.array_equal(np.concatenate(parts), expected)
    assert max(map(len, parts)) * 12 <= max(part_bytes, 12)
    assert not (tmp_path / "new").exists() or not list((tmp_path / "new").iterdir())


def test_nothing_has_no_order(tmp_path):
    assert sum(map(len, in_order([], np.empty(0, np.int64), 3, tmp_path))) == 0


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file"):
        list(in_order([np.ones((9, 3), np.float32)], np.arange(9), 3, tmp_path / "file", part_bytes=24))
