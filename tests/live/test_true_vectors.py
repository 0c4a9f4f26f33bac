"""What a searcher holds in memory."""

import numpy as np

from migrate.live.true_vectors import VectorMemory


def test_what_was_not_used_for_longest_makes_room():
    memory = VectorMemory(2, 300)
    for number in range(300):
        memory.keep(b"%d" % number, np.array([number, 1], np.float32))
    places, rows = memory.find([b"0", None, b"none", b"299"])
    np.testing.assert_array_equal(places, [0, 3])
    np.testing.assert_array_equal(rows, [[0, 1], [299, 1]])
    memory.keep(b"new", np.array([-1, -1], np.float32))
    assert b"0" in memory and b"new" in memory and b"299" in memory  # used since, or the last
    assert b"1" not in memory
    kept = [b"%d" % number for number in range(300) if b"%d" % number in memory]
    assert len(kept) == 299
    places, rows = memory.find(kept)
    np.testing.assert_array_equal(places, range(len(kept)))
    np.testing.assert_array_equal(rows[:, 0], [int(digest) for digest in kept])
    assert memory.find([b"none"])[1].shape == (0, 2)


def test_a_vector_does_not_keep_the_batch_that_it_came_in():
    memory, batch = VectorMemory(2, 3), np.ones((4, 2), np.float32)
    memory.keep(b"a", batch[1])
    batch[:] = 7
    np.testing.assert_array_equal(memory.find([b"a"])[1], [[1, 1]])


def test_a_vector_is_replaced():
    memory = VectorMemory(1, 1)
    for number in (1, 2):
        memory.keep(b"a", np.array([number], np.float32))
    memory.keep(b"b", np.array([3], np.float32))
    assert b"a" not in memory
    np.testing.assert_array_equal(memory.find([b"a", b"b"])[1], [[3]])
