"""A store of two models: its documents of the other one are listed, embedded anew, and nothing is left of it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from kinds import kind_class

import migrate
from migrate.check.rows import read_rows
from migrate.datasets.stdlib import LARGE, SMALL, stdlib_beir, vectors_of
from migrate.errors import InputError, StoreError, UsageError
from migrate.stores import create_store, open_store
from migrate.stores.base import read_all
from migrate.vectors import Document, unit_rows

COUNT = 200


def vectors_by_id(model):
    with np.load(vectors_of(model)) as arrays:
        return dict(zip(arrays["doc_ids"].tolist(), arrays["docs"].astype(np.float32), strict=True))


@pytest.fixture(scope="module")
def documents():
    return stdlib_beir(max_docs=COUNT, with_vectors=True).documents


@pytest.fixture(scope="module")
def right(documents):
    """Vectors of all-MiniLM-L6-v2."""
    found = vectors_by_id(SMALL)
    return np.array([found[document.id] for document in documents])


@pytest.fixture(scope="module")
def wrong(documents):
    """Vectors of another model, as many numbers of each."""
    found = vectors_by_id(LARGE)
    return unit_rows(np.array([found[document.id] for document in documents])[:, :384].copy())


@pytest.fixture
def model(tmp_path, monkeypatch):
    """The file of all-MiniLM-L6-v2, in the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(vectors_of(SMALL), "minilm.npz")
    return "file:minilm.npz"


def make_store(folder, documents, vectors):
    Path(folder).mkdir()
    writer = create_store(Path(folder), format="faiss", dim=vectors.shape[1])
    writer.append(documents, vectors)
    writer.finish()
    return folder


def others_among(count, every=10):
    return np.arange(3, count, every)


@pytest.fixture
def mixed(documents, right, wrong, model):
    vectors = right.copy()
    rows = others_among(COUNT)
    vectors[rows] = wrong[rows]
    return make_store("mixed", documents, vectors)


def test_a_store_of_two_models_is_mended_document_by_document(mixed, model, documents, right, monkeypatch):
    monkeypatch.setattr("migrate.check.rows._BATCH", 64)
    result = migrate.check(mixed, model, rows="rows.jsonl")
    assert result.cause == "mixed store" and "20 of 200 documents" in result.notes[0]
    listed = read_rows(Path("rows.jsonl"))
    assert listed.rows.tolist() == others_among(COUNT).tolist()
    assert list(listed.ids) == [documents[row].id for row in others_among(COUNT)]
    before = read_all(open_store(mixed).scan()).vectors
    migrate.reembed(mixed, None, "mended", rows="rows.jsonl")
    mended = open_store("mended")
    after = read_all(mended.scan()).vectors
    kept = np.setdiff1d(np.arange(COUNT), others_among(COUNT))
    assert np.array_equal(after[kept], before[kept])
    assert np.allclose(after, right, atol=1e-3)  # the file has halves
    assert migrate.check("mended", model, rows="none.jsonl", sample="all").compatible
    assert len(read_rows(Path("none.jsonl")).rows) == 0
    migrate.switch(mixed, "mended")


def test_documents_that_no_sample_had_are_no_success(documents, right, wrong, model):
    vectors = right.copy()
    vectors[7] = wrong[7]
    store = make_store("nearly", documents, vectors)
    assert migrate.check(store, model, sample=4).compatible
    result = migrate.check(store, model, sample=4, rows="rows.jsonl")
    assert (result.compatible, result.cause) == (False, "mixed store")
    assert read_rows(Path("rows.jsonl")).ids == (documents[7].id,)


def test_the_second_vector_of_a_text_is_looked_at_too(documents, right, wrong, model):
    # A sample has each text once, and here the right one of the two
    vectors_of_both = np.concatenate([right[:40], right[:40]])
    vectors_of_both[45] = wrong[5]
    with np.load("minilm.npz") as arrays:
        found = dict(arrays)
    copies = [Document(f"copy of {document.id}", document.text) for document in documents[:40]]
    found["doc_ids"] = np.array([*found["doc_ids"].tolist(), *(copy.id for copy in copies)])
    found["docs"] = np.concatenate([found["docs"], right[:40]])
    np.savez("with-copies.npz", **found)
    store = make_store("twice", [*documents[:40], *copies], vectors_of_both)
    migrate.check(store, "file:with-copies.npz", rows="rows.jsonl")
    assert read_rows(Path("rows.jsonl")).rows.tolist() == [45]


def test_rows_of_another_store_or_another_time_mend_nothing(mixed, model, documents, right, wrong):
    migrate.check(mixed, model, rows="rows.jsonl")
    other = make_store("other", documents, np.roll(right, 1, axis=0))
    with pytest.raises(StoreError, match="is of another store than"):
        migrate.reembed(other, None, "out", rows="rows.jsonl")
    fewer = make_store("fewer", documents[:-1], right[:-1])
    with pytest.raises(StoreError, match="200 vectors there, 199 here"):
        migrate.reembed(fewer, None, "out", rows="rows.jsonl")
    lines = Path(mixed, "docs.jsonl").read_text().splitlines(keepends=True)
    changed = json.loads(lines[50]) | {"text": "something else"}
    Path(mixed, "docs.jsonl").write_text("".join([*lines[:50], json.dumps(changed) + "\n", *lines[51:]]))
    with pytest.raises(StoreError, match="other texts"):
        migrate.reembed(mixed, None, "out", rows="rows.jsonl")
    assert not Path("out").exists()


