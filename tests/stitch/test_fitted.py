"""Fitted stitches: what they translate, and how they are saved and read again."""

import functools
import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from migrate.digests import hash_file
from migrate.embedders.abilities import TokenTable
from migrate.errors import ManifestError, StitchError, UsageError, VectorError
from migrate.files import sha256_file
from migrate.manifest import MANIFEST_NAME, Manifest, ModelIdentity, read_manifest
from migrate.stitch.base import Pairing
from migrate.stitch.fitted import (
    SAMPLE_NAME,
    WEIGHTS_NAME,
    Fallback,
    FittedStitch,
    TrueVectors,
    fit_fallback,
    fit_norm,
)
from migrate.stitch.kernel_ridge import RidgeText
from migrate.stitch.linear import Identity, MeanVector
from migrate.stitch.persistence import load_stitch
from migrate.stitch.scores import HeldOutScores
from migrate.stitch.select import ScoredStitch, Selection, select_stitch, tune
from migrate.stitch.text_reader import TOKENIZER_FILE, TextReader, WordCutter
from migrate.stitch.view_weights import Weighing
from migrate.vectors import Batch

N, P, Q = 60, 16, 16
IDS = [f"dök-{row}" for row in range(N)]
READERS = ["text", "ridge+text"]
STATE = {"embedder.json": b'{"a": 1}', "embedder.bin": bytes(range(9))}


@pytest.fixture(scope="module")
def world(make_world):
    return make_world(N)


@pytest.fixture(scope="module")
def vectors(world):
    rng = np.random.default_rng(1)
    both = np.hstack([world.wordy, world.hidden])
    x = both[:, 6:] @ rng.normal(size=(18, P)) + 2
    return x.astype(np.float32), (5 * (both @ rng.normal(size=(24, Q)))).astype(np.float32)


@pytest.fixture(scope="module")
def readers(world):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(world.texts, trainer)
    table = np.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), 8)).astype(np.float32)
    pieces = TextReader.fit(world.texts, TokenTable(tokenizer.to_str(), table, 30))
    return {"pieces": pieces, "words": world.reader, "nothing": None}


@pytest.fixture(scope="module")
def make_fitted(world, vectors, readers):
    """Make a fitted stitch in which nothing has the value it has by default."""

    @functools.cache
    def make(spec="ridge+text", reads="pieces"):
        (x, y), reader = vectors, readers[reads]
        pairs = Pairing(x, y, reader and reader.read(world.texts), seed=3)
        selection = select_stitch(pairs, specs=[spec])
        manifest = Manifest(
            kind="stitch",
            model=ModelIdentity("tfidf:8", Q, False, "d: ", "q: ", "r1"),
            source_model=ModelIdentity("old", P, True),
            seed=3,
            inputs={"a": "b"},
            counts={"pairs": N},
            details={"fingerprint": {"dim": P}},
        )
        sample = TrueVectors(IDS, y)
        return FittedStitch(pairs.fit(selection.stitch), fit_norm(y), sample, selection, manifest, STATE, reader)

    return make


@pytest.fixture(scope="module")
def ridge(make_fitted):
    return make_fitted("ridge", "nothing")


@pytest.fixture(scope="module")
def fitted(make_fitted, world, vectors, readers, ridge):
    """A stitch with every part there is: all views, word pieces, and a fallback of vectors alone."""
    weights = dict.fromkeys(("vector", "ngrams", "pieces", "tokens", "topics"), 1.0)
    stitch = RidgeText(Weighing(weights, 0.1, 0.0)).fit(*vectors, readers["pieces"].read(world.texts))
    return replace(make_fitted(), stitch=stitch, fallback=Fallback(ridge.stitch, ridge.selection))


@pytest.fixture(scope="module")
def batch(make_world):
    """Documents of which some are of the sample, in another order, and their texts."""
    rng, other = np.random.default_rng(2), make_world(30, seed=7)
    ids = [f"dök-{row}" if row % 3 == 0 else f"new-{row}" for row in rng.permutation(30)]
    texts = [*other.texts[:28], "", "something 数据 else"]
    return Batch(ids, rng.normal(size=(30, P)).astype(np.float32)), texts


def of_sample(batch):
    return np.array([doc_id.startswith("dök") for doc_id in batch.ids])


@pytest.fixture
def saved(fitted, tmp_path):
    fitted.save(tmp_path / "stitch")
    return tmp_path / "stitch"


