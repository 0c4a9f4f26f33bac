"""The shapes in which programs write documents into JSON, beside an index and beside an array."""

import json
import pickle
import shlex
import subprocess
import sys

import numpy as np
import pytest
from faiss_tools import build, read, save
from whole_path import inspected, moved

from migrate.cli.main import run
from migrate.errors import StoreError, UsageError
from migrate.stores import open_store
from migrate.testing.stores import StoreTests, awkward_documents
from migrate.vectors import Document

COUNT = 80
TEXTS = [f"text {row}: bread number {row % 7}, naïve 路径" for row in range(COUNT)]
IDS = [f"c{row}" for row in range(COUNT)]
METADATAS = [{"page": row, "tags": ["a", None]} for row in range(COUNT)]
NUMBERS = [str(row) for row in range(COUNT)]
RECORDS = [{"id": doc_id, "text": text, **fields} for doc_id, text, fields in zip(IDS, TEXTS, METADATAS, strict=True)]
CHROMA = {
    "ids": IDS, "embeddings": None, "documents": TEXTS, "uris": None, "included": ["documents", "metadatas"],
    "data": None, "metadatas": METADATAS,
}  # fmt: skip
FLAT = {"id": IDS, "text": TEXTS, "page": list(range(COUNT)), "tags": [["a", None]] * COUNT}
SHAPES = {
    "documents and metadatas": ({"documents": TEXTS, "metadatas": METADATAS}, NUMBERS),
    "texts and ids": ({"texts": TEXTS, "ids": IDS, "metadatas": METADATAS}, IDS),
    "what get of Chroma returns": (CHROMA, IDS),
    "columns": (FLAT, IDS),
    "a list of objects": ({"chunks": RECORDS}, IDS),
    "a list of objects among facts": ({"model": "m", "dim": 12, "files": ["a.pdf"], "items": RECORDS}, IDS),
    "a list of objects beside ids": ({"ids": IDS, "docs": [{"content": r["text"], "metadata": METADATAS[i]}
                                                           for i, r in enumerate(RECORDS)]}, IDS),
    "metadata in one list": ({"metadata": RECORDS}, IDS),
    "columns of pandas": ({name: dict(zip(NUMBERS, values, strict=True)) for name, values in FLAT.items()}, IDS),
    "rows of pandas": ({"columns": list(FLAT), "index": list(range(COUNT)), "data": [*map(list, zip(*FLAT.values(),
                                                                                                 strict=True))]}, IDS),
    "lists in one object": ({"data": {"documents": TEXTS, "ids": IDS, "metadatas": METADATAS}}, IDS),
    "texts in the metadata": ([{"id": i, "metadata": {"text": t, **m}}
                               for i, t, m in zip(IDS, TEXTS, METADATAS, strict=True)], IDS),
    "what Pinecone exports": ({"vectors": [{"id": i, "metadata": {"text": t, **m}}
                                           for i, t, m in zip(IDS, TEXTS, METADATAS, strict=True)],
                               "namespace": "n"}, IDS),
    "lines": ("\n".join(map(json.dumps, RECORDS)), IDS),
    "a table of pandas": ({"schema": {"fields": []}, "data": RECORDS}, IDS),
    "objects of LangChain.js": ([{"pageContent": t, "metadata": m} for t, m in zip(TEXTS, METADATAS, strict=True)],
                                NUMBERS),
}  # fmt: skip


@pytest.fixture
def vectors(vectors):
    return vectors[:COUNT]


def place(folder, vectors, content, name="metadata.json", *, array=False):
    folder.mkdir(exist_ok=True)
    if array:
        np.save(folder / "embeddings.npy", vectors)
    else:
        save(build("Flat", vectors), folder, "faiss.index")
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize("array", [False, True], ids=["index", "array"])
@pytest.mark.parametrize("shape", SHAPES)
def test_ids_texts_and_metadata_are_read(shape, array, vectors, tmp_path):
    content, ids = SHAPES[shape]
    store = open_store(place(tmp_path / "store", vectors, content, array=array))
    assert ["inner product" in note for note in store.info.notes] == [True] * array
    expected = [Document(*each) for each in zip(ids, TEXTS, METADATAS, strict=True)]
    assert list(store.documents()) == expected
    assert read(store)[0] == ids
    assert np.array_equal(read(store)[1], vectors)
    assert list(store.documents(np.array([7, 2]))) == [expected[7], expected[2]]