def edited(change):
    """The file of rows with other lines."""
    lines = Path("rows.jsonl").read_text().splitlines()
    Path("edited.jsonl").write_text("".join(f"{line}\n" for line in change(lines)))
    return "edited.jsonl"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda lines: [], InputError, "it is empty"),
        (lambda lines: ["d3", "d7"], InputError, "not a file of rows"),
        (lambda lines: lines[:-1], InputError, "cut off or edited"),
        (lambda lines: [*lines, lines[-1]], InputError, "cut off or edited"),
        (lambda lines: [*lines[:-1], lines[1]], InputError, "cut off or edited"),
        (lambda lines: [*lines[:-1], '{"id": "gone", "row": 199}'], StoreError, "names other documents"),
        (lambda lines: [*lines[:-1], '{"id": "gone", "row": 5000}'], InputError, "cut off or edited"),
    ],
)
def test_a_file_that_was_edited_mends_nothing(mixed, model, change, error, message):
    migrate.check(mixed, model, rows="rows.jsonl")
    with pytest.raises(error, match=message):
        migrate.reembed(mixed, None, "out", rows=edited(change))
    assert not Path("out").exists()


def test_another_model_and_nothing_to_mend_are_refused(mixed, model, documents, right):
    migrate.check(mixed, model, rows="rows.jsonl")
    shutil.copy(vectors_of(SMALL), "again.npz")
    shutil.copy(vectors_of(LARGE), "mpnet.npz")
    with pytest.raises(UsageError, match=r"held against file:minilm.npz, 384 dimensions, .* and not file:mpnet"):
        migrate.reembed(mixed, "file:mpnet.npz", "out", rows="rows.jsonl")
    clean = make_store("clean", documents, right)
    assert migrate.check(clean, model, rows="none.jsonl").compatible
    with pytest.raises(UsageError, match="lists no document"):
        migrate.reembed(clean, None, "out", rows="none.jsonl")
    with pytest.raises(UsageError, match="exists"):
        migrate.check(mixed, model, rows="rows.jsonl")
    for name in ("share", "stitch"):
        with pytest.raises(UsageError, match=f"goes without `{name}=`"):
            migrate.reembed(mixed, None, "out", rows="rows.jsonl", **{name: "10%"})
    assert not Path("out").exists()


def test_a_store_whose_documents_nothing_tells_apart_gets_no_file(documents, wrong, right, model, bare_folder):
    store = make_store("foreign", documents, wrong)
    result = migrate.check(store, model, rows="rows.jsonl")
    assert not result.compatible and "rows.jsonl was not written: all of it is of another" in result.notes[0]
    vectors = 2 * right
    vectors[::4] = wrong[::4]
    scaled = migrate.check(make_store("scaled", documents, vectors), model, rows="rows.jsonl")
    assert scaled.cause == "mixed store" and "rows.jsonl was not written: vectors of the model's own" in scaled.notes[0]
    with pytest.raises(StoreError, match="has no texts"):
        migrate.check(bare_folder, "tfidf:32", rows="rows.jsonl")
    assert not Path("rows.jsonl").exists()


def test_a_document_without_text_is_told_and_left(documents, right, wrong, model):
    blank = [*documents[:49], Document(documents[49].id, " "), *documents[50:60]]
    vectors = right[:60].copy()
    vectors[[4, 49]] = wrong[[4, 49]]
    store = make_store("blank", blank, vectors)
    result = migrate.check(store, model, rows="rows.jsonl")
    assert "1 without text were not looked at" in result.notes[0]
    assert read_rows(Path("rows.jsonl")).rows.tolist() == [4]
    migrate.reembed(store, None, "mended", rows="rows.jsonl")
    assert open_store("mended").info.manifest.counts["true vectors"] == 59


@pytest.mark.slow
@pytest.mark.parametrize("name", ["parquet", "lancedb", "sqlite", "chroma"])
def test_tables_and_collections_are_mended_too(name, documents, right, wrong, model, tmp_path):
    kind = kind_class(name)()
    vectors = right[:50].copy()
    vectors[[3, 17]] = wrong[[3, 17]]
    records = {d.id: (d, vector) for d, vector in zip(documents[:50], vectors, strict=True)}
    location = kind.make(tmp_path / "old", records, metric="ip")
    migrate.check(location, model, rows="rows.jsonl")
    assert set(read_rows(Path("rows.jsonl")).ids) == {documents[3].id, documents[17].id}
    done = migrate.reembed(location, None, kind.place(tmp_path / "new"), rows="rows.jsonl")
    assert migrate.check(done.path, model, rows="none.jsonl").compatible
    assert len(read_rows(Path("none.jsonl")).ids) == 0
