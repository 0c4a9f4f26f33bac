import copy
from dataclasses import replace

import numpy as np
import pytest
from kernel_judge import check_against_scikit_learn, made, mixed, overlap
from scipy.stats import ortho_group
from threadpoolctl import threadpool_limits

from migrate.errors import StitchError
from migrate.stitch import kernel_ridge
from migrate.stitch.affine import AffineMap
from migrate.stitch.base import Stitch, cross_predict, fold_rows
from migrate.stitch.kernel import KernelPart
from migrate.stitch.kernel_ridge import RidgeNear, RidgeText, TextAlone
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import select_stitch
from migrate.stitch.text_features import DenseView, TextRows
from migrate.stitch.view_weights import Weighing
from migrate.vectors import unit_rows

STITCHES = [RidgeNear, TextAlone, RidgeText]
READERS = [TextAlone, RidgeText]


@pytest.fixture(scope="module")
def world(make_world):
    return make_world(160)


@pytest.fixture(scope="module")
def texts(world):
    return world.reader.read(world.texts)


@pytest.fixture(scope="module")
def asked(make_world, world):
    other = make_world(40, seed=5)
    return mixed(other)[0], world.reader.read(other.texts)


@pytest.mark.slow
@pytest.mark.parametrize("stitch", STITCHES)
@pytest.mark.parametrize(("n", "q"), [(80, 16), (60, 100)])
def test_predictions_are_those_of_scikit_learns_kernel_ridge(make_world, stitch, n, q):
    check_against_scikit_learn(make_world, stitch, n, q)


@pytest.mark.slow
def test_information_that_only_the_texts_or_only_the_vectors_have_is_found(world):
    pairs = world.pairing(world.hidden, world.wordy)
    alone, *with_texts = (overlap(new_stitch(spec), pairs) for spec in ("ridge", "text", "ridge+text"))
    assert alone < 0.2 and min(with_texts) > 2 * alone
    pairs = world.pairing(world.hidden, world.hidden @ ortho_group.rvs(12, random_state=0).astype(np.float32))
    assert overlap(new_stitch("text"), pairs) < 0.2
    assert overlap(new_stitch("ridge+text"), pairs) > 0.95
    pairs = world.pairing(*mixed(world))
    ridge, text, both = (overlap(new_stitch(spec), pairs) for spec in ("ridge", "text", "ridge+text"))
    assert both > max(ridge, text) + 0.01


@pytest.mark.parametrize("which", ["wordy", "hidden"])
def test_a_rotated_store_is_left_to_the_vectors(world, which):
    """Texts with a weight that is not asked for would blur what the vectors know exactly."""
    x = getattr(world, which)
    pairs = world.pairing(x, (x @ ortho_group.rvs(12, random_state=1)).astype(np.float32))
    assert overlap(RidgeText(Weighing({"vector": 1.0, "ngrams": 1.0, "topics": 1.0}, 0.1, 0.0)), pairs) < 0.95
    assert overlap(RidgeText(), pairs) > 0.97
    chosen = select_stitch(pairs)
    assert not new_stitch(chosen.chosen).reads_texts
    assert chosen.best.scores.overlap_at_10 > 0.999


@pytest.mark.parametrize("stitch", READERS)
def test_missing_texts_are_refused(world, texts, stitch):
    x, y = mixed(world)
    fitted = made(stitch).fit(x, y, texts)
    for wrong in (None, texts.take(np.arange(3)), TextRows({})):
        for call in (stitch().tuned, stitch().fit, made(stitch).fit):
            with pytest.raises(StitchError, match="reads texts"):
                call(x, y, wrong)
        with pytest.raises(StitchError, match=f"the {stitch.kind.replace('+', '.')} stitch reads texts"):
            fitted.predict(x, wrong)


