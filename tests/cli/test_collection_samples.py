"""How a sample is shared out among many collections."""

from migrate.collections.fitting import sample_sizes, share_out


def test_a_sample_has_some_of_each_collection():
    assert share_out([900, 20, 3], 240) == [217, 20, 3]
    assert share_out([5, 5], 100) == [5, 5]
    assert sum(share_out([400, 7, 90, 1], 100)) == 100
    assert min(share_out([100_000, *[50] * 39], 1_000)) >= 6


def test_a_collection_that_no_audit_could_find_safe_is_embedded_whole():
    assert sample_sizes([99, 5_000, 20, 100], 1_000, whole=100) == [99, 900, 20, 100]
    assert sample_sizes([3, 4], 100, whole=100) == [3, 4]
