import numpy as np
import pytest
from scipy.stats import ortho_group
from sklearn.linear_model import LinearRegression

from migrate.report.fit import choice_sentence
from migrate.stitch import select
from migrate.stitch.base import Pairing, cross_predict, fold_rows
from migrate.stitch.registry import new_stitch
from migrate.stitch.scores import HeldOutScores, Neighbours
from migrate.stitch.select import Clarity, ScoredStitch, Selection, applicable, select_stitch

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
    found = cross_predict(new_stitch("ols"), Pairing(x, y, seed=2)).vectors
    for held_out in fold_rows(n, seed=2):
        rest = [row for row in range(n) if row not in held_out]
        expected = LinearRegression().fit(x[rest].astype(float), y[rest]).predict(x[held_out])
        np.testing.assert_allclose(found[held_out], expected, atol=1e-4)


@pytest.mark.parametrize("spec", ["ols", "ridge", "procrustes", "lowrank"])
def test_pure_noise_is_not_predicted(spec):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(200, 80)).astype(np.float32) for _ in range(2))
    scores = select_stitch(Pairing(x, y), specs=[spec]).candidates[0].scores
    assert scores.r2 < 0.02
    assert abs(scores.cosine) < 0.05
    assert abs(scores.overlap_at_10 - CHANCE) < 0.03


def test_equal_spaces_need_no_stitch_and_a_rotation_one_that_rotates():
    x, _ = make_pairs()
    selection = select_stitch(Pairing(7 * x, 7 * x))
    assert selection.chosen == "identity"
    assert selection.candidates[0].scores.overlap_at_10 == 1
    y = (x @ ortho_group.rvs(12, random_state=1)).astype(np.float32)
    found = {row.stitch: row.scores.overlap_at_10 for row in select_stitch(Pairing(x, y)).candidates}
    assert found["procrustes"] > 0.99
    assert found["identity"] < 0.2


@pytest.mark.parametrize("seed", range(5))
def test_controls_stand_last_near_chance_and_are_not_chosen(seed):
    rng = np.random.default_rng(seed)
    x, y = (rng.normal(size=(200, 20)).astype(np.float32) for _ in range(2))  # a control could well win
    selection = select_stitch(Pairing(x, y, seed=seed))
    *others, mean, random = selection.candidates
    assert (mean.stitch, mean.is_control, random.stitch, random.is_control) == ("mean", True, "random", True)
    assert not any(row.is_control for row in others)
    assert selection.chosen in [row.stitch for row in others]
    for control in (mean, random):
        assert abs(control.scores.overlap_at_10 - CHANCE) < 0.03
        assert control.scores.r2 < 0.02


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
    return select._Judged(row, new_stitch(spec), shares)


NOISE, MANY = np.tile([0.4, 0.6], 50), np.tile([0.4, 0.6], 300)


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        (("ols", NOISE), ("ridge", NOISE + 0.3), "ridge"),  # better on every query
        (("ols", NOISE), ("ridge", NOISE[::-1] + 0.004), "ols"),  # nothing but chance: the cheaper
        (("ols", NOISE), ("ridge", NOISE[::-1] + 0.01), "ridge"),  # likelier better than not
        (("ols", NOISE), ("ridge", NOISE + 0.01), "ridge"),  # a little better on every query is no chance
        (("ols", NOISE + 0.3), ("ridge", NOISE), "ols"),
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


def test_candidates_within_the_noise_are_judged_on_a_second_division_too():
    x, y = make_pairs()
    near = select_stitch(Pairing(x, y), specs=["ols", "ridge", "mean"])
    assert near.choice.rivals == ({"ols": "ridge", "ridge": "ols"}[near.chosen],)
    assert near.choice.splits == 10
    clear = select_stitch(Pairing(x, y), specs=["ridge", "mean"])
    assert clear.choice == Clarity(5, 5)


def test_parts_of_a_large_sample_that_ask_nothing_do_not_count():
    choice = select_stitch(Pairing(*make_pairs(2_000, 5, 4)), specs=["ridge", "mean"]).choice
    assert choice.best_in == choice.splits == 3


@pytest.mark.parametrize("seed", range(4))
def test_what_both_divisions_find_decides(seed):
    x, y = make_pairs(60, 12, 12, seed)
    judged_once = select_stitch(Pairing(x, y, seed=seed), specs=["ridge", "lowrank"])
    found = {}
    for division in (seed, seed + 1):
        for row in judged_once.candidates[:2]:
            stitch, _ = select.tune(row.stitch, Pairing(x, y, seed=seed))
            vectors = cross_predict(stitch, Pairing(x, y, seed=division), with_variance=False).vectors
            found.setdefault(row.stitch, []).append(Neighbours(y, seed=seed).overlap(vectors))
    means = [judged(spec, np.mean(shares, axis=0)) for spec, shares in found.items()]
    assert judged_once.choice.splits == 10
    assert judged_once.chosen == select._pick(means).row.stitch


@pytest.mark.parametrize(
    ("chosen", "others", "choice", "why"),
    [
        ("ridge+text", {"ridge": 0.5}, Clarity(5, 5), ", best of 2 in 5 of 5 splits"),
        (
            "ridge+text",
            {"procrustes": 0.625, "ridge+near": 0.5},
            Clarity(3, 10, ("procrustes",)),
            ", best of 3 in 3 of 10 splits; not clearly better: procrustes 0.625 (reads no texts)",
        ),
        (
            "ridge",
            {"ols": 0.59, "ridge+near": 0.61},
            Clarity(4, 10, ("ols", "ridge+near")),
            ", best of 3 in 4 of 10 splits; not clearly better: ols 0.590, ridge+near 0.610 (costs more to use)",
        ),
        ("ridge", {}, Clarity(5, 5), ""),
        ("ridge", {"ols": 0.5}, None, ""),  # of an older stitch
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


def test_the_same_pairs_and_seed_give_the_same_scores():
    x, y = make_pairs(80)

    one, same, other = (select_stitch(Pairing(x, y, seed=seed)).candidates for seed in (4, 4, 5))
    assert [(row.stitch, row.scores) for row in one] == [(row.stitch, row.scores) for row in same]
    assert [row.scores for row in one] != [row.scores for row in other]


def test_progress_counts_the_candidates():
    told = []
    specs = ["ols", "ridge"]
    select_stitch(Pairing(*make_pairs(20)), specs=specs, progress=lambda *step: told.append(step))
    assert told == [("fit candidates", number, 2) for number in range(3)]
