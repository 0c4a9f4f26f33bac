import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from migrate.errors import ManifestError, StitchError, UsageError, VectorError
from migrate.files import sha256_file
from migrate.manifest import MANIFEST_NAME, Manifest, ModelIdentity
from migrate.stitch.base import Pairing
from migrate.stitch.fitted import SAMPLE_NAME, WEIGHTS_NAME, FittedStitch, TrueVectors, fit_norm
from migrate.stitch.linear import Identity
from migrate.stitch.persistence import load_stitch
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import select_stitch
from migrate.vectors import Batch

SPECS = ["identity", "mean", "procrustes", "ols", "ridge", "lowrank", "lowrank:3"]
P = Q = 8


def make_pairs(n=40, seed=0):
    """Source and target vectors; those of the target are of no common length."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, P)) + 1
    y = 5 * (x @ rng.normal(size=(P, Q)) + rng.normal(size=(n, Q)) + 2)
    return x.astype(np.float32), y.astype(np.float32)


def make_fitted(spec="ridge", seed=3):
    """A fitted stitch in which nothing has the value it has by default."""
    x, y = make_pairs()
    manifest = Manifest(
        kind="stitch",
        model=ModelIdentity("tfidf:8", Q, False, "d: ", "q: ", "r1"),
        source_model=ModelIdentity("old", P, True),
        seed=seed,
        inputs={"a": "b"},
        counts={"pairs": len(x)},
        details={"fingerprint": {"dim": P}},
    )
    return FittedStitch(
        Pairing(x, y).fit(new_stitch(spec)),
        fit_norm(y),
        TrueVectors([f"dök-{row}" for row in range(len(x))], y),
        select_stitch(Pairing(x, y, seed=seed), specs=[spec]),
        manifest,
        {"embedder.json": b'{"a": 1}', "embedder.bin": bytes(range(9))},
    )


def make_batch(n=30, seed=7):
    """Documents of which some are of the sample, in another order."""
    rng = np.random.default_rng(seed)
    ids = [f"dök-{row}" if row % 3 == 0 else f"new-{row}" for row in rng.permutation(n)]
    return Batch(ids, rng.normal(size=(n, P)).astype(np.float32))


@pytest.fixture
def saved(tmp_path):
    make_fitted().save(tmp_path / "stitch")
    return tmp_path / "stitch"


def edit_manifest(folder, change):
    path = folder / MANIFEST_NAME
    facts = json.loads(path.read_bytes())
    facts.pop("manifest_sha256", None)  # as an older one has none
    facts["details"].pop("arrays", None)
    change(facts["details"])
    path.write_text(json.dumps(facts))


def replace_file(folder, name, write):
    """Write a file anew and put its hash into the manifest, so that only its content can be wrong."""
    write(folder / name)
    edit_manifest(folder, lambda details: details["files"].update({name: sha256_file(folder / name)}))


@pytest.mark.parametrize("spec", SPECS)
def test_a_loaded_stitch_translates_to_the_same_bytes(spec, tmp_path):
    fitted, batch = make_fitted(spec), make_batch()
    before = batch.vectors.copy(), fitted.sample.vectors.copy()
    fitted.save(tmp_path / "stitch")
    loaded = load_stitch(tmp_path / "stitch")
    for patch in (True, False):
        expected = fitted.translate(batch, source="s", patch=patch)
        found = loaded.translate(batch, source="s", patch=patch)
        assert found.vectors.tobytes() == expected.vectors.tobytes()
        assert found.confidence.tobytes() == expected.confidence.tobytes()
        assert list(found.ids) == list(batch.ids)
        np.testing.assert_array_equal(batch.vectors, before[0])
        np.testing.assert_array_equal(fitted.sample.vectors, before[1])
    assert loaded.stitch.spec == spec
    assert loaded.selection == fitted.selection
    assert (loaded.norm, loaded.dim, dict(loaded.state)) == (fitted.norm, Q, fitted.state)
    assert list(loaded.sample.ids) == list(fitted.sample.ids)
    assert np.array_equal(loaded.sample.vectors, fitted.sample.vectors)
    for name in ("model", "source_model", "seed", "inputs", "counts", "created"):
        assert getattr(loaded.manifest, name) == getattr(fitted.manifest, name)
    assert loaded.manifest.details["fingerprint"] == {"dim": P}


def test_the_manifest_tells_what_was_fitted(saved):
    fitted = make_fitted()
    details = json.loads((saved / MANIFEST_NAME).read_bytes())["details"]
    assert details["stitch"] == "ridge"
    assert details["facts"] == {"lambda": fitted.stitch.lambda_}
    assert details["selection"]["chosen"] == "ridge"
    assert details["files"] == {
        name: sha256_file(saved / name) for name in (WEIGHTS_NAME, SAMPLE_NAME, "embedder.json", "embedder.bin")
    }


def test_a_stitch_saved_before_there_was_a_reach_translates_as_it_did(saved):
    fitted, batch = make_fitted(), make_batch()
    old = with_tensors(
        lambda tensors: [tensors.pop(f"stitch.reach.{part}") for part in ("mean", "directions", "scale")]
    )
    replace_file(saved, WEIGHTS_NAME, old)
    edit_manifest(saved, lambda details: details["selection"]["confidence"].update(coefficients=[0.1, 0.01, 0.0]))
    found = load_stitch(saved).translate(batch, source="s", patch=False)
    assert found.vectors.tobytes() == fitted.translate(batch, source="s", patch=False).vectors.tobytes()
    norms = np.linalg.norm(fitted.stitch.transform(batch.vectors), axis=1)
    np.testing.assert_allclose(found.confidence, np.clip(0.1 + 0.01 * norms, -1, 1), rtol=1e-5)


@pytest.mark.parametrize("spec", SPECS)
def test_translated_vectors_have_the_mean_norm_of_the_targets(spec):
    _, y = make_pairs()
    mean = np.linalg.norm(y.astype(float), axis=1).mean()
    assert mean > 5
    found = make_fitted(spec).translate(make_batch(), source="s", patch=False).vectors
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), mean, rtol=1e-5)


def test_a_unit_target_gives_unit_vectors_and_the_direction_is_kept():
    y = make_pairs()[1]
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    y[0] *= 1 + 5e-4  # within what counts as unit length
    assert fit_norm(y) == 1.0
    fitted = replace(make_fitted(), norm=fit_norm(y))
    batch = make_batch()
    found = fitted.translate(batch, source="s", patch=False).vectors
    raw = fitted.stitch.transform(batch.vectors)
    np.testing.assert_allclose(found, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-6)


def test_documents_of_the_sample_get_their_true_vectors_by_id():
    fitted, batch = make_fitted(), make_batch()
    patched = fitted.translate(batch, source="s").vectors
    plain = fitted.translate(batch, source="s", patch=False).vectors
    of_sample = [doc_id.startswith("dök") for doc_id in batch.ids]
    assert 5 < sum(of_sample) < len(batch)
    for row, doc_id in enumerate(batch.ids):
        if of_sample[row]:
            assert np.array_equal(patched[row], fitted.sample.vectors[int(doc_id.removeprefix("dök-"))])
            assert not np.array_equal(patched[row], plain[row])
        else:
            assert np.array_equal(patched[row], plain[row])


@pytest.mark.parametrize("value", [0, np.nan, np.inf])
def test_a_bad_vector_going_in_or_coming_out_is_named(value):
    batch, fitted = make_batch(), make_fitted("mean")
    fitted.stitch.mean_ = np.zeros(Q, dtype=np.float32)
    with pytest.raises(VectorError, match=r"^my store after the mean stitch: zero vector"):
        fitted.translate(batch, source="my store")
    batch.vectors[4] = value
    with pytest.raises(VectorError, match=f"^my store: .*{batch.ids[4]!r}"):
        fitted.translate(batch, source="my store")


def test_identity_rescales_a_store_of_another_length():
    x, _ = make_pairs()
    fitted = replace(make_fitted("identity"), stitch=Identity(), norm=1.0)
    found = fitted.translate(Batch(["a"], 3 * x[:1]), source="s").vectors
    np.testing.assert_allclose(found, x[:1] / np.linalg.norm(x[0]), rtol=1e-5)


def folder_bytes(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def truncate(path):
    path.write_bytes(path.read_bytes()[:-3])


def flip_a_bit(path):
    payload = bytearray(path.read_bytes())
    payload[len(payload) // 2] ^= 1
    path.write_bytes(payload)


@pytest.mark.parametrize(
    "damage", [truncate, flip_a_bit, lambda path: path.write_bytes(b""), lambda path: path.unlink()]
)
@pytest.mark.parametrize("name", [WEIGHTS_NAME, SAMPLE_NAME, "embedder.json"])
def test_damage_is_found(name, damage, saved):
    damage(saved / name)
    with pytest.raises(StitchError, match=r"fit .*again") as caught:
        load_stitch(saved)
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)


def with_tensors(change):
    def write(path):
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path)

    return write


def spoil(name, value):
    return with_tensors(lambda tensors: tensors[name].put(3, value))


def with_copies(copies):
    """Other copies than the stitch has."""

    def write(path):
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "copies": copies}))

    return write


def test_copies_of_the_sample_get_its_true_vectors_also_when_loaded(saved, tmp_path):
    fitted = make_fitted()
    twins = replace(fitted, sample=TrueVectors(fitted.sample.ids, fitted.sample.vectors, {"twin-a": 5, "twin-b": 5}))
    twins.save(tmp_path / "twins")
    batch = Batch(["twin-b", "other", "twin-a", "dök-5"], np.ones((4, P), np.float32))
    out = load_stitch(tmp_path / "twins").translate(batch, source="s").vectors
    for row in (0, 2, 3):
        assert np.array_equal(out[row], fitted.sample.vectors[5])
    assert not np.array_equal(out[1], fitted.sample.vectors[5])
    assert twins.digest() != fitted.digest()
    assert load_stitch(tmp_path / "twins").digest() == twins.digest()


@pytest.mark.parametrize(
    ("name", "write"),
    [
        (WEIGHTS_NAME, spoil("stitch.matrix", np.nan)),
        (WEIGHTS_NAME, spoil("stitch.offset", np.inf)),
        (WEIGHTS_NAME, spoil("sample.vectors", np.nan)),
        (WEIGHTS_NAME, with_tensors(lambda tensors: tensors.pop("stitch.offset"))),
        (WEIGHTS_NAME, with_tensors(lambda tensors: tensors.pop("stitch.reach.scale"))),
        (WEIGHTS_NAME, spoil("stitch.reach.mean", np.nan)),
        (WEIGHTS_NAME, with_tensors(lambda tensors: tensors.update({"stitch.reach.mean": np.ones(3, np.float32)}))),
        (WEIGHTS_NAME, with_tensors(lambda tensors: tensors.pop("sample.vectors"))),
        (WEIGHTS_NAME, with_tensors(lambda tensors: tensors.update({"sample.vectors": np.ones((3, Q), np.float32)}))),
        (WEIGHTS_NAME, lambda path: path.write_bytes(b"")),
        (WEIGHTS_NAME, lambda path: path.write_bytes(b"\xff" * 64)),
        (SAMPLE_NAME, lambda path: path.write_text('{"ids": ["one"], "copies": {}}')),
        (SAMPLE_NAME, lambda path: path.write_text("[")),
        (SAMPLE_NAME, lambda path: path.write_text("5")),
        (SAMPLE_NAME, lambda path: path.write_text('{"ids": [[1]], "copies": {}}')),
        (SAMPLE_NAME, lambda path: path.write_text('{"ids": [], "copies": []}')),
        (SAMPLE_NAME, with_copies({"twin": 40})),
        (SAMPLE_NAME, with_copies({"twin": -1})),
        (SAMPLE_NAME, with_copies({"twin": "0"})),
        (SAMPLE_NAME, with_copies({"dök-0": 1})),
        (SAMPLE_NAME, lambda path: path.write_bytes(b"\xff\xfe\xff")),
        (SAMPLE_NAME, lambda path: path.write_text(json.dumps({"ids": ["same"] * 40, "copies": {}}))),
        (SAMPLE_NAME, lambda path: path.write_text(json.dumps({"ids": {str(n): n for n in range(40)}, "copies": {}}))),
        (WEIGHTS_NAME, with_tensors(lambda tensors: tensors.update({"stitch.matrix": np.ones((P, 3), np.float32)}))),
        (WEIGHTS_NAME, with_tensors(lambda tensors: tensors.update({"stitch.matrix": np.ones((3, Q), np.float32)}))),
        (WEIGHTS_NAME, with_tensors(lambda tensors: tensors.update({"sample.vectors": np.ones(40, np.float32)}))),
    ],
)
def test_wrong_content_is_found_even_with_the_right_hash(name, write, saved):
    replace_file(saved, name, write)
    with pytest.raises(StitchError, match="again") as caught:
        load_stitch(saved)
    assert str(saved) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_existing_folder_is_kept_unless_forced(saved, tmp_path):
    with pytest.raises(ManifestError, match="no stitch here"):
        load_stitch(tmp_path)
    with pytest.raises(UsageError, match="exists"):
        make_fitted("mean").save(saved)
    assert load_stitch(saved).stitch.spec == "ridge"
    make_fitted("mean").save(saved, force=True)
    assert load_stitch(saved).stitch.spec == "mean"


def test_true_vectors_are_found_wherever_they_stand():
    sample = TrueVectors(["c", "a"], np.eye(2, dtype=np.float32))
    positions, rows = sample.positions(["a", "b", "c", "a"])
    assert (positions.tolist(), rows.tolist()) == ([0, 2, 3], [1, 0, 1])
    assert [found.tolist() for found in sample.positions(["x"])] == [[], []]


@pytest.mark.parametrize("spec", SPECS)
def test_the_same_fit_gives_the_same_folder_however_long_it_took(spec, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    for name in ("one", "two"):
        make_fitted(spec).save(tmp_path / name)
    assert folder_bytes(tmp_path / "one") == folder_bytes(tmp_path / "two")


def test_a_loaded_stitch_may_be_changed_and_saved(saved, tmp_path):
    changed = replace(load_stitch(saved), norm=3.0, state={}, sample=TrueVectors(["a"], np.ones((1, Q), np.float32)))
    changed.save(tmp_path / "changed")
    found = load_stitch(tmp_path / "changed")
    assert (found.norm, list(found.sample.ids), dict(found.state)) == (3.0, ["a"], {})
    assert found.manifest.details["facts"] == load_stitch(saved).manifest.details["facts"]


@pytest.mark.parametrize(
    "facts",
    [
        {"norm": float("nan")},
        {"norm": 0},
        {"norm": float("inf")},
        {"norm": -1},
        {"norm": None},
        {"stitch": "kernel"},
        {"stitch": "lowrank:0"},
        {"stitch": 5},
        {"stitch": None},
        {"files": []},
        {"files": None},
        {"selection": []},
        {"selection": None},
    ],
)
def test_facts_that_are_wrong_are_found(facts, saved):
    edit_manifest(saved, lambda details: details.update(facts))
    with pytest.raises((StitchError, ManifestError), match=f"{next(iter(facts))}.* again|fit .* again"):
        load_stitch(saved)


@pytest.mark.parametrize("name", ["../evil", "sub/evil", "/etc/hostname", "index.faiss"])
def test_files_outside_of_the_folder_are_not_read(name, saved):
    (saved / "sub").mkdir()
    path = saved / name
    if not path.exists():
        path.write_bytes(b"evil")
    edit_manifest(saved, lambda details: details["files"].update({name: sha256_file(path)}))
    with pytest.raises(StitchError, match="a file that no stitch has"):
        load_stitch(saved)
