from dataclasses import replace

import numpy as np
import pytest

from migrate.stitch.kernel import KernelSystem, spread
from migrate.stitch.kernel_ridge import VECTOR
from migrate.stitch.scores import Neighbours
from migrate.stitch.view_weights import Search, Weighing
from migrate.vectors import unit_rows

N = 60


def kernel(rows):
    found = rows @ rows.T
    return found / spread(found)


def make_views(seed=0, n=N):
    rng = np.random.default_rng(seed)
    one, two, noise = rng.normal(size=(n, 6)), rng.normal(size=(n, 6)), rng.normal(size=(n, 40))
    target = np.hstack([one, 0.7 * two]) @ rng.normal(size=(12, 8)) + 0.2 * rng.normal(size=(n, 8))
    return {"one": kernel(one), "two": kernel(two), "noise": kernel(noise)}, target


def refitted_overlap(grams, target, weighing):
    """Overlap@10 of the average of kernel regressions, each fitted without the row, on a centred kernel."""
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


def test_the_overlap_is_that_of_fits_without_the_row():
    grams, target = make_views()
    search = Search(grams, target)
    for penalty in (1e-4, 0.1, 3.0):
        weights = {"one": 1.0, "two": 0.5}
        found = search.best_penalty(weights, [penalty])
        assert (found.weights, found.penalty) == (weights, penalty)
        assert found.overlap == pytest.approx(refitted_overlap(grams, target, found), abs=2 / (10 * N))


@pytest.mark.parametrize("penalties", [(0.1, 1.0, 10.0), (10.0, 0.1, 1.0)])
def test_of_penalties_that_do_as_well_the_larger_is_taken(penalties):
    grams, target = make_views(n=8)  # all the others are neighbours: every overlap is 1
    assert Search(grams, target).best_penalty({"one": 1.0}, penalties) == Weighing({"one": 1.0}, 10.0, 1.0)


def test_a_view_of_noise_is_left_out():
    found = Search(*make_views()).best({"one": 1.0, "two": 1.0, "noise": 1.0})
    assert set(found.weights) == {"one", "two"}
    assert found.overlap > Search(*make_views()).best_penalty({"one": 1.0, "two": 1.0, "noise": 1.0}).overlap


def test_a_view_that_counts_too_much_or_too_little_is_put_right():
    grams, target = make_views()
    found = Search(grams, target).best({"one": 1.0, "two": 1.0, "noise": 30.0})
    assert found.weights.get("noise", 0.0) <= 10
    found = Search(grams, target).best({"one": 0.03, "two": 1.0, "noise": 1.0})
    assert found.weights["one"] == pytest.approx(0.09)
    found = Search(grams, target).best({"one": 1.0, "two": 1.0, "noise": 0.3})
    assert found.weights == pytest.approx({"one": 3.0, "two": 1.0, "noise": 0.1})


def test_a_penalty_that_float32_cannot_tell_from_none_is_solved_in_float64():
    rows = np.random.default_rng(0).normal(size=(50, 3))
    rough = KernelSystem.of((rows @ rows.T).astype(np.float32), rows.astype(np.float32)).solve(1e-9)
    assert rough.residuals.dtype == np.float64
    assert np.isfinite(rough.residuals).all()


def test_the_last_view_is_not_left_out():
    rng = np.random.default_rng(0)
    found = Search({"noise": kernel(rng.normal(size=(40, 9)))}, rng.normal(size=(40, 5))).best({"noise": 1.0})
    assert list(found.weights) == ["noise"]
    assert found.weights["noise"] > 0


@pytest.mark.slow
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
    least, rounding = refitted_overlap(grams, target, own) - 0.005, 1.5 / (10 * n)
    assert refitted_overlap(grams, target, found) >= least - rounding
    assert sum(share for share, one in found.companions if "ngrams" in one.weights) == expected
    penalties = [0.1 * factor for factor in (1 / 3, 1, 3, 10)]
    alone = [search.best_penalty({name: 1.0}, penalties) for name in ("ngrams", VECTOR)]
    for more, others in ((more, others) for more in (0.15, 0.3, 0.45) if more > expected for others in (0, 0.15, 0.3)):
        average = replace(own, companions=((more, alone[0]), (others, alone[1])))
        assert refitted_overlap(grams, target, average) < least + rounding


def test_where_one_kind_of_view_has_no_weight_there_is_no_companion():
    gram = np.eye(20) + 0.1
    search = Search({VECTOR: gram, "ngrams": gram}, np.random.default_rng(0).normal(size=(20, 4)))
    own = Weighing({VECTOR: 1.0}, 0.1, 0.0)
    assert search.accompanied(own, ["ngrams"]) == own
