from dataclasses import replace

import numpy as np
import pytest

from migrate.stitch import select as curve
from migrate.stitch.base import FOLDS, Pairing, cross_predict
from migrate.stitch.registry import new_stitch
from migrate.stitch.scores import Neighbours
from migrate.stitch.select import MORE, learning_curve
from migrate.vectors import unit_rows


def make_pairs(n, p=30, noise=1.0, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    y = x @ np.random.default_rng(7).normal(size=(p, 10)) / np.sqrt(p) + noise * rng.normal(size=(n, 10))
    return Pairing(x.astype(np.float32), y.astype(np.float32))


def curve_of(spec, pairs):
    stitch = new_stitch(spec)
    neighbours = Neighbours(unit_rows(pairs.target), seed=pairs.seed)
    shares = neighbours.overlap(unit_rows(cross_predict(stitch, pairs).vectors))
    return learning_curve(stitch, pairs, shares, neighbours), shares


@pytest.mark.parametrize("power", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("pairs", [100, 500, 1000, 20_000])
def test_a_power_law_is_followed_exactly(power, pairs):
    """overlap(n) = 0.8 - 2 n^-power: what it does between so many pairs and `MORE` more."""
    at = [0.8 - 2 * (share * pairs) ** -power for share in (0.25, 0.5, 1, 1 + MORE / pairs)]
    assert curve._gain(at[:3], np.log2((pairs + MORE) / pairs)) == pytest.approx(at[3] - at[2])


@pytest.mark.parametrize("doublings", [0.05, 0.5, 1.0, 2.0, 3.3])
def test_a_straight_line_goes_on_and_a_curve_that_bends_up_goes_on_straight(doublings):
    assert curve._gain([0.1, 0.2, 0.3], doublings) == pytest.approx(0.1 * doublings)
    assert curve._gain([0.1, 0.15, 0.3], doublings) == pytest.approx(0.15 * doublings)
    assert curve._gain([0.2, 0.2, 0.3], doublings) == pytest.approx(0.1 * doublings)
    assert curve._gain([0.3, 0.2, 0.3], doublings) == pytest.approx(0.1 * doublings)


@pytest.mark.parametrize("overlap", [[0.5, 0.5, 0.5], [0.3, 0.4, 0.4], [0.3, 0.5, 0.4], [0.0, 0.0, 0.0]])
def test_where_the_last_pairs_bought_nothing_more_buy_nothing(overlap):
    assert curve._gain(overlap, 2.0) == 0


@pytest.mark.parametrize(("n", "there"), [(39, False), (40, True)])
def test_a_few_pairs_have_no_curve(n, there):
    assert (curve_of("ridge", make_pairs(n))[0] is not None) == there


def test_the_curve_is_of_fits_on_a_quarter_a_half_and_all():
    pairs = replace(make_pairs(120), seed=3)
    found, shares = curve_of("ols", pairs)
    learned = round((1 - 1 / FOLDS) * 120)
    assert found.pairs == (learned // 4, learned // 2, learned)
    neighbours = Neighbours(unit_rows(pairs.target), seed=3)
    for share, overlap in zip((0.25, 0.5), found.overlap, strict=False):
        smaller = cross_predict(new_stitch("ols"), pairs, share=share).vectors
        assert overlap == pytest.approx(neighbours.overlap(unit_rows(smaller)).mean())
    assert found.overlap[2] == pytest.approx(shares.mean())
    assert found.overlap[0] < found.overlap[1] < found.overlap[2]
    assert found.gain > 0
    assert found.low <= found.gain <= found.high
    assert found.gain_of(120, MORE) == pytest.approx((found.gain, found.low, found.high))


def test_a_stitch_that_learns_nothing_gains_nothing():
    pairs = make_pairs(60)
    found, _ = curve_of("identity", Pairing(pairs.source, pairs.source))
    assert found.overlap == (1, 1, 1)
    assert (found.gain, found.low, found.high) == (0, 0, 0)


def test_what_is_promised_is_about_what_more_pairs_give(monkeypatch):
    """Twice the pairs, in earnest; the collection that is searched is another, but of the same kind and size."""
    monkeypatch.setattr(curve, "MORE", 200)
    found, _ = curve_of("ridge", make_pairs(200, noise=0.5))
    pairs = make_pairs(400, noise=0.5)
    asked = pairs.take(np.arange(200))
    truth = Neighbours(unit_rows(asked.target))
    some, every = (
        truth.overlap(unit_rows(pairs.take(rows).fit(new_stitch("ridge")).transform(asked.source))).mean()
        for rows in (np.arange(200, 320), np.arange(200, 400))
    )
    assert found.gain > 0
    assert found.gain < 0.2
    assert every > some
    assert found.low - 0.02 <= every - some <= found.high + 0.05


def test_more_documents_make_it_surer():
    narrow, wide = curve_of("ridge", make_pairs(300))[0], curve_of("ridge", make_pairs(50))[0]
    assert narrow.high - narrow.low < wide.high - wide.low


def test_the_same_pairs_and_seed_give_the_same_curve():
    assert curve_of("ridge", make_pairs(60))[0] == curve_of("ridge", make_pairs(60))[0]
    assert curve_of("ridge", make_pairs(60))[0] != curve_of("ridge", replace(make_pairs(60), seed=1))[0]
