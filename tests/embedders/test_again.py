"""Which texts are embedded again to prove that a model is still the one that it was."""

import numpy as np
import pytest

from migrate.embedders.again import ASKED_AGAIN, some_places


@pytest.mark.parametrize("count", [1, 2, ASKED_AGAIN, ASKED_AGAIN + 1, 1_000])
def test_the_first_and_the_last_are_among_those_that_are_embedded_again(count):
    for seed in range(20):
        positions = some_places(count, np.random.default_rng(seed))
        assert positions[0] == 0 and positions[-1] == count - 1
        assert positions == sorted(set(positions)) and len(positions) == min(count, ASKED_AGAIN)
