"""Documents beside vectors: whether their order or their numbers tell whose vector is whose is found out, or said."""

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
from migrate.stores.create import create_store
from migrate.vectors import Document, unit_rows

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


def records_of(ids, texts):
    """Records of texts; without ids where there are none."""
    if ids is None:
        return [{"text": text} for text in texts]
    return [{"id": doc_id, "text": text} for doc_id, text in zip(ids, texts, strict=True)]


def name_of(number):
    """A name without a number in it."""
    return "".join("abcdefghij"[int(digit)] for digit in str(number))


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
    text_of = dict(zip(map(str, ids), texts, strict=True))
    vector_of = dict(zip(text_of, vectors, strict=True))
    rows, stored = read(store)
    assert {document.id: document.text for document in store.documents()} == text_of
    assert np.array_equal(stored, np.array([vector_of[doc_id] for doc_id in rows]))
    return store


def assert_told(store, *, by_id, what="id"):
    """The store says how its documents were matched, and names the other reading."""
    chosen, other = (f"by {what}", "order") if by_id else ("by position", "id")
    assert f"matched {chosen}" in store.info.details["documents"]
    words = f"taken by the {'labels' if what == 'label' else 'numbers'}" if by_id else "taken by their order"
    notes = [note for note in store.info.notes if words in note and f"#?rows={other}'" in note]
    assert len(notes) == 1


@pytest.mark.parametrize("by_id", [False, True], ids=["in the order of the file", "in the order of the ids"])
@pytest.mark.parametrize("order", ORDERS)
def test_texts_and_vectors_tell_which_is_right(order, by_id, tmp_path):
    folder = make(tmp_path / "store", ORDERS[order], real().texts, real().vectors, by_id=by_id)
    store = assert_paired(folder, ORDERS[order], real().texts, real().vectors)
    assert_told(store, by_id=by_id)


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


FORMS = {
    "zeros before": "{:05}",
    "a word before": "doc{}",
    "words around": "2024/chunk-{}.txt",
    "from 100 on": "1{:03}",
    "of a float": "{}.0",
}


# All forms beside an index, and one beside an array, which asks the same
@pytest.mark.parametrize(
    ("form", "write_vectors"), [*((form, write_flat) for form in FORMS), ("a word before", write_array)]
)
@pytest.mark.parametrize("by_id", [False, True], ids=["in the order of the file", "in the order of the ids"])
def test_ids_may_hold_the_number_of_a_row_in_another_form(by_id, form, write_vectors, tmp_path):
    ids = [FORMS[form].format(number) for number in SHUFFLED]
    vectors = real().vectors[np.argsort(SHUFFLED)] if by_id else real().vectors
    write_vectors(tmp_path / "store", vectors)
    write_json(tmp_path / "store", records_of(ids, real().texts))
    store = assert_paired(tmp_path / "store", ids, real().texts, real().vectors)
    assert_told(store, by_id=by_id)


@pytest.mark.parametrize("write", [write_json, write_lines, write_csv, write_parquet])
def test_numbers_in_ids_are_read_in_every_format(write, tmp_path):
    ids = [f"doc{number}" for number in SHUFFLED]
    write_flat(tmp_path / "store", real().vectors[np.argsort(SHUFFLED)])
    write(tmp_path / "store", records_of(ids, real().texts))
    assert_paired(tmp_path / "store", ids, real().texts, real().vectors)


ONE_READING = {
    **{f"in order, {name}": [form.format(number) for number in range(COUNT)] for name, form in FORMS.items()},
    "from 1 on": [str(number + 1) for number in range(COUNT)],
    "with gaps": [str(3 * number + 7) for number in SHUFFLED],
    "two numbers": [f"doc{number // 7}_{number % 7}" for number in SHUFFLED],
    "different words": [f"{'ab'[number % 2]}{number}" for number in SHUFFLED],
    "hashes": [f"{number * 0x9E3779B97F4A7C15 % 2**64:016x}" for number in SHUFFLED.tolist()],
}


@pytest.mark.parametrize(
    ("case", "write_vectors"), [*((case, write_flat) for case in ONE_READING), ("two numbers", write_array)]
)
def test_other_ids_need_no_evidence(case, write_vectors, tmp_path):
    vectors = NOTHING_TELLS["random vectors"](real().texts, real().vectors)[1]
    write_vectors(tmp_path / "store", vectors)
    write_json(tmp_path / "store", records_of(ONE_READING[case], real().texts))
    store = assert_paired(tmp_path / "store", ONE_READING[case], real().texts, vectors)
    assert not [note for note in store.info.notes if "may belong" in note]