@pytest.mark.parametrize("array", [False, True], ids=["index", "array"])
@pytest.mark.parametrize("shape", ["documents and metadatas", "a list of objects"])
def test_the_file_goes_along_through_the_commands(shape, array, vectors, tmp_path, capsys):
    folder = place(tmp_path / "store", vectors, SHAPES[shape][0], array=array)
    assert inspected(folder, capsys)["documents_file"] == "metadata.json"
    _, new = moved(folder, tmp_path / "moved", capsys)
    assert (new.folder / "metadata.json").read_bytes() == (folder / "metadata.json").read_bytes()


@pytest.mark.parametrize("array", [False, True], ids=["index", "array"])
def test_fields_of_any_name_are_named_in_the_location(array, vectors, tmp_path, capsys):
    folder = place(tmp_path / "store", vectors, {"headline": TEXTS, "link": IDS}, array=array)
    way = open_store(folder).info.way_to_texts
    assert "it has headline, link; name it, as in " in way
    location = way.rpartition(" ")[2].strip("'")
    assert location.partition(":")[0] == ("arrays" if array else "faiss")
    assert [document.text for document in open_store(location).documents()] == TEXTS
    _, new = moved(f"{location}&id=link", tmp_path / "moved", capsys)
    assert [document.id for document in new.documents()] == IDS


@pytest.mark.parametrize("name", ["documents", "document"])
def test_a_list_is_named_as_it_is_in_the_file_or_as_one_of_its_values(name, vectors, tmp_path):
    folder = place(tmp_path / "store", vectors, {"texts": IDS, "documents": TEXTS})
    assert next(open_store(folder).documents()).text == "c0"
    assert [d.text for d in open_store(f"faiss:{folder}#?text={name}").documents()] == TEXTS


def test_two_lists_that_mean_one_field_keep_their_names(vectors, tmp_path):
    store = open_store(place(tmp_path / "store", vectors, {"text": TEXTS, "texts": IDS}))
    assert next(store.documents()) == Document("0", TEXTS[0], {"texts": "c0"})


