"""Ids beside vectors without labels: whether they are the numbers of rows is found out, asked, or said."""

import csv
import json
from functools import cache
from types import SimpleNamespace

import golden_data
import numpy as np
import pytest
import sync_tools as tools
from faiss_tools import build, read, save
from sync_tools import Hashed

import migrate
from migrate.cli.main import run
from migrate.datasets.stdlib import SMALL, stdlib_beir, vectors_of
from migrate.embedders import load_embedder
from migrate.errors import StoreError, UsageError
from migrate.stores import open_store
from migrate.vectors import unit_rows

COUNT = 120
RANDOM = np.random.default_rng(3)
SHUFFLED = RANDOM.permutation(COUNT)
ORDERS = {
    "shuffled": SHUFFLED,
    "reversed": np.arange(COUNT)[::-1],
    "from 1 on": SHUFFLED + 1,
    "from 1 on, reversed": np.arange(COUNT, 0, -1),
}


@cache
def real():
    """Docstrings with the vectors that a real model gave them."""
    with np.load(vectors_of(SMALL)) as file:
        vector_of = dict(zip(file["doc_ids"].tolist(), file["docs"].astype(np.float32), strict=True))
    documents = [document for document in stdlib_beir().documents if document.id in vector_of][:COUNT]
    return SimpleNamespace(
        texts=[document.text for document in documents],
        vectors=np.ascontiguousarray([vector_of[document.id] for document in documents]),
    )


def write_json(folder, records):
    (folder / "chunks.json").write_text(json.dumps(records))


def write_lines(folder, records):
    lines = (json.dumps({**record, "id": str(record["id"])}) for record in records)
    (folder / "docs.jsonl").write_text("\n".join(lines))


def write_csv(folder, records):
    with (folder / "chunks.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "text"])
        writer.writeheader()
        writer.writerows(records)


def write_parquet(folder, records):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(records), folder / "chunks.parquet")


def write_array(folder, vectors):
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "vectors.npy", vectors)


def write_flat(folder, vectors):
    save(build("Flat", vectors, metric="ip"), folder)


def make(folder, ids, texts, vectors, *, by_id=False, write_vectors=write_flat, write=write_lines):
    """A store whose records have these ids and texts, in that order; vectors are in it too, or in the order of ids."""
    ids = np.asarray(ids)
    write_vectors(folder, vectors[np.argsort(ids)] if by_id else vectors)
    write(folder, [{"id": doc_id, "text": text} for doc_id, text in zip(ids.tolist(), texts, strict=True)])
    return folder


def assert_paired(location, ids, texts, vectors):
    """Each id has its own text and its own vector, however rows are read."""
    store = open_store(location)
    text_of = dict(zip(map(str, np.asarray(ids).tolist()), texts, strict=True))
    vector_of = dict(zip(text_of, vectors, strict=True))
    rows, stored = read(store)
    assert {document.id: document.text for document in store.documents()} == text_of
    assert np.array_equal(stored, np.array([vector_of[doc_id] for doc_id in rows]))
    return store


@pytest.mark.parametrize("by_id", [False, True], ids=["in the order of the file", "in the order of the ids"])
@pytest.mark.parametrize("order", ORDERS)
def test_texts_and_vectors_tell_which_is_right(order, by_id, tmp_path):
    folder = make(tmp_path / "store", ORDERS[order], real().texts, real().vectors, by_id=by_id)
    store = assert_paired(folder, ORDERS[order], real().texts, real().vectors)
    right, wrong = ("ids", "order") if by_id else ("file", "id")
    assert [note for note in store.info.notes if f"the order of the {right}" in note and f"#?rows={wrong}'" in note], (
        "the other reading is named"
    )


@pytest.mark.parametrize("write", [write_json, write_csv, write_parquet])
@pytest.mark.parametrize("by_id", [False, True], ids=["in the order of the file", "in the order of the ids"])
def test_so_they_do_in_every_format(write, by_id, tmp_path):
    folder = make(tmp_path / "store", SHUFFLED, real().texts, real().vectors, by_id=by_id, write=write)
    assert_paired(folder, SHUFFLED, real().texts, real().vectors)


