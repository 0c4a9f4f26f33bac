import gzip
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from faiss_tools import COUNT, build, save

from migrate.errors import InputError, StoreError, UsageError
from migrate.manifest import Manifest
from migrate.stores import open_store
from migrate.stores.registry import absolute_location, output_of


def test_stores_are_imported_without_faiss_or_langchain():
    code = (
        "import sys, migrate.stores; "
        "print([m for m in ('faiss', 'langchain_core', 'langchain_community', 'torch') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_folder_and_its_file_are_the_same_store(vectors, tmp_path):
    path = save(build("Flat", vectors), tmp_path)
    whole, file = open_store(tmp_path), open_store(path)
    assert whole.snapshot() == file.snapshot()
    assert whole.folder == file.folder == tmp_path
    assert file.info.details["index_bytes"] == path.stat().st_size


@pytest.mark.parametrize(
    ("typed", "full"),
    [
        (".", "{}/new"),
        ("../link", "{}/link"),
        ("faiss:../new", "faiss:{}/new"),
        ("kind:../s.db#docs?text=a/b", "kind:{}/s.db#docs?text=a/b"),
        ("pgvector:postgresql://host/shop#docs", "pgvector:postgresql://host/shop#docs"),
        ("parquet:s3://bucket/folder", "parquet:s3://bucket/folder"),
        ("../new#?text=a/b", "{}/new#?text=a/b"),
        ("../nothing", "../nothing"),
    ],
)
def test_a_location_in_full_leads_there_from_any_folder(typed, full, tmp_path, monkeypatch):
    (tmp_path / "new").mkdir()
    (tmp_path / "link").symlink_to("new")
    (tmp_path / "s.db").touch()
    monkeypatch.chdir(tmp_path / "new")
    assert absolute_location(typed) == full.format(tmp_path)


@pytest.mark.parametrize("name", ["vectors", "my.index", "default__vector_store.json", "index.faiss"])
def test_the_index_is_known_by_its_content(name, vectors, tmp_path):
    save(build("Flat", vectors), tmp_path, name)
    (tmp_path / "docs.pkl").write_bytes(b"\x80\x04.")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "README.faiss").write_text("not an index")
    assert open_store(tmp_path).info.details["index"] == name


def test_several_indexes_are_listed(vectors, tmp_path):
    save(build("Flat", vectors), tmp_path, "a.faiss")
    save(build("Flat", vectors), tmp_path, "b.faiss")
    with pytest.raises(StoreError, match=r"has 2 FAISS indexes \(a\.faiss, b\.faiss\)"):
        open_store(tmp_path)
    assert open_store(tmp_path / "b.faiss").info.count == COUNT


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:c3\nsize 9\n", "Git LFS pointer; run git lfs pull"),
        (b"<!DOCTYPE html>\n<html><body>404</body></html>", "web page"),
        (b"\n\n<HTML>", "web page"),
        (b"", "an empty file"),
        (b'{"a": 1}', "JSON"),
        (gzip.compress(b"IxF2", mtime=0), "gzip"),
        (b"PK\x03\x04rest", "zip"),
        (b"hello, here are words", "text"),
        (b"Ix", "text"),
        (b"\x80\x04\x95", "pickle"),
        (b"SQLite format 3\x00", "SQLite"),
        (b"\x93NUMPY\x01\x00", "NumPy"),
        (bytes(range(128, 228)), "bytes that begin with 80 81 82 83"),
        (b"Zx\xff\x00" + bytes(200), "bytes that begin with"),
    ],
)
def test_what_is_no_index_is_recognised(content, found, tmp_path):
    path = tmp_path / "index.faiss"
    path.write_bytes(content)
    for opened in (tmp_path, path):
        with pytest.raises(StoreError) as error:
            open_store(opened)
        assert found in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["missing", "file/below", "nul\0byte"])
def test_a_path_that_is_not_there_is_a_store_error(name, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="no such file or folder"):
        open_store(tmp_path / name)


