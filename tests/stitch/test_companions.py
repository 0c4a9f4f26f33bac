import copy
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ortho_group

from migrate.stitch.base import Pairing, cross_predict
from migrate.stitch.kernel_ridge import NEAR, VECTOR, RidgeNear, RidgeText, TextAlone
from migrate.stitch.linear import Ridge, affine_map
from migrate.stitch.prior import fit_spread
from migrate.stitch.scores import Neighbours
from migrate.stitch.select import select_stitch
from migrate.stitch.view_weights import Search, Weighing
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


def test_a_stretched_average_is_read_back_as_it_was_saved(pairs, asked):
    stitch = RidgeText(AVERAGE)
    plain = pairs.fit(stitch).transform(*asked)
    stitch.spread = fit_spread(cross_predict(stitch, pairs).vectors, pairs.target)
    fitted = pairs.fit(stitch)
    np.testing.assert_allclose(fitted.transform(*asked), stitch.spread.of(plain), atol=1e-4)
    again = RidgeText().restore_saved(fitted.saved())
    np.testing.assert_array_equal(again.transform(*asked), fitted.transform(*asked))


def test_shares_that_do_not_fit_are_refused(pairs):
    arrays = dict(pairs.fit(RidgeText(AVERAGE)).saved())
    with pytest.raises(ValueError, match="companions"):
        RidgeText().restore_saved({**arrays, "companions": arrays["companions"][:1]})
    with pytest.raises(ValueError, match="companions"):
        RidgeText().restore_saved({name: array for name, array in arrays.items() if name != "companions"})


def loo_overlap(grams, target, weighing):
    """Overlap@10 of the average of kernel regressions, each fitted without the row."""
    n, predicted = len(target), np.zeros_like(target)
    own = 1 - sum(share for share, _ in weighing.companions)
    for share, one in ((own, weighing), *weighing.companions):
        gram = sum(weight * grams[name] for name, weight in one.weights.items())
        for i in range(n):
            rest = np.arange(n) != i
            inner, cross = gram[np.ix_(rest, rest)], gram[i, rest]
            centred = inner - inner.mean(axis=0) - inner.mean(axis=1)[:, None] + inner.mean()
            mean = target[rest].mean(axis=0)
            alpha = np.linalg.solve(centred + one.total_penalty * np.eye(n - 1), target[rest] - mean)
            alpha -= alpha.mean(axis=0)
            predicted[i] += share * (mean + (cross - inner.mean(axis=0)) @ alpha)
    truth = unit_rows(target.astype(np.float32))
    return float(Neighbours(truth).overlap(unit_rows(predicted.astype(np.float32))).mean())


@pytest.mark.parametrize(
    ("weight", "noise", "expected"),
    [(4, (0.5, 1), 0.45), (2, (0.3, 1.5), 0.3), (1, (0.5, 2), 0.15), (0.6, (0.3, 1.5), 0)],
)
def test_texts_get_the_largest_share_that_costs_next_to_nothing(weight, noise, expected):
    rng = np.random.default_rng(3)
    n = 80
    meaning, other = rng.normal(size=(n, 6)), rng.normal(size=(n, 6))
    noisy = [meaning + level * rng.normal(size=(n, 6)) for level in noise]
    seen = {"ngrams": noisy[0], VECTOR: np.hstack([other, noisy[1]])}
    target = np.hstack([weight * meaning, other]) @ rng.normal(size=(12, 10))
    grams = {name: rows @ rows.T / np.square(rows).sum() * n for name, rows in seen.items()}
    search = Search(grams, target)
    own = search.best_penalty({VECTOR: 1.0, "ngrams": 1.0}, [0.1])
    found = search.accompanied(own, ["ngrams"])
    least, rounding = loo_overlap(grams, target, own) - 0.005, 1.5 / (10 * n)
    assert loo_overlap(grams, target, found) >= least - rounding
    assert sum(share for share, one in found.companions if "ngrams" in one.weights) == expected
    penalties = [0.1 * factor for factor in (1 / 3, 1, 3, 10)]
    alone = [search.best_penalty({name: 1.0}, penalties) for name in ("ngrams", VECTOR)]
    for more, others in ((more, others) for more in (0.15, 0.3, 0.45) if more > expected for others in (0, 0.15, 0.3)):
        average = replace(own, companions=((more, alone[0]), (others, alone[1])))
        assert loo_overlap(grams, target, average) < least + rounding


def test_where_one_kind_of_view_has_no_weight_there_is_no_companion():
    gram = np.eye(20) + 0.1
    search = Search({VECTOR: gram, "ngrams": gram}, np.random.default_rng(0).normal(size=(20, 4)))
    own = Weighing({VECTOR: 1.0}, 0.1, 0.0)
    assert search.accompanied(own, ["ngrams"]) == own


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
    np.testing.assert_allclose(affine_map(linear, 12).of(pairs.source), linear.transform(pairs.source), atol=2e-3)
    bent = bare.fit(RidgeNear(VECTORS))
    nearest, ridge = (affine_map(one, 12).of(pairs.source) for one in (bent, bare.fit(copy.copy(Ridge()))))
    wanted = bent.transform(pairs.source)
    assert np.square(nearest - wanted).mean() < np.square(ridge - wanted).mean()
    assert affine_map(bare.fit(RidgeNear(Weighing({NEAR: 1.0}, 0.1, 0.0))), 12) is None


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