@pytest.mark.parametrize("by_id", [False, True], ids=["in the order of the file", "in the order of the ids"])
def test_the_numbers_that_faiss_gave_in_inverted_lists_are_no_ids_either(by_id, tmp_path):
    def write_lists(folder, vectors):
        save(build("IVF4,Flat", vectors, metric="ip"), folder)

    make(tmp_path / "store", SHUFFLED, real().texts, real().vectors, by_id=by_id, write_vectors=write_lists)
    assert_paired(tmp_path / "store", SHUFFLED, real().texts, real().vectors)


@pytest.mark.parametrize("labels", [np.arange(COUNT), SHUFFLED[::-1]], ids=["in order", "shuffled"])
def test_labels_that_somebody_gave_are_ids_whatever_the_texts_say(labels, tmp_path):
    folder = tmp_path / "store"
    save(build("IDMap2,Flat", real().vectors, metric="ip", labels=labels), folder)
    write_lines(folder, [{"id": doc_id, "text": "text"} for doc_id in SHUFFLED.tolist()])
    store = open_store(folder)
    assert read(store)[0] == list(map(str, labels))
    assert not store.info.notes


def test_ids_with_gaps_are_no_numbers_of_rows(tmp_path):
    ids = 3 * SHUFFLED + 7
    folder = make(tmp_path / "store", ids, real().texts, real().vectors)
    store = assert_paired(folder, ids, real().texts, real().vectors)
    assert "matched by position" in store.info.details["documents"]
    assert not store.info.notes


NOTHING_TELLS = {
    "random vectors": lambda texts, vectors: (texts, RANDOM.normal(size=vectors.shape).astype(np.float32)),
    "the same text everywhere": lambda texts, vectors: (["text"] * len(texts), vectors),
    "few documents": lambda texts, vectors: (texts[:20], vectors[:20]),
}


@pytest.mark.parametrize("case", NOTHING_TELLS)
@pytest.mark.parametrize("first", [0, 1])
def test_where_nothing_tells_the_command_refuses_and_names_the_option(case, first, tmp_path, capsys):
    texts, vectors = NOTHING_TELLS[case](real().texts, real().vectors)
    ids = np.arange(len(texts))[::-1] + first
    folder = make(tmp_path / "store", ids, texts, vectors)
    assert run(["inspect", str(folder)]) == 4
    said = capsys.readouterr().err
    assert f"'faiss:{folder}#?rows=order'" in said
    assert f"'faiss:{folder}#?rows=id'" in said
    assert_paired(f"faiss:{folder}#?rows=order", ids, texts, vectors)
    by_id = make(tmp_path / "by id", ids, texts, vectors, by_id=True)
    assert_paired(f"faiss:{by_id}#?rows=id", ids, texts, vectors)


def test_where_no_record_has_a_text_the_command_refuses(tmp_path):
    write_flat(tmp_path / "store", real().vectors)
    (tmp_path / "store" / "docs.jsonl").write_text("".join(f'{{"id": "{doc_id}"}}\n' for doc_id in SHUFFLED))
    with pytest.raises(StoreError, match="rows=order"):
        open_store(tmp_path / "store")


def test_what_the_location_says_counts_before_the_texts(tmp_path):
    folder = make(tmp_path / "store", SHUFFLED, real().texts, real().vectors)
    assert read(open_store(f"faiss:{folder}#?rows=id"))[0] == list(map(str, range(COUNT)))


def test_other_fields_that_are_named_stay_in_the_location_that_is_proposed(tmp_path):
    folder = tmp_path / "store"
    write_flat(folder, NOTHING_TELLS["random vectors"](real().texts, real().vectors)[1])
    records = [{"nr": doc_id, "said": text} for doc_id, text in zip(SHUFFLED.tolist(), real().texts, strict=True)]
    write_json(folder, records)
    location = f"faiss:{folder}#?text=said&id=nr"
    with pytest.raises(StoreError) as error:
        open_store(location)
    assert f"'{location}&rows=order'" in str(error.value)
    assert open_store(f"{location}&rows=order").ids(range(1)) == [str(SHUFFLED[0])]


