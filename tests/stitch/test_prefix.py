"""Stitches that lean on the first tokens of texts, and when these are chosen."""

import numpy as np
import pytest

from migrate.errors import StitchError
from migrate.stitch.base import Pairing
from migrate.stitch.kernel_ridge import PrefixText, RidgeText
from migrate.stitch.prefix import FirstTokens, PrefixCost
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import select_stitch, tune
from migrate.stitch.text_features import DenseView, TextRows
from migrate.stitch.view_weights import Weighing
from migrate.vectors import unit_rows

pytestmark = pytest.mark.slow

N, DIM, NAME = 200, 60, "first tokens"


@pytest.fixture
def make_pairs(make_world):
    """Pairs whose target is close to the first tokens' vectors, `noise` away from them, and far from the old ones."""

    def make(noise, n=N, norm=1.0):
        rng, world = np.random.default_rng(5), make_world(n)
        target = unit_rows(rng.normal(size=(n, DIM)).astype(np.float32))
        base = unit_rows((target + noise * rng.normal(size=(n, DIM)) / np.sqrt(DIM)).astype(np.float32))
        blur = 0.2 * rng.normal(size=(n, 8))
        source = (target @ rng.normal(size=(DIM, 8)) + blur).astype(np.float32)
        views = world.reader.read(world.texts).views
        return Pairing(source, norm * target, TextRows({**views, NAME: DenseView(base)}, NAME))

    return make


def without_first_tokens(pairs):
    views = {name: view for name, view in pairs.texts.views.items() if name != NAME}
    return Pairing(pairs.source, pairs.target, TextRows(views))


def cosine(stitch, pairs):
    found = unit_rows(stitch.transform(pairs.source, pairs.texts))
    return float(np.einsum("ij,ij->i", found, unit_rows(pairs.target)).mean())


@pytest.mark.parametrize("norm", [1.0, 7.0])
def test_the_first_tokens_alone_are_as_long_as_true_vectors(make_pairs, norm):
    pairs = make_pairs(0.3, norm=norm)
    rows = pairs.texts.views[NAME].rows.copy()
    rows[3] = 0  # a blank text
    texts = TextRows({NAME: DenseView(rows)}, NAME)
    stitch = FirstTokens().fit(pairs.source, pairs.target, texts)
    found = FirstTokens().restore_saved(stitch.saved()).transform(pairs.source, texts)
    np.testing.assert_allclose(np.delete(found, 3, 0), norm * np.delete(rows, 3, 0), rtol=1e-4)
    np.testing.assert_allclose(found[3], pairs.target.mean(axis=0), atol=1e-5)


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("norm", [1.0, 7.0])
def test_the_residual_is_fitted_as_the_closed_form_says(make_pairs, share, norm):
    pairs = make_pairs(0.5, norm=norm)
    stitch = PrefixText(Weighing({"vector": 1.0}, 0.1, 0.0, base_share=share)).fit(
        pairs.source, pairs.target, pairs.texts
    )
    base = share * norm * pairs.texts.views[NAME].rows
    x, y = (rows - rows.mean(axis=0) for rows in (pairs.source.astype(float), pairs.target - base))
    matrix = np.linalg.solve(x.T @ x + 0.1 * np.square(x).sum() / N * np.eye(8), x.T @ y)
    expected = base + x @ matrix + (pairs.target - base).mean(axis=0)
    np.testing.assert_allclose(stitch.transform(pairs.source, pairs.texts), expected, atol=1e-4 * norm)
    again = PrefixText().restore_saved(stitch.saved())
    np.testing.assert_array_equal(
        again.transform(pairs.source, pairs.texts), stitch.transform(pairs.source, pairs.texts)
    )


@pytest.mark.parametrize("landmarks", [None, 40])
def test_it_leans_on_first_tokens_that_say_much(make_pairs, landmarks):
    every = make_pairs(0.8)
    pairs, new = every.take(np.arange(100)), every.take(np.arange(100, N))
    with_base, _ = tune("prefix+text", pairs)
    assert with_base.weighing.base_share > 0
    with_base.landmarks = landmarks
    fitted, without = (pairs.fit(one) for one in (with_base, tune("ridge+text", pairs)[0]))
    assert fitted.kind_facts()["share of first tokens"] > 0
    assert cosine(fitted, new) > cosine(without, new) + 0.1


def test_the_others_do_not_read_them(make_pairs):
    pairs = make_pairs(0.1)
    bare = without_first_tokens(pairs)
    ours, theirs = (one.fit(tune("ridge+text", one)[0]) for one in (pairs, bare))
    np.testing.assert_array_equal(ours.transform(pairs.source, pairs.texts), theirs.transform(bare.source, bare.texts))
    assert isinstance(ours, RidgeText)


@pytest.mark.parametrize("kind", ["prefix", "prefix+text"])
def test_a_stitch_that_reads_them_says_that_there_are_none(make_pairs, kind):
    pairs = make_pairs(0.5)
    stitch = pairs.fit(tune(kind, pairs)[0])
    with pytest.raises(StitchError, match="first tokens"):
        stitch.transform(pairs.source, without_first_tokens(pairs).texts)


def test_they_are_chosen_where_they_beat_as_many_tokens_in_pairs(make_pairs):
    pairs = make_pairs(0.5)
    selection = select_stitch(pairs, prefix=PrefixCost(24, 50, 10_000))
    assert selection.prefix.is_used and new_stitch(selection.chosen).reads_prefix
    assert selection.prefix.with_prefix > selection.prefix.with_pairs


@pytest.mark.parametrize(("noise", "cost"), [(1e6, 50), (0.5, 10_000)], ids=["no head", "as dear as everything"])
def test_they_are_left_out_where_they_do_not(make_pairs, noise, cost):
    pairs = make_pairs(noise)
    selection = select_stitch(pairs, prefix=PrefixCost(24, cost, 10_000))
    assert not selection.prefix.is_used
    assert not new_stitch(selection.chosen).reads_prefix
    assert selection.chosen == select_stitch(without_first_tokens(pairs)).chosen


def test_they_are_one_candidate_of_those_that_are_named(make_pairs):
    assert select_stitch(make_pairs(1e6), specs=["prefix"]).chosen == "prefix"
    assert "prefix+text" in [row.stitch for row in select_stitch(make_pairs(0.5)).candidates]
