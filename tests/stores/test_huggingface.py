import json

import numpy as np
import pytest
from faiss_tools import COUNT, DIM, build, damaged, read, rewrite, save

from migrate.errors import StoreError
from migrate.manifest import Manifest
from migrate.stores import open_store
from migrate.stores.file_store import hash_files

TEXTS = [f"text of row {row}" for row in range(COUNT)]


pa = pytest.importorskip("pyarrow")
ipc = pytest.importorskip("pyarrow.ipc")


def write_dataset(folder, columns, shards=1, **state):
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    names = [f"data-{shard:05}-of-{shards:05}.arrow" for shard in range(shards)]
    step = -(-len(table) // shards)
    for shard, name in enumerate(names):
        with ipc.new_stream(str(folder / name), table.schema) as stream:
            stream.write_table(table.slice(shard * step, step), max_chunksize=30)
    known = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0", "_split": None}
    (folder / "state.json").write_text(json.dumps(known | state))
    (folder / "dataset_info.json").write_text(json.dumps({"citation": "", "features": {}}))


@pytest.fixture(params=["", "dataset"], ids=["beside", "below"])
def folder(request, vectors, tmp_path):
    folder = tmp_path / "store"
    save(build("Flat", vectors), folder, "my.faiss")
    columns = {"id": [f"d{row}" for row in range(COUNT)], "text": TEXTS, "n": range(COUNT)}
    write_dataset(folder / request.param, columns, shards=3)
    return folder


@pytest.fixture
def dataset(folder):
    return folder / "dataset" if (folder / "dataset").exists() else folder


def files(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_labels_of_inverted_lists_are_rows(folder, vectors):
    save(build("IVF8,Flat", vectors), folder, "my.faiss")
    store = open_store(folder)
    ids, found = read(store)
    assert ids != [f"d{row}" for row in range(COUNT)]
    assert np.array_equal(found, vectors[[int(doc_id[1:]) for doc_id in ids]])
    assert [document.id for document in store.documents()] == ids


def test_of_a_new_store_the_index_alone_is_another(folder, tmp_path):
    rewrite(open_store(folder), tmp_path / "new", lambda old: np.hstack([old, old]), 2 * DIM)
    before, after = files(folder), files(tmp_path / "new")
    assert after.keys() == before.keys()
    assert {name for name in before if before[name] != after[name]} == {"my.faiss"}


def test_another_number_of_rows_is_refused(folder, dataset):
    write_dataset(dataset, {"text": TEXTS[1:]}, shards=3)
    with pytest.raises(StoreError, match="has 399 documents for 400 vectors"):
        open_store(folder)


def test_labels_that_are_no_rows_are_refused(folder, vectors):
    save(build("IDMap2,Flat", vectors, labels=range(1, COUNT + 1)), folder, "my.faiss")
    with pytest.raises(StoreError, match="not 0 to 399, which the rows of the dataset are"):
        open_store(folder)


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ({"_indices_data_files": [{"filename": "i.arrow"}]}, "list of indices"),
        ({"_data_files": []}, 'no list "_data_files"'),
        ({"_data_files": [{"filename": "../secret.arrow"}]}, "'../secret.arrow' is not the name of a file in"),
        ({"_data_files": [{"filename": ".."}]}, "same folder"),
        ({"_data_files": [5]}, "None is not the name of a file in the same folder"),
        ({"_data_files": [{"filename": "gone.arrow"}]}, r"the file gone\.arrow is missing"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(state, found, folder, dataset):
    write_dataset(dataset, {"text": TEXTS}, **state)
    with pytest.raises(StoreError, match=found):
        open_store(folder)


def test_several_datasets_are_refused(folder):
    write_dataset(folder / "train", {"text": TEXTS})
    with pytest.raises(StoreError, match="has 2 datasets"):
        open_store(folder)


def test_damaged_datasets_are_one_line_or_read(folder, dataset):
    for is_cut in damaged(dataset / "data-00000-of-00003.arrow", cuts=(0, 4, 100, 0.5)):
        try:
            list(open_store(folder).documents())
        except StoreError as error:
            assert "\n" not in str(error)
        else:
            assert not is_cut


# From here on the package itself judges.


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("place", ["", "dataset"])
def test_datasets_opens_and_searches_what_was_written(place, vectors, tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = {"title": TEXTS, "number": list(range(COUNT)), "embeddings": vectors.tolist()}
    made = datasets.Dataset.from_dict(rows).shuffle(seed=1)
    made.add_faiss_index("embeddings")
    made.save_faiss_index("embeddings", str(tmp_path / "my.faiss"))
    made.drop_index("embeddings")
    folder = tmp_path / "store"
    made.save_to_disk(str(folder / place), num_shards=3)
    (tmp_path / "my.faiss").rename(folder / "my.faiss")

    store = open_store(folder)
    assert store.info.kind == "huggingface"
    assert [document.text for document in store.documents()] == made["title"][:]
    assert next(store.documents()).metadata == {"number": made[0]["number"]}
    assert any("also holds vectors (embeddings)" in note for note in store.info.notes)

    rewrite(store, tmp_path / "new", lambda old: np.hstack([old, -old]), 2 * DIM)
    loaded = datasets.load_from_disk(str(tmp_path / "new" / place))
    loaded.load_faiss_index("embeddings", str(tmp_path / "new" / "my.faiss"))
    for number in (0, 7, 399):
        query = np.hstack([vectors[number], -vectors[number]])
        scores, hits = loaded.get_nearest_examples("embeddings", query, k=3)
        assert hits["number"][0] == number
        assert hits["title"][0] == TEXTS[number]
        assert scores[0] == pytest.approx(0, abs=1e-5)


def test_files_below_the_index_are_held_against_the_manifest(folder, dataset):
    Manifest("store", details=hash_files(folder, "my.faiss", open_store(folder).document_files)).write(folder)
    assert len(open_store(folder, verify=True).companions.verify()) == 5
    (dataset / "state.json").write_text((dataset / "state.json").read_text() + " ")
    with pytest.raises(StoreError, match=rf"{dataset}/state\.json: its BLAKE3 "):
        open_store(folder, verify=True)
