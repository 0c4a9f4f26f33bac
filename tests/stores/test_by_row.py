"""Files beside an index with an entry for each of its rows: copied and named, and dropped by no kind in silence."""

import json

import faiss
import numpy as np
import pytest
from database_tests import written

from migrate.stores import open_store
from migrate.testing.stores import example_vectors

COUNT = 40
TEXTS = [f"plain sentence number {row}" for row in range(COUNT)]
METADATA = [{"source": f"s{row}", "page": row} for row in range(COUNT)]
IDS = [f"id-{row}" for row in range(COUNT)]
LINES = "".join(f"{name}\n" for name in IDS)
BESIDE = {
    "metadata.json": json.dumps(METADATA),
    "ids.json": json.dumps(IDS),
    "numbers.json": json.dumps([row * 3 for row in range(COUNT)]),
    "by_id.json": json.dumps(dict(zip(IDS, METADATA, strict=True))),
    "columns.json": json.dumps({"page": list(range(COUNT)), "source": IDS}),
    "meta.jsonl": "".join(f"{json.dumps(record)}\n" for record in METADATA),
    "meta.csv": "page,source\n" + "".join(f'{row},"a\nb"\n' for row in range(COUNT)),
    "labels.tsv": "".join(f"{row}\tx\n" for row in range(COUNT)),
    "ids.txt": LINES,
}
OTHERS = {
    "settings.json": json.dumps({"model": "x", "dim": 8}),
    "fewer.json": json.dumps(IDS[1:]),
    "more.txt": LINES + "one more\n",
    "damaged.json": "[",
    "other.jsonl": "{}\n" * (COUNT + 1),
    "README.md": LINES,
}


@pytest.fixture(params=["index", "array"])
def folder(request, tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    if request.param == "index":
        index = faiss.IndexFlatIP(8)
        index.add(example_vectors(COUNT))
        faiss.write_index(index, str(folder / "faiss.index"))
        (folder / "texts.json").write_text(json.dumps(TEXTS))
    else:
        np.save(folder / "vectors.npy", example_vectors(COUNT))
        lines = [json.dumps({"id": name, "text": text}) for name, text in zip(IDS, TEXTS, strict=True)]
        (folder / "docs.jsonl").write_text("\n".join(lines))
    return folder


def notes_on(name, store):
    return [note for note in store.info.notes if name in note]


@pytest.mark.parametrize("name", BESIDE)
def test_a_file_with_an_entry_a_row_is_named_and_copied(name, folder, tmp_path):
    assert notes_on("entry for each row", open_store(folder)) == []
    (folder / name).write_text(BESIDE[name])
    store = open_store(folder)
    assert [document.text for document in store.documents()] == TEXTS
    (note,) = notes_on(name, store)
    assert "an entry for each row" in note and "gets a copy" in note
    new, _ = written(store, tmp_path / "new", tmp_path / "new", example_vectors(COUNT, 5))
    assert (tmp_path / "new" / name).read_text() == BESIDE[name]
    assert new.strangers() == [] and notes_on(name, new) == [note]

    before = store.snapshot()
    (folder / name).write_text(BESIDE[name].replace("1", "2"))
    assert open_store(folder).snapshot().difference(before.fingerprint) is not None, "what has changed in it is noticed"


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_file_is_left_where_it_is(name, folder, tmp_path):
    (folder / name).write_text(OTHERS[name])
    store = open_store(folder)
    assert notes_on(name, store) == []
    written(store, tmp_path / "new", tmp_path / "new", example_vectors(COUNT, 5))
    assert not (tmp_path / "new" / name).exists()


def test_arrays_of_one_number_a_row_are_copied_and_other_vectors_are_not(folder, tmp_path):
    np.save(folder / "labels.npy", np.arange(COUNT))
    location = next(path for path in folder.iterdir() if path.name in ("faiss.index", "vectors.npy"))
    np.save(folder / "other.npy", example_vectors(COUNT, 3))
    store = open_store(location)
    assert notes_on("labels.npy", store) and not notes_on("other.npy", store)
    written(store, tmp_path / "new", tmp_path / "new", example_vectors(COUNT, 5))
    assert np.array_equal(np.load(tmp_path / "new" / "labels.npy"), np.arange(COUNT))
    assert not (tmp_path / "new" / "other.npy").exists()


def test_a_file_of_another_index_in_the_folder_is_not_copied(folder, tmp_path):
    index = faiss.IndexFlatIP(3)
    index.add(example_vectors(COUNT, 3))
    faiss.write_index(index, str(folder / "second.faiss"))
    (folder / "second.json").write_text(json.dumps(METADATA))
    location = next(path for path in folder.iterdir() if path.name in ("faiss.index", "vectors.npy"))
    assert notes_on("second.json", open_store(location)) == []


@pytest.mark.parametrize("location", ["parquet:{}", "faiss:{}#?index=HNSW8"])
def test_a_store_of_another_kind_says_what_it_lacks(location, folder, tmp_path):
    pytest.importorskip("pyarrow")
    for name in ("metadata.json", "ids.json"):
        (folder / name).write_text(BESIDE[name])
    new = tmp_path / "new"
    _, finished = written(open_store(folder), location.format(new), new, example_vectors(COUNT, 5))
    (remark,) = [remark for remark in finished.remarks if "metadata.json" in remark]
    assert remark.startswith("ids.json, metadata.json: ")
    assert not (new / "metadata.json").exists()


def test_a_pickle_beside_an_index_is_named(folder):
    (folder / "metadata.pkl").write_bytes(b"never loaded")
    (note,) = notes_on("metadata.pkl", open_store(folder))
    assert "not in a new store" in note
