"""Directions and probes in the new space: the right arithmetic, by independent lines, and refusals."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge as RidgeRegression
from stores_tools import make_store

from migrate.cli.main import run
from migrate.errors import InputError
from migrate.lab.carry.carry import carry, write_rows
from migrate.manifest import Manifest
from migrate.selection import Pairs
from migrate.steps.fit.job import fit_pairs
from migrate.stitch.linear import Ridge

pytestmark = pytest.mark.slow

COUNT, P, Q = 120, 12, 8


def make(folder, old, new, kind="ridge"):
    """A store of the old vectors, and a stitch fitted on all of them."""
    ids = [f"d{row}" for row in range(len(old))]
    store = make_store(folder / "store", ids, old)
    manifest = Manifest("stitch", details={"fingerprint": store.snapshot().fingerprint})
    fitted = fit_pairs(Pairs(tuple(ids), old, new), [kind], manifest=manifest, state={}, seed=0)
    fitted.save(folder / "stitch")
    return store, fitted


def world(noise=0.3, seed=0):
    """Old vectors, new ones that are a noisy affine map of them, a direction and a probe."""
    rng = np.random.default_rng(seed)
    old = rng.normal(size=(COUNT, P)).astype(np.float32) + 1
    new = old @ rng.normal(size=(P, Q)) + 3 + noise * rng.normal(size=(COUNT, Q))
    return old, new.astype(np.float32), rng.normal(size=P).astype(np.float32), rng.normal(size=P).astype(np.float32)


SPOILT = {
    "short": {"x": np.ones(3)},
    "zero": {"x": np.zeros(P)},
    "nan": {"x": np.full(P, np.nan)},
    "alone": {"x": np.ones(P), "y.intercept": np.ones(1)},
    "many": {"x": np.ones(P), "x.intercept": np.ones(2)},
    "empty": {},
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    old, new, direction, probe = world()
    make(tmp_path, old, new)
    write_rows(tmp_path / "d.npz", {"file": direction, "rows": np.stack([direction, probe])})
    write_rows(tmp_path / "p.npz", {"one": probe[None], "one.intercept": np.float32([-1.5]), "flat": direction})
    for name, arrays in SPOILT.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
    make(tmp_path / "else", old + 1, new)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_direction_is_the_difference_that_it_makes_to_what_a_regression_predicts(place):
    assert run(["carry", "store", "stitch", "--directions", "d.npz", "-o", "out"]) == 0
    given, carried = np.load("d.npz"), np.load("out/directions.npz")
    old, new, *_ = world()
    strength = Ridge().tuned(old, new).fit(old, new).lambda_
    model = RidgeRegression(alpha=strength).fit(old.astype(np.float64), new.astype(np.float64))
    start = np.random.default_rng(2).normal(size=P)
    for name in ("file", "rows"):
        moved = model.predict(np.atleast_2d(start + given[name])) - model.predict(start[None])
        np.testing.assert_allclose(np.atleast_2d(carried[name]), moved, atol=1e-4)
        assert carried[name].dtype == np.float32 and carried[name].shape == (*given[name].shape[:-1], Q)


def test_a_probe_is_the_ridge_regression_of_its_scores_on_the_new_vectors(place):
    """The transposed map back and the regression of the scores are one, as ridge is linear in its target."""
    assert run(["carry", "store", "stitch", "--probes", "p.npz", "-o", "out"]) == 0
    carried = np.load("out/probes.npz")
    old, new, direction, probe = world()
    strength = Ridge().tuned(new, old).fit(new, old).lambda_
    for name, weights, intercept in (("one", probe, -1.5), ("flat", direction, 0.0)):
        truth = RidgeRegression(alpha=strength).fit(
            new.astype(np.float64), old.astype(np.float64) @ weights + intercept
        )
        np.testing.assert_allclose(carried[name].ravel(), truth.coef_, atol=1e-4)
        np.testing.assert_allclose(carried[f"{name}.intercept"], truth.intercept_, atol=1e-3)
    assert carried["one"].shape == (1, Q) and carried["flat"].shape == (Q,)


def test_the_same_space_carries_everything_as_it_is(tmp_path):
    old, _, direction, probe = world()
    store, fitted = make(tmp_path, old, old.copy(), kind="identity")
    done = carry(store, fitted, directions={"d": direction}, probes={"w": probe, "w.intercept": np.float32([2])})
    assert np.array_equal(done.directions["d"], direction) and np.array_equal(done.probes["w"], probe)
    assert done.probes["w.intercept"] == [2]
    assert done.judgements[0].cosine.lower == 1.0


@pytest.mark.parametrize("seed", [0, 1])
def test_what_is_said_of_a_labelled_direction_is_near_its_true_cosine(seed, tmp_path):
    """The new space shows a part of the concept that the old one does not: a linear map cannot carry that."""
    rng, count = np.random.default_rng(seed), 6_000
    has = rng.random(count) < 0.3
    old = (rng.normal(size=(count, P)) + np.outer(has, np.eye(P)[0])).astype(np.float32)
    extra = np.outer(has, np.eye(Q)[1]) * 3
    new = (old @ rng.normal(size=(P, Q)) + extra + 0.2 * rng.normal(size=(count, Q))).astype(np.float32)
    sample, rest = slice(0, 2_000), slice(2_000, None)
    store, fitted = make(tmp_path, old[sample], new[sample])
    shifts = [v[rest][has[rest]].mean(axis=0) - v[rest][~has[rest]].mean(axis=0) for v in (old, new)]
    labels = {f"d{row}": "c" if has[row] else "other" for row in range(2_000)}
    (judged,) = carry(store, fitted, directions={"c": shifts[0]}, labels=labels).judgements
    (unlabelled,) = (bare := carry(store, fitted, directions={"c": shifts[0]})).judgements
    carried = bare.directions["c"]
    true = carried @ shifts[1] / np.linalg.norm(carried) / np.linalg.norm(shifts[1])
    assert judged.judged_by == "labels"
    assert judged.cosine.lower < true < judged.cosine.upper and 0.5 < true < 0.9
    assert unlabelled.cosine.estimate > 0.95  # what the old vectors do not show is not seen


def test_what_may_be_chance_is_left_out_and_the_exit_code_says_so(tmp_path, monkeypatch, capsys):
    old, _, _, probe = world()
    new = np.random.default_rng(9).normal(size=(COUNT, Q)).astype(np.float32)
    make(tmp_path, old, new)
    monkeypatch.chdir(tmp_path)
    write_rows(Path("p.npz"), {"w": probe})
    assert run(["carry", "store", "stitch", "--probes", "p.npz", "-o", "out", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["left_out"] == ["w"] and document["carried"]["probes"] == []
    assert "chance" in document["judgements"][0]["refused"]
    assert sorted(path.name for path in Path("out").iterdir()) == ["carry.json"]


def test_what_the_labels_of_the_sample_teach_better_is_left_out(tmp_path):
    rng = np.random.default_rng(3)
    has = np.arange(400) % 2 == 0
    old = (rng.normal(size=(400, P)) + 0.3 * np.outer(has, np.eye(P)[0])).astype(np.float32)
    new = np.hstack([old @ rng.normal(size=(P, Q - 1)), 3 * has[:, None] + rng.normal(size=(400, 1))]).astype(
        np.float32
    )
    store, fitted = make(tmp_path, old, new)
    labels = {f"d{row}": "c" if has[row] else "other" for row in range(400)}
    probes = {"c": np.eye(P, dtype=np.float32)[0], "c.intercept": np.zeros(1, np.float32)}
    done = carry(store, fitted, probes=probes, labels=labels)
    (judged,) = done.judgements
    assert done.left_out == ("c",) and "labels of the sample" in judged.refused
    assert judged.refit.estimate - judged.after.estimate == pytest.approx(judged.behind.estimate)
    assert judged.behind.lower > 0


def test_one_refused_row_leaves_its_whole_array_out(tmp_path):
    rng = np.random.default_rng(6)
    old = rng.normal(size=(COUNT, P)).astype(np.float32)
    new = (old[:, 1:] @ rng.normal(size=(P - 1, Q))).astype(np.float32)  # which the first column has no part in
    store, fitted = make(tmp_path, old, new)
    lost, kept = np.eye(P, dtype=np.float32)[:2]
    zeros = np.zeros(2, np.float32)
    probes = {"both": np.stack([lost, kept]), "both.intercept": zeros, "kept": kept, "kept.intercept": zeros[:1]}
    done = carry(store, fitted, probes=probes)
    assert done.left_out == ("both",) and sorted(done.probes) == ["kept", "kept.intercept"]
    assert [row.name for row in done.judgements if row.refused] == ["both[0]"]


@pytest.mark.parametrize("kind", ["kernel", "procrustes", "ridge+text"])
def test_what_kind_of_stitch_it_is_makes_no_difference(kind, source_folder, tmp_path):
    """Texts tell nothing of a direction, and a stitch may be stretched: its sample is what counts."""
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(0).normal(size=32))
    for name in ("ridge", kind):
        fit = ["fit", source_folder, "--target", "tfidf:16", "--kind", name, "--sample", "100", "-q"]
        assert run([str(part) for part in (*fit, "-o", tmp_path / name)]) == 0
        what = ["--directions", tmp_path / "d.npz", "-o", tmp_path / f"{name}-out"]
        assert run([str(part) for part in ("carry", source_folder, tmp_path / name, *what)]) in (0, 1)
    one, other = (np.load(tmp_path / f"{name}-out" / "directions.npz")["x"] for name in ("ridge", kind))
    assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["store", "stitch"], 2, "--directions or --probes"),
        (
            ["store", "stitch", "--directions", "short.npz"],
            4,
            "(3,) does not hold vectors of the store's dimension, 12",
        ),
        (["store", "stitch", "--directions", "zero.npz"], 4, "zero vector"),
        (["store", "stitch", "--directions", "nan.npz"], 4, "NaN"),
        (["store", "stitch", "--directions", "empty.npz"], 4, "no array of vectors"),
        (["store", "stitch", "--directions", "missing.npz"], 4, "missing.npz"),
        (["store", "stitch", "--directions", "store/index.faiss"], 4, "not an .npz file"),
        (["store", "stitch", "--probes", "alone.npz"], 4, "y.intercept"),
        (["store", "stitch", "--probes", "many.npz"], 4, "other than 1 finite numbers"),
        (["else/store", "stitch", "--directions", "d.npz"], 4, "fitted on another store"),
        (["store", "store", "--directions", "d.npz"], 4, "no stitch here"),
        (["store", "stitch", "--directions", "d.npz", "--labels", "d.npz"], 4, "d.npz"),
        (["store", "stitch", "--directions", "d.npz", "-o", "stitch/out"], 2, "overlaps"),
    ],
)
def test_what_cannot_be_carried_is_told_in_one_line(arguments, code, words, place, capsys):
    before = sorted(place.iterdir())
    assert run(["carry", *arguments, *([] if "-o" in arguments else ["-o", "out"])]) == code
    told = capsys.readouterr().err
    assert words in told and told.count("\n") == 1
    assert sorted(place.iterdir()) == before


def test_a_stitch_of_too_few_pairs_judges_nothing(tmp_path):
    old, new, direction, _ = world()
    store, fitted = make(tmp_path, old[:12], new[:12])
    with pytest.raises(InputError, match="12 documents, and 20 are needed"):
        carry(store, fitted, directions={"d": direction})
