"""What is not read is named, and the command of the message makes a store of it that is read."""

import json
import re
import shlex
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from faiss_tools import build, read, save
from hostile_pickles import name as pickled_name

from migrate.errors import StoreError, UnsupportedStoreError
from migrate.stores import open_store

COUNT, DIM = 6, 5
VECTORS = np.arange(COUNT * DIM, dtype=np.float32).reshape(COUNT, DIM) / 7
TEXTS = [f"text {row}" for row in range(COUNT)]


def message_of(path):
    with pytest.raises(UnsupportedStoreError) as raised:
        open_store(path)
    return str(raised.value)


def follow(message, folder):
    """Run the command that a message names, as somebody who pastes it."""
    command = re.search(r"python -c \"[^\"]*\"[^;(]*", message)[0]
    _, *arguments = shlex.split(command)
    arguments = arguments[
        : next((at for at, word in enumerate(arguments) if word == "vectors.npy"), len(arguments)) + 2
    ]
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


def test_a_file_of_joblib_becomes_json_by_the_command_of_the_message(tmp_path):
    joblib = pytest.importorskip("joblib")
    joblib.dump({"embeddings": VECTORS, "texts": TEXTS}, tmp_path / "embeddings.joblib")
    follow(message_of(tmp_path / "embeddings.joblib"), tmp_path)
    store = open_store(tmp_path / "embeddings.json")
    np.testing.assert_allclose(read(store)[1], VECTORS, rtol=1e-6)


def save_torch(path):
    import torch

    torch.save({"embeddings": torch.from_numpy(VECTORS)}, path)


def save_tensors(path):
    import safetensors.numpy

    safetensors.numpy.save_file({"embeddings": VECTORS}, path)


ARRAYS = {
    "vectors.npz": lambda path: np.savez(path, embeddings=VECTORS, labels=np.arange(COUNT)),
    "vectors.pt": save_torch,
    "vectors.safetensors": save_tensors,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_of_another_format_becomes_npy(name, tmp_path):
    ARRAYS[name](tmp_path / name)
    follow(message_of(tmp_path), tmp_path)
    assert np.array_equal(read(open_store(tmp_path / "vectors.npy"))[1], VECTORS)


def test_a_table_of_arrow_becomes_parquet(tmp_path):
    feather, arrow = pytest.importorskip("pyarrow.feather"), pytest.importorskip("pyarrow")
    feather.write_feather(arrow.table({"text": TEXTS, "embedding": VECTORS.tolist()}), str(tmp_path / "t.feather"))
    follow(message_of(tmp_path / "t.feather"), tmp_path)
    np.testing.assert_allclose(read(open_store(tmp_path / "t.parquet"))[1], VECTORS, rtol=1e-6)


def old_milvus():
    """The schema of a file of milvus-lite 2.4."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE collection_meta (id INTEGER PRIMARY KEY, collection_name VARCHAR(1024))")
    return database.serialize()


LANGCHAIN = b"\x80\x04" + pickled_name("langchain.vectorstores.faiss", "FAISS") + b")\x81."
DOCSTORE = b"\x80\x04" + pickled_name("langchain_community.docstore.in_memory", "InMemoryDocstore") + b")\x81}\x86."
NAMED = {
    "that LangChain pickled whole; if you trust it, save it": ("vectorstore.pkl", LANGCHAIN),
    "give the folder of FAISS.save_local": ("index.pkl", DOCSTORE),
    "milvus-lite before 3": ("milvus.db", old_milvus()),
    "usearch": ("index.usearch", b"\x28\0\0\0"),
    "Annoy": ("index.ann", b"\x01\0\0\0"),
    "hnswlib": ("hnswlib.index", b"\0\0\0\0\0\0\0\0d\0"),
    "vectra": ("index.json", json.dumps({"version": 1, "metadata_config": {}, "items": []}).encode()),
    "Weaviate": ("schema.db", b"\0"),
    "Smart Connections": ("note.ajson", b'"smart_sources:a.md": {}'),
    "redb": ("data.redb", b"redb\x1a\x0a\xa9\x0d\x0a"),
    "Elasticsearch": (
        "dump.jsonl",
        b'{"_index": "a", "_id": "1", "_source": {"text": "t", "vector": [1, 2, 3, 4, 5]}}\n',
    ),
    "Chroma": ("data_level0.bin", b"\0\0\0"),
}


@pytest.mark.parametrize("name", NAMED)
def test_other_stores_are_named(name, tmp_path):
    file, content = NAMED[name]
    (tmp_path / file).write_bytes(content)
    place = tmp_path if file in ("hnswlib.index", "schema.db") else tmp_path / file
    assert name in message_of(place)


def test_a_vector_store_of_langchain_beside_its_index_is_named_where_texts_are_missing(tmp_path):
    save(build("Flat", VECTORS), tmp_path, "docs.index")
    (tmp_path / "faiss_store.pkl").write_bytes(LANGCHAIN)
    info = open_store(tmp_path).info
    assert not info.has_texts
    assert "save_local(sys.argv[3])" in info.way_to_texts and "docs.index saved" in info.way_to_texts


def test_a_file_of_an_earlier_milvus_lite_is_named_by_its_kind_too(tmp_path):
    pytest.importorskip("pymilvus")
    (tmp_path / "milvus.db").write_bytes(old_milvus())
    with pytest.raises(StoreError, match=r"'milvus-lite<3'"):
        open_store(f"milvus:{tmp_path / 'milvus.db'}")
