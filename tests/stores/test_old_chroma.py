"""Folders of Chroma before 0.4: one file of Parquet with the records of all collections, and one with their names."""

import shlex
import sys

import pytest
from whole_path import moved

from migrate.errors import StoreError
from migrate.stores import open_store
from migrate.testing.stores import example_vectors
from migrate.vectors import Document

pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
KEYS = {"a": "11111111-1111-1111-1111-111111111111", "b": "22222222-2222-2222-2222-222222222222"}


def persist(folder, names, *, same_ids=True):
    """What Chroma 0.3 writes with `persist()`."""
    folder.mkdir()
    collections = [{"uuid": key, "name": name, "metadata": "null"} for name, key in KEYS.items() if name in names]
    parquet.write_table(pyarrow.Table.from_pylist(collections), folder / "chroma-collections.parquet")
    records = [
        {
            "collection_uuid": KEYS[name], "uuid": f"{name}-{row}", "embedding": vector.tolist(),
            "document": f"text {row} of {name}, on bread {row % 7}", "id": f"id{row}" if same_ids else f"{name}{row}",
            "metadata": f'{{"page": {row}}}',
        }
        for name in names for row, vector in enumerate(example_vectors())
    ]  # fmt: skip
    parquet.write_table(pyarrow.Table.from_pylist(records), folder / "chroma-embeddings.parquet")
    (folder / "index").mkdir()
    return folder


def test_a_folder_with_one_collection_names_the_file_that_can_be_read(tmp_path, capsys):
    folder = persist(tmp_path / "old", ["b"])
    with pytest.raises(StoreError, match=r"Chroma before 0\.4 wrote this folder; ") as error:
        open_store(folder)
    with pytest.raises(StoreError, match=r"Chroma before 0\.4 wrote this folder; "):
        open_store(f"chroma:{folder}")
    (location,) = shlex.split(str(error.value).rpartition("records, ")[2])
    old, _ = moved(location, tmp_path / "moved", capsys)
    first = next(old.documents())
    assert (first.id, first.text, first.metadata["page"]) == ("id0", "text 0 of b, on bread 0", 0)


@pytest.mark.parametrize("same_ids", [True, False])
def test_several_collections_are_named_and_the_command_that_is_said_takes_one_out(
    same_ids, tmp_path, capsys, monkeypatch
):
    folder = persist(tmp_path / "old's", ["a", "b"], same_ids=same_ids)
    messages = []
    for place in (folder, folder / "chroma-embeddings.parquet"):
        with pytest.raises(StoreError) as error:
            open_store(place)
        messages.append(str(error.value))
    message = messages[0]
    assert message.partition(": ")[2] == messages[1].partition(": ")[2]
    assert "2 collections: a (11111111-" in message and "b (22222222-" in message
    assert "chroma-migrate" in message and "\n" not in message
    monkeypatch.chdir(tmp_path)
    command = shlex.split(message.partition("as in ")[2].partition(", or move")[0])
    assert command[:2] == ["python", "-c"]
    monkeypatch.setattr(sys, "argv", command[1:2] + command[3:])
    exec(command[2], {})
    old, _ = moved(tmp_path / "one.parquet", tmp_path / "moved", capsys)
    ids = [f"id{row}" if same_ids else f"a{row}" for row in range(60)]
    assert [document.id for document in old.documents()] == ids
    assert all(document.text.partition(" of ")[2].startswith("a,") for document in old.documents())


def test_other_files_of_that_name_are_read(tmp_path):
    records = [{"id": f"d{row}", "text": "t", "vector": v.tolist()} for row, v in enumerate(example_vectors())]
    parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "chroma-embeddings.parquet")
    assert next(open_store(tmp_path / "chroma-embeddings.parquet").documents()) == Document("d0", "t")
