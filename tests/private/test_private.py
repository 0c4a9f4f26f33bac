"""Translation under encryption: right, blind on the side of the stitch, and refusing what does not belong together."""

import json
import shutil
import stat
import sys
from dataclasses import replace

import numpy as np
import pytest
from stores_tools import make_store

from migrate.cli.main import run
from migrate.errors import InputError
from migrate.files import sha256_file
from migrate.lab.private import ckks
from migrate.lab.private.ckks import EncryptedMap, Holder, Scheme
from migrate.lab.private.exchange import decrypt_store, encrypt_store, make_keyring, translate_ciphertext
from migrate.manifest import Manifest, ModelIdentity, read_manifest
from migrate.selection import Pairs
from migrate.steps.fit.job import fit_pairs
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.vectors import Document

pytestmark = pytest.mark.slow

pytest.importorskip("tenseal")

COUNT, DIM, TARGET_DIM = 70, 150, 40


def fitted_on(store, new, kind="ridge"):
    batch = read_all(store.scan())
    manifest = Manifest("stitch", details={"fingerprint": store.snapshot().fingerprint})
    return fit_pairs(Pairs(tuple(batch.ids), batch.vectors, new), [kind], manifest=manifest, state={}, seed=0)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A store of 70 documents, one more group than one; stitches of it; all that the steps write."""
    folder, rng = tmp_path_factory.mktemp("private"), np.random.default_rng(0)
    old = rng.normal(size=(COUNT, DIM)).astype(np.float32)
    old /= np.linalg.norm(old, axis=1, keepdims=True)
    new = (old @ rng.normal(size=(DIM, TARGET_DIM)) + 0.3).astype(np.float32)
    ids = [f"secret-id-{row}" for row in range(COUNT)]
    store = make_store(folder / "store", [Document(doc_id, f"confidential text of {doc_id}") for doc_id in ids], old)
    fitted_on(store, new, "kernel").save(folder / "kernel")
    ridge = fitted_on(store, new)
    ridge.save(folder / "ridge")
    make_keyring(folder / "keys")
    make_keyring(folder / "other-keys")
    encrypt_store(store, folder / "keys", folder / "sent")
    translate_ciphertext(folder / "sent", ridge, folder / "answer")
    decrypt_store(folder / "answer", store, folder / "keys", folder / "new")
    return folder


@pytest.fixture
def place(world, tmp_path, monkeypatch):
    """A copy to spoil."""
    shutil.copytree(world, tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    return tmp_path / "w"


def translated_in_the_clear(folder):
    from safetensors.numpy import load_file

    weights = load_file(folder / "ridge" / "weights.safetensors")
    old = read_all(open_store(folder / "store").scan()).vectors.astype(np.float64)
    rows = old @ weights["stitch.matrix"].astype(np.float64) + weights["stitch.offset"]
    norm = json.loads((folder / "ridge" / "lead-migrate.json").read_text())["details"]["norm"]
    return norm * rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_what_is_decrypted_is_the_translation_in_the_clear(world):
    expected = translated_in_the_clear(world)
    batch = read_all(open_store(world / "new").scan())
    assert batch.vectors.shape == (COUNT, TARGET_DIM)
    np.testing.assert_allclose(batch.vectors, expected, atol=1e-6 * np.linalg.norm(expected[0]))
    queries = np.random.default_rng(1).normal(size=(50, TARGET_DIM))
    ranked = [np.argsort(-queries @ rows.T, axis=1)[:, :10] for rows in (expected, batch.vectors)]
    assert np.array_equal(*ranked)


def test_the_new_store_is_like_the_old_one(world):
    old, new = open_store(world / "store"), open_store(world / "new")
    new.companions.verify()
    assert new.info.manifest.store.made_by == "private decrypt"
    kinds = [(info.kind, info.index_type, info.metric) for info in (old.info, new.info)]
    assert kinds[0] == kinds[1]
    assert list(new.documents()) == list(old.documents())


def mapped(keys, folder, matrix, offset, rows):
    """Vectors after a map under encryption, and the strips in which the map was applied."""
    scheme = Scheme()
    holder = Holder(scheme, keys / ckks.SECRET_NAME)
    sent, back = (
        [folder / f"{name}{block}" for block in range(ckks.blocks_of(dim))]
        for name, dim in zip("xy", matrix.shape, strict=True)
    )
    holder.encrypt(rows.astype(np.float32), sent)
    product = EncryptedMap(scheme, matrix, offset, keys / ckks.TURNS_NAME)
    for blocks in product.strips:
        list(product.apply(blocks, [(sent, back[blocks.start : blocks.stop])]))
    return holder.decrypt(back, len(rows), matrix.shape[1]), product.strips


@pytest.mark.parametrize(("p", "q", "strips"), [(3, 5, 1), (260, 128, 1), (129, 1, 1), (150, 300, 3)])
def test_any_dimensions_may_meet_in_any_number_of_strips(p, q, strips, world, tmp_path, monkeypatch):
    if strips > 1:
        monkeypatch.setattr(ckks, "_STRIP_BYTES", 1)
    rng = np.random.default_rng(p)
    matrix, offset, rows = rng.normal(size=(p, q)) / np.sqrt(p), rng.normal(size=q), rng.normal(size=(64, p))
    found, done = mapped(world / "keys", tmp_path, matrix, offset, rows)
    np.testing.assert_allclose(found, rows.astype(np.float32).astype(np.float64) @ matrix + offset, rtol=0, atol=1e-6)
    assert done == [range(number, number + 1) for number in range(3)] if strips > 1 else len(done) == 1


def test_no_secret_key_no_id_and_no_text_goes_out(world):
    scheme = Scheme()
    secret = world / "keys" / ckks.SECRET_NAME
    assert scheme.read("SecretKey", secret) is not None  # so that it would be recognised
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    payload = secret.read_bytes()
    sent = [path for folder in ("sent", "answer") for path in (world / folder).iterdir()]
    assert {path.suffix for path in sent} == {".seal", ".json", ".key"}
    assert [path.name for path in sent if path.suffix == ".key"] == [ckks.TURNS_NAME]
    for path in sent:
        held = path.read_bytes()
        assert b"secret" not in held and b"confidential" not in held
        assert not any(payload[start : start + 64] in held for start in range(64, len(payload) - 64, 4096))
        with pytest.raises(InputError):
            scheme.read("SecretKey", path)


def test_the_side_of_the_stitch_cannot_read_what_it_gets(world):
    """The same vectors, encrypted twice, have nothing in common; and another key does not open them."""
    encrypt_store(open_store(world / "store"), world / "keys", world / "again")
    first, second = ((world / name / "0000000-000.seal").read_bytes() for name in ("sent", "again"))
    assert first[200:] != second[200:]
    other = Holder(Scheme(), world / "other-keys" / ckks.SECRET_NAME)
    with pytest.raises(InputError, match="was made with other keys"):
        other.decrypt([world / "answer" / "0000000-000.seal"], 64, TARGET_DIM)


def test_one_query_more_than_there_are_dimensions_recovers_the_stitch(world, tmp_path):
    """As the page says: encryption hides the weights from reading, not from who asks enough."""
    rng = np.random.default_rng(8)
    matrix, offset = rng.normal(size=(12, 5)), rng.normal(size=5)
    answers, _ = mapped(world / "keys", tmp_path, matrix, offset, np.vstack([np.zeros(12), np.eye(12)]))
    np.testing.assert_allclose(answers[0], offset, atol=1e-5)
    np.testing.assert_allclose(answers[1:] - answers[0], matrix, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["translate", "sent", "kernel"], 4, "not affine"),
        (["translate", "answer", "ridge"], 4, "translated already"),
        (["translate", "keys", "ridge"], 4, "this is a keyring, not a ciphertext"),
        (["translate", "sent", "sent"], 4, "not a stitch"),
        (["translate", "missing", "ridge"], 4, "no ciphertext here"),
        (["decrypt", "answer", "store", "--keys", "other-keys"], 4, "another keyring"),
        (["decrypt", "sent", "store", "--keys", "keys"], 4, "not translated yet"),
        (["decrypt", "answer", "new", "--keys", "keys"], 4, "the store that was encrypted"),
        (["decrypt", "answer", "store", "--keys", "ridge"], 4, "not a keyring"),
        (["encrypt", "store", "--keys", "sent"], 4, "not a keyring"),
        (["encrypt", "store"], 2, "--keys"),
        (["keygen", "--force", "-o", "."], 2, ""),
    ],
)
def test_what_does_not_belong_together_is_refused_in_one_line(arguments, code, words, place, capsys):
    before = sorted(place.iterdir())
    assert run(["private", *arguments, *([] if "-o" in arguments else ["-o", "out"])]) == code
    told = capsys.readouterr().err
    assert words in told and told.count("\n") == 1
    assert sorted(place.iterdir()) == before


TRANSLATE, DECRYPT = ["translate", "sent", "ridge"], ["decrypt", "answer", "store", "--keys", "keys"]


def run_on_spoilt(step, name, place, capsys):
    assert run(["private", *step, "-o", "out"]) == 4
    told = capsys.readouterr().err
    assert name in told and told.count("\n") == 1
    assert not (place / "out").exists()
    return told


@pytest.mark.parametrize("known", [True, False], ids=["as in the manifest", "by SEAL itself"])
@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("sent/0000001-001.seal", TRANSLATE),
        ("sent/turns.key", TRANSLATE),
        ("answer/0000000-000.seal", DECRYPT),
        ("keys/secret.key", ["encrypt", "store", "--keys", "keys"]),
    ],
)
def test_a_file_that_was_cut_is_named(name, step, known, place, capsys):
    path = place / name
    path.write_bytes(path.read_bytes()[:-9])
    if not known:
        manifest = read_manifest(path.parent, "keyring" if path.parent.name == "keys" else "ciphertext")
        files = {**manifest.details["files"], path.name: sha256_file(path)}
        replace(manifest, details={**manifest.details, "files": files}).write(path.parent)
    assert "copy" in run_on_spoilt(step, path.name, place, capsys)


def test_a_missing_file_is_named(place, capsys):
    (place / "sent" / "0000001-000.seal").unlink()
    run_on_spoilt(TRANSLATE, "0000001-000.seal", place, capsys)


def test_a_stitch_may_be_at_a_url(place, world):
    load_stitch("ridge").save(f"memory://{place.name}/ridge")
    assert run(["private", "translate", "sent", f"memory://{place.name}/ridge", "-o", "out"]) == 0
    made, expected = (sorted(path.name for path in folder.iterdir()) for folder in (place / "out", world / "answer"))
    assert made == expected


def test_a_stitch_of_another_model_is_refused(place):
    fitted = load_stitch(place / "ridge")
    source, other = (ModelIdentity(f"openai:{name}", DIM, True) for name in ("one", "other"))
    replace(read_manifest(place / "sent", "ciphertext"), model=other).write(place / "sent")
    named = replace(fitted, manifest=replace(fitted.manifest, source_model=source))
    with pytest.raises(InputError, match=r"openai:one, .* of openai:other"):
        translate_ciphertext(place / "sent", named, place / "out")


def test_a_stitch_that_reads_texts_is_refused(place, source_folder, capsys):
    fit = ["fit", str(source_folder), "--target", "tfidf:16", "--kind", "ridge+text", "-q", "-o", "reads"]
    assert run(fit) == 0
    assert run(["private", "encrypt", str(source_folder), "--keys", "keys", "-o", "e", "-q"]) == 0
    capsys.readouterr()
    assert run(["private", "translate", "e", "reads", "-o", "out"]) == 4
    assert "reads texts" in capsys.readouterr().err


def test_without_tenseal_the_extra_is_named(place, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tenseal.sealapi", None)
    assert run(["private", "keygen", "-o", "out"]) == 2
    assert "lead-migrate[private]" in capsys.readouterr().err


def test_vectors_of_a_narrow_cone_are_put_on_the_sphere_as_a_translation_puts_them(world, tmp_path):
    rng = np.random.default_rng(5)
    store = open_store(world / "store")
    batch = read_all(store.scan())
    narrow = 3 + batch.vectors @ rng.normal(size=(DIM, TARGET_DIM))
    fitted = fitted_on(store, (narrow / np.linalg.norm(narrow, axis=1, keepdims=True)).astype(np.float32))
    assert fitted.sample.sphere.radius is not None
    translate_ciphertext(world / "sent", fitted, tmp_path / "answer")
    decrypt_store(tmp_path / "answer", store, world / "keys", tmp_path / "new")
    expected = fitted.translate(batch, source="here", patch=False).vectors
    np.testing.assert_allclose(read_all(open_store(tmp_path / "new").scan()).vectors, expected, atol=2e-6)