def test_vectors_in_the_file_are_no_metadata(vectors, tmp_path):
    store = open_store(place(tmp_path / "store", vectors, {"documents": TEXTS, "embeddings": vectors.tolist()}))
    assert next(store.documents()) == Document("0", TEXTS[0])
    assert any("also holds vectors (embeddings)" in note for note in store.info.notes)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"documents": TEXTS, "metadatas": METADATAS[1:]}, f"lengths (documents {COUNT}, metadatas {COUNT - 1})"),
        ({"documents": TEXTS[1:]}, f"has {COUNT - 1} documents for {COUNT} vectors"),
        ({"documents": []}, "it has no records"),
        ({"documents": RECORDS, "chunks": RECORDS}, "several lists of objects (documents, chunks)"),
        ({"chunks": RECORDS, "ids": IDS}, "record 1 has 'id' twice, in chunks"),
        ({"documents": [[text] for text in TEXTS]}, "it has document"),
        ({"documents": [*TEXTS[:50], 7, *TEXTS[51:]]}, "record 51 has as 'document' no text but int 7"),
        ([[i, t] for i, t in zip(IDS, TEXTS, strict=True)], 'write each as an object, {"id": ..., "text": ...}'),
        ({"documents": {"a": TEXTS[1:]}}, f"has {COUNT - 1} documents for {COUNT} vectors"),
        ([{"id": i, "other": {"text": t}} for i, t in zip(IDS, TEXTS, strict=True)], "it has id, other; give it"),
        ({"columns": ["text"], "index": [], "data": [1]}, "different lengths"),
        ({"a": {"0": "x"}, "b": {"1": "x"}}, "it has 0, 1"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_in_one_line(content, says, vectors, tmp_path):
    info = open_store(place(tmp_path / "store", vectors, content)).info
    assert not info.has_texts
    (note,) = [note for note in info.notes if "with an entry for each row, but not read" not in note]
    assert note.startswith("no texts: ") and "metadata.json" in note and says in note and "\n" not in note, note


LINES = {
    "page_content": ([{"page_content": t, "metadata": m} for t, m in zip(TEXTS, METADATAS, strict=True)], NUMBERS),
    "numbers as ids": ([{**record, "id": row + 7} for row, record in enumerate(RECORDS)],
                       [str(row + 7) for row in range(COUNT)]),
    "ids and page_content": ([{"id": i, "page_content": t, "metadata": m}
                              for i, t, m in zip(IDS, TEXTS, METADATAS, strict=True)], IDS),
    "ids of BEIR": ([{"_id": i, "text": t, **m} for i, t, m in zip(IDS, TEXTS, METADATAS, strict=True)], IDS),
}  # fmt: skip


@pytest.mark.parametrize("array", [False, True], ids=["index", "array"])
@pytest.mark.parametrize("form", LINES)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_docs_jsonl_of_other_fields_is_read_as_any_other_file(form, ending, array, vectors, tmp_path):
    records, ids = LINES[form]
    lines = "\ufeff" + ending.join(json.dumps(record, ensure_ascii=False) for record in records)
    folder = place(tmp_path / "store", vectors, "", "unread.txt", array=array)
    (folder / "docs.jsonl").write_bytes(lines.encode())
    store = open_store(folder)
    assert list(store.documents()) == [Document(*each) for each in zip(ids, TEXTS, METADATAS, strict=True)]
    assert store.info.details["documents_file"] == "docs.jsonl"


@pytest.mark.parametrize("array", [False, True], ids=["index", "array"])
def test_a_docs_jsonl_without_ids_goes_through_the_commands(array, vectors, tmp_path, capsys):
    lines = "\n".join(map(json.dumps, LINES["page_content"][0]))
    folder = place(tmp_path / "store", vectors, lines, "docs.jsonl", array=array)
    assert "ids: numbers of records" in inspected(folder, capsys)["documents"]
    moved(folder, tmp_path / "moved", capsys)


@pytest.mark.parametrize(
    ("record", "field"),
    [({"headline": "a"}, "headline"), ({"text": 5}, "text")],
)
def test_a_docs_jsonl_without_texts_by_a_known_name_is_refused(record, field, vectors, tmp_path):
    lines = "\n".join([json.dumps({**record, "by": "b"})] * COUNT)
    folder = place(tmp_path / "store", vectors, lines, "docs.jsonl")
    with pytest.raises(StoreError, match=f"docs.jsonl: .* it has {field}"):
        open_store(folder)


@pytest.mark.parametrize(
    "name", ["chunks.jsonl", "chunks.ndjson", "chunks.json", "metadata.json", "texts.csv", "docs.parquet"]
)
def test_an_array_has_its_documents_in_any_file_by_row(name, vectors, tmp_path, capsys):
    # ids that are numbers, and not those of rows
    records = [{"id": str(3 * (COUNT - row)), "text": text, "page": str(row)} for row, text in enumerate(TEXTS)]
    folder = place(tmp_path / "store", vectors, "", "unread.txt", array=True)
    if name.endswith("parquet"):
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(records), folder / name)
    elif name.endswith("csv"):
        rows = ["id,text,page", *(f'{r["id"]},"{r["text"]}",{r["page"]}' for r in records)]
        (folder / name).write_text("\n".join(rows), encoding="utf-8")
    elif name.endswith(("jsonl", "ndjson")):
        (folder / name).write_text("\n".join(map(json.dumps, records)))
    else:
        (folder / name).write_text(json.dumps(records))
    old, new = moved(folder, tmp_path / "moved", capsys)
    assert [document.id for document in old.documents()] == [record["id"] for record in records]
    assert np.array_equal(read(old)[1], vectors)
    assert new.info.details["documents_file"] == name


