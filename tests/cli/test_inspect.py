"""What `inspect` says of stores and of stitches, and its last line: one command, or how a store gets texts."""

import shutil
import subprocess
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest
from safetensors.numpy import load_file

import migrate
from migrate.embedders import load_embedder
from migrate.stores import open_store


def save_index(path, dim=8, count=50):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    index = faiss.IndexFlatIP(dim)
    index.add(np.random.default_rng(0).normal(size=(count, dim)).astype(np.float32))
    faiss.write_index(index, path)


@pytest.fixture
def inspect(lead_migrate):
    def of(words, code=0):
        ended = lead_migrate(f"inspect {words}", code=code)
        assert all(len(line) <= 100 for line in ended.out.splitlines()) or "--json" in words
        return ended

    return of


def rows_of(ended):
    return [line.split() for line in ended.out.splitlines()]


def test_a_good_store_ends_with_the_next_command_as_the_store_was_typed(source_folder, inspect, lead_migrate):
    shutil.copytree(source_folder, "my store")
    ended = inspect("'my store/'")
    assert ended.next == "assess 'my store/' --target SPEC"
    assert [line.partition(":")[0] for line in ended.err.splitlines()] == ["SPEC", "next"]
    lead_migrate(ended.next.replace("SPEC", "tfidf:8"))
    assert inspect("'my store' --json").err == ""


def test_a_store_without_texts_ends_with_how_to_give_it_some(inspect):
    save_index("bare/index.faiss")
    assert 'docs.jsonl ({"id", "text"} a line)' in inspect("bare").err
    Path("bare/docs.jsonl").write_text("".join(f'{{"id": "d{row}", "text": "t"}}\n' for row in range(50)))
    assert inspect("bare").next.startswith("assess bare ")


def test_several_indexes_of_a_folder_are_listed_and_the_first_is_next(inspect):
    save_index("stores/a.faiss")
    save_index("stores/b.faiss", dim=24, count=1_200)
    ended = inspect("stores")
    assert rows_of(ended) == [
        ["store", "format", "vectors", "dimension"],
        ["stores/a.faiss", "faiss", "50", "8"],
        ["stores/b.faiss", "faiss", "1,200", "24"],
    ]
    assert ended.next == "inspect stores/a.faiss"
    inspect("stores/a.faiss")
    assert [store["vectors"] for store in inspect("stores --json").document["stores"]] == [50, 1_200]


def test_folders_with_stores_are_listed_with_those_that_cannot_be_read(inspect):
    save_index("every/one/index.faiss")
    np.save("every/one.npy", np.ones((7, 3), np.float32))
    np.save("every/two.npy", np.ones((9, 3), np.float32))
    Path("every/two").mkdir()
    Path("every/two/index.faiss").write_bytes(b"IxFIcut")
    Path("every/notes.txt").write_text("nothing")
    ended = inspect("every")
    rows = {name: rest for name, *rest in rows_of(ended)}
    assert rows["every/one"] == ["faiss", "50", "8"]
    assert rows["every/two.npy"] == ["arrays", "9", "3"]
    assert rows["every/two"] == ["not", "read", "-", "-"]
    assert ended.next == "inspect every/one"


def test_a_damaged_index_is_told_and_not_listed(inspect):
    save_index("store/index.faiss")
    save_index("store/old/index.faiss")
    Path("store/index.faiss").write_bytes(Path("store/index.faiss").read_bytes()[:-40])
    assert "store/index.faiss" in inspect("store", code=4).complaint


@pytest.mark.slow
def test_tables_of_a_database_are_listed(inspect):
    lancedb = pytest.importorskip("lancedb")
    database = lancedb.connect("shop")
    for name, count in (("items", 5), ("people", 6)):
        rows = [{"id": f"{name}-{row}", "text": "t", "vector": [1.0, float(row)]} for row in range(count)]
        database.create_table(name, rows)
    ended = inspect("shop")
    assert rows_of(ended)[1:] == [
        ["lancedb:shop#items", "lancedb", "5", "2"],
        ["lancedb:shop#people", "lancedb", "6", "2"],
    ]
    assert ended.next == "inspect 'lancedb:shop#items'"
    inspect("lancedb:shop#nosuch", code=4)


def test_run_and_fit_name_the_columns_that_could_be_texts_as_inspect_does(judged, inspect, lead_migrate):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = {"id": ["a", "b"], "headline": ["x", "y"], "link": ["u", "v"], "embedding": [[1.0, 0.0], [0.0, 1.0]]}
    parquet.write_table(pyarrow.table(rows), "items.parquet")
    hint = "it could be headline, link; say ?text=COLUMN for one"
    assert inspect("items.parquet").err == f"to give it texts: {hint}\n"
    for command in ("fit", "run --judged judged"):
        assert hint in lead_migrate(f"{command} items.parquet --target tfidf:4 -q -o out", code=4).complaint


@pytest.fixture(scope="module")
def stitches(source_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stitches")
    store, target = open_store(source_folder), load_embedder("tfidf:24")
    for name, kind in (("linear", "ridge"), ("texts", "ridge+text")):
        migrate.fit(store, target, sample=60, kind=kind).save(folder / name)
    migrate.fit(store, target, sample=60, kind="adjoint", direction="query").save(folder / "queries")
    return folder


@pytest.fixture
def facts_and_lines(stitches, inspect):
    """What is told of a stitch: the document, and the lines by their names."""

    def of(name):
        lines = (line.split("  ", 1) for line in inspect(stitches / name).out.splitlines())
        return inspect(f"{stitches / name} --json").document, {head: rest.strip() for head, rest in lines}

    return of


@pytest.mark.slow
def test_a_linear_map_has_its_dimensions_pairs_and_arrays(stitches, facts_and_lines):
    document, lines = facts_and_lines("linear")
    arrays = load_file(stitches / "linear" / "weights.safetensors")
    assert document["arrays"]["matrix"] == list(arrays["stitch.matrix"].shape) == [32, 24]
    assert (document["spec"], document["from_dimension"], document["to_dimension"]) == ("ridge", 32, 24)
    assert document["pairs"] == 60 and document["views"] == []
    assert lines["views"] == "the old vector alone"


@pytest.mark.slow
def test_a_stitch_that_reads_texts_names_its_views(facts_and_lines):
    document, lines = facts_and_lines("texts")
    assert document["reads_texts"] and "vector" in document["views"]
    assert document["without_texts"] in lines["without texts"]


@pytest.mark.slow
def test_a_stitch_for_queries_goes_the_other_way(facts_and_lines):
    document, lines = facts_and_lines("queries")
    assert (document["maps"], document["from_model"], document["to_model"]) == ("queries", "tfidf:24", "tfidf:32")
    assert (document["from_dimension"], document["to_dimension"]) == (24, 32)
    assert lines["maps"] == "queries: tfidf:24 -> tfidf:32"


@pytest.mark.slow
def test_a_damaged_stitch_is_one_line(stitches, inspect):
    Path("half").mkdir()
    shutil.copy(stitches / "linear/lead-migrate.json", "half")
    ended = inspect("half", code=4)
    assert "incomplete or damaged" in ended.complaint and ended.err.count("\n") == 1


@pytest.mark.slow
def test_a_store_is_inspected_without_stitches_checks_and_databases(source_folder):
    code = f"""
import sys
from migrate.cli.main import run
assert run(["inspect", {str(source_folder)!r}]) == 0
rooms = ("migrate.check", "migrate.databases", "migrate.stitch.registry", "migrate.selection")
print([name for name in rooms if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")
