import os

import numpy as np
import pytest

from migrate.errors import StoreError
from migrate.stores import id_index
from migrate.stores.id_index import IdIndex, kept_index

IDS = ["b", "", "é", "a", "🦆", "z" * 3_000, "a b", "\uffff", "10", "9"]


@pytest.fixture(params=[3, 500_000], ids=["merged", "at once"])
def index(tmp_path, monkeypatch, request):
    monkeypatch.setattr(id_index, "_SORTED_AT_ONCE", request.param)
    return IdIndex.build(tmp_path / "x.ids", iter(IDS), source="a store")


def test_rows_are_places_among_the_sorted_ids(index):
    assert index.count == len(IDS)
    assert index.ids(range(len(IDS))) == sorted(IDS)
    assert index.ids(range(4, 7)) == sorted(IDS)[4:7]
    assert index.ids(np.array([9, 0, 0])) == [sorted(IDS)[9], sorted(IDS)[0], sorted(IDS)[0]]
    assert index.ids(range(4, 4)) == []
    assert index.rows([*IDS, "absent", "\ud800"]).tolist() == [*map(sorted(IDS).index, IDS), -1, -1]
    with pytest.raises(IndexError, match="rows 0 to 10 requested, 0 to 9 are there"):
        index.ids(range(11))


def test_the_order_says_where_each_id_was_read(index):
    assert [IDS[place] for place in index.order(0, len(IDS))] == sorted(IDS)
    assert [IDS[place] for place in index.order(3, 5)] == sorted(IDS)[3:5]
    assert index.order(4, 4).tolist() == []
    with pytest.raises(IndexError):
        index.order(0, len(IDS) + 1)


def test_the_same_ids_have_the_same_hash_in_any_order(index, tmp_path):
    same = IdIndex.build(tmp_path / "same.ids", reversed(IDS), source="a store")
    other = IdIndex.build(tmp_path / "other.ids", [*IDS[1:], "c"], source="a store")
    assert same.sha256 == index.sha256 == IdIndex(index.path).sha256 != other.sha256
    assert same.ids(range(len(IDS))) == index.ids(range(len(IDS)))


def test_an_id_that_is_there_twice_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(id_index, "_SORTED_AT_ONCE", 2)
    with pytest.raises(StoreError, match="a store: expected a different id for each document, found 'b' twice"):
        IdIndex.build(tmp_path / "x.ids", ["b", "c", "a", "b"], source="a store")
    with pytest.raises(StoreError, match="expected an id of Unicode characters"):
        IdIndex.build(tmp_path / "x.ids", ["\ud800"], source="a store")
    assert not list(tmp_path.iterdir())


def test_a_store_without_documents_has_no_rows(tmp_path):
    index = IdIndex.build(tmp_path / "x.ids", [], source="a store")
    assert index.ids(range(0)) == [] and index.rows(["a"]).tolist() == [-1]


@pytest.mark.parametrize("size", [0, 10, 60, 500])
def test_a_list_that_was_cut_is_refused_or_made_again(tmp_path, size):
    path = kept_index(tmp_path, "a store", 1, lambda: IDS).path
    os.truncate(path, size)
    with pytest.raises(StoreError, match="remove it, and it is made again"):
        IdIndex(path)
    assert kept_index(tmp_path, "a store", 1, lambda: IDS).count == len(IDS)


def test_bytes_that_are_no_ids_are_refused(tmp_path):
    index = IdIndex.build(tmp_path / "x.ids", ["a", "b", "c"], source="a store")
    content = index.path.read_bytes()
    for bad in (content.replace(b"abc", b"a\xffc"), content[:-32] + b"\xff" * 8 + content[-24:]):
        index.path.write_bytes(bad)
        with pytest.raises(StoreError, match="remove it, and it is made again"):
            IdIndex(index.path).ids(range(3))
