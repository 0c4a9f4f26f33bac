import numpy as np
import pytest
from kernel_judge import check_against_scikit_learn, overlap

from migrate.lab.stitches.kernel import Kernel, KernelText
from migrate.stitch.base import Pairing
from migrate.stitch.registry import new_stitch


@pytest.mark.slow
@pytest.mark.parametrize("stitch", [Kernel, KernelText])
@pytest.mark.parametrize(("n", "q"), [(80, 16), (60, 100)])
def test_predictions_are_those_of_scikit_learns_kernel_ridge(make_world, stitch, n, q):
    check_against_scikit_learn(make_world, stitch, n, q)


def test_information_that_only_the_texts_have_is_found(make_world):
    world = make_world(160)
    pairs = world.pairing(world.hidden, world.wordy)
    alone, with_texts = (overlap(new_stitch(spec), pairs) for spec in ("ridge", "kernel+text"))
    assert alone < 0.2 and with_texts > 2 * alone


def test_a_kernel_finds_what_is_not_linear():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, size=(200, 1))
    x = np.hstack([np.cos(angle), np.sin(angle)]).astype(np.float32)
    y = np.hstack([np.cos(2 * angle), np.sin(2 * angle), np.cos(3 * angle)]).astype(np.float32)
    pairs = Pairing(x, y)
    assert overlap(new_stitch("ridge"), pairs) < 0.5
    assert overlap(new_stitch("kernel"), pairs) > 0.8
    assert pairs.fit(new_stitch("kernel")).nearest_affine(2) is None
