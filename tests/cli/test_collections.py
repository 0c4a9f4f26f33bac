"""Many collections of one place, moved by one stitch, by the real client of Chroma."""

import json
import uuid
from contextlib import closing
from pathlib import Path

import chromadb
import numpy as np
import pytest
from children import run_command

from migrate.cli.main import run
from migrate.collections.fitting import share_out
from migrate.collections.members import find_collections
from migrate.errors import StoreError
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence

PATTERN, DIM, NEW_DIM = "chroma:vector_db#*", 16, 12


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def opened(folder="vector_db"):
    settings = chromadb.config.Settings(anonymized_telemetry=False)
    return chromadb.PersistentClient(Path(folder).absolute(), settings=settings)


def text_of(name, row):
    return f"text {row} of {name}, about topic {len(name) % 7} and {row % 9}"


def add(client, name, count, *, dim=DIM, **metadata):
    collection = client.get_or_create_collection(name, metadata={"hnsw:space": "cosine"})
    if count:
        vectors = np.random.default_rng(list(name.encode())).normal(size=(count, dim)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        rows = range(count)
        metadatas = [{"row": row, **metadata} for row in rows]
        ids = [f"doc-{row}" for row in rows]
        collection.add(ids, vectors.tolist(), metadatas, [text_of(name, row) for row in rows])


def content_of(folder="vector_db"):
    """Return ids, texts and metadata of all collections, and the dimension of their vectors."""
    found = {}
    with closing(opened(folder)) as client:
        for listed in client.list_collections():
            collection = client.get_collection(listed.name, embedding_function=None)
            got = collection.get(include=["documents", "metadatas", "embeddings"])
            rows = sorted(zip(got["ids"], got["documents"], got["metadatas"], strict=True), key=lambda row: row[0])
            found[listed.name] = rows, np.shape(got["embeddings"])[1:]
    return found


def make(sizes):
    with closing(opened()) as client:
        for name, count in sizes.items():
            add(client, name, count)


def document_of(capsys, words, code=0):
    capsys.readouterr()
    assert run([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_sample_has_some_of_each_collection():
    assert share_out([900, 20, 3], 240) == [217, 20, 3]
    assert share_out([5, 5], 100) == [5, 5]
    assert sum(share_out([400, 7, 90, 1], 100)) == 100
    assert min(share_out([100_000, *[50] * 39], 1_000)) >= 6


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_forty_collections_of_a_folder_are_moved_by_three_commands_and_a_kill(tmp_path, capsys):
    names = [f"file-{uuid.UUID(int=number)}" for number in range(39)] + ["knowledge"]
    sizes = {name: 12 + number % 9 for number, name in enumerate(names)}
    make({**sizes, "knowledge": 130, "user-memory": 0})
    before = content_of()
    fit = ["collections", "fit", PATTERN, "--target", f"tfidf:{NEW_DIM}", "--sample", "300", "-o", "stitches"]
    assert document_of(capsys, fit)["collections"] == sorted(names)
    translate = ["collections", "translate", PATTERN, "stitches", "-o", "new"]
    run_command([*translate, "--quiet"], tmp_path, "recorded:20")
    complete = {path.name: path.stat().st_mtime_ns for path in Path("new").iterdir() if path.name[0] != "."}
    assert len(complete) == 19
    done = document_of(capsys, translate)["collections"]
    assert {row["name"] for row in done if row["earlier"]} == complete.keys()
    assert [row["name"] for row in done] == sorted(names)
    assert {name: (tmp_path / "new" / name).stat().st_mtime_ns for name in complete} == complete
    for row in done:
        rows, (dim,) = content_of(row["location"])[row["name"]]
        assert (rows, dim) == (before[row["name"]][0], NEW_DIM)

    Path("queries.txt").write_text("".join(f"what is topic {row} about?\n" for row in range(30)))
    audit = ["collections", "audit", "new", "--source", PATTERN, "--queries", "queries.txt", "-o", "reports"]
    verdicts = {row["name"]: row for row in document_of(capsys, audit, code=3)["collections"]}
    assert verdicts.keys() == set(names)
    judged = [row for row in verdicts.values() if row["report"]]
    assert [row["name"] for row in judged] == ["knowledge"] and Path(judged[0]["report"]).is_file()
    assert all(name in Path("reports/report.html").read_text() for name in names)

    assert run(["collections", "switch", PATTERN, "new", "--unproven"]) == 0
    after = content_of()
    assert {name: rows for name, (rows, _) in after.items()} == {name: rows for name, (rows, _) in before.items()}
    assert {shape for rows, shape in after.values() if rows} == {(NEW_DIM,)}
    assert run(["rollback", "vector_db"]) == 0
    assert content_of() == before


def test_true_vectors_stay_with_the_collection_whose_ids_others_have_too(capsys):
    make({"alpha": 40, "beta": 30})
    assert run(["collections", "fit", PATTERN, "--target", "tfidf:8", "--sample", "30", "-o", "stitches"]) == 0
    assert run(["collections", "translate", PATTERN, "stitches", "-o", "new"]) == 0
    for name in ("alpha", "beta"):
        new = open_store(f"new/{name}")
        fitted = load_stitch(f"stitches/{name}")
        is_true = np.flatnonzero(stored_confidence(new) == 1)
        batch = new.get(is_true)
        _, rows = fitted.sample.positions(batch.ids)
        assert len(rows) == len(batch) == len(fitted.sample.ids) > 5
        assert np.allclose(batch.vectors, fitted.sample.vectors[rows], atol=1e-6)
        assert read_all(new.scan()).ids == read_all(open_store(f"chroma:vector_db#{name}").scan()).ids


def test_collections_of_another_dimension_or_model_are_left_out_by_name(capsys):
    make({"alpha": 60, "nothing": 0})
    with closing(opened()) as client:
        add(client, "another", 10, dim=4)
        add(client, "delta", 70, embedding_config=json.dumps({"engine": "openai", "model": "ada"}))
        add(client, "epsilon", 20, embedding_config=json.dumps({"engine": "", "model": "mini"}))
    found = document_of(capsys, ["collections", "inspect", PATTERN])
    assert [row["name"] for row in found["collections"]] == ["alpha", "delta"]
    assert found["left_out"] == {
        "another": "of 4 dimensions, and most are of 16 dimensions",
        "epsilon": "of mini, and most are of openai:ada",
        "nothing": "empty",
    }
    with pytest.raises(StoreError, match=r"no collection matches 'x\*'; there are alpha, another, delta"):
        find_collections("chroma:vector_db#x*")


@pytest.mark.parametrize("pattern", ["*", "a*", "*a", "*mm*", "alpha*"])
def test_a_star_stands_for_any_characters(pattern):
    make(dict.fromkeys(("alpha", "beta", "gamma"), 5))
    meant = {"*": ["alpha", "beta", "gamma"], "a*": ["alpha"], "*a": ["alpha", "beta", "gamma"], "*mm*": ["gamma"]}
    found = find_collections(f"chroma:vector_db#{pattern}")
    assert [member.name for member in found.members] == meant.get(pattern, ["alpha"])


def test_one_cap_is_for_all_collections(server, monkeypatch, capsys):
    from openai_server import KEY

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    make(dict.fromkeys(("alpha", "beta", "gamma"), 40))
    words = ["collections", "fit", PATTERN, "--target", "openai:text-embedding-3-small", "--price", "1000"]
    asked = len(server.requests)
    assert run([*words, "--max-cost", "0.5", "-o", "stitches"]) == 2
    said = capsys.readouterr().err
    assert "to embed: 120 documents" in said and "more than --max-cost" in said
    assert len(server.requests) == asked and not Path("stitches").exists()
    assert run([*words, "--max-cost", "9", "-o", "stitches"]) == 0
    assert sorted(path.name for path in Path("stitches").iterdir()) == ["alpha", "beta", "gamma"]


def test_judged_queries_count_for_the_collection_that_has_their_documents(capsys):
    make(dict.fromkeys(("alpha", "beta"), 120))
    assert run(["collections", "fit", PATTERN, "--target", "tfidf:8", "--sample", "60", "-o", "stitches"]) == 0
    assert run(["collections", "translate", PATTERN, "stitches", "-o", "new"]) == 0
    beir = Path("beir")
    (beir / "qrels").mkdir(parents=True)
    asked = [
        (f"q{row}", f"beta#doc-{row}", f"where does beta speak of {row} and topic {row % 9}?") for row in range(40)
    ]
    (beir / "queries.jsonl").write_text("".join(json.dumps({"_id": q, "text": t}) + "\n" for q, _, t in asked))
    (beir / "corpus.jsonl").write_text("".join(json.dumps({"_id": d, "text": t}) + "\n" for _, d, t in asked))
    judgements = "".join(f"{q}\t{doc}\t1\n" for q, doc, _ in asked)
    (beir / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judgements}")
    audit = ["collections", "audit", "new", "--source", PATTERN, "--judged", "beir", "-o", "reports"]
    run([*audit, "--json"])
    rows = {row["name"]: row for row in json.loads(Path("reports/report.json").read_text())["collections"]}
    assert rows["beta"]["report"], rows["beta"]["sentence"]
    assert "no judged query has a relevant document in this collection" in rows["alpha"]["sentence"]
    report = json.loads(Path("reports/beta/report.json").read_text())
    assert report["dataset"]["queries"] == 40
    made = Path("reports/beta/report.json").stat().st_mtime_ns
    run([*audit, "--json"])  # what is audited is not audited again
    again = {row["name"]: row for row in json.loads(Path("reports/report.json").read_text())["collections"]}
    assert again["beta"] == {**rows["beta"], "earlier": True}
    assert Path("reports/beta/report.json").stat().st_mtime_ns == made