def test_options_of_an_array_that_mean_nothing_are_refused(vectors, tmp_path):
    folder = place(tmp_path / "store", vectors, {"documents": TEXTS}, array=True)
    with pytest.raises(UsageError, match=r"option column; .* id, rows, text"):
        open_store(f"arrays:{folder}#?column=a")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("texts.json", json.dumps(TEXTS, ensure_ascii=False).encode("utf-16"), "save it as UTF-8"),
        ("texts.csv", "text\nnaïve\n".encode("latin-1"), "save it as UTF-8"),
        ("texts.jsonl", '"naïve"\n'.encode("latin-1"), "save it as UTF-8"),
    ],
)
def test_another_encoding_is_named_with_what_to_do(name, content, says, vectors, tmp_path):
    folder = place(tmp_path / "store", vectors, "", "unread.txt")
    (folder / name).write_bytes(content)
    assert open_store(folder).info.way_to_texts.endswith(says)


@pytest.mark.parametrize("content", [TEXTS, {"documents": TEXTS, "ids": IDS}], ids=["texts", "columns"])
def test_a_pickle_is_named_and_the_command_that_is_said_makes_it_readable(content, vectors, tmp_path):
    folder = place(tmp_path / "my store", vectors, "", "unread.txt")
    (folder / "chunks.pkl").write_bytes(pickle.dumps(content))
    way = open_store(folder).info.way_to_texts
    assert "a pickle, which can run code" in way and "\n" not in way
    command = shlex.split(way.partition("write them as JSON: ")[2])
    subprocess.run([sys.executable, *command[1:]], check=True, timeout=120)
    assert [document.text for document in open_store(folder).documents()] == TEXTS


@pytest.mark.parametrize("array", [False, True], ids=["index", "array"])
@pytest.mark.parametrize(
    ("name", "content"), [("docs.jsonl", ""), ("chunks.json", "[]"), ("metadata.json", {"texts": []})]
)
def test_a_store_of_nothing_says_so(name, content, array, vectors, tmp_path, capsys):
    folder = place(tmp_path / "store", vectors[:0], content, name, array=array)
    assert inspected(folder, capsys)["vectors"] == 0
    assert run(["fit", str(folder), "--target", "tfidf:8", "-o", str(tmp_path / "stitch")]) == 4
    assert "holds no vectors" in capsys.readouterr().err


class TestColumns(StoreTests):
    can_be_empty = False  # a list of nothing does not say which field is the text

    def make_store(self, folder, documents, vectors, metric):
        save(build("Flat", vectors, metric=metric), folder)
        content = {
            "ids": [document.id for document in documents],
            "documents": [document.text for document in documents],
            "metadatas": [dict(document.metadata) for document in documents],
        }
        (folder / "metadata.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        return folder


class TestArrayWithLines(StoreTests):
    metrics = ("ip",)
    can_be_empty = False

    def make_store(self, folder, documents, vectors, metric):
        folder.mkdir(exist_ok=True)
        np.save(folder / "embeddings.npy", vectors)
        records = [{"id": d.id, "content": d.text, "metadata": dict(d.metadata)} for d in documents]
        (folder / "chunks.jsonl").write_text("\n".join(map(json.dumps, records)))
        return folder


def test_awkward_ids_and_texts_come_back_out_of_columns(vectors, tmp_path):
    awkward = awkward_documents()
    content = {
        "ids": [d.id for d in awkward],
        "texts": [d.text for d in awkward],
        "metas": [d.metadata for d in awkward],
    }
    store = open_store(place(tmp_path / "store", vectors[: len(awkward)], content))
    assert list(store.documents()) == awkward
