import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from migrate.lab.stitches.mlp import Mlp, Training, held_out_count, train
from migrate.manifest import Manifest
from migrate.stitch.fitted import FittedStitch, TrueVectors
from migrate.stitch.linear import Ridge
from migrate.stitch.persistence import load_stitch
from migrate.stitch.scores import HeldOutScores
from migrate.stitch.select import ScoredStitch, Selection

pytestmark = pytest.mark.slow

SHORT = Training(steps=30, min_epochs=5)


def linear_pairs(n=300, p=6, q=4, seed=0):
    """A map without noise between spaces that are neither centred nor of unit spread."""
    rng = np.random.default_rng(seed)
    x = 3 * rng.normal(size=(n, p)) + 5
    y = 0.2 * x @ rng.normal(size=(p, q)) - 2
    return x.astype(np.float32), y.astype(np.float32)


def bent_pairs(n=900, seed=0):
    """Absolute values: no linear map explains any of them."""
    x = np.random.default_rng(seed).normal(size=(n, 8))
    return x.astype(np.float32), np.abs(x[:, :2]).astype(np.float32)


def noise_pairs(n=200, d=16, seed=0):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, n, d)).astype(np.float32)
    return x, y


def r2(stitch, x, y):
    return 1 - np.square(stitch.transform(x) - y).sum() / np.square(y - y.mean(0)).sum()


def learned(stitch):
    return {name: array.tobytes() for name, array in stitch.arrays().items()}


@pytest.mark.parametrize("layers", [1, 7])
def test_a_linear_map_is_recovered_on_unseen_vectors(layers):
    x, y = linear_pairs(600)
    quiet = Training(noise=0.0, steps=500)
    assert r2(Mlp(layers, training=quiet).fit(x[:400], y[:400]), x[400:], y[400:]) > 0.97


def test_a_bent_map_is_learned_where_no_linear_one_can_be():
    x, y = bent_pairs()
    fit, rest = slice(0, 600), slice(600, None)
    bent = Mlp(3, training=Training(noise=0.05, steps=700)).fit(x[fit], y[fit])
    assert r2(Ridge().fit(x[fit], y[fit]), x[rest], y[rest]) < 0.1
    assert r2(Mlp(1, training=SHORT).fit(x[fit], y[fit]), x[rest], y[rest]) < 0.1
    assert r2(bent, x[rest], y[rest]) > 0.9


def test_training_stops_early_where_held_out_pairs_get_worse():
    x, y = noise_pairs()
    settings = Training(noise=0.0, steps=300)
    losses = train(x, y, [16, 16], settings).curve[:, 2]
    whole = settings.epochs(180)
    assert len(losses) < whole
    assert 1 <= len(losses) - 1 - losses.argmin() <= round(settings.patience * whole)


def test_the_best_weights_are_kept_not_the_last():
    x, noise = noise_pairs(60, 54)  # as many as the pairs to train on: learned by heart at last
    y = x + noise
    found = train(x, y, [54, 54], Training(noise=0.0, steps=300, patience=1.0))
    losses = found.curve[:, 2]
    assert losses[-1] > losses.min() + 0.1
    assert held_out_loss(found, x, y) == pytest.approx(losses.min(), abs=2e-3)


def held_out_loss(found, x, y):
    """What the docstrings say the loss is, in numpy."""
    out, truth = x[found.held_out], y[found.held_out]
    for index, (weights, biases) in enumerate(found.layers):
        out = (np.maximum(out, 0) if index else out) @ weights + biases
    cosine = (out * truth).sum(1) / np.linalg.norm(out, axis=1) / np.linalg.norm(truth, axis=1)
    return np.square(out - truth).mean() + 1 - cosine.mean()


def test_held_out_pairs_are_never_trained_on():
    x, y = noise_pairs(100)
    settings = replace(SHORT, patience=1.0)
    first = train(x, y, [16, 16], settings)
    assert len(first.held_out) == 10
    spoiled_x, spoiled_y = x.copy(), y.copy()
    spoiled_x[first.held_out] = 1e3
    spoiled_y[first.held_out] = -1e3
    second = train(spoiled_x, spoiled_y, [16, 16], settings)
    assert np.array_equal(first.held_out, second.held_out)
    assert np.array_equal(first.curve[:, 1], second.curve[:, 1])
    assert not np.array_equal(first.curve[:, 2], second.curve[:, 2])


