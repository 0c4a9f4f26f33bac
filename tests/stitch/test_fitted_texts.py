"""Fitted stitches that read texts: as `test_fitted.py`, with what these have beside."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from migrate.embedders.base import TokenTable
from migrate.errors import ManifestError, StitchError
from migrate.files import sha256_file
from migrate.manifest import MANIFEST_NAME, Manifest, read_manifest
from migrate.stitch.base import Pairing
from migrate.stitch.fitted import WEIGHTS_NAME, FittedStitch, TrueVectors, fit_fallback
from migrate.stitch.kernel_ridge import RidgeText
from migrate.stitch.persistence import load_stitch
from migrate.stitch.registry import new_stitch
from migrate.stitch.select import select_stitch
from migrate.stitch.text_reader import TOKENIZER_FILE, TextReader
from migrate.stitch.view_weights import Weighing
from migrate.vectors import Batch

READERS = ["text", "ridge+text", "kernel+text"]
N, P, Q = 60, 20, 16


@pytest.fixture(scope="module")
def world(make_world):
    return make_world(N)


@pytest.fixture(scope="module")
def reader(world):
    """A reader with word pieces."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(world.texts, trainer)
    vectors = np.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), 8)).astype(np.float32)
    return TextReader.fit(world.texts, TokenTable(tokenizer.to_str(), vectors, 30))


@pytest.fixture(scope="module")
def make_fitted(world, reader):
    def make(spec="ridge+text", with_pieces=True):
        rng = np.random.default_rng(1)
        both = np.hstack([world.wordy, world.hidden])
        x = (both[:, 6:] @ rng.normal(size=(18, P)) + 2).astype(np.float32)
        y = (5 * (both @ rng.normal(size=(24, Q)))).astype(np.float32)
        used = reader if with_pieces else world.reader
        pairs = Pairing(x, y, used.read(world.texts), seed=3)
        selection = select_stitch(pairs, specs=[spec])
        fitted = pairs.fit(selection.stitch)
        sample = TrueVectors([f"dök-{row}" for row in range(N)], y)
        manifest = Manifest(kind="stitch", details={"fingerprint": {"dim": P}})
        return FittedStitch(fitted, 5.0, sample, selection, manifest, {"embedder.json": b"{}"}, used)

    return make


@pytest.fixture(scope="module")
def fitted(make_fitted):
    return make_fitted()


@pytest.fixture(scope="module")
def batch(make_world):
    """Documents of which some are of the sample, and their texts."""
    other = make_world(30, seed=7)
    ids = [f"dök-{row}" if row % 3 == 0 else f"new-{row}" for row in range(30)]
    texts = [*other.texts[:28], "", "something 数据 else"]
    return Batch(ids, np.random.default_rng(2).normal(size=(30, P)).astype(np.float32)), texts


@pytest.fixture
def saved(fitted, tmp_path):
    fitted.save(tmp_path / "stitch")
    return tmp_path / "stitch"


@pytest.mark.slow
@pytest.mark.parametrize("with_pieces", [True, False])
@pytest.mark.parametrize("spec", ["kernel", *READERS])
def test_a_loaded_stitch_translates_to_the_same_bytes(spec, with_pieces, make_fitted, batch, tmp_path):
    fitted, (asked, texts) = make_fitted(spec, with_pieces), batch
    fitted.save(tmp_path / "stitch")
    loaded = load_stitch(tmp_path / "stitch")
    for patch in (True, False):
        expected = fitted.translate(asked, texts, source="s", patch=patch)
        found = loaded.translate(asked, texts, source="s", patch=patch)
        assert found.vectors.tobytes() == expected.vectors.tobytes()
        assert found.confidence.tobytes() == expected.confidence.tobytes()
    assert loaded.stitch.spec == spec
    assert loaded.reads_texts == (spec in READERS)
    assert loaded.selection == fitted.selection
    assert loaded.digest() == fitted.digest()
    assert dict(loaded.state) == {"embedder.json": b"{}"}  # the tokenizer is no state of the target model
    assert (tmp_path / "stitch" / TOKENIZER_FILE).exists() == with_pieces


def test_a_loaded_stitch_that_is_saved_again_is_the_same(saved, tmp_path):
    load_stitch(saved).save(tmp_path / "again")
    for path in saved.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


def test_the_manifest_tells_weights_confidence_and_curve(saved, fitted):
    details = json.loads((saved / MANIFEST_NAME).read_bytes())["details"]
    weighing = fitted.stitch.weighing
    shares = {name for name in details["facts"] if name.startswith("share ")}
    assert set(details["facts"]) - shares == {"lambda", *(f"weight {name}" for name in weighing.weights)}
    assert len(shares) == len(weighing.companions)
    assert details["selection"]["confidence"]["spearman"] == fitted.selection.confidence.spearman
    assert details["selection"]["curve"]["pairs"] == list(fitted.selection.curve.pairs)
    assert details["files"][TOKENIZER_FILE] == sha256_file(saved / TOKENIZER_FILE)


