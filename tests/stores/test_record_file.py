"""Files of records with vectors: JSON of several shapes, lines, tables, and nano-vectordb by its own client."""

import base64
import csv
import json
import zlib

import numpy as np
import pytest
from faiss_tools import read, rewrite, write_rows

from migrate.errors import LeadMigrateError, UsageError
from migrate.stores import open_store
from migrate.testing.stores import StoreTests, example_documents, example_vectors


def records_of(documents, vectors):
    return [
        {"id": document.id, "text": document.text, "metadata": dict(document.metadata), "embedding": vector.tolist()}
        for document, vector in zip(documents, vectors, strict=True)
    ]


def located(path, metric):
    return f"records:{path}#?distance={'l2' if metric == 'l2' else 'dot'}"


class TestJson(StoreTests):
    metrics = ("ip",)

    def make_store(self, folder, documents, vectors, metric):
        path = folder / "embeddings.json"
        path.write_text(json.dumps(records_of(documents, vectors)))
        return located(path, metric)


class TestLines(StoreTests):
    metrics = ("ip",)

    def make_store(self, folder, documents, vectors, metric):
        path = folder / "embeddings.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records_of(documents, vectors)))
        return located(path, metric)


def nano_file(documents, vectors):
    """The content of a file of nano-vectordb; its client itself would bring the vectors to unit length."""
    data = [{"__id__": document.id, "content": document.text, **document.metadata} for document in documents]
    return {"embedding_dim": vectors.shape[1], "data": data, "matrix": base64.b64encode(vectors.tobytes()).decode()}


class TestNano(StoreTests):
    metrics = ("ip",)

    def make_store(self, folder, documents, vectors, metric):
        path = folder / "vdb_chunks.json"
        path.write_text(json.dumps(nano_file(documents, vectors)))
        return path


def test_a_table_is_read_and_written_with_all_its_cells(tmp_path):
    path = tmp_path / "store" / "embeddings.csv"
    path.parent.mkdir()
    documents, vectors = example_documents(), example_vectors()
    rows = [["page", "text", "id", "embedding"]]
    for number, (document, vector) in enumerate(zip(documents, vectors, strict=True)):
        # as NumPy prints an array, with line ends in it, and as JSON
        cell = str(vector) if number % 2 else json.dumps(vector.tolist())
        rows.append([str(document.metadata["page"]), f'{document.text}; "quoted",\nin two lines', document.id, cell])
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=";").writerows(rows)
    store = open_store(path)
    assert (store.info.kind, store.info.count, store.info.has_texts) == ("records", len(documents), True)
    assert read(store)[0] == [document.id for document in documents]
    np.testing.assert_allclose(read(store)[1], vectors, rtol=1e-6)
    new = rewrite(store, tmp_path / "new", lambda old: np.hstack([old, old]), 16)
    with (tmp_path / "new" / path.name).open(newline="") as file:
        written = list(csv.reader(file, delimiter=";"))
    assert [row[:3] for row in written] == [row[:3] for row in rows]
    assert np.array_equal(np.array([json.loads(row[3]) for row in written[1:]], np.float32), read(new)[1])