@pytest.mark.slow
@pytest.mark.parametrize("stitch", STITCHES)
@pytest.mark.parametrize("what", ["vectors", "texts", "blank texts", "targets", "everything", "one column"])
def test_what_is_the_same_everywhere_says_nothing(make_world, stitch, what):
    world = make_world(30)
    x, y = mixed(world)
    texts = list(world.texts)
    if what in ("vectors", "everything"):
        x[:] = x[0]
    if what in ("targets", "everything"):
        y[:] = y[0]
    if what in ("texts", "everything"):
        texts = texts[:1] * 30
    if what == "blank texts":
        texts = [" "] * 30
    if what == "one column":
        x[:, 3], y[:, 2] = 7, 0.5
    read = world.reader.read(texts)
    fitted = stitch().fit(x, y, read)
    found = fitted.predict(x, read)
    assert np.isfinite(found.vectors).all() and np.isfinite(found.variance).all()
    assert np.abs(found.vectors - y.mean(axis=0)).max() < 5 * np.abs(y - y.mean(axis=0)).max() + 1e-3
    if what in ("targets", "everything"):
        np.testing.assert_allclose(found.vectors, y, atol=1e-4)
    if what == "one column":
        np.testing.assert_allclose(found.vectors[:, 2], 0.5, atol=1e-4)


def test_texts_that_are_the_same_leave_the_vectors_alone(make_world):
    """Their spread is rounding, by which nothing may be divided."""
    world = make_world(60)
    x, y = mixed(world)
    same = world.reader.read(world.texts[:1] * 60)
    fitted = RidgeText(Weighing({"vector": 1.0, "ngrams": 1.0}, 0.01, 0.0)).fit(x, y, same)
    alone = RidgeText(Weighing({"vector": 1.0}, 0.02, 0.0)).fit(x, y, same)  # the penalty is relative to both
    np.testing.assert_allclose(fitted.transform(x, same), alone.transform(x, same), atol=1e-3)


def test_what_is_tuned_is_kept_in_every_fit(world):
    x, y = mixed(world)
    pairs = world.pairing(x, y)
    tuned = RidgeText().tuned(x, y, pairs.texts)
    half = pairs.take(np.arange(0, 160, 2))
    fitted = half.fit(tuned)
    assert fitted.weighing == tuned.weighing
    assert fitted.kind_facts()["weight vector"] == tuned.weighing.weights["vector"]
    assert fitted.kind_facts()["lambda"] == tuned.weighing.penalty
    assert not hasattr(tuned, "map_")
    assert RidgeText().fit(x, y, pairs.texts).weighing == tuned.weighing, "one that was not tuned finds its own"


@pytest.mark.parametrize("stitch", STITCHES)
def test_folds_are_predicted_as_by_stitches_fitted_without_them(world, stitch):
    """But for means and spreads, which are those of all pairs and know nothing of the targets."""
    x, y = mixed(world)
    pairs = world.pairing(x, y)
    found = cross_predict(made(stitch), pairs)
    splits = [(np.setdiff1d(np.arange(160), rows), rows) for rows in fold_rows(160)]
    for (_, asked), expected in zip(splits, Stitch.cross_predict(made(stitch), pairs, splits), strict=True):
        cosines = np.einsum("ij,ij->i", unit_rows(found.vectors[asked]), unit_rows(expected.vectors))
        assert cosines.min() > 0.99
        np.testing.assert_allclose(found.variance[asked], expected.variance, atol=0.15)


@pytest.mark.parametrize("stitch", STITCHES)
def test_the_targets_of_a_fold_play_no_part_in_its_prediction(world, stitch):
    x, y = mixed(world)
    before = cross_predict(made(stitch), world.pairing(x, y))
    rows = fold_rows(160)[2]
    y[rows] = np.random.default_rng(0).normal(size=(len(rows), 16))
    after = cross_predict(made(stitch), world.pairing(x, y))
    np.testing.assert_array_equal(after.vectors[rows], before.vectors[rows])
    assert not np.allclose(after.vectors, before.vectors, atol=1e-3)