@pytest.mark.parametrize("spec", READERS)
def test_without_texts_nothing_is_translated(spec, make_fitted, batch):
    asked, texts = batch
    fitted = make_fitted(spec)
    for wrong in (None, texts[:-1], []):
        with pytest.raises(StitchError, match="reads texts"):
            fitted.translate(asked, wrong, source="s")
    with pytest.raises(StitchError, match="reads texts"):
        replace(fitted, reader=None).translate(asked, texts, source="s")


def test_texts_matter_to_a_stitch_that_reads_them_and_to_no_other(make_fitted, batch):
    asked, texts = batch
    for spec in ("ridge", "kernel", "text", "ridge+text"):
        fitted = make_fitted(spec)
        one, two = (fitted.translate(asked, some, source="s", patch=False) for some in (texts, texts[::-1]))
        assert np.array_equal(one.vectors, two.vectors) == (spec not in READERS)


def test_confidence_is_one_for_true_vectors_and_a_cosine_for_the_others(fitted, batch):
    asked, texts = batch
    of_sample = np.array([doc_id.startswith("dök") for doc_id in asked.ids])
    patched = fitted.translate(asked, texts, source="s").confidence
    plain = fitted.translate(asked, texts, source="s", patch=False).confidence
    assert (patched[of_sample] == 1).all()
    np.testing.assert_array_equal(patched[~of_sample], plain[~of_sample])
    assert (np.abs(plain) <= 1).all() and plain.dtype == np.float32
    raw = fitted.stitch.predict(asked.vectors, fitted.reader.read(texts))
    np.testing.assert_array_equal(plain, fitted.selection.confidence.of(raw))


def test_a_stitch_of_before_there_was_confidence_knows_none(fitted, batch):
    asked, texts = batch
    old = replace(fitted, selection=replace(fitted.selection, confidence=None))
    found = old.translate(asked, texts, source="s").confidence
    assert np.isnan(found).sum() == 20 and (found[::3] == 1).all()


def test_batches_may_be_cut_anywhere(fitted, batch):
    asked, texts = batch
    whole = fitted.translate(asked, texts, source="s")
    parts = [
        fitted.translate(Batch(asked.ids[a:b], asked.vectors[a:b]), texts[a:b], source="s")
        for a, b in [(0, 7), (7, 8), (8, 30)]
    ]
    np.testing.assert_allclose(np.vstack([part.vectors for part in parts]), whole.vectors, atol=1e-4)
    np.testing.assert_allclose(np.hstack([part.confidence for part in parts]), whole.confidence, atol=1e-4)


def test_a_batch_of_blank_texts_is_translated_by_its_vectors(fitted, batch):
    asked, _ = batch
    found = fitted.translate(asked, [" "] * 30, source="s", patch=False)
    assert np.isfinite(found.vectors).all()
    assert len(np.unique(found.vectors, axis=0)) == 30


def test_the_digest_tells_stitches_apart(fitted, make_fitted, reader):
    other = replace(fitted, reader=replace(reader, topics=reader.topics * 2))
    tokenizer = reader.pieces.tokenizer.replace("##", "@@")
    cut = replace(fitted, reader=replace(reader, pieces=replace(reader.pieces, tokenizer=tokenizer)))
    assert len({one.digest() for one in (fitted, other, cut, make_fitted("text"), make_fitted("kernel+text"))}) == 5


@pytest.fixture(scope="module")
def with_fallback(fitted, world):
    """As it comes out of a fit: beside it a stitch of the vectors alone."""
    x = np.random.default_rng(4).normal(size=(N, P)).astype(np.float32)
    pairs = Pairing(x, fitted.sample.vectors, fitted.reader.read(world.texts), seed=3)
    selection = select_stitch(pairs, specs=["ridge", "ridge+text"])
    return replace(fitted, fallback=fit_fallback(pairs, selection))


def edit(folder, change):
    """Change the weights, and the hash in the manifest, so that only the content can be wrong."""
    tensors = load_file(folder / WEIGHTS_NAME)
    change(tensors)
    save_file(tensors, folder / WEIGHTS_NAME)
    rehash(folder, WEIGHTS_NAME)


