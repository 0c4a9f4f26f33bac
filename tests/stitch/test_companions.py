import copy

import numpy as np
import pytest
from scipy.stats import ortho_group

from migrate.stitch.affine import fit_spread
from migrate.stitch.base import Pairing, cross_predict, restore_saved, saved_arrays
from migrate.stitch.kernel_ridge import NEAR, VECTOR, RidgeNear, RidgeText, TextAlone
from migrate.stitch.linear import Ridge
from migrate.stitch.scores import Neighbours
from migrate.stitch.select import select_stitch
from migrate.stitch.view_weights import Weighing
from migrate.vectors import unit_rows

OWN = Weighing({VECTOR: 1.0, "ngrams": 0.5, "topics": 0.3, NEAR: 0.5}, 0.05, 0.0)
TEXTS = Weighing({"ngrams": 0.5, "topics": 0.9}, 0.2, 0.0)
VECTORS = Weighing({VECTOR: 1.0, NEAR: 0.2}, 0.01, 0.0)
AVERAGE = Weighing(OWN.weights, OWN.penalty, 0.0, companions=((0.3, TEXTS), (0.15, VECTORS)))
ALONE = ((0.55, RidgeText, OWN), (0.3, TextAlone, TEXTS), (0.15, RidgeNear, VECTORS))


@pytest.fixture(scope="module")
def world(make_world):
    return make_world(120)


@pytest.fixture(scope="module")
def pairs(world):
    rotation = ortho_group.rvs(24, random_state=0)
    source = world.hidden + 0.3 * world.wordy
    target = unit_rows((np.hstack([world.wordy, world.hidden]) @ rotation).astype(np.float32))
    return world.pairing(source.astype(np.float32), target)


@pytest.fixture(scope="module")
def asked(make_world, world):
    other = make_world(30, seed=5)
    return other.hidden, world.reader.read(other.texts)


@pytest.mark.parametrize("landmarks", [None, 60])
def test_an_average_predicts_what_its_regressions_predict_on_average(pairs, asked, landmarks):
    found = pairs.fit(RidgeText(AVERAGE, landmarks=landmarks)).predict(*asked)
    alone = [(share, pairs.fit(kind(one, landmarks=landmarks)).predict(*asked)) for share, kind, one in ALONE]
    expected = sum(share * prediction.vectors for share, prediction in alone)
    np.testing.assert_allclose(found.vectors, expected, atol=2e-5)
    np.testing.assert_allclose(found.variance, alone[0][1].variance, atol=1e-6)
    assert np.abs(found.vectors - alone[0][1].vectors).max() > 0.01


def test_held_out_predictions_are_those_of_the_average(pairs):
    found = cross_predict(RidgeText(AVERAGE), pairs).vectors
    expected = sum(share * cross_predict(kind(one), pairs).vectors for share, kind, one in ALONE)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_shares_that_do_not_fit_are_refused(pairs):
    arrays = dict(saved_arrays(pairs.fit(RidgeText(AVERAGE))))
    with pytest.raises(ValueError, match="companions"):
        restore_saved(RidgeText(), {**arrays, "companions": arrays["companions"][:1]})
    with pytest.raises(ValueError, match="companions"):
        restore_saved(RidgeText(), {name: array for name, array in arrays.items() if name != "companions"})


def test_the_control_text_is_the_companion_of_the_texts(world):
    pairs = world.pairing(unit_rows(world.hidden + 0.7 * world.wordy), unit_rows(world.hidden + 3 * world.wordy))
    found = select_stitch(pairs, specs=["ridge+text"])
    companion = found.stitch.texts_alone()
    assert companion.weighing in [one for _, one in found.stitch.weighing.companions]
    companion.spread = fit_spread(cross_predict(companion, pairs).vectors, pairs.target)
    shares = Neighbours(unit_rows(pairs.target)).overlap(unit_rows(cross_predict(companion, pairs).vectors))
    control = next(row for row in found.candidates if row.stitch == "text")
    assert control.is_control and control.scores.overlap_at_10 == pytest.approx(shares.mean())


def test_the_linear_map_nearest_to_ridge_and_neighbourhood(pairs):
    bare = Pairing(pairs.source, pairs.target)
    linear = bare.fit(RidgeNear(Weighing({VECTOR: 1.0}, 0.1, 0.0)))
    np.testing.assert_allclose(linear.nearest_affine(12).of(pairs.source), linear.transform(pairs.source), atol=2e-3)
    bent = bare.fit(RidgeNear(VECTORS))
    nearest, ridge = (one.nearest_affine(12).of(pairs.source) for one in (bent, bare.fit(copy.copy(Ridge()))))
    wanted = bent.transform(pairs.source)
    assert np.square(nearest - wanted).mean() < np.square(ridge - wanted).mean()
    assert bare.fit(RidgeNear(Weighing({NEAR: 1.0}, 0.1, 0.0))).nearest_affine(12) is None
    assert bent.affine(12) is None, "it is near a linear map, and none"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_order_and_rounding_of_few_pairs_change_neither_choice_nor_weights(world, seed):
    rng = np.random.default_rng(seed)
    source = unit_rows(world.hidden + 0.7 * world.wordy)
    target = unit_rows(world.hidden + 2 * world.wordy + 0.02 * rng.normal(size=world.wordy.shape).astype(np.float32))
    pairs = world.pairing(source, target)
    rounded = world.pairing(source * (1 + 1e-7 * rng.choice([-1, 1], source.shape)).astype(np.float32), target)
    first, *others = (select_stitch(one) for one in (pairs, pairs.take(rng.permutation(len(pairs))), rounded))
    assert first.stitch.weighing.companions
    for other in others:
        assert other.chosen == first.chosen == "ridge+text"
        found, expected = other.stitch.weighing, first.stitch.weighing
        assert (found.weights, found.penalty) == (expected.weights, expected.penalty)
        shares = [sum(share for share, _ in one.companions) for one in (found, expected)]
        assert shares[0] == pytest.approx(shares[1], abs=0.15)