def test_the_search_looks_at_some_of_many_pairs(world, texts, monkeypatch):
    x, y = mixed(world)
    monkeypatch.setattr(kernel_ridge, "SEARCH_SIZE", 50)
    unseen = np.random.default_rng(0).permutation(160)[50:]
    found = RidgeText().tuned(x, y, texts).weighing
    y[unseen] = 0
    assert RidgeText().tuned(x, y, texts).weighing == found
    monkeypatch.setattr(kernel_ridge, "SEARCH_SIZE", 160)
    assert RidgeText().tuned(x, y, texts).weighing != found


@pytest.mark.parametrize("factor", [1 / 3, 3.0])
def test_of_more_pairs_than_were_searched_all_have_a_say_in_the_penalty(world, texts, monkeypatch, factor):
    x, y = mixed(world)
    right = replace(RidgeText().tuned(x, y, texts).weighing, companions=())
    searched = Weighing(right.weights, right.penalty * factor, 0.0)
    plain_fit = RidgeText(right).fit(x, y, texts).transform(x, texts)
    off = RidgeText(searched).fit(x, y, texts).transform(x, texts)
    monkeypatch.setattr(kernel_ridge, "SEARCH_SIZE", 50)
    stitch = RidgeText(searched).fit(x, y, texts)
    refined = stitch.transform(x, texts)
    assert np.abs(off - plain_fit).max() > 1e-3
    np.testing.assert_allclose(refined, plain_fit, atol=1e-5)
    assert stitch.kind_facts()["lambda"] == pytest.approx(right.penalty)


@pytest.mark.slow
@pytest.mark.parametrize("stitch", STITCHES)
def test_all_pairs_as_landmarks_give_the_exact_stitch_and_half_of_them_come_close(
    world, texts, asked, stitch, monkeypatch
):
    x, y = mixed(world)
    exact = made(stitch).fit(x, y, texts).predict(*asked)
    fitted = stitch(made(stitch).weighing, landmarks=80).fit(x, y, texts)
    assert len(fitted.map_.alpha) == 80 and all(part.rows.shape[0] == 80 for part in fitted.map_.parts)
    found = fitted.predict(*asked)
    assert np.median(np.einsum("ij,ij->i", unit_rows(found.vectors), unit_rows(exact.vectors))) > 0.75
    assert np.isfinite(found.variance).all() and (found.variance > -1e-3).all()
    again = stitch().restore(copy.deepcopy(fitted.arrays()))
    np.testing.assert_array_equal(again.transform(*asked), found.vectors)
    monkeypatch.setattr(kernel_ridge, "LARGEST_EXACT", 100)
    found = made(stitch).fit(x, y, texts).predict(*asked)
    np.testing.assert_allclose(found.vectors, exact.vectors, atol=1e-4)
    np.testing.assert_allclose(found.variance, exact.variance, atol=1e-3)


def test_who_asks_while_coefficients_are_made_gets_those_of_all_parts(world):
    """As another thread may."""
    x, y = mixed(world)
    fitted, found = made(RidgeNear).fit(x, y, None), []

    class AskedMeanwhile(tuple):
        def __iter__(self):
            if not found:
                found.append(None)
                found[0] = fitted.transform(x)
            return super().__iter__()

    fitted.map_.parts = AskedMeanwhile(fitted.map_.parts)
    np.testing.assert_array_equal(fitted.transform(x), found[0])


def test_a_stitch_that_has_predicted_can_be_stretched(world):
    x, y = mixed(world)
    fitted = made(RidgeNear).fit(x, y, None)
    before = fitted.transform(x)
    fitted.stretch(AffineMap(2 * np.eye(y.shape[1]), np.ones(y.shape[1])))
    np.testing.assert_allclose(fitted.transform(x), 2 * before + 1, atol=1e-5)


def test_what_a_part_keeps_is_the_same_with_any_number_of_threads():
    rng = np.random.default_rng(0)
    rows, alpha = (rng.standard_normal((120, width), np.float32) for width in (48, 113))
    tables = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            tables.append(KernelPart("vector", rows, 1.0).product(alpha)(DenseView(np.eye(48, dtype=np.float32))))
    assert np.array_equal(*tables)
