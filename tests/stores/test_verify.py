"""A store whose manifest has hashes is read by nobody before it is held against them."""

import os
import shutil

import pytest

from migrate.errors import StoreError
from migrate.stores import file_store, open_store


@pytest.fixture
def folder(source_folder, tmp_path):
    return shutil.copytree(source_folder, tmp_path / "store")


def flip(path, at):
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def test_a_store_is_held_against_its_manifest_in_rows_too_that_the_fingerprint_does_not_look_at(folder):
    before = open_store(folder, verify=True)
    assert before.companions.verify() == ("index.faiss", "docs.jsonl")
    fingerprint = before.snapshot().fingerprint
    flip(folder / "index.faiss", at=45 + 100 * 32 * 4)
    assert open_store(folder).snapshot().fingerprint == fingerprint
    with pytest.raises(StoreError, match=r"index\.faiss: its BLAKE3 .* copy it again"):
        open_store(folder, verify=True)


def test_files_are_hashed_once_unless_they_change(folder, monkeypatch):
    hashed, real = [], file_store.hash_file
    monkeypatch.setattr(file_store, "hash_file", lambda path, by: (hashed.append(path.name), real(path, by))[1])
    store = open_store(folder, verify=True)
    store.companions.verify()
    store.snapshot()
    store.document_hashes()
    assert hashed == ["index.faiss", "docs.jsonl"]
    os.utime(folder / "index.faiss", ns=(1, 1))
    store.companions.verify()
    assert hashed == ["index.faiss", "docs.jsonl", "index.faiss"]
    flip(folder / "docs.jsonl", at=12)
    with pytest.raises(StoreError, match=r"docs\.jsonl: .* damaged or replaced"):
        store.companions.verify()


def test_stores_of_other_texts_are_told_apart(folder, bare_folder):
    one = open_store(folder).snapshot()
    (folder / "docs.jsonl").write_text((folder / "docs.jsonl").read_text() + "\n")
    other, bare = open_store(folder).snapshot(), open_store(bare_folder).snapshot()
    noted = {name: getattr(one, name) for name in one.__slots__}
    assert one.difference(noted) is None
    assert other.difference(noted) == "the same vectors, other texts"
    assert other.difference({**noted, "count": 7}) == "7 vectors there, 150 here"
    assert other.difference({**noted, "dim": 7}) == f"7 dimensions there, {noted['dim']} here"
    assert other.difference({**noted, "metric": "l2"}) == "compared by l2 there, by ip here"
    assert other.difference({**noted, "rows_sha256": "0"}) == "as many documents, other ids or vectors"
    older = {name: value for name, value in noted.items() if name != "texts_hash"}
    assert other.difference(older) is None, "a stitch from before texts were noted"
    assert bare.texts_hash is None and bare.difference(noted) is None, "the same store without its texts"
