from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ortho_group
from sklearn.linear_model import LinearRegression

from migrate.report.fit import choice_sentence
from migrate.stitch import select
from migrate.stitch.base import FOLDS, Pairing, cross_predict, fold_rows
from migrate.stitch.linear import Ridge
from migrate.stitch.registry import new_stitch
from migrate.stitch.scores import HeldOutScores, Neighbours
from migrate.stitch.select import MORE, Clarity, ScoredStitch, Selection, applicable, learning_curve, select_stitch
from migrate.vectors import unit_rows

CHANCE = 10 / 199


def make_pairs(n=200, p=12, q=12, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p)) + 0.2 * rng.normal(size=p)
    y = x @ rng.normal(size=(p, q)) + rng.normal(size=(n, q))
    return x.astype(np.float32), y.astype(np.float32)


@pytest.mark.parametrize(("n", "sizes"), [(10, [2] * 5), (12, [2, 2, 2, 3, 3]), (3, [1, 1, 1]), (2, [1, 1])])
def test_folds_divide_the_rows_among_them(n, sizes):
    parts, again, other = (fold_rows(n, seed=seed) for seed in (3, 3, 4))
    assert list(map(list, parts)) == list(map(list, again))
    assert n < 10 or list(map(list, parts)) != list(map(list, other))
    assert sorted(len(part) for part in parts) == sizes
    assert sorted(np.concatenate(parts).tolist()) == list(range(n))
    assert all(np.array_equal(part, np.sort(part)) for part in parts)


@pytest.mark.parametrize("n", [3, 4, 23, 53])
def test_each_row_is_predicted_by_the_fit_without_its_fold(n):
    x, y = make_pairs(n, 5, 4)
    found = cross_predict(Ridge(np.array([1e-9])), Pairing(x, y, seed=2)).vectors  # least squares, nearly
    for held_out in fold_rows(n, seed=2):
        rest = [row for row in range(n) if row not in held_out]
        expected = LinearRegression().fit(x[rest].astype(float), y[rest]).predict(x[held_out])
        np.testing.assert_allclose(found[held_out], expected, atol=1e-4)


def test_equal_spaces_need_no_stitch_and_a_rotation_one_that_rotates():
    x, _ = make_pairs()
    selection = select_stitch(Pairing(7 * x, 7 * x))
    assert selection.chosen == "identity"
    assert selection.candidates[0].scores.overlap_at_10 == 1
    y = (x @ ortho_group.rvs(12, random_state=1)).astype(np.float32)
    found = {row.stitch: row.scores.overlap_at_10 for row in select_stitch(Pairing(x, y)).candidates}
    assert found["procrustes"] > 0.99
    assert found["identity"] < 0.2


@pytest.mark.parametrize("seed", range(2))
def test_pure_noise_is_not_predicted_and_controls_stand_last_and_are_not_chosen(seed):
    rng = np.random.default_rng(seed)
    x, y = (rng.normal(size=(200, 80)).astype(np.float32) for _ in range(2))  # a control could well win
    selection = select_stitch(Pairing(x, y, seed=seed))
    *others, mean, random = selection.candidates
    assert (mean.stitch, mean.is_control, random.stitch, random.is_control) == ("mean", True, "random", True)
    assert not any(row.is_control for row in others)
    assert selection.chosen in [row.stitch for row in others]
    for row in selection.candidates:
        assert abs(row.scores.overlap_at_10 - CHANCE) < 0.03
        assert row.scores.r2 < 0.02
    for row in others:
        assert abs(row.scores.cosine) < 0.05


def test_the_random_control_gives_nobody_its_own_vector_and_two_pairs_predict_each_other():
    x, y = make_pairs(2, 3, 3)
    np.testing.assert_array_equal(cross_predict(new_stitch("ridge"), Pairing(x, y)).vectors, y[::-1])
    for n in (2, 3, 10):
        _, y = make_pairs(n)
        scores = select_stitch(Pairing(y, y), specs=["identity"]).candidates[-1].scores
        assert scores.mse > 0.1
        assert scores.cosine < 0.9


def judged(spec, shares, mse=1.0):
    shares = np.asarray(shares, dtype=float)
    row = ScoredStitch(spec, HeldOutScores(0, mse, 0, shares.mean()))
    stitch = new_stitch(spec)
    return select._Judged(row, stitch, shares, shares, select._TEXTS_NOISE if stitch.reads_texts else select._NOISE)


