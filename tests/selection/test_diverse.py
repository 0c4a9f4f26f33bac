import numpy as np
import pytest

from migrate.selection.sample import far_apart, pool_size


def test_rows_are_distinct_even_where_vectors_are_copies():
    vectors = np.repeat(np.eye(3, dtype=np.float32), 10, axis=0)
    chosen = far_apart(vectors, 30, seed=0)
    assert sorted(chosen.tolist()) == list(range(30))
    assert len({row // 10 for row in chosen[:3].tolist()}) == 3, "one of each kind before any copy"


def test_a_row_is_drawn_in_proportion_to_its_squared_distance():
    angles = np.array([0, 0.2, 0.5, 1.2])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    pairs = [tuple(far_apart(vectors, 2, seed=seed).tolist()) for seed in range(6000)]
    seconds = [second for first, second in pairs if first == 0]
    squared = 2 - 2 * np.cos(angles)
    found = np.bincount(seconds, minlength=4) / len(seconds)
    assert np.abs(found - squared / squared.sum()).max() < 0.05  # 1,500 draws: standard deviation 0.013 at most
    assert np.bincount([first for first, _ in pairs]).min() > 1300


def test_the_length_of_a_vector_does_not_matter():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(200, 5)).astype(np.float32)
    powers_of_two = 2.0 ** rng.integers(-5, 6, size=(200, 1))  # exact, so that nothing is rounded differently
    longer = (vectors * powers_of_two).astype(np.float32)
    before = vectors.copy()
    assert np.array_equal(far_apart(vectors, 40, seed=3), far_apart(longer, 40, seed=3))
    assert np.array_equal(vectors, before)


@pytest.mark.parametrize(
    ("size", "dim", "expected"),
    [(100, 384, 10_000), (1_000, 384, 20_000), (8_000, 384, 87_381), (8_000, 64, 100_000), (1_000, 4096, 8_192),
     (200_000, 4096, 200_000)],
)  # fmt: skip
def test_the_pool_is_bounded_by_rows_and_by_memory(size, dim, expected):
    assert pool_size(size, dim) == expected