def test_the_loss_curve_falls_and_its_epochs_are_counted():
    x, y = linear_pairs()
    stitch = Mlp(2, training=Training(steps=300)).fit(x, y)
    epochs, training, held_out = stitch.loss_curve_.T
    assert epochs.tolist() == list(range(1, len(epochs) + 1))
    assert training[-1] < 0.3 * training[0]
    assert held_out.min() < 0.3 * held_out[0]
    assert stitch.kind_facts() == {"layers": 2.0, "epochs": float(len(epochs)), "held_out_loss": float(held_out.min())}


@pytest.mark.parametrize("n", [2, 3, 19])
@pytest.mark.parametrize("layers", [1, 4])
def test_fewer_than_twenty_pairs_are_all_trained_on_for_the_whole_schedule(n, layers):
    assert [held_out_count(pairs) for pairs in (n, 20, 40, 1_000)] == [0, 3, 4, 100]
    x, y = linear_pairs(n)
    stitch = Mlp(layers, training=SHORT).fit(x, y)
    assert stitch.loss_curve_.shape == (30, 2)
    assert "held_out_loss" not in stitch.kind_facts()
    assert np.isfinite(stitch.transform(x)).all()


def test_constant_columns_and_sides_do_no_harm():
    x, y = linear_pairs(60)
    x[:, 2], y[:, 1] = 7, -3
    found = Mlp(2, training=Training(steps=200)).fit(x, y).transform(x)
    np.testing.assert_allclose(found[:, 1], -3, atol=0.2)
    for source, target in ((np.full_like(x, 7), y), (x, np.full_like(y, -3)), (np.full_like(x, 7), np.full_like(y, 2))):
        stitch = Mlp(2, training=SHORT).fit(source, target)
        assert np.isfinite(stitch.transform(source)).all()
        assert all(np.isfinite(array).all() for array in stitch.arrays().values())


def test_training_that_runs_away_keeps_what_was_finite():
    x, y = linear_pairs(100)
    wild = Mlp(3, training=Training(learning_rate=1e30, steps=20, min_epochs=5)).fit(x, y)
    assert all(np.isfinite(array).all() for array in wild.arrays().values())


def test_other_random_numbers_and_settings_of_torch_are_left_alone():
    import torch

    x, y = linear_pairs(80)
    first = learned(Mlp(2, training=SHORT).fit(x, y))
    torch.manual_seed(1)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(2)
    try:
        with torch.inference_mode():
            assert learned(Mlp(2, training=SHORT).fit(x, y)) == first
            assert torch.is_inference_mode_enabled()
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_parts_of_a_long_table_are_put_together_in_order():
    x, y = linear_pairs(80)
    stitch = Mlp(3, training=SHORT).fit(x, y)
    many = np.tile(x, (150, 1))
    found = stitch.transform(many)
    assert (found.dtype, found.shape) == (np.float32, (12_000, 4))
    np.testing.assert_allclose(found, np.tile(stitch.transform(x), (150, 1)), rtol=1e-5, atol=1e-5)
    assert stitch.transform(x[:0]).shape == (0, 4)


TRANSLATE = """
import sys
from pathlib import Path
import numpy as np
from migrate.stitch.persistence import load_stitch
load_stitch(Path(sys.argv[1])).stitch.transform(np.ones((2, 6), dtype=np.float32))
assert "torch" not in sys.modules
"""


def test_a_loaded_stitch_has_the_same_curve_and_facts_and_translates_without_torch(tmp_path):
    x, y = linear_pairs(60)
    stitch = Mlp(3, training=SHORT).fit(x, y)
    manifest = Manifest(kind="stitch", details={"fingerprint": {"dim": 6}})
    selection = Selection("mlp:3", (ScoredStitch("mlp:3", HeldOutScores(0.5, 0.1, 0.9, 0.5)),))
    FittedStitch(stitch, 2.5, TrueVectors(list(map(str, range(60))), y), selection, manifest).save(tmp_path / "stitch")
    loaded = load_stitch(tmp_path / "stitch")
    assert learned(loaded.stitch) == learned(stitch)
    assert loaded.stitch.loss_curve_.dtype == np.float32
    assert loaded.stitch.kind_facts() == stitch.kind_facts() == loaded.manifest.details["facts"]
    subprocess.run([sys.executable, "-c", TRANSLATE, str(tmp_path / "stitch")], check=True)
