import json
import os
import subprocess
import sys
from datetime import date

import faiss
import numpy as np
import pytest
from faiss_tools import COUNT, DIM, build, read, rewrite, serialize, write_docs

import migrate
from migrate.embedders import load_embedder
from migrate.errors import StoreError, UsageError
from migrate.stores import create_store, open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import read_confidence
from migrate.stores.file_store import index_is_verified
from migrate.stores.registry import output_of
from migrate.vectors import Document

DOCUMENTS = [Document(f"dök-{row}", f"text\n{row} \u2028", {"page": row}) for row in range(COUNT)]


def create(folder, store_format, vectors, documents=DOCUMENTS, metric="ip"):
    writer = create_store(folder, format=store_format, dim=DIM, metric=metric)
    for first in range(0, len(documents), 150):
        writer.append(documents[first : first + 150], vectors[first : first + 150])
    writer.finish()
    return open_store(folder)


@pytest.mark.parametrize("metric", ["l2", "ip"])
@pytest.mark.parametrize("store_format", ["faiss", "langchain"])
def test_documents_and_vectors_come_back(store_format, metric, vectors, tmp_path):
    store = create(tmp_path, store_format, vectors, metric=metric)
    ids, found = read(store)
    assert ids == [document.id for document in DOCUMENTS]
    assert np.array_equal(found, vectors)
    assert list(store.documents()) == DOCUMENTS
    assert (store.info.kind, store.info.metric, store.info.has_texts) == (store_format, metric, True)
    assert (tmp_path / "index.faiss").read_bytes() == serialize(build("Flat", vectors, metric=metric))


def test_docs_are_plain_utf8_lines(vectors, tmp_path):
    create(tmp_path, "faiss", vectors)
    lines = (tmp_path / "docs.jsonl").read_bytes().decode().split("\n")
    assert len(lines) == COUNT + 1
    assert lines[0].startswith('{"id": "dök-0"')
    assert json.loads(lines[1]) == {"id": "dök-1", "text": "text\n1 \u2028", "metadata": {"page": 1}, "faiss_id": 1}


@pytest.mark.parametrize("store_format", ["faiss", "langchain"])
@pytest.mark.parametrize("others", [[], ["x"]])
def test_ids_that_could_pass_for_row_numbers_keep_their_vectors(others, store_format, tmp_path):
    """Written into a file of their own, "2" in the first line might be taken for the document of row 2."""
    documents = [Document(name, f"text {name}") for name in ["2", "0", "3", "1", *others]]
    vectors = np.arange(1, 3 * len(documents) + 1, dtype=np.float32).reshape(-1, 3)
    (tmp_path / "new").mkdir()
    writer = create_store(tmp_path / "new", format=store_format, dim=3)
    writer.append(documents[:2], vectors[:2])
    writer.append(documents[2:], vectors[2:])
    writer.finish()
    store = open_store(tmp_path / "new")
    for written in (store, rewrite(store, tmp_path / "copy")):
        ids, found = read(written)
        assert ids == [document.id for document in written.documents()] == [document.id for document in documents]
        assert np.array_equal(found, vectors)


@pytest.fixture
def writer(store_format, tmp_path):
    return create_store(tmp_path, format=store_format, dim=DIM)


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_order_of_sets(tmp_path):
    """Python orders sets of texts by hashes that differ from process to process."""
    code = (
        "import sys; from pathlib import Path; import numpy as np; from migrate.vectors import Document; "
        "from migrate.stores import create_store; writer = create_store(Path(sys.argv[1]), format='langchain', dim=2); "
        "writer.append([Document('x', 't', {'tags': set('abcdef')})], np.ones((1, 2), 'f4')); writer.finish()"
    )
    pickles = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, check=True)
        pickles.add((tmp_path / "index.pkl").read_bytes())
    assert len(pickles) == 1


@pytest.mark.parametrize("store_format", ["faiss", "langchain"])
def test_two_documents_of_one_id_are_refused(writer, vectors):
    writer.append([*DOCUMENTS[:9], DOCUMENTS[3]], vectors[:10])
    with pytest.raises(StoreError, match="dök-3"):
        writer.finish()


@pytest.mark.parametrize("store_format", ["faiss", "langchain"])
def test_a_store_of_nothing_is_refused(writer):
    with pytest.raises(StoreError, match="there is no document to write"):
        writer.finish()


def test_vectors_and_documents_must_be_as_many(vectors, tmp_path):
    writer = create_store(tmp_path, format="faiss", dim=DIM)
    with pytest.raises(StoreError, match="3 vectors were given for 2 documents"):
        writer.append(DOCUMENTS[:2], vectors[:3])


def test_documents_stream_to_disk(vectors, tmp_path):
    writer = create_store(tmp_path, format="faiss", dim=DIM)
    writer.append(DOCUMENTS[:5], vectors[:5])
    assert (tmp_path / "docs.jsonl").read_bytes().count(b"\n") == 5
    assert (tmp_path / "index.faiss").stat().st_size == 45 + 5 * DIM * 4


