import numpy as np
import pytest

from migrate.hashes import HashIndex, grown, hashes_of


def judge(hashes):
    """The numbers of hashes by a dict."""
    number_of = {}
    return [number_of.setdefault(number, len(number_of)) for number in hashes.tolist()], number_of


@pytest.mark.parametrize("block", [1, 7, 1_000])
@pytest.mark.parametrize("different", [3, 400, 10**9])
def test_hashes_are_numbered_in_the_order_in_which_they_first_came(block, different):
    hashes = np.random.default_rng(different).integers(-different, different, 1_000)
    index = HashIndex()
    numbers = [index.number(hashes[start : start + block]) for start in range(0, len(hashes), block)]
    expected, number_of = judge(hashes)
    assert np.concatenate(numbers).tolist() == expected
    assert len(index) == len(number_of)
    strangers = np.arange(2_000_000_000, 2_000_000_050)
    assert (index.find(strangers) == -1).all()
    both = np.concatenate([strangers, hashes])
    assert index.find(both).tolist() == [number_of.get(number, -1) for number in both.tolist()]


def test_nothing_is_found_in_an_empty_index_and_nothing_may_be_asked_for():
    index, none = HashIndex(), np.empty(0, np.int64)
    assert index.find(np.array([0, 5])).tolist() == [-1, -1]
    assert len(index.number(none)) == len(index.find(none)) == len(index) == 0


def test_equal_texts_have_equal_hashes():
    first, second, third = hashes_of(["a", "b", "".join(["", "a"])]).tolist()
    assert first == third != second


def test_an_array_grows_by_zeros_to_twice_its_length_or_what_is_asked_for():
    values = np.array([1, 2, 3], np.uint32)
    assert grown(values, 3) is values
    assert grown(values, 4).tolist() == [1, 2, 3, 0, 0, 0]
    assert grown(values, 9).tolist() == [1, 2, 3, 0, 0, 0, 0, 0, 0] and grown(values, 9).dtype == np.uint32