def rehash(folder, name):
    path = folder / MANIFEST_NAME
    facts = json.loads(path.read_bytes())
    del facts["manifest_sha256"], facts["details"]["arrays"]  # as an older one has none
    facts["details"]["files"][name] = sha256_file(folder / name)
    path.write_text(json.dumps(facts))


@pytest.mark.parametrize("prefix", ["stitch.vector/", "reader.", "fallback."])
def test_a_view_that_was_removed_with_its_hashes_is_missed(prefix, with_fallback, tmp_path):
    with_fallback.save(tmp_path / "stitch")
    tensors = load_file(tmp_path / "stitch" / WEIGHTS_NAME)
    left = {name: array for name, array in tensors.items() if not name.startswith(prefix)}
    assert len(left) < len(tensors)
    save_file(left, tmp_path / "stitch" / WEIGHTS_NAME)
    manifest = read_manifest(tmp_path / "stitch", "stitch")
    files = {**manifest.details["files"], WEIGHTS_NAME: sha256_file(tmp_path / "stitch" / WEIGHTS_NAME)}
    replace(manifest, details={**manifest.details, "files": files}).write(tmp_path / "stitch")
    with pytest.raises(StitchError, match=f"the array '{prefix}.*, which the manifest names, is missing"):
        load_stitch(tmp_path / "stitch")


def drop(*names):
    return lambda tensors: [tensors.pop(name) for name in names]


def put(name, change):
    return lambda tensors: tensors.update({name: np.ascontiguousarray(change(tensors[name]))})


