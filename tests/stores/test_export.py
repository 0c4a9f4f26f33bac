"""The file of a database's vectors has its room before a row is written, also where the system reserves none."""

import os

import numpy as np
import pytest

from migrate.errors import StoreError
from migrate.stores.export import IdIndex, VectorFile

COUNT, DIM = 5, 2**17


@pytest.mark.parametrize("is_linux", [True, False])
def test_all_rows_have_their_room_before_they_are_written(is_linux, tmp_path, monkeypatch):
    if not is_linux:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    path = tmp_path / "vectors"
    file = VectorFile(path, os.open(path, os.O_RDWR | os.O_CREAT), COUNT, DIM)
    file.reserve()
    assert path.stat().st_size == COUNT * DIM * 4
    assert path.stat().st_blocks * 512 >= COUNT * DIM * 4
    file.put(np.array([3, 1]), np.array([[3.0], [1.0]], np.float32).repeat(DIM, axis=1))
    assert file[np.arange(COUNT)][:, -1].tolist() == [0, 1, 0, 3, 0]
    file.put(np.array([2, 3]), np.array([[2.0], [4.0]], np.float32).repeat(DIM, axis=1))
    assert file[np.arange(COUNT)][:, -1].tolist() == [0, 1, 2, 4, 0]


@pytest.mark.parametrize(
    ("row", "ids", "are_there"),
    [
        (0, ["a", "bc", "ß"], True),
        (1, ["bc", "ß"], True),
        (3, [], True),
        (1, ["bc"], True),
        (0, ["bc"], False),
        (0, ["ab", "c"], False),
        (1, ["bc", "\udc9f"], False),
        (1, ["bc", "ß", "c"], False),
        (3, ["c"], False),
    ],
)
def test_an_index_knows_its_ids_by_their_bytes_and_where_each_ends(row, ids, are_there):
    index = IdIndex.of([["a", "bc"], ["ß"]], "a store")
    assert index.has_from(row, ids) is are_there


@pytest.mark.parametrize("pages", [[["a", "b"], ["c"]], [["c", "a"], ["b"]], [[]]])
def test_an_index_has_its_ids_sorted_and_where_each_was(pages):
    index = IdIndex.of(pages, "a store")
    ids = [doc_id for page in pages for doc_id in page]
    assert index.ids(range(len(ids))) == sorted(ids)
    assert [ids[position] for position in index.order] == sorted(ids)
    assert index.is_in_order is (ids == sorted(ids))


@pytest.mark.parametrize("pages", [[["a", "b"], ["b", "c"]], [["b", "a"], ["b"]]])
def test_an_id_that_comes_twice_is_told_whatever_the_order(pages):
    with pytest.raises(StoreError, match="'b' comes twice"):
        IdIndex.of(pages, "a store")
