import os
import re
from pathlib import Path

import numpy as np
import pytest
from stores_tools import make_store

from migrate.errors import DatasetError, StoreError, UsageError, VectorError
from migrate.lab.compare.compare import compare, distinct_names, match_documents
from migrate.lab.similarity.measures import MEASURES
from migrate.lab.similarity.neighbours import local_dimensions
from migrate.lab.similarity.spaces import compare_spaces
from migrate.stitch.nearest import find_nearest
from migrate.vectors import unit_rows

BY_KEY = {measure.key: measure for measure in MEASURES}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spaces")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 5)).astype(np.float32)
    tables = {"a": x, "b": (x @ rng.normal(size=(5, 5))).astype(np.float32), "c": rng.normal(size=(60, 3)).astype("f")}
    return [make_store(folder / name, ids(*range(60)), table) for name, table in tables.items()]


@pytest.fixture(scope="module")
def found(stores):
    return compare(*stores, seed=1)


@pytest.fixture(scope="module")
def matched(stores):
    return match_documents(stores, seed=1)


def test_every_pair_is_compared_on_the_shared_documents(matched, found):
    assert list(found.pairs) == [(0, 1), (0, 2), (1, 2)]
    assert found.pairs[0, 2] == compare_spaces(matched.vectors[0], matched.vectors[2], seed=1)
    assert [(one.name, one.dim, one.documents) for one in found.stores] == [("a", 5, 60), ("b", 5, 60), ("c", 3, 60)]


def test_matrices_stand_the_right_way_round(found):
    r2 = found.matrix(BY_KEY["r2"])
    assert r2[0][2] == found.pairs[0, 2].forth.stitch.r2 and r2[2][0] == found.pairs[0, 2].back.stitch.r2
    cka = found.matrix(BY_KEY["cka"])
    assert cka[0][1] == cka[1][0] == found.pairs[0, 1].cka
    assert [cka[place][place] for place in range(3)] == [1, 1, 1]
    identity = found.matrix(BY_KEY["r2_identity"])
    assert identity[0][2] is None and identity[1][0] is not None, "there is no figure where dimensions differ"


@pytest.mark.slow
def test_the_penalty_above_self_is_that_of_the_target_less(stores):
    found = compare(*stores, seed=1, kind=["ridge", "ols", "ridge"])
    assert found.specs == ("ridge", "ols")
    penalty, above = (found.matrix(BY_KEY[key], "ols") for key in ("penalty", "penalty_above_self"))
    for a in range(3):
        for b in range(3):
            assert above[a][b] == pytest.approx(penalty[a][b] - penalty[b][b])
    assert found.pairs[0, 2].back == found.stitches["ridge"][2, 0]
    assert found.own_stitches[2] == found.stitches["ridge"][2, 2]


@pytest.mark.slow
def test_tables_of_pandas_have_a_column_for_each_stitch(stores):
    frame = compare(*stores, kind=["ridge", "ols"]).to_pandas()
    assert {"cka", "r2", "r2 ols", "r2_mean"} <= set(frame.columns) and "r2_mean ols" not in frame.columns
    assert len(frame) == 6


def test_documents_are_listed_by_their_dimension_with_their_neighbours(matched, found):
    near = find_nearest(unit_rows(matched.vectors[0]), 20)
    dimensions = local_dimensions(near)
    order = np.argsort(dimensions)
    lowest = found.local[0].lowest
    assert [document.id for document in lowest] == [matched.ids[row] for row in order[:20]]
    np.testing.assert_allclose([document.dimension for document in lowest], dimensions[order[:20]])
    assert lowest[0].neighbours == tuple(matched.ids[row] for row in near.rows[order[0]][:5])
    assert found.local[0].highest[0].id == matched.ids[order[-1]]
    assert found.texts[lowest[0].neighbours[4]] == f"text of {lowest[0].neighbours[4]}"


def test_groups_have_the_figures_of_the_matrices(stores, found):
    groups = compare(*stores, seed=1, group={"first": [0, 1], "second": [2]}).groups
    cka = next(contrast for contrast in groups.contrasts if contrast.key == "cka")
    matrix = found.matrix(BY_KEY["cka"])
    assert cka.within.mean == pytest.approx(matrix[0][1])
    assert cka.between.mean == pytest.approx((matrix[0][2] + matrix[1][2]) / 2)
    assert groups.layer_distances == ((0.0, None), (None, 0.0)) and found.groups is None


def test_what_is_left_out_is_told(stores, tmp_path):
    few = make_store(tmp_path / "few", ids(*range(20, 80)), np.eye(60, dtype=np.float32))
    found = compare(stores[0], few, sample=15)
    assert found.shared == 40 and found.documents == 15
    assert any(note.startswith("a has 20 documents") for note in found.notes)
    assert any(note.startswith("15 of the 40 shared documents") for note in found.notes)
    assert any(
        note.startswith("stitches are fitted on 7 documents, fewer than") and "few (60)" in note for note in found.notes
    )


def test_labels_are_for_the_documents_that_are_compared(stores):
    labels = {f"d{row}": "even" if row % 2 == 0 else "odd" for row in range(10, 500)}
    found = compare(*stores, labels=labels).downstream
    assert found.trained_on + found.judged_on == 50
    assert found.probe[1] is not None and found.probe[2] is None
    with pytest.raises(DatasetError, match="has a label"):
        compare(*stores, labels={"elsewhere": "x"})


def test_one_store_is_none_to_compare(stores):
    with pytest.raises(UsageError, match="two or more"):
        compare(*stores[:1])


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["x/a", "x/b"], ["a", "b"]),
        (["x/store", "y/store", "y/other"], ["x/store", "y/store", "y/other"]),
        (["x/a", "x/a"], ["a", "a (2)"]),
        (["x/a\x1b[31m", "x/b"], ["a?[31m", "b"]),
    ],
)
def test_names_are_short_and_different(paths, names):
    assert distinct_names([Path(path) for path in paths]) == names


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
