"""Folders of LangChain.js' FaissStore: faiss.index, and a docstore.json of pairs."""

import json
import shutil
import subprocess

import faiss
import numpy as np
import pytest
from faiss_tools import COUNT, build, digest, read, rewrite, save
from whole_path import inspected, moved

from migrate.errors import StoreError
from migrate.stores import open_store
from migrate.testing.stores import StoreTests
from migrate.vectors import Document

TEXTS = [f"text {row}: bread number {row % 7}, naïve 路径" for row in range(COUNT)]
IDS = [f"u{row}" for row in range(COUNT)]
READER = """
// as `FaissStore.load` and `similaritySearch` of @langchain/community do
const fs = require("fs");
const [docs, mapping] = JSON.parse(fs.readFileSync(process.argv[1], "utf8"));
const docstore = new Map(docs);
const found = process.argv.slice(2).map((row) => docstore.get(mapping[row]));
console.log(JSON.stringify(found));
"""


def pairs(documents):
    return [[d.id, {"pageContent": d.text, "metadata": dict(d.metadata), "id": d.id}] for d in documents]


def write(folder, documents, rows):
    (folder / "docstore.json").write_text(json.dumps([pairs(documents), rows], ensure_ascii=False), encoding="utf-8")


DOCUMENTS = [Document(*each) for each in zip(IDS, TEXTS, ({"n": row} for row in range(COUNT)), strict=True)]
ROWS = {str(row): doc_id for row, doc_id in enumerate(IDS)}


@pytest.fixture
def folder(vectors, tmp_path):
    folder = tmp_path / "store"
    save(build("Flat", vectors), folder, "faiss.index")
    write(folder, DOCUMENTS, ROWS)
    return folder


def test_ids_texts_and_metadata_are_read_by_row(folder, vectors):
    write(folder, DOCUMENTS[::-1], ROWS)
    store = open_store(folder)
    assert (store.info.kind, store.info.notes) == ("langchainjs", ())
    assert list(store.documents()) == DOCUMENTS
    assert read(store)[0] == IDS and np.array_equal(read(store)[1], vectors)
    assert {stamp.path.name for stamp in store.stamps} == {"faiss.index", "docstore.json"}


def test_the_rows_decide_and_documents_of_none_are_told(folder):
    more = [*DOCUMENTS, Document("deleted", "gone")]
    write(folder, more, {str(row): IDS[-1 - row] for row in range(COUNT)})
    store = open_store(folder)
    assert list(store.documents()) == DOCUMENTS[::-1]
    (note,) = store.info.notes
    assert note.startswith("1 documents in docstore.json belong to no vector")


def test_labels_of_inverted_lists_are_rows(folder, vectors):
    save(build("IVF8,Flat", vectors), folder, "faiss.index")
    ids, found = read(open_store(folder))
    assert ids != IDS and np.array_equal(found, vectors[[IDS.index(doc_id) for doc_id in ids]])


def test_the_commands_write_what_langchainjs_reads(folder, tmp_path, capsys):
    assert inspected(folder, capsys)["documents"] == "docstore.json of LangChain.js"
    _, new = moved(folder, tmp_path / "moved", capsys)
    assert (new.folder / "docstore.json").read_bytes() == (folder / "docstore.json").read_bytes()
    assert faiss.read_index(str(new.folder / "faiss.index")).ntotal == COUNT
    node = shutil.which("node")
    if node is not None:
        command = [node, "-e", READER, str(new.folder / "docstore.json"), "7", "399"]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=60).stdout)
        assert [entry["pageContent"] for entry in found] == [TEXTS[7], TEXTS[399]]


def test_of_a_new_store_the_index_alone_is_another(folder, tmp_path):
    before = digest(folder)
    rewrite(open_store(folder), tmp_path / "new", lambda vectors: -vectors)
    after = digest(tmp_path / "new")
    assert after.keys() == before.keys()
    assert {name for name in before if before[name] != after[name]} == {"faiss.index"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[", "Expecting value"),
        ([[], {}, 1], "it is no list of documents and rows"),
        ([[], []], "the rows are [], not an object"),
        ([[["a"]], {}], "['a'] is no [id, document]"),
        ([[["a", {"pageContent": 1}]], {}], "the document 'a' lacks a pageContent or metadata"),
        ([[["a", {"pageContent": "", "metadata": 1}]], {}], "the document 'a' lacks a pageContent or metadata"),
        ([pairs(DOCUMENTS[:1] * 2), {}], "two documents have the id 'u0'"),
        ([pairs(DOCUMENTS[:-1]), ROWS], "a vector has no document, for example 'u399'"),
        ([pairs(DOCUMENTS), {**ROWS, "7": None}], "no document, for example that of label 7"),
        ([pairs(DOCUMENTS), {**ROWS, "400": "u0"}], "1 documents have no vector"),
        ([pairs(DOCUMENTS), {**ROWS, "7": "u0"}], "two vectors have the document 'u0'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_one_line(content, says, folder):
    (folder / "docstore.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(StoreError) as error:
        open_store(folder)
    assert says in str(error.value) and "docstore.json: damaged, or not of this store" in str(error.value)
    assert "\n" not in str(error.value)


def test_documents_without_texts_are_no_texts(folder):
    write(folder, [Document(doc_id, "") for doc_id in IDS], ROWS)
    store = open_store(folder)
    assert not store.info.has_texts
    with pytest.raises(StoreError, match="all documents have empty texts"):
        store.documents()


class TestLangchainJs(StoreTests):
    can_be_empty = False

    def make_store(self, folder, documents, vectors, metric):
        save(build("Flat", vectors, metric=metric), folder, "faiss.index")
        write(folder, documents, {str(row): document.id for row, document in enumerate(documents)})
        return folder