VECTORS = [[0.5, 1.0, -2.0, 3.0, 4.25], [1.5, 1.0, 0.0, -3.0, 4.0], [0.25, 2.0, 0.0, 3.0, 1.0]]
TEXTS = ["of bread", "of water", "of salt"]
IDS = ["b", "w", "s"]
SHAPES = {
    "a list of objects": [{"id": i, "text": t, "embedding": v} for i, t, v in zip(IDS, TEXTS, VECTORS, strict=True)],
    "objects by id": {i: {"text": t, "vector": v} for i, t, v in zip(IDS, TEXTS, VECTORS, strict=True)},
    "columns": {"ids": IDS, "documents": TEXTS, "embeddings": VECTORS},
    "a list among facts": {
        "model": "m",
        "data": [{"id": i, "text": t, "embedding": v} for i, t, v in zip(IDS, TEXTS, VECTORS, strict=True)],
    },
    "as Pinecone exports it": {
        "vectors": [
            {"id": i, "values": v, "metadata": {"text": t, "page": 1}}
            for i, t, v in zip(IDS, TEXTS, VECTORS, strict=True)
        ]
    },
    "vectors as texts": [
        {"id": i, "content": t, "embedding": json.dumps(v)} for i, t, v in zip(IDS, TEXTS, VECTORS, strict=True)
    ],
    "split by pandas": {
        "columns": ["id", "text", "embedding"],
        "index": [0, 1, 2],
        "data": [list(row) for row in zip(IDS, TEXTS, VECTORS, strict=True)],
    },
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_new_file_differs_in_the_numbers_of_the_vectors_alone(shape, tmp_path):
    path = tmp_path / "store" / "vectors.json"
    path.parent.mkdir()
    path.write_text(json.dumps(SHAPES[shape], indent=2))
    store = open_store(path.parent)
    assert read(store)[0] == IDS and np.array_equal(read(store)[1], np.array(VECTORS, np.float32))
    assert [document.text for document in store.documents()] == TEXTS
    rewrite(store, tmp_path / "same", lambda old: old, 5)
    assert json.loads((tmp_path / "same" / path.name).read_text()) == SHAPES[shape]
    new = rewrite(store, tmp_path / "new", lambda old: old[:, ::-1], 5)
    assert np.array_equal(read(new)[1], np.array(VECTORS, np.float32)[:, ::-1])


@pytest.mark.parametrize(
    ("value", "ids"), [(dict(zip(IDS, VECTORS, strict=True)), IDS), (VECTORS, ["0", "1", "2"])], ids=["by id", "alone"]
)
def test_vectors_without_texts_are_a_store_all_the_same(value, ids, tmp_path):
    path = tmp_path / "store" / "vectors.json"
    path.parent.mkdir()
    path.write_text(json.dumps(value))
    store = open_store(path)
    assert read(store)[0] == ids and not store.info.has_texts
    assert any("no field holds texts" in note for note in store.info.notes)
    rewrite(store, tmp_path / "same", lambda old: old, 5)
    assert json.loads((tmp_path / "same" / path.name).read_text()) == value


def test_records_without_a_vector_are_counted_and_kept(tmp_path):
    records = SHAPES["a list of objects"]
    records = [records[0], {**records[1], "embedding": None}, records[2]]
    path = tmp_path / "store" / "chunks.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    store = open_store(path)
    assert (store.info.count, store.info.without_vector) == (2, 1)
    assert [(document.id, document.text) for document in store.documents()] == [("b", TEXTS[0]), ("s", TEXTS[2])]
    rewrite(store, tmp_path / "new", lambda old: -old, 5)
    written = [json.loads(line) for line in (tmp_path / "new" / path.name).read_text().splitlines()]
    assert written[1] == records[1] and written[2]["embedding"] == [-number for number in VECTORS[2]]


def test_numbers_in_ids_say_nothing_of_the_place_of_a_record(tmp_path):
    path = tmp_path / "vectors.json"
    numbers = ["2", "0", "1"]
    path.write_text(
        json.dumps([{**record, "id": i} for record, i in zip(SHAPES["a list of objects"], numbers, strict=True)])
    )
    store = open_store(path)
    assert read(store)[0] == numbers and np.array_equal(read(store)[1], np.array(VECTORS, np.float32))


def test_fields_and_distance_can_be_named(tmp_path):
    path = tmp_path / "two.json"
    path.write_text(
        json.dumps(
            [
                {"key": i, "title": "t", "note": t, "first": v, "second": v[::-1]}
                for i, t, v in zip(IDS, TEXTS, VECTORS, strict=True)
            ]
        )
    )
    with pytest.raises(LeadMigrateError, match="first, second"):
        open_store(path)
    store = open_store(f"records:{path}#?vector=second&text=note&distance=l2")
    assert (store.info.metric, read(store)[0]) == ("l2", IDS)
    assert np.array_equal(read(store)[1], np.array(VECTORS, np.float32)[:, ::-1])
    assert [document.text for document in store.documents()] == TEXTS


def test_a_file_that_changed_since_it_was_opened_is_not_mixed_with_its_vectors(tmp_path):
    path = tmp_path / "store" / "vectors.json"
    path.parent.mkdir()
    path.write_text(json.dumps(SHAPES["a list of objects"]))
    store = open_store(path)
    vectors = read(store)[1]
    (tmp_path / "new").mkdir()
    writer = store.destination(tmp_path / "new", 5)
    path.write_text(json.dumps(SHAPES["a list of objects"] * 2))
    with pytest.raises(LeadMigrateError, match="vectors"):
        write_rows(writer, [(0, vectors)], 3)


def test_a_table_in_files_is_refused(tmp_path):
    path = tmp_path / "vectors.json"
    path.write_text(json.dumps(SHAPES["a list of objects"]))
    np.save(tmp_path / "vectors.npy", np.array(VECTORS))
    for location in (f"{path}#items", f"{tmp_path / 'vectors.npy'}#items?text=a"):
        with pytest.raises(UsageError, match="#items"):
            open_store(location)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.json", '[{"id": "a", "embedding": [1, 2, 3, 4, 5]}, {"id": "b", "embedding": [1, 2, 3]}]', "record 2"),
        ("a.json", '[{"id": "a", "embedding": [1, 2, 3, 4, 5]}, {"id": "b", "embedding": [1, true]}]', "record 2"),
        ("a.json", '[{"id": "a", "embedding": [1, 2, 3, 4, 5]}, 7]', "record 2"),
        ("a.json", '[{"id": "a", "embedding": [1, 2, 3, 4, 5]', "a.json"),
        ("a.jsonl", '{"id": "a", "embedding": [1, 2, 3, 4, 5]}\n{"id": "b", "embed', "record 2"),
        ("a.csv", 'id,embedding\na,"[1, 2, 3, 4, 5]"\nb\n', "record 2"),
        ("a.json", '[{"id": "a", "text": "t", "embedding": [1, 2, 3, 4, 5]}, {"id": "a", "text": "u", '
         '"embedding": [1, 2, 3, 4, 6]}]', None),
        ("a.json", '{"embedding_dim": 2, "data": [{"__id__": "a"}], "matrix": "AAAA"}', "matrix"),
        ("a.json", '{"embedding_dim": 2, "data": [{"id": "a"}], "matrix": "AAAA"}', "__id__"),
        ("a.json", '{"embedding_dim": "x", "data": [], "matrix": ""}', "embedding_dim"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(name, content, says, tmp_path):
    path = tmp_path / name
    path.write_text(content)
    if says is None:  # an id that comes twice is none: records are numbered
        assert read(open_store(path))[0] == ["0", "1"]
        return
    with pytest.raises(LeadMigrateError, match=says):
        open_store(path)


def test_a_file_of_nano_vectordb_is_opened_by_its_client_again(tmp_path):
    nano = pytest.importorskip("nano_vectordb")
    path = tmp_path / "store" / "vdb_chunks.json"
    path.parent.mkdir()
    vectors = example_vectors(3)
    client = nano.NanoVectorDB(8, storage_file=str(path))
    rows = [
        {
            "__id__": i,
            "content": t,
            # as LightRAG keeps it
            "vector": base64.b64encode(zlib.compress(vector.astype(np.float16).tobytes())).decode(),
            "__vector__": vector,
        }
        for i, t, vector in zip(IDS, TEXTS, vectors, strict=True)
    ]
    client.upsert(rows)
    client.store_additional_data(made_by="me")
    client.save()
    store = open_store(path)
    assert (store.info.index_type, store.info.metric, read(store)[0]) == ("nano-vectordb", "ip", IDS)
    assert [document.text for document in store.documents()] == TEXTS
    new = rewrite(store, tmp_path / "new", lambda old: np.hstack([old, old]), 16)
    again = nano.NanoVectorDB(16, storage_file=str(tmp_path / "new" / path.name))
    (nearest,) = again.query(read(new)[1][1], top_k=1)
    assert (nearest["__id__"], nearest["content"]) == ("w", TEXTS[1])
    assert again.get_additional_data() == {"made_by": "me"}
    packed = np.frombuffer(zlib.decompress(base64.b64decode(nearest["vector"])), np.float16)
    np.testing.assert_allclose(packed, read(new)[1][1], atol=1e-3)
