from dataclasses import replace

import numpy as np
import pytest

from migrate.stitch.fitted import FallbackUse, fit_fallback
from migrate.stitch.scores import HeldOutScores
from migrate.stitch.select import ScoredStitch, Selection, select_stitch, tune


@pytest.fixture(scope="module")
def pairs(make_world):
    """Pairs of which both the vectors and the texts know a part."""
    world, rng = make_world(80), np.random.default_rng(1)
    both = np.hstack([world.wordy, world.hidden])
    x = (both[:, 6:] @ rng.normal(size=(18, 20)) + 2).astype(np.float32)
    return replace(world.pairing(x, (both @ rng.normal(size=(24, 16))).astype(np.float32)), seed=3)


def row(stitch, overlap, is_control=False):
    return ScoredStitch(stitch, HeldOutScores(0, 1, 0, overlap), is_control=is_control)


def test_the_best_of_vectors_is_neither_a_control_nor_a_reader_of_texts():
    of_vectors = (row("ols", 0.3), row("lowrank:3", 0.4))
    rows = (*of_vectors, row("ridge+text", 0.9), row("text", 0.8, True), row("mean", 0.7, True))
    assert Selection("ridge+text", rows).best_of_vectors.stitch == "lowrank:3"
    assert Selection("ridge+text", rows[2:]).best_of_vectors is None


def test_the_fallback_is_the_best_candidate_of_vectors_fitted_on_all_pairs(pairs):
    selection = select_stitch(pairs, specs=["ols", "ridge", "ridge+text"])
    found = fit_fallback(pairs, selection)
    best = max(selection.candidates[:2], key=lambda one: one.scores.overlap_at_10)
    assert found.stitch.spec == found.selection.chosen == best.stitch
    assert found.selection.best.scores == best.scores  # the same folds: the figures can stand side by side
    tuned, _ = tune(best.stitch, replace(pairs, texts=None))
    expected = pairs.fit(tuned).transform(pairs.source)
    np.testing.assert_allclose(found.stitch.transform(pairs.source), expected, atol=1e-4)


def test_where_no_candidate_reads_vectors_alone_it_is_what_auto_would_take_without_texts(pairs):
    found = fit_fallback(pairs, select_stitch(pairs, specs=["kernel+text"]))
    assert found.selection == select_stitch(replace(pairs, texts=None))
    assert found.selection.confidence is not None


def test_a_use_says_what_it_costs():
    use = FallbackUse("ridge+text", "ridge", 0.542, 0.427)
    assert "it finds 42.7%, ridge+text 54.2%" in use.sentence
    assert "the store has no texts, which ridge+text reads: ridge was used" in use.sentence