def test_a_folder_without_an_index_says_what_is_there(tmp_path):
    with pytest.raises(StoreError, match="an empty folder"):
        open_store(tmp_path)
    os.mkfifo(tmp_path / "pipe")  # nobody waits for it
    with pytest.raises(StoreError, match="an empty folder"):
        open_store(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(StoreError, match=r"only notes\.txt"):
        open_store(tmp_path)


def test_a_device_is_refused_without_waiting():
    with pytest.raises(InputError, match="pipe, a socket or a device"):
        open_store("/dev/zero")


def test_the_manifest_of_the_index_is_part_of_the_facts(vectors, tmp_path):
    save(build("Flat", vectors), tmp_path)
    manifest = Manifest("store", details={"index": "index.faiss"}, created="2026-01-01")
    manifest.write(tmp_path)
    assert open_store(tmp_path).info.manifest == manifest
    Manifest("store", details={"index": "other.faiss"}, created="2026-01-01").write(tmp_path)
    info = open_store(tmp_path).info
    assert info.manifest is None
    assert any("manifest" in note for note in info.notes)


def test_the_fingerprint_tells_vectors_and_ids_apart(vectors, tmp_path):
    save(build("IDMap2,Flat", vectors, labels=range(COUNT)), tmp_path / "same")
    save(build("Flat", vectors), tmp_path / "plain")
    save(build("IDMap2,Flat", vectors, labels=range(1, COUNT + 1)), tmp_path / "ids")
    save(build("Flat", -vectors), tmp_path / "vectors")
    prints = {
        name: replace(open_store(tmp_path / name).snapshot(), versions=())
        for name in ("same", "plain", "ids", "vectors")
    }
    assert prints["same"] == prints["plain"]
    assert len(set(prints.values())) == 3


@pytest.mark.parametrize("place", ["chroma:new#docs", "lancedb:new#docs", "milvus:new#docs", "qdrant:new#docs",
                                   "sqlite-vec:new.db#docs", "parquet:new#"])  # fmt: skip
def test_options_of_a_new_store_that_takes_none_are_refused_in_one_clear_line(place):
    with pytest.raises(UsageError, match=r"no option id, text; .* takes none$"):
        output_of(f"{place}?text=body&id=key")


def test_an_option_that_means_nothing_is_told_with_those_that_do():
    with pytest.raises(UsageError, match=r"no option id; .* distance, .*, m"):
        output_of("pgvector:postgresql://host/shop#docs?id=key&m=16")


def test_options_behind_a_path_are_read_by_the_kind_that_the_path_has(vectors, tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "documents.parquet"
    pq.write_table(pa.table({"id": list(map(str, range(len(vectors)))), "vector": list(vectors)}), path)
    store = open_store(f"{path}#?distance=l2")
    assert store.info.metric == "l2" and store.info.count == len(vectors)
    assert store.snapshot() == open_store(f"parquet:{path}#?distance=l2").snapshot()
    with pytest.raises(UsageError, match="unknown distance 'l3'"):
        open_store(f"{path}#?distance=l3")


NO_STORES = {
    "texts.json": ('[{"id": "a", "text": "t"}]', "JSON without vectors"),
    "docs.jsonl": ('{"id": "a", "text": "t"}\n', "JSON without vectors"),
    "texts.csv": ("id,text\na,t\n", "text without vectors"),
    "paper.pdf": ("%PDF-1.4\n", "a PDF"),
}


@pytest.mark.parametrize("name", NO_STORES)
def test_what_holds_no_vectors_is_named_as_what_it_is(name, tmp_path):
    content, says = NO_STORES[name]
    (tmp_path / name).write_text(content)
    with pytest.raises(StoreError, match=f"this is not a store but {says}"):
        open_store(tmp_path / name)
    with pytest.raises(StoreError, match="no vectors are found here"):
        open_store(tmp_path)
    (tmp_path / name).rename(tmp_path / "index.faiss")
    with pytest.raises(StoreError, match=f"this is not a FAISS index but {says}"):
        open_store(tmp_path)
