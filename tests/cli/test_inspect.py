"""What `inspect` says of several stores, and its last line: one command, or how a store gets texts."""

import json
import shlex
import shutil
from pathlib import Path

import faiss
import numpy as np
import pytest

from migrate.cli.main import run


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def save_index(path, dim=8, count=50):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    index = faiss.IndexFlatIP(dim)
    index.add(np.random.default_rng(0).normal(size=(count, dim)).astype(np.float32))
    faiss.write_index(index, str(path))


def inspected(capsys, *arguments, code=0):
    assert run(["inspect", *arguments]) == code
    shown = capsys.readouterr()
    assert all(len(line) <= 100 for line in shown.out.splitlines())
    return shown.out, shown.err.splitlines()


def next_words(error):
    assert [line.partition(":")[0] for line in error] in (["next"], ["SPEC", "next"])
    line = error[-1]
    assert line.startswith("next: lead-migrate ")
    return shlex.split(line)[2:]


def test_a_good_store_ends_with_the_next_command_as_the_store_was_typed(source_folder, capsys):
    shutil.copytree(source_folder, "my store")
    _, error = inspected(capsys, "my store/")
    words = next_words(error)
    assert words == ["assess", "my store/", "--target", "SPEC"]
    assert run([*words[:-1], "tfidf:8"]) == 0
    capsys.readouterr()
    assert inspected(capsys, "my store", "--json")[1] == []


def test_a_store_without_texts_ends_with_how_to_give_it_some(capsys):
    save_index("bare/index.faiss")
    _, error = inspected(capsys, "bare")
    assert error == ['to give it texts: put a docs.jsonl ({"id", "text"} a line) beside the index']
    Path("bare/docs.jsonl").write_text("".join(f'{{"id": "d{row}", "text": "t"}}\n' for row in range(50)))
    assert next_words(inspected(capsys, "bare")[1])[0] == "assess"


def test_several_indexes_of_a_folder_are_listed_and_the_first_is_next(capsys):
    save_index("stores/a.faiss")
    save_index("stores/b.faiss", dim=24, count=1_200)
    out, error = inspected(capsys, "stores")
    assert [line.split() for line in out.splitlines()] == [
        ["store", "format", "vectors", "dimension"],
        ["stores/a.faiss", "faiss", "50", "8"],
        ["stores/b.faiss", "faiss", "1,200", "24"],
    ]
    words = next_words(error)
    assert words == ["inspect", "stores/a.faiss"]
    inspected(capsys, *words[1:])
    document = json.loads(inspected(capsys, "stores", "--json")[0])
    assert [store["vectors"] for store in document["stores"]] == [50, 1_200]


def test_folders_with_stores_are_listed_with_those_that_cannot_be_read(capsys):
    save_index("every/one/index.faiss")
    np.save("every/one.npy", np.ones((7, 3), np.float32))
    np.save("every/two.npy", np.ones((9, 3), np.float32))
    Path("every/two").mkdir()
    Path("every/two/index.faiss").write_bytes(b"IxFIcut")
    Path("every/notes.txt").write_text("nothing")
    out, error = inspected(capsys, "every")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[1:]}
    assert rows["every/one"] == ["faiss", "50", "8"]
    assert rows["every/two.npy"] == ["arrays", "9", "3"]
    assert rows["every/two"] == ["not", "read", "-", "-"]
    assert next_words(error) == ["inspect", "every/one"]


def test_a_damaged_index_is_told_and_not_listed(capsys):
    save_index("store/index.faiss")
    save_index("store/old/index.faiss")
    Path("store/index.faiss").write_bytes(Path("store/index.faiss").read_bytes()[:-40])
    out, error = inspected(capsys, "store", code=4)
    assert out == "" and "store/index.faiss" in error[0]


def test_tables_of_a_database_are_listed(capsys):
    lancedb = pytest.importorskip("lancedb")
    database = lancedb.connect("shop")
    for name, count in (("items", 5), ("people", 6)):
        rows = [{"id": f"{name}-{row}", "text": "t", "vector": [1.0, float(row)]} for row in range(count)]
        database.create_table(name, rows)
    out, error = inspected(capsys, "shop")
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["lancedb:shop#items", "lancedb", "5", "2"],
        ["lancedb:shop#people", "lancedb", "6", "2"],
    ]
    assert next_words(error) == ["inspect", "lancedb:shop#items"]
    inspected(capsys, "lancedb:shop#nosuch", code=4)


def test_run_and_fit_name_the_columns_that_could_be_texts_as_inspect_does(beir, capsys):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = {"id": ["a", "b"], "headline": ["x", "y"], "link": ["u", "v"], "embedding": [[1.0, 0.0], [0.0, 1.0]]}
    parquet.write_table(pyarrow.table(rows), "items.parquet")
    hint = "it could be headline, link; say ?text=COLUMN for one"
    assert inspected(capsys, "items.parquet")[1] == [f"to give it texts: {hint}"]
    for command in (["fit", "-o", "stitch"], ["run", "-o", "out", "--beir", str(beir)]):
        assert run([command[0], "items.parquet", "--target", "tfidf:4", "-q", *command[1:]]) == 4
        assert hint in capsys.readouterr().err