def drop_reader(tensors):
    for name in [name for name in tensors if name.startswith("reader.")]:
        tensors.pop(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        drop("stitch.alpha"),
        drop("stitch.dim"),
        drop("stitch.vector/linear/scale"),
        drop("stitch.vector/linear/rows"),
        drop("reader.ngram_idf"),
        drop("stitch.tokens/linear/rows"),
        *(drop(f"stitch.pieces/linear/{part}") for part in ("indices", "data", "starts", "width")),
        drop("reader.pieces.kept"),
        drop("reader.pieces.limit"),
        drop_reader,
        put("stitch.alpha", lambda found: found[:, :-1]),
        put("stitch.alpha", lambda found: found[:-1]),
        put("stitch.alpha", lambda found: found * np.nan),
        put("stitch.alpha", lambda found: found[:0]),
        put("stitch.offset", lambda found: found[:-1]),
        put("stitch.mean", lambda found: found[:-1]),
        put("stitch.dim", lambda found: found + 1),
        put("stitch.dim", lambda found: found[:0]),
        put("stitch.dim", lambda found: found * -1),
        put("stitch.vector/linear/rows", lambda found: found[:, :-1]),
        put("stitch.vector/linear/rows", lambda found: found[:-1]),
        put("stitch.vector/linear/rows", lambda found: found[:, 0]),
        put("stitch.vector/linear/rows", lambda found: found[..., None]),
        put("stitch.vector/linear/scale", lambda found: found[:0]),
        put("stitch.vector/linear/scale", lambda found: found * np.inf),
        put("reader.topics", lambda found: found[:-1]),
        put("reader.topics", lambda found: found * np.nan),
        put("reader.ngram_idf", lambda found: found[:100]),
        put("reader.ngram_idf", lambda found: found * np.inf),
        put("reader.term_idf", lambda found: found[:-1]),
        put("reader.pieces.vectors", lambda found: found[:, :-1]),
        put("reader.pieces.vectors", lambda found: found[:-1]),
        put("reader.pieces.kept", lambda found: found[:-1]),
        put("reader.pieces.limit", lambda found: found[:0]),
        drop("fallback.offset"),
        put("fallback.offset", lambda found: found * np.nan),
        put("fallback.offset", lambda found: found[:-1]),
        put("fallback.matrix", lambda found: found[:, :-1]),
        put("fallback.matrix", lambda found: found[:-1]),
    ],
)
def test_wrong_content_is_found_even_with_the_right_hash(change, with_fallback, world, tmp_path):
    folder, fitted = tmp_path / "stitch", with_fallback
    weights = dict.fromkeys(("vector", "ngrams", "pieces", "tokens", "topics"), 1.0)
    x, y = np.random.default_rng(0).normal(size=(2, N, Q)).astype(np.float32)
    every = RidgeText(Weighing(weights, 0.1, 0.0)).fit(np.resize(x, (N, P)), y, fitted.reader.read(world.texts))
    replace(fitted, stitch=every).save(folder)
    edit(folder, change)
    with pytest.raises(StitchError, match="again") as caught:
        load_stitch(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_loaded_fallback_translates_without_texts_to_the_same_bytes(with_fallback, batch, tmp_path):
    with_fallback.save(tmp_path / "stitch")
    loaded, (asked, _) = load_stitch(tmp_path / "stitch"), batch
    expected = with_fallback.without_texts().translate(asked, source="s")
    found = loaded.without_texts().translate(asked, source="s")
    assert found.vectors.tobytes() == expected.vectors.tobytes()
    assert found.confidence.tobytes() == expected.confidence.tobytes()
    assert loaded.fallback.selection == with_fallback.fallback.selection
    assert loaded.fallback_use() == with_fallback.fallback_use()
    loaded.save(tmp_path / "again")
    for path in (tmp_path / "stitch").iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


def test_the_fallback_has_a_digest_of_its_own_and_changes_none(with_fallback, fitted):
    assert with_fallback.digest() == fitted.digest() != with_fallback.without_texts().digest()


def test_a_stitch_of_vectors_is_what_it_is_without_texts(make_fitted):
    ridge = make_fitted("ridge")
    assert ridge.without_texts() is ridge and ridge.fallback_use() is None


def test_a_stitch_from_before_there_were_fallbacks_loads_and_has_none(saved):
    loaded = load_stitch(saved)
    assert loaded.fallback is None and loaded.fallback_use() is None
    with pytest.raises(StitchError, match=r"^my store: the ridge\+text stitch reads texts.*fit it again"):
        loaded.without_texts(source="my store")


@pytest.mark.parametrize("facts", [5, {}, {"chosen": "text", "candidates": []}, {"chosen": "none", "candidates": []}])
def test_a_fallback_that_is_none_is_found(facts, with_fallback, tmp_path):
    with_fallback.save(tmp_path / "stitch")
    path = tmp_path / "stitch" / MANIFEST_NAME
    known = json.loads(path.read_bytes())
    del known["manifest_sha256"]
    known["details"]["fallback"] = facts
    path.write_text(json.dumps(known))
    with pytest.raises((StitchError, ManifestError), match="again"):
        load_stitch(tmp_path / "stitch")


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff\xfe", b"null", b'{"version": "1.0"}'])
def test_a_tokenizer_that_is_none_is_found(content, known, saved):
    (saved / TOKENIZER_FILE).unlink() if content is None else (saved / TOKENIZER_FILE).write_bytes(content)
    if known and content is not None:
        rehash(saved, TOKENIZER_FILE)
    with pytest.raises(StitchError, match=r"fit .*again") as caught:
        load_stitch(saved)
    assert str(saved) in str(caught.value) and "\n" not in str(caught.value)


FIT_IN_A_FRESH_PROCESS = """
import sys
from pathlib import Path
import numpy as np
from migrate.manifest import Manifest
from migrate.stitch.kernel_ridge import RidgeText
from migrate.stitch.fitted import FittedStitch, TrueVectors
from migrate.stitch.base import Pairing
from migrate.stitch.select import select_stitch
from migrate.stitch.text_reader import TextReader

rng = np.random.default_rng(0)
texts = [" ".join(f"word{number}" for number in row) for row in rng.integers(40, size=(50, 9))]
x = rng.normal(size=(50, 20)).astype(np.float32)
y = (x @ rng.normal(size=(20, 10)) + rng.normal(size=(50, 10))).astype(np.float32)
reader = TextReader.fit(texts)
pairs = Pairing(x, y, reader.read(texts))
sample = TrueVectors([str(row) for row in range(50)], y)
for spec in ("procrustes", "ols", "ridge", "lowrank", "ridge+text", "kernel+text"):
    chosen = select_stitch(pairs, specs=[spec])
    fitted = FittedStitch(pairs.fit(chosen.stitch), 1.0, sample, chosen, Manifest(kind="stitch"), {}, reader)
    fitted.save(Path(sys.argv[1]) / spec)
    print(fitted.digest(), chosen.candidates[0].scores, chosen.confidence, chosen.curve)
"""


@pytest.mark.slow
def test_a_fresh_process_gives_the_same_weights_and_scores(tmp_path):
    told = []
    for name in ("one", "two"):
        command = [sys.executable, "-c", FIT_IN_A_FRESH_PROCESS, str(tmp_path / name)]
        told.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert told[0] == told[1] != ""
    for spec in ("procrustes", "ols", "ridge", "lowrank", "ridge+text", "kernel+text"):
        one, two = ((tmp_path / name / spec / WEIGHTS_NAME).read_bytes() for name in ("one", "two"))
        assert one == two


def test_an_unknown_view_is_no_part_of_a_stitch(fitted, batch):
    asked, _ = batch
    with pytest.raises(StitchError, match="reads texts"):
        new_stitch("ridge+text").restore(fitted.stitch.arrays()).predict(asked.vectors)