@pytest.mark.parametrize("document", [Document("x", "t", {"when": date(2026, 1, 1)}), Document("x", "\ud800")])
def test_what_json_cannot_hold_is_refused(document, vectors, tmp_path):
    writer = create_store(tmp_path, format="faiss", dim=DIM)
    with pytest.raises(StoreError, match="'x'"):
        writer.append([document], vectors[:1])


def arrays_folder(folder, count):
    """A folder of vectors.npy and docs.jsonl, and its documents."""
    documents = [Document(f"d{row}", f"words {row} and {row % 7}", {"page": row}) for row in range(count)]
    model = load_embedder("tfidf:8")
    model.fit(documents)
    folder.mkdir()
    np.save(folder / "vectors.npy", model.embed_documents(documents))
    write_docs(folder, documents)
    return folder, documents


def test_a_store_of_another_kind_is_translated_into_a_flat_index(tmp_path):
    folder, documents = arrays_folder(tmp_path / "old", 80)
    fitted = migrate.fit(folder, "tfidf:6", sample=40)
    done = migrate.translate(folder, fitted, f"faiss:{tmp_path}/new")
    same_kind = migrate.translate(folder, fitted, tmp_path / "same")
    new = open_store(done.path, verify=True)
    assert (open_store(folder).info.kind, new.info.kind) == ("arrays", "faiss")
    assert list(new.documents()) == documents
    assert np.array_equal(read_all(new.scan()).vectors, read_all(open_store(same_kind.path).scan()).vectors)
    assert index_is_verified(new)


@pytest.mark.parametrize("index", ["IVF8,Flat", "IVF8,SQ8", "IVF8,SQfp16", "HNSW12"])
def test_a_store_of_another_kind_is_translated_into_an_index_of_a_kind(index, tmp_path):
    folder, documents = arrays_folder(tmp_path / "old", 200)
    fitted = migrate.fit(folder, "tfidf:6", sample=40)
    flat = open_store(migrate.translate(folder, fitted, f"faiss:{tmp_path}/flat").path)
    new = open_store(migrate.translate(folder, fitted, f"faiss:{tmp_path}/new#?index={index}").path, verify=True)
    assert new.info.details["factory"] == index.replace("HNSW12", "HNSW12,Flat")
    rows_of = {document.id: row for row, document in enumerate(new.documents())}
    assert {document.id: document for document in new.documents()} == {one.id: one for one in documents}
    vectors, order = read_all(flat.scan()), [rows_of[document.id] for document in flat.documents()]
    found = read_all(new.scan())
    assert [found.ids[row] for row in order] == list(vectors.ids)
    assert np.allclose(found.vectors[order], vectors.vectors, atol=0.02 if "SQ" in index else 0)
    assert np.array_equal(read_confidence(tmp_path / "new", 200)[order], read_confidence(tmp_path / "flat", 200))
    opened = faiss.read_index(str(tmp_path / "new" / "index.faiss"))
    if index.startswith("IVF"):
        assert (opened.nlist, opened.nprobe) == (8, 3)


def test_an_index_that_cannot_be_made_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UsageError, match=r"index=PQ8: .*; write IVF1024,Flat, "):
        output_of(f"faiss:{tmp_path}/new#?index=PQ8")
    for output in (f"faiss:{tmp_path}/new?index=IVF8,Flat", f"faiss:{tmp_path}/new#x?index=IVF8,Flat"):
        with pytest.raises(UsageError, match=r"write faiss:FOLDER#\?index=IVF1024,Flat"):
            output_of(output)
    with pytest.raises(UsageError, match=r"write faiss:.*/new#\?index=IVF8"):
        output_of(f"{tmp_path}/new#?index=IVF8,Flat")
    with pytest.raises(UsageError, match=r"index=HNSW1: this is no index that can be made"):
        output_of(f"faiss:{tmp_path}/new#?index=HNSW1")
    with pytest.raises(UsageError, match=r"there is no option text; .* there are index"):
        output_of(f"faiss:{tmp_path}/new#?text=body")
    np.save(tmp_path / "vectors.npy", np.eye(8, dtype=np.float32))
    store = open_store(tmp_path / "vectors.npy")
    with pytest.raises(UsageError, match=r"IVF9,Flat .*\(8\)"):
        output_of(f"faiss:{tmp_path}/new#?index=IVF9,Flat").writer(store, tmp_path, 8)


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("nosuch:place", "no store kind called 'nosuch'"),
        ("Chroma:place#docs", "kinds are in lower case; write chroma:..."),
        ("chroma:~/place#docs", "no shell expands the ~ there"),
        ("arrays:folder", "are written to a folder"),
        ("postgresql://h/db#t", "'postgresql' is installed; .*; write pgvector:postgresql://"),
        ("http://h:6333#t", "'http' is installed; .*; write qdrant:http://"),
    ],
)
def test_an_output_of_no_kind_is_refused(output, why):
    with pytest.raises(UsageError, match=why):
        output_of(output)