LABELS = {
    "reversed": np.arange(COUNT)[::-1],
    "rolled": np.roll(np.arange(COUNT), 60),
    "shuffled": SHUFFLED,
    "from 100 on, reversed": 100 + np.arange(COUNT)[::-1],
}
OF_LABELS = {
    "none": lambda labels: None,
    "numbers": lambda labels: [str(number) for number in np.sort(labels)],
    "names": lambda labels: [name_of(number) for number in np.sort(labels)],
    "padded": lambda labels: [f"doc{number:05}" for number in np.sort(labels)],
}
"""Ids of documents in the order of the labels."""


# Each order with numbers, each kind of ids in one order, and each index in which labels lie in another way
LABELLED = [
    *((order, "numbers", "IDMap2,Flat") for order in LABELS),
    *(("reversed", ids, "IDMap2,Flat") for ids in OF_LABELS if ids != "numbers"),
    *(("shuffled", "names", factory) for factory in ("IDMap,HNSW16,Flat", "IDMap2,IVF4,Flat", "RR384,IDMap2,Flat")),
]


@pytest.mark.parametrize(("order", "ids", "factory"), LABELLED)
@pytest.mark.parametrize("by_label", [False, True], ids=["in the order of adding", "by label"])
def test_labels_that_somebody_gave_may_be_numbers_of_documents(by_label, ids, order, factory, tmp_path):
    labels = LABELS[order]
    doc_ids = OF_LABELS[ids](labels)
    vectors = real().vectors[labels - labels.min()] if by_label else real().vectors
    save(build(factory, vectors, metric="ip", labels=labels), tmp_path / "store")
    write_json(tmp_path / "store", records_of(doc_ids, real().texts))
    store = open_store(tmp_path / "store")
    by_text = {document.text: vector for document, vector in zip(store.documents(), read(store)[1], strict=True)}
    for text, vector in zip(real().texts, real().vectors, strict=True):
        assert np.allclose(by_text[text], vector, atol=1e-5)
    assert_told(store, by_id=by_label, what="label" if ids == "names" else "id")


@pytest.mark.parametrize("labels", [np.arange(COUNT), SHUFFLED[::-1]], ids=["in order", "shuffled"])
@pytest.mark.parametrize("by_label", [False, True], ids=["in the order of adding", "by label"])
def test_labels_may_be_those_of_documents_in_another_order(by_label, labels, tmp_path):
    text_of = dict(zip(SHUFFLED.tolist(), real().texts, strict=True))
    vector_of = dict(zip(SHUFFLED.tolist(), real().vectors, strict=True))
    vectors = np.array([vector_of[label] for label in labels]) if by_label else real().vectors
    save(build("IDMap2,Flat", vectors, metric="ip", labels=labels), tmp_path / "store")
    write_lines(tmp_path / "store", records_of(SHUFFLED.tolist(), real().texts))
    store = assert_paired(tmp_path / "store", text_of, text_of.values(), vector_of.values())
    assert_told(store, by_id=by_label)


def test_labels_that_documents_name_need_no_evidence(tmp_path):
    save(build("IDMap2,Flat", real().vectors, metric="ip", labels=SHUFFLED), tmp_path / "store")
    records = records_of([f"doc{row}" for row in range(COUNT)], ["text"] * COUNT)
    write_json(tmp_path / "store", [{**record, "faiss_id": row} for row, record in enumerate(records)])
    store = open_store(tmp_path / "store")
    assert read(store)[0] == [f"doc{label}" for label in SHUFFLED]
    assert not store.info.notes


@pytest.mark.parametrize("ids", OF_LABELS)
def test_of_an_id_map_too_the_option_tells_where_the_texts_do_not(ids, tmp_path, capsys):
    texts, vectors = NOTHING_TELLS["few documents"](real().texts, real().vectors)
    labels = np.arange(len(texts))[::-1]
    folder = tmp_path / "store"
    save(build("IDMap2,Flat", vectors, metric="ip", labels=labels), folder)
    write_json(folder, records_of(OF_LABELS[ids](labels), texts))
    assert run(["inspect", str(folder)]) == 4
    said = capsys.readouterr().err
    expected = {"order": texts, "id": texts[::-1]}
    for reading, texts_of_rows in expected.items():
        location = f"faiss:{folder}#?rows={reading}"
        assert f"'{location}'" in said
        assert [document.text for document in open_store(location).documents()] == texts_of_rows