NOISE, MANY = np.tile([0.4, 0.6], 50), np.tile([0.4, 0.6], 300)


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        (("procrustes", NOISE), ("ridge", NOISE + 0.3), "ridge"),  # better on every query
        (("procrustes", NOISE), ("ridge", NOISE[::-1] + 0.004), "procrustes"),  # nothing but chance: the cheaper
        (("procrustes", NOISE), ("ridge", NOISE[::-1] + 0.01), "ridge"),  # likelier better than not
        (("procrustes", NOISE), ("ridge", NOISE + 0.01), "ridge"),  # a little better on every query is no chance
        (("procrustes", NOISE + 0.3), ("ridge", NOISE), "procrustes"),
        # Texts are read unless that is clearly worse
        (("ridge", NOISE), ("ridge+text", NOISE[::-1] - 0.03), "ridge+text"),  # too few to tell
        (("ridge", NOISE), ("ridge+text", NOISE[::-1] - 0.15), "ridge"),  # clearly worse
        (("ridge", NOISE), ("ridge+text", NOISE - 0.01), "ridge"),  # worse on every query
        (("ridge", MANY), ("ridge+text", MANY[::-1] - 0.01), "ridge+text"),  # as much as chance gives
        (("ridge", MANY), ("ridge+text", MANY[::-1] - 0.06), "ridge"),  # enough pairs to tell
        (("ridge", np.ones(100)), ("ridge+text", np.ones(100)), "ridge"),  # nothing to add
    ],
)
def test_of_candidates_that_do_not_differ_the_one_that_reads_texts_or_the_cheaper_is_chosen(first, second, chosen):
    assert select._pick([judged(*first), judged(*second)]).row.stitch == chosen


@pytest.mark.slow
def test_candidates_within_the_noise_are_judged_on_a_second_division_too():
    x, y = make_pairs()
    near = select_stitch(Pairing(x, y), specs=["ridge+near", "ridge", "mean"])
    assert near.choice.rivals == ({"ridge+near": "ridge", "ridge": "ridge+near"}[near.chosen],)
    assert near.choice.splits == 10
    clear = select_stitch(Pairing(x, y), specs=["ridge", "mean"])
    assert clear.choice == Clarity(5, 5)


@pytest.mark.slow
def test_parts_of_a_large_sample_that_ask_nothing_do_not_count():
    choice = select_stitch(Pairing(*make_pairs(2_000, 5, 4)), specs=["ridge", "mean"]).choice
    assert choice.best_in == choice.splits == 3


@pytest.mark.parametrize(
    ("seed", "n", "merit"), [(0, 60, Neighbours.closeness), (1, 60, Neighbours.closeness), (0, 301, Neighbours.overlap)]
)
def test_what_both_divisions_find_decides_by_cosine_where_pairs_are_few(seed, n, merit):
    x, y = make_pairs(n, 12, 12, seed)
    judged_once = select_stitch(Pairing(x, y, seed=seed), specs=["ridge", "ridge+near"])
    found = {}
    for division in (seed, seed + 1):
        for row in judged_once.candidates[:2]:
            stitch, _ = select.tune(row.stitch, Pairing(x, y, seed=seed))
            vectors = cross_predict(stitch, Pairing(x, y, seed=division), with_variance=False).vectors
            found.setdefault(row.stitch, []).append(merit(Neighbours(y, seed=seed), vectors))
    means = [judged(spec, np.mean(shares, axis=0)) for spec, shares in found.items()]
    assert judged_once.choice.splits == 10
    assert judged_once.chosen == select._pick(means).row.stitch