def edit_manifest(folder, change):
    """Change the details, and take the manifest's own hash and its arrays away, as an older one has none."""
    path = folder / MANIFEST_NAME
    facts = json.loads(path.read_bytes())
    facts.pop("manifest_sha256", None)
    facts["details"].pop("arrays", None)
    change(facts["details"])
    path.write_text(json.dumps(facts))


def trust(folder, name):
    """Put the hash of a file into the manifest, so that only its content can be wrong."""
    edit_manifest(folder, lambda details: details["files"].update({name: sha256_file(folder / name)}))


def drop_arrays(folder, prefix):
    tensors = load_file(folder / WEIGHTS_NAME)
    left = {name: array for name, array in tensors.items() if not name.startswith(prefix)}
    assert len(left) < len(tensors)
    save_file(left, folder / WEIGHTS_NAME)


def folder_bytes(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_refused(folder, match):
    with pytest.raises(StitchError, match=match) as caught:
        load_stitch(folder)
    assert str(folder) in str(caught.value) and "\n" not in str(caught.value)


def test_a_stitch_of_a_removed_kind_is_refused_with_the_commit_that_reads_it(saved):
    edit_manifest(saved, lambda details: details.update(stitch="prefix+text"))
    assert_refused(saved, "the stitch 'prefix\\+text' was removed; the commit 0a3df1b0 .* reads it; fit it again")


@pytest.mark.parametrize(
    ("spec", "reads"),
    [
        ("procrustes", "nothing"),
        ("ridge+near", "pieces"),
        *((spec, "words") for spec in READERS),
        ("ridge+text", "pieces"),
    ],
)
def test_a_loaded_stitch_translates_to_the_same_bytes(spec, reads, make_fitted, batch, tmp_path):
    fitted, (asked, texts) = make_fitted(spec, reads), batch
    before = asked.vectors.copy(), fitted.sample.vectors.copy()
    fitted.save(tmp_path / "stitch")
    loaded = load_stitch(tmp_path / "stitch")
    for patch in (True, False):
        expected = fitted.translate(asked, texts, source="s", patch=patch)
        found = loaded.translate(asked, texts, source="s", patch=patch)
        assert found.vectors.tobytes() == expected.vectors.tobytes()
        assert found.confidence.tobytes() == expected.confidence.tobytes()
        assert list(found.ids) == list(asked.ids)
    np.testing.assert_array_equal(asked.vectors, before[0])
    np.testing.assert_array_equal(fitted.sample.vectors, before[1])
    assert (loaded.stitch.spec, loaded.reads_texts) == (spec, spec in READERS)
    assert loaded.selection == fitted.selection
    assert loaded.digest() == fitted.digest()
    assert (loaded.norm, loaded.dim) == (fitted.norm, Q)
    assert dict(loaded.state) == STATE  # the tokenizer is no state of the target model
    assert list(loaded.sample.ids) == IDS
    assert np.array_equal(loaded.sample.vectors, fitted.sample.vectors)
    assert (tmp_path / "stitch" / TOKENIZER_FILE).exists() == (reads == "pieces")
    for name in ("model", "source_model", "seed", "inputs", "counts", "created"):
        assert getattr(loaded.manifest, name) == getattr(fitted.manifest, name)
    assert loaded.manifest.details["fingerprint"] == {"dim": P}


def test_a_loaded_stitch_has_the_same_fallback_and_is_saved_again_as_it_was(saved, fitted, batch, tmp_path):
    loaded, (asked, _) = load_stitch(saved), batch
    expected = fitted.without_texts().translate(asked, source="s")
    found = loaded.without_texts().translate(asked, source="s")
    assert found.vectors.tobytes() == expected.vectors.tobytes()
    assert found.confidence.tobytes() == expected.confidence.tobytes()
    assert loaded.fallback.selection == fitted.fallback.selection
    assert loaded.fallback_use() == fitted.fallback_use()
    loaded.save(tmp_path / "again")
    assert folder_bytes(tmp_path / "again") == folder_bytes(saved)


def test_the_manifest_tells_weights_confidence_curve_and_files(make_fitted, tmp_path):
    fitted = make_fitted()
    fitted.save(tmp_path / "stitch")
    details = json.loads((tmp_path / "stitch" / MANIFEST_NAME).read_bytes())["details"]
    weighing = fitted.stitch.weighing
    shares = {name for name in details["facts"] if name.startswith("share ")}
    assert set(details["facts"]) - shares == {"lambda", *(f"weight {name}" for name in weighing.weights)}
    assert details["facts"]["lambda"] == weighing.penalty
    assert len(shares) == len(weighing.companions)
    assert details["stitch"] == details["selection"]["chosen"] == "ridge+text"
    assert details["selection"]["confidence"]["spearman"] == fitted.selection.confidence.spearman
    assert details["selection"]["curve"]["pairs"] == list(fitted.selection.curve.pairs)
    names = (WEIGHTS_NAME, SAMPLE_NAME, TOKENIZER_FILE, *STATE)
    assert details["files"] == {name: hash_file(tmp_path / "stitch" / name) for name in names}


FIT_IN_A_FRESH_PROCESS = """
import sys
from pathlib import Path
import numpy as np
from migrate.manifest import Manifest
from migrate.stitch.fitted import FittedStitch, TrueVectors
from migrate.stitch.base import Pairing
from migrate.stitch.select import select_stitch
from migrate.stitch.text_reader import TextReader

rng = np.random.default_rng(0)
texts = [" ".join(f"word{number}" for number in row) for row in rng.integers(40, size=(50, 9))]
x = rng.normal(size=(50, 10)).astype(np.float32)
y = (x @ rng.normal(size=(10, 10)) + rng.normal(size=(50, 10))).astype(np.float32)
reader = TextReader.fit(texts)
pairs = Pairing(x, y, reader.read(texts))
sample = TrueVectors([str(row) for row in range(50)], y)
for spec in sys.argv[2:]:
    chosen = select_stitch(pairs, specs=[spec])
    fitted = FittedStitch(pairs.fit(chosen.stitch), 1.0, sample, chosen, Manifest(kind="stitch"), {}, reader)
    fitted.save(Path(sys.argv[1]) / spec)
    print(fitted.digest(), chosen.candidates[0].scores, chosen.confidence, chosen.curve)
"""


@pytest.mark.slow
def test_a_fresh_process_gives_the_same_scores_and_folder_however_long_it_took(tmp_path):
    specs = ["procrustes", "ridge", "ridge+text"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1000000000"}
    told = []
    for name in ("one", "two"):
        command = [sys.executable, "-c", FIT_IN_A_FRESH_PROCESS, str(tmp_path / name), *specs]
        told.append(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)
    assert told[0] == told[1] != ""
    for spec in specs:
        assert folder_bytes(tmp_path / "one" / spec) == folder_bytes(tmp_path / "two" / spec)


def test_a_unit_target_gives_unit_vectors_and_the_direction_is_kept(ridge, batch, vectors):
    y = vectors[1] / np.linalg.norm(vectors[1], axis=1, keepdims=True)
    y[0] *= 1 + 5e-4  # within what counts as unit length
    assert fit_norm(y) == 1.0
    for stitch in (ridge.stitch, Identity()):
        found = replace(ridge, stitch=stitch, norm=fit_norm(y)).translate(batch[0], source="s", patch=False).vectors
        raw = stitch.transform(batch[0].vectors)
        np.testing.assert_allclose(found, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=1e-6)


def test_documents_of_the_sample_get_their_true_vectors_by_id(ridge, batch):
    asked, _ = batch
    patched = ridge.translate(asked, source="s").vectors
    plain = ridge.translate(asked, source="s", patch=False).vectors
    assert 5 < sum(of_sample(asked)) < len(asked)
    for row, doc_id in enumerate(asked.ids):
        if of_sample(asked)[row]:
            assert np.array_equal(patched[row], ridge.sample.vectors[IDS.index(doc_id)])
            assert not np.array_equal(patched[row], plain[row])
        else:
            assert np.array_equal(patched[row], plain[row])


def test_copies_of_the_sample_get_its_true_vectors_also_when_loaded(ridge, tmp_path):
    twins = replace(ridge, sample=TrueVectors(IDS, ridge.sample.vectors, {"twin-a": 5, "twin-b": 5}))
    twins.save(tmp_path / "twins")
    asked = Batch(["twin-b", "other", "twin-a", "dök-5", "dök-5"], np.ones((5, P), np.float32))
    out = load_stitch(tmp_path / "twins").translate(asked, source="s").vectors
    for row in (0, 2, 3, 4):
        assert np.array_equal(out[row], ridge.sample.vectors[5])
    assert not np.array_equal(out[1], ridge.sample.vectors[5])
    assert load_stitch(tmp_path / "twins").digest() == twins.digest() != ridge.digest()


@pytest.mark.parametrize("value", [0, np.nan, np.inf])
def test_a_bad_vector_going_in_or_coming_out_is_named(value, ridge, batch):
    x, y = np.ones((2, P), np.float32), np.zeros((2, Q), np.float32)
    fitted, asked = replace(ridge, stitch=MeanVector().fit(x, y)), Batch(batch[0].ids, batch[0].vectors.copy())
    with pytest.raises(VectorError, match=r"^my store after the mean stitch: zero vector"):
        fitted.translate(asked, source="my store")
    asked.vectors[4] = value
    with pytest.raises(VectorError, match=f"^my store: .*{asked.ids[4]!r}"):
        fitted.translate(asked, source="my store")


@pytest.mark.parametrize("spec", READERS)
def test_without_texts_nothing_is_translated(spec, make_fitted, batch):
    asked, texts = batch
    fitted = make_fitted(spec)
    for wrong in (None, texts[:-1], []):
        with pytest.raises(StitchError, match="reads texts"):
            fitted.translate(asked, wrong, source="s")
    with pytest.raises(StitchError, match="reads texts"):
        replace(fitted, reader=None).translate(asked, texts, source="s")


def test_confidence_is_one_for_true_vectors_and_a_cosine_for_the_others(fitted, batch):
    asked, texts = batch
    patched = fitted.translate(asked, texts, source="s").confidence
    plain = fitted.translate(asked, texts, source="s", patch=False).confidence
    assert (patched[of_sample(asked)] == 1).all()
    np.testing.assert_array_equal(patched[~of_sample(asked)], plain[~of_sample(asked)])
    assert (np.abs(plain) <= 1).all() and plain.dtype == np.float32
    raw = fitted.stitch.predict(asked.vectors, fitted.reader.read(texts))
    np.testing.assert_array_equal(plain, fitted.selection.confidence.of(raw))
    old = replace(fitted, selection=replace(fitted.selection, confidence=None))  # from before there was confidence
    found = old.translate(asked, texts, source="s").confidence
    assert np.array_equal(np.isnan(found), ~of_sample(asked)) and (found[of_sample(asked)] == 1).all()


def test_batches_may_be_cut_anywhere(fitted, batch):
    asked, texts = batch
    whole = fitted.translate(asked, texts, source="s")
    parts = [
        fitted.translate(Batch(asked.ids[a:b], asked.vectors[a:b]), texts[a:b], source="s")
        for a, b in [(0, 7), (7, 8), (8, 30)]
    ]
    np.testing.assert_allclose(np.vstack([part.vectors for part in parts]), whole.vectors, atol=1e-4)
    np.testing.assert_allclose(np.hstack([part.confidence for part in parts]), whole.confidence, atol=1e-4)


def test_the_digest_tells_stitches_apart_but_not_their_fallbacks(fitted, make_fitted, ridge):
    reader = fitted.reader
    topics = replace(fitted, reader=replace(reader, topics=reader.topics * 2))
    cutter = WordCutter.of(reader.pieces.cutter.content.replace("##", "@@"))
    cut = replace(fitted, reader=replace(reader, pieces=replace(reader.pieces, cutter=cutter)))
    others = (topics, cut, make_fitted("text"), make_fitted("ridge+near"), fitted.without_texts())
    assert len({one.digest() for one in (fitted, *others)}) == 6
    assert fitted.digest() == replace(fitted, fallback=None).digest()
    assert ridge.without_texts() is ridge and ridge.fallback_use() is None


def judged_row(stitch, overlap, is_control=False):
    return ScoredStitch(stitch, HeldOutScores(0, 1, 0, overlap), is_control=is_control)


def test_the_best_of_vectors_is_neither_a_control_nor_a_reader_of_texts():
    rows = (judged_row("ridge+text", 0.9), judged_row("text", 0.8, True), judged_row("mean", 0.7, True))
    assert Selection("ridge+text", rows).best_of_vectors is None
    rows = (judged_row("procrustes", 0.3), judged_row("ridge", 0.4), *rows)
    assert Selection("ridge+text", rows).best_of_vectors.stitch == "ridge"


def test_the_fallback_is_the_best_candidate_of_vectors_fitted_on_all_pairs(world, vectors):
    pairs = Pairing(*vectors, world.reader.read(world.texts), seed=3)
    bare = replace(pairs, texts=None)
    selection = select_stitch(pairs, specs=["procrustes", "ridge", "ridge+text"])
    found = fit_fallback(pairs, selection)
    best = max(selection.candidates[:2], key=lambda one: one.scores.overlap_at_10)
    assert found.stitch.spec == found.selection.chosen == best.stitch
    assert found.selection.best.scores == best.scores  # the same folds: the figures can stand side by side
    expected = pairs.fit(tune(best.stitch, bare)[0]).transform(pairs.source)
    np.testing.assert_allclose(found.stitch.transform(pairs.source), expected, atol=1e-4)
    found = fit_fallback(pairs, select_stitch(pairs, specs=["ridge+text"]))  # no candidate reads vectors alone
    assert found.selection == select_stitch(bare), "what auto would take without texts"
    assert found.selection.confidence is not None


def test_an_existing_folder_is_kept_unless_forced(saved, make_fitted, tmp_path):
    with pytest.raises(ManifestError, match="no stitch here"):
        load_stitch(tmp_path)
    mean = make_fitted("mean", "nothing")
    with pytest.raises(UsageError, match="exists"):
        mean.save(saved)
    assert load_stitch(saved).stitch.spec == "ridge+text"
    mean.save(saved, force=True)
    assert load_stitch(saved).stitch.spec == "mean"


def test_a_loaded_stitch_may_be_changed_and_saved(saved, tmp_path):
    changed = replace(load_stitch(saved), norm=3.0, state={}, sample=TrueVectors(["a"], np.ones((1, Q), np.float32)))
    changed.save(tmp_path / "changed")
    found = load_stitch(tmp_path / "changed")
    assert (found.norm, list(found.sample.ids), dict(found.state)) == (3.0, ["a"], {})
    assert found.manifest.details["facts"] == load_stitch(saved).manifest.details["facts"]


def test_a_stitch_saved_before_there_was_a_reach_translates_as_it_did(ridge, batch, tmp_path):
    folder, (asked, _) = tmp_path / "stitch", batch
    ridge.save(folder)
    drop_arrays(folder, "stitch.reach.")
    trust(folder, WEIGHTS_NAME)
    old = {"coefficients": [0.1, 0.01, 0.0]}
    edit_manifest(folder, lambda details: details["selection"]["confidence"].update(old))
    found = load_stitch(folder).translate(asked, source="s", patch=False)
    assert found.vectors.tobytes() == ridge.translate(asked, source="s", patch=False).vectors.tobytes()
    norms = np.linalg.norm(ridge.stitch.transform(asked.vectors), axis=1)
    np.testing.assert_allclose(found.confidence, np.clip(0.1 + 0.01 * norms, -1, 1), rtol=1e-5)


def flip_a_bit(path):
    payload = bytearray(path.read_bytes())
    payload[len(payload) // 2] ^= 1
    path.write_bytes(payload)


def remove(path):
    path.unlink()


@pytest.mark.parametrize("damage", [flip_a_bit, remove])
@pytest.mark.parametrize("name", [WEIGHTS_NAME, SAMPLE_NAME, "embedder.json", TOKENIZER_FILE])
def test_damage_is_found(name, damage, saved):
    damage(saved / name)
    assert_refused(saved, r"fit .*again")


def sample_of(ids=IDS, copies=()):
    return json.dumps({"ids": ids, "copies": dict(copies)}).encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (WEIGHTS_NAME, b""),
        (WEIGHTS_NAME, b"\xff" * 64),
        (SAMPLE_NAME, b"["),
        (SAMPLE_NAME, b"5"),
        (SAMPLE_NAME, b"\xff\xfe\xff"),
        (SAMPLE_NAME, b'{"ids": [], "copies": []}'),
        (SAMPLE_NAME, sample_of(["one"])),
        (SAMPLE_NAME, sample_of([[1]])),
        (SAMPLE_NAME, sample_of(["same"] * N)),
        (SAMPLE_NAME, sample_of({str(number): number for number in range(N)})),
        (SAMPLE_NAME, sample_of(copies={"twin": N})),
        (SAMPLE_NAME, sample_of(copies={"twin": -1})),
        (SAMPLE_NAME, sample_of(copies={"twin": "0"})),
        (SAMPLE_NAME, sample_of(copies={"dök-0": 1})),
        (TOKENIZER_FILE, b""),
        (TOKENIZER_FILE, b"{}"),
        (TOKENIZER_FILE, b"\xff\xfe"),
        (TOKENIZER_FILE, b"null"),
        (TOKENIZER_FILE, b'{"version": "1.0"}'),
    ],
)
def test_a_wrong_file_is_found_even_with_the_right_hash(name, content, saved):
    (saved / name).write_bytes(content)
    trust(saved, name)
    assert_refused(saved, "again")


ROWS = "stitch.vector/linear/rows"
SHAPES = {
    "without the last": np.s_[:-1],
    "without the last column": np.s_[:, :-1],
    "empty": np.s_[:0],
    "of one axis": np.s_[:, 0],
    "of one axis more": np.s_[..., None],
}
DAMAGED = {
    "without the last": [
        "stitch.alpha", "stitch.offset", "stitch.mean", "stitch.pieces/linear/starts", ROWS,
        "reader.topics", "reader.ngram_idf", "reader.term_idf", "reader.pieces.vectors", "reader.pieces.kept",
        "sample.vectors", "fallback.offset", "fallback.matrix", "fallback.reach.mean",
    ],
    "without the last column": ["stitch.alpha", ROWS, "reader.pieces.vectors", "fallback.matrix"],
    "empty": ["stitch.alpha", "stitch.dim", "stitch.vector/linear/scale", "reader.pieces.limit"],
    "of one axis": [ROWS, "sample.vectors"],
    "of one axis more": [ROWS],
    np.nan: [
        "stitch.alpha", "reader.topics", "sample.vectors", "fallback.matrix", "fallback.offset", "fallback.reach.mean",
    ],
    np.inf: ["stitch.vector/linear/scale", "reader.ngram_idf", "fallback.offset"],
    -1: ["stitch.dim", "stitch.pieces/linear/indices"],
    0: ["stitch.pieces/linear/width"],
    2: ["stitch.dim", "stitch.pieces/linear/starts"],
    1_000: ["stitch.pieces/linear/indices"],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "name"), [(damage, name) for damage, names in DAMAGED.items() for name in names])