def test_a_new_store_says_whose_vector_is_whose(tmp_path):
    ids = [f"doc{number}" for number in SHUFFLED[:20]]
    documents = [Document(doc_id, text) for doc_id, text in zip(ids, real().texts, strict=False)]
    folder = tmp_path / "new"
    folder.mkdir()
    writer = create_store(folder, format="faiss", dim=real().vectors.shape[1])
    writer.append(documents, real().vectors[:20])
    writer.finish()
    store = assert_paired(folder, ids, real().texts[:20], real().vectors[:20])
    assert not store.info.notes


COMMANDS = [
    "inspect STORE",
    "assess STORE --target tfidf:16",
    "check STORE --model tfidf:16",
    "stamp STORE --model tfidf:16",
    "fit STORE --target tfidf:16 --output OUT",
    "translate STORE STITCH --output OUT",
    "run STORE --target tfidf:16 --output OUT",
    "reembed STORE --target tfidf:16 --output OUT",
    "backfill STORE --target tfidf:16 --output OUT",
    "audit STORE --source GOOD --target tfidf:16 --queries synthetic --reference build",
    "audit NEW --source STORE --target tfidf:16 --queries synthetic --reference build",
    "sync STORE NEW",
    "live run STORE --target tfidf:16",
    "live status STORE",
    "switch STORE NEW",
    "compare STORE GOOD",
]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A store that can be read in two ways, the same where each document names its vector, and what was made of it."""
    folder = tmp_path_factory.mktemp("places")
    names = {"STORE": "store", "GOOD": "good", "STITCH": "stitch", "NEW": "new"}
    found = {word: str(folder / name) for word, name in names.items()}
    records = records_of([f"doc{row}" for row in reversed(range(20))], real().texts[:20])
    write_flat(folder / "store", real().vectors[:20])
    write_json(folder / "store", records)
    write_flat(folder / "good", real().vectors[:20])
    write_json(folder / "good", [{**record, "faiss_id": row} for row, record in enumerate(records)])
    migrate.fit(found["GOOD"], load_embedder("tfidf:16"), kind="ridge", sample=20).save(found["STITCH"])
    migrate.translate(found["GOOD"], found["STITCH"], found["NEW"])
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_documents_that_may_be_others(command, places, tmp_path, capsys):
    out = tmp_path / "out"
    assert run([{**places, "OUT": str(out)}.get(word, word) for word in command.split()]) == 4
    assert "#?rows=order" in capsys.readouterr().err
    assert not out.exists()


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
        ([f"{'abc'[row % 3]}{row}" for row in range(COUNT)], "id", StoreError, "does not fit"),
        (list(map(str, SHUFFLED)), "row", UsageError, "rows=row is unknown; say order or id"),
    ],
)
def test_a_reading_that_there_is_not_is_refused(ids, option, error, says, tmp_path):
    folder = tmp_path / "store"
    write_flat(folder, real().vectors)
    write_lines(folder, records_of(ids, real().texts))
    with pytest.raises(error, match=says):
        open_store(f"faiss:{folder}#?rows={option}")


@pytest.mark.parametrize("order", ["shuffled", "from 1 on"])
@pytest.mark.parametrize("by_id", [False, True], ids=["in the order of the file", "in the order of the ids"])
def test_an_array_has_no_labels_either(order, by_id, tmp_path):
    ids = ORDERS[order]
    folder = make(tmp_path / "store", ids, real().texts, real().vectors, by_id=by_id, write_vectors=write_array)
    assert_paired(folder, ids, real().texts, real().vectors)


def test_of_an_array_too_the_option_tells_where_the_texts_do_not(tmp_path):
    vectors = NOTHING_TELLS["random vectors"](real().texts, real().vectors)[1]
    folder = make(tmp_path / "store", SHUFFLED, real().texts, vectors, write_vectors=write_array)
    with pytest.raises(StoreError) as error:
        open_store(folder)
    assert f"'arrays:{folder}#?rows=id'" in str(error.value)
    assert_paired(f"arrays:{folder}#?rows=order", SHUFFLED, real().texts, vectors)
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
    ("kind", "order"),
    [
        *((kind, "reversed") for kind in ("faiss", "arrays")),
        *((kind, "shuffled") for kind in ("faiss", "arrays", "parquet", "langchain", "chroma", "qdrant", "milvus")),
        *((kind, "shuffled") for kind in ("lancedb", "sqlite-vec", "pgvector")),
    ],
)
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
    new = maker.place(tmp_path / "new")
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