@pytest.mark.parametrize(
    ("chosen", "others", "choice", "why"),
    [
        (
            "ridge+text",
            {"ridge": 0.625},
            Clarity(0, 10, ("ridge",)),
            ", level with the best of 2 candidates over 10 held-out parts; "
            "not clearly better: ridge 0.625 (reads no texts)",
        ),
        ("ridge+text", {"ridge": 0.5}, Clarity(5, 5), ", the best of 2 candidates in 5 of 5 held-out parts"),
        (
            "ridge+text",
            {"procrustes": 0.625, "ridge+near": 0.5},
            Clarity(3, 10, ("procrustes",)),
            ", the best of 3 candidates in 3 of 10 held-out parts; "
            "not clearly better: procrustes 0.625 (reads no texts)",
        ),
        (
            "ridge",
            {"procrustes": 0.59, "ridge+near": 0.61},
            Clarity(4, 10, ("procrustes", "ridge+near")),
            ", the best of 3 candidates in 4 of 10 held-out parts; "
            "not clearly better: procrustes 0.590, ridge+near 0.610 (costs more to use)",
        ),
        ("ridge", {}, Clarity(5, 5), ""),
        ("ridge", {"procrustes": 0.5}, None, ""),  # of an older stitch
    ],
)
def test_the_choice_is_explained_in_a_line(chosen, others, choice, why):
    rows = [ScoredStitch(spec, HeldOutScores(0, 1, 0, found)) for spec, found in others.items()]
    rows += [
        ScoredStitch(chosen, HeldOutScores(0, 1, 0, 0.6, 0.01)),
        ScoredStitch("mean", HeldOutScores(0, 1, 0, 0), 0, True),
    ]
    said = choice_sentence(Selection(chosen, tuple(rows), choice=choice))
    assert said == f"took {chosen}: held-out overlap 0.600 ± 0.020{why}"


def test_identity_applies_to_equal_dimensions_only_and_a_mean_that_is_asked_for_is_no_control():
    x, y = make_pairs(50, 4, 5)
    assert applicable(Pairing(x, x)) == ["identity", *applicable(Pairing(x, y))]
    selection = select_stitch(Pairing(x, y), specs=["mean"])
    assert selection.chosen == "mean"
    assert [(row.stitch, row.is_control) for row in selection.candidates] == [("mean", False), ("random", True)]


def learnable_pairs(n, p=30, noise=1.0, seed=0):
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
    assert select._gain(at[:3], np.log2((pairs + MORE) / pairs)) == pytest.approx(at[3] - at[2])


@pytest.mark.parametrize("doublings", [0.05, 0.5, 1.0, 2.0, 3.3])
def test_a_straight_line_goes_on_and_a_curve_that_bends_up_goes_on_straight(doublings):
    assert select._gain([0.1, 0.2, 0.3], doublings) == pytest.approx(0.1 * doublings)
    assert select._gain([0.1, 0.15, 0.3], doublings) == pytest.approx(0.15 * doublings)
    assert select._gain([0.2, 0.2, 0.3], doublings) == pytest.approx(0.1 * doublings)
    assert select._gain([0.3, 0.2, 0.3], doublings) == pytest.approx(0.1 * doublings)


@pytest.mark.parametrize("overlap", [[0.5, 0.5, 0.5], [0.3, 0.4, 0.4], [0.3, 0.5, 0.4], [0.0, 0.0, 0.0]])
def test_where_the_last_pairs_bought_nothing_more_buy_nothing(overlap):
    assert select._gain(overlap, 2.0) == 0


@pytest.mark.parametrize(("n", "there"), [(39, False), (40, True)])
def test_a_few_pairs_have_no_curve(n, there):
    assert (curve_of("ridge", learnable_pairs(n))[0] is not None) == there


def test_the_curve_is_of_fits_on_a_quarter_a_half_and_all():
    pairs = replace(learnable_pairs(120), seed=3)
    found, shares = curve_of("procrustes", pairs)
    learned = round((1 - 1 / FOLDS) * 120)
    assert found.pairs == (learned // 4, learned // 2, learned)
    neighbours = Neighbours(unit_rows(pairs.target), seed=3)
    for share, overlap in zip((0.25, 0.5), found.overlap, strict=False):
        smaller = cross_predict(new_stitch("procrustes"), pairs, share=share).vectors
        assert overlap == pytest.approx(neighbours.overlap(unit_rows(smaller)).mean())
    assert found.overlap[2] == pytest.approx(shares.mean())
    assert found.overlap[0] < found.overlap[1] < found.overlap[2]
    assert found.gain > 0
    assert found.low <= found.gain <= found.high


def test_a_stitch_that_learns_nothing_gains_nothing():
    pairs = learnable_pairs(60)
    found, _ = curve_of("identity", Pairing(pairs.source, pairs.source))
    assert found.overlap == (1, 1, 1)
    assert (found.gain, found.low, found.high) == (0, 0, 0)


def test_what_is_promised_is_about_what_more_pairs_give(monkeypatch):
    """Twice the pairs, in earnest; the collection that is searched is another, but of the same kind and size."""
    monkeypatch.setattr(select, "MORE", 200)
    found, _ = curve_of("ridge", learnable_pairs(200, noise=0.5))
    pairs = learnable_pairs(400, noise=0.5)
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
