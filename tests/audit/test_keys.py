import numpy as np
import pytest

from migrate.audit.keys import Keys, Names

NAMES = {
    "each its own": [f"d{row}" for row in range(50)],
    "some again": [f"d{row % 7 * 3}" for row in range(50)],
    "again at the end": [*(f"d{row}" for row in range(49)), "d0"],
    "of all kinds": ["", "ä", "z", "\ud800", "𝕏", "a\0", "a", "日本", "x" * 100, "", "z", "\uffff"],
}


def names_of(rows, block=4):
    names = Names(len(rows))
    for start in range(0, len(rows), block):
        names.add(rows[start : start + block])
    return names


@pytest.fixture(params=NAMES)
def rows(request):
    return NAMES[request.param]


@pytest.mark.parametrize("block", [1, 4, 100])
def test_rows_have_the_names_that_were_added(rows, block):
    names = names_of(rows, block)
    some = np.random.default_rng(0).integers(len(rows), size=20)
    assert names.take(range(len(rows))) == rows
    assert names.take(some) == [rows[row] for row in some]
    assert (len(names), names.distinct, names.is_unique) == (len(rows), len(set(rows)), len(set(rows)) == len(rows))


def test_rows_are_found_by_their_names(rows):
    names, asked = names_of(rows), [*dict.fromkeys(rows), "nowhere"]
    assert names.rows_of(asked).tolist() == [rows.index(name) if name in rows else -1 for name in asked]
    for some in (asked, asked[-3:], ["nowhere"], []):
        assert names.all_rows_of(some).tolist() == [row for row, name in enumerate(rows) if name in some]
    assert names.present(asked) == set(rows)


def test_names_stand_in_the_order_of_strings(rows):
    assert names_of(rows).in_order().tolist() == [rows.index(name) for name in sorted(set(rows))]


@pytest.mark.parametrize("others", NAMES.values(), ids=NAMES)
def test_names_are_matched_with_those_of_another_store(rows, others):
    names, other_names = names_of(rows), names_of(others)
    assert names.matches(other_names).tolist() == [others.index(name) if name in others else -1 for name in rows]
    missing = [rows.index(name) for name in dict.fromkeys(rows) if name not in others]
    assert names.lacking(other_names).tolist() == missing
    assert not len(names.lacking(names))


def test_documents_are_kept_apart_from_ids_once_a_chunk_comes():
    ids = [f"c{row}" for row in range(9)]
    documents = [*ids[:4], "p", "p", "c1", "q", "p"]
    pages = [(ids[start : start + 2], documents[start : start + 2]) for start in range(0, 9, 2)]
    keys = Keys.of(pages, 9)
    assert keys.ids.take(range(9)) == ids and keys.documents.take(range(9)) == documents
    assert keys.documents.distinct == 6
    some = keys.some(np.array([8, 0]))
    assert some.ids.take(range(2)) == ["c8", "c0"] and some.documents.take(range(2)) == ["p", "c0"]
    whole = Keys.of([(ids, ids)], 9)
    assert whole.documents is whole.ids, "kept once"


def test_ids_of_another_store_are_judged_as_the_same_documents():
    keys = Keys.of([(["a1", "a2", "b"], ["a", "a", "b"])], 3)
    other = keys.at(names_of(["b", "new", "a2", "a1"]))
    assert other.ids.take(range(4)) == ["b", "new", "a2", "a1"]
    assert other.documents.take(range(4)) == ["b", "new", "a", "a"]
    assert not keys.has_ids_of(other) and keys.has_ids_of(keys.some(np.array([2, 0, 1])))