@pytest.mark.parametrize(
    ("ids", "option", "error", "says"),
    [
        ([f"d{row}" for row in range(COUNT)], "id", StoreError, "does not fit"),
        (SHUFFLED, "row", UsageError, "rows=row is unknown; say order or id"),
    ],
)
def test_a_reading_that_there_is_not_is_refused(ids, option, error, says, tmp_path):
    folder = make(tmp_path / "store", ids, real().texts, real().vectors)
    with pytest.raises(error, match=says):
        open_store(f"faiss:{folder}#?rows={option}")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("by_id", [False, True], ids=["in the order of the file", "in the order of the ids"])
def test_an_array_has_no_labels_either(order, by_id, tmp_path):
    ids = ORDERS[order]
    folder = make(tmp_path / "store", ids, real().texts, real().vectors, by_id=by_id, write_vectors=write_array)
    assert_paired(folder, ids, real().texts, real().vectors)


def test_line_i_of_an_array_belongs_to_row_i_where_nothing_tells(tmp_path):
    vectors = NOTHING_TELLS["random vectors"](real().texts, real().vectors)[1]
    folder = make(tmp_path / "store", SHUFFLED, real().texts, vectors, write_vectors=write_array)
    store = assert_paired(folder, SHUFFLED, real().texts, vectors)
    assert any(f"'arrays:{folder}#?rows=id'" in note for note in store.info.notes)
    assert read(open_store(f"arrays:{folder}#?rows=id"))[0] == list(map(str, range(COUNT)))


@pytest.mark.slow
@pytest.mark.parametrize("write_vectors", [write_flat, write_array])
def test_a_new_store_is_read_as_its_source_was(write_vectors, tmp_path):
    vectors = NOTHING_TELLS["random vectors"](real().texts, real().vectors)[1]
    folder = make(tmp_path / "store", SHUFFLED, real().texts, vectors, by_id=True, write_vectors=write_vectors)
    kind = "faiss" if write_vectors is write_flat else "arrays"
    source = open_store(f"{kind}:{folder}#?rows=id")
    model = load_embedder("tfidf:16")
    migrate.reembed(source, model, tmp_path / "new")
    assert open_store(tmp_path / "new").info.manifest.store.fields == {"rows": "id"}
    assert_paired(tmp_path / "new", SHUFFLED, real().texts, model.embed_documents(list(documents_in_order(source))))


class Words(Hashed):
    """A model that gives texts of the same words nearly the same vector."""

    def embed(self, texts, role, *, progress=None):
        return np.array([golden_data.embed(text.text, "words", self.dim) for text in texts], np.float32)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["Folder", "Arrays", "Parquet", "Langchain", "Chroma", "Qdrant", "Milvus", "Lance", "SqliteVec", "Pgvector"]
)
@pytest.mark.parametrize("order", ["shuffled", "reversed"])
def test_a_re_embed_by_the_stores_own_model_keeps_every_vector(kind, order, kind_of, tmp_path):
    topics = golden_data.vocabulary()
    texts = [" ".join(RANDOM.choice(topics[topic], 12)) for topic in RANDOM.integers(len(topics), size=COUNT)]
    vectors = [golden_data.embed(text, "words", tools.DIM) for text in texts]
    records = {
        str(doc_id): tools.record(str(doc_id), text, row, vector)
        for row, (doc_id, text, vector) in enumerate(zip(ORDERS[order], texts, vectors, strict=True))
    }
    maker = kind_of(kind)
    source = open_store(maker.make(tmp_path / "old", records))
    new = maker.new(tmp_path / "new")
    migrate.reembed(source, Words("words", tools.DIM), new)
    for store in (source, open_store(new)):
        rows, stored = read(store)
        assert len(rows) == COUNT
        assert {document.id: document.text for document in store.documents()} == {
            doc_id: document.text for doc_id, (document, _) in records.items()
        }
        own = np.array([records[doc_id][1] for doc_id in rows])
        assert np.einsum("nd,nd->n", own, unit_rows(stored)).min() > 0.9999


def documents_in_order(store):
    """The documents in the order of the file."""
    by_id = {document.id: document for document in store.documents()}
    return [by_id[str(doc_id)] for doc_id in SHUFFLED]