def test_a_wrong_array_is_found_even_with_the_right_hash(damage, name, saved):
    tensors = load_file(saved / WEIGHTS_NAME)
    damaged = tensors[name][SHAPES[damage]] if damage in SHAPES else tensors[name] * damage
    save_file({**tensors, name: np.ascontiguousarray(damaged)}, saved / WEIGHTS_NAME)
    trust(saved, WEIGHTS_NAME)
    assert_refused(saved, "again")


@pytest.mark.parametrize(
    "prefix",
    [
        "stitch.pieces/linear/indices", "stitch.dim", ROWS, "reader.", "reader.ngram_idf", "reader.term_idf",
        "reader.topics", "reader.pieces.vectors", "reader.pieces.kept", "reader.pieces.limit", "sample.vectors",
        "fallback.reach.scale",
    ],
)  # fmt: skip
def test_a_missing_array_is_found_though_the_manifest_names_none(prefix, saved):
    drop_arrays(saved, prefix)
    trust(saved, WEIGHTS_NAME)
    assert_refused(saved, "again")


@pytest.mark.parametrize("prefix", ["stitch.vector/", "reader.", "fallback."])
def test_a_part_that_was_removed_with_its_hash_is_missed(prefix, saved):
    drop_arrays(saved, prefix)
    manifest = read_manifest(saved, "stitch")
    files = {**manifest.details["files"], WEIGHTS_NAME: sha256_file(saved / WEIGHTS_NAME)}
    replace(manifest, details={**manifest.details, "files": files}).write(saved)
    assert_refused(saved, f"the array '{prefix}.*, which the manifest names, is missing")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("norm", value) for value in (float("nan"), 0, float("inf"), -1, None)),
        *(("stitch", value) for value in ("procrustes", "adjoint:ridge", 5, None)),
        *(("files", value) for value in ([], None)),
        *(("selection", value) for value in ([], None)),
        *(("fallback", value) for value in (5, {})),
        *(("fallback", {"chosen": value, "candidates": []}) for value in ("text", "none")),
    ],
)
def test_facts_that_are_wrong_are_found(name, value, saved):
    edit_manifest(saved, lambda details: details.update({name: value}))
    with pytest.raises((StitchError, ManifestError), match=f"{name}.* again|fit .* again"):
        load_stitch(saved)


@pytest.mark.parametrize("name", ["../evil", "sub/evil", "/etc/hostname", "index.faiss"])
def test_files_outside_of_the_folder_are_not_read(name, saved):
    (saved / "sub").mkdir()
    if not (saved / name).exists():
        (saved / name).write_bytes(b"evil")
    trust(saved, name)
    assert_refused(saved, "a file that no stitch has")
