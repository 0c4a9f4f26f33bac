import os
import re

import numpy as np
import pytest
from stores_tools import make_store

from migrate.errors import StoreError, VectorError
from migrate.lab.compare.compare import match_documents


def vectors(n, dim=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, dim)).astype(np.float32)


def ids(*numbers):
    return [f"d{number}" for number in numbers]


def test_documents_that_all_stores_have_are_matched_by_id_whatever_their_order(tmp_path):
    one, other, more = vectors(40), vectors(40, 6, seed=1), vectors(50, seed=2)
    a = make_store(tmp_path / "a", ids(*range(40)), one)
    b = make_store(tmp_path / "b", ids(*reversed(range(40))), other[::-1])
    c = make_store(tmp_path / "c", ids(*range(9, 59)), more)
    found = match_documents([a, b, c])
    rows = np.array([int(doc_id[1:]) for doc_id in found.ids])
    assert sorted(rows) == list(range(9, 40)) and found.shared == 31
    for table, expected in zip(found.vectors, (one[rows], other[rows], more[rows - 9]), strict=True):
        assert np.array_equal(table, expected)


def test_a_sample_is_drawn_by_the_seed_and_not_by_the_order_of_the_store(tmp_path):
    table = vectors(200)
    a = make_store(tmp_path / "a", ids(*range(200)), table)
    b = make_store(tmp_path / "b", ids(*reversed(range(200))), table[::-1])
    first, again, other = (
        match_documents(pair, sample=50, seed=seed) for pair, seed in (([a, b], 1), ([b, a], 1), ([a, b], 2))
    )
    assert len(first.ids) == 50 and first.shared == 200
    assert first.ids == again.ids
    assert set(first.ids) != set(other.ids)


def test_stores_of_other_documents_are_refused(tmp_path):
    a = make_store(tmp_path / "a", ids(*range(20)), vectors(20))
    b = make_store(tmp_path / "b", ids(*range(100, 120)), vectors(20))
    c = make_store(tmp_path / "c", ids(*range(15, 35)), vectors(20))
    with pytest.raises(StoreError, match="the stores have no ids in common") as caught:
        match_documents([a, b])
    assert str(tmp_path / "a") in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(StoreError, match="have 5 ids in common"):
        match_documents([a, c])


def test_a_store_that_changed_since_it_was_opened_is_refused(tmp_path):
    a, b = (make_store(tmp_path / name, ids(*range(20)), vectors(20)) for name in "ab")
    docs = tmp_path / "b" / "docs.jsonl"
    content = docs.read_bytes()
    docs.unlink()
    docs.write_bytes(content)
    os.utime(docs, (1, 1))
    with pytest.raises(StoreError, match=re.escape(str(docs))):
        match_documents([a, b])


def test_a_bad_vector_is_named(tmp_path):
    table = vectors(20)
    a = make_store(tmp_path / "a", ids(*range(20)), table)
    table[7] = np.nan
    b = make_store(tmp_path / "b", ids(*range(20)), table)
    with pytest.raises(VectorError, match="'d7'"):
        match_documents([a, b])
