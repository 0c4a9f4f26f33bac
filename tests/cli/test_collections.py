"""Many collections of one place, moved by one stitch, by the real client of Chroma."""

import json
import re
import shlex
import shutil
import uuid
from contextlib import closing
from itertools import product
from pathlib import Path

import chromadb
import numpy as np
import pytest
from children import run_command

from migrate.cli.main import run
from migrate.collections.members import find_collections
from migrate.embedders import load_embedder
from migrate.errors import StoreError
from migrate.manifest import MANIFEST_NAME, Manifest, StoreFacts
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.stores.confidence import stored_confidence
from migrate.vectors import Document

pytestmark = pytest.mark.slow

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


def test_collections_of_a_folder_are_moved_by_three_commands_and_a_kill(tmp_path, capsys):
    names = [f"file-{uuid.UUID(int=number)}" for number in range(5)] + ["knowledge"]
    sizes = {name: 12 + number % 9 for number, name in enumerate(names)}
    make({**sizes, "knowledge": 130, "user-memory": 0})
    before = content_of()
    fit = ["collections", "fit", PATTERN, "--target", f"tfidf:{NEW_DIM}", "--kind", "ridge", "--sample", "60"]
    fit += ["-o", "stitches"]
    assert document_of(capsys, fit)["collections"] == sorted(names)
    translate = ["collections", "translate", PATTERN, "stitches", "-o", "new"]
    run_command([*translate, "--quiet"], tmp_path, "recorded:4")
    complete = {path.name: path.stat().st_mtime_ns for path in Path("new").iterdir() if path.name[0] != "."}
    assert len(complete) == 3
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
    assert {row["outcome"] for name, row in verdicts.items() if name != "knowledge"} == {"SAFE"}
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
    assert run(["collections", "fit", PATTERN, "--target", "tfidf:8", "--dry-run", "-o", "stitches"]) == 0
    assert "16 dimensions: another\n" in capsys.readouterr().err
    assert found["left_out"] == {
        "another": "of 4 dimensions, and most are of 16 dimensions",
        "epsilon": "of mini, and most are of openai:ada",
        "nothing": "empty",
    }
    with pytest.raises(StoreError, match=r"'x\*'; there are alpha, another, delta"):
        find_collections("chroma:vector_db#x*")


def test_a_star_stands_for_any_characters():
    names = ["alpha", "beta", "gamma"]
    make(dict.fromkeys(names, 5))
    meant = {"*": names, "a*": ["alpha"], "*a": names, "*mm*": ["gamma"], "alpha*": ["alpha"]}
    for pattern, expected in meant.items():
        found = find_collections(f"chroma:vector_db#{pattern}")
        assert [member.name for member in found.members] == expected, pattern


def test_one_cap_is_for_all_collections(server, monkeypatch, capsys):
    from openai_server import KEY

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    make({"alpha": 40, "beta": 40, "gamma": 140})
    words = ["collections", "fit", PATTERN, "--target", "openai:text-embedding-3-small,dimensions=24"]
    words += ["--price", "1000", "--sample", "40"]
    asked = len(server.requests)
    assert run([*words, "--max-cost", "0.5", "-o", "stitches"]) == 2
    said = capsys.readouterr().err
    assert "2 of them have fewer than 100 documents" in said and " whole: 80\n" in said
    assert "to embed: 120 documents" in said and "more than --max-cost" in said
    assert len(server.requests) == asked and not Path("stitches").exists()
    assert run([*words, "--max-cost", "9", "-o", "stitches"]) == 0
    assert sorted(path.name for path in Path("stitches").iterdir()) == ["alpha", "beta", "gamma"]
    assert run(["collections", "translate", PATTERN, "stitches", "-o", "new"]) == 0
    Path("queries.txt").write_text("".join(f"what is topic {row} about?\n" for row in range(30)))
    asked = len(server.requests)
    audit = ["collections", "audit", "new", "--source", PATTERN, "--queries", "queries.txt", "-o", "reports"]
    assert run([*audit, "--price", "1000", "--max-cost", "0.001"]) == 2
    assert "more than --max-cost" in capsys.readouterr().err
    assert len(server.requests) == asked and not Path("reports").exists()


def test_judged_queries_count_for_the_collection_that_has_their_documents(capsys):
    make(dict.fromkeys(("alpha", "beta"), 120))
    assert run(["collections", "fit", PATTERN, "--target", "tfidf:8", "--sample", "60", "-o", "stitches"]) == 0
    assert run(["collections", "translate", PATTERN, "stitches", "-o", "new"]) == 0
    write_judged([(f"beta#doc-{row}", f"where does beta speak of {row} and topic {row % 9}?") for row in range(40)])
    audit = ["collections", "audit", "new", "--source", PATTERN, "--judged", "beir", "-o", "reports"]
    code = run([*audit, "--json"])
    rows = {row["name"]: row for row in json.loads(Path("reports/report.json").read_text())["collections"]}
    assert rows["beta"]["report"], rows["beta"]["sentence"]
    assert "no judged query" in rows["alpha"]["sentence"]
    assert (rows["alpha"]["exit_code"], rows["beta"]["exit_code"], code) == (3, 1, 1)  # a NOT SAFE is worse
    report = json.loads(Path("reports/beta/report.json").read_text())
    assert report["dataset"]["queries"] == 40
    made = Path("reports/beta/report.json").stat().st_mtime_ns
    run([*audit, "--json"])  # what is audited is not audited again
    again = {row["name"]: row for row in json.loads(Path("reports/report.json").read_text())["collections"]}
    assert again["beta"] == {**rows["beta"], "earlier": True}
    assert Path("reports/beta/report.json").stat().st_mtime_ns == made
    edited = {
        **report,
        "verdict": {**report["verdict"], "outcome": "SAFE"},
        "plan": {**report["plan"], "outcome": "SAFE"},
    }
    damages = {"beta/report.json": [json.dumps(edited), "["], "audited.json": ["[]", '{"beta":']}
    for name, contents in damages.items():
        for content in contents:
            Path("reports", name).write_text(content)
            assert run([*audit, "--json"]) == 1  # what is damaged is audited again
            again = {row["name"]: row for row in json.loads(Path("reports/report.json").read_text())["collections"]}
            assert again["beta"] == rows["beta"]
            assert json.loads(Path("reports/beta/report.json").read_text())["verdict"] == report["verdict"]


def follow(words, capsys, **filled):
    """Run a command, and each that is printed as the next one with what is to be filled in; names and exit codes."""
    done = []
    while words is not None:
        capsys.readouterr()
        code = run(words)
        printed = capsys.readouterr()
        done.append((words[1], code))
        said = printed.out + printed.err
        commands = [line for line in said.splitlines() if line.startswith("next: lead-migrate ")]
        words = [filled.get(word, word) for word in shlex.split(commands[-1])[2:]] if commands else None
    return done, said


def test_a_newcomer_moves_small_collections_by_the_commands_as_printed(capsys):
    make({"alpha": 40, "beta": 30, "nothing": 0})
    with closing(opened()) as client:
        add(client, "of-another-model", 7, dim=4)
    before = content_of()
    done, said = follow(["collections", "inspect", PATTERN], capsys, SPEC=f"tfidf:{NEW_DIM}")
    assert done == [("inspect", 0), ("fit", 0), ("translate", 0), ("switch", 0)], said
    after = content_of()
    assert {name: rows for name, (rows, _) in after.items()} == {name: rows for name, (rows, _) in before.items()}
    assert {name: shape for name, (rows, shape) in after.items() if rows} == {
        "alpha": (NEW_DIM,), "beta": (NEW_DIM,), "of-another-model": (4,)
    }  # fmt: skip
    (back,) = [line for line in said.splitlines() if line.startswith("to roll back: lead-migrate ")]
    assert run(["collections", "switch", PATTERN, "translated"]) == 0
    assert "as an earlier switch began" in capsys.readouterr().out
    assert run(shlex.split(back.removeprefix("to roll back: lead-migrate "))) == 0
    assert content_of() == before


def make_rotated(sizes, *, n_queries, other=()):
    """Write collections whose old vectors are those of the new model, turned, and queries of each that it judges.

    Those of the `other` names are turned in another way, as if another model had made them.
    """
    draw = np.random.default_rng(0)
    words = ["".join(letters) for letters in product("bdfg", "aeiou", "klmnp", ["r", "st"])]
    texts = {name: [" ".join(draw.choice(words, 8)) for _ in range(count)] for name, count in sizes.items()}
    embedder = load_embedder("tfidf:48")
    embedder.fit([Document(name, text) for name, own in texts.items() for text in own])
    turn, other_turn = (np.linalg.qr(one.normal(size=(48, 48)))[0] for one in (draw, np.random.default_rng(1)))
    asked = []
    with closing(opened()) as client:
        for name, own in texts.items():
            vectors = embedder.embed_documents([Document(name, text) for text in own])
            collection = client.create_collection(name, metadata={"hnsw:space": "cosine"})
            old = vectors @ (other_turn if name in other else turn)
            collection.add([f"doc-{row}" for row in range(len(own))], old.tolist(), documents=own)
            queries = [f"where is {' '.join(draw.choice(words, 5))} told" for _ in range(n_queries)]
            scores = embedder.embed_documents([Document(name, query) for query in queries]) @ vectors.T
            third = np.argsort(-scores, axis=1)[:, 2]
            asked += [(f"{name}#doc-{row}", query) for row, query in zip(third, queries, strict=True)]
    write_judged(asked)


def write_judged(asked):
    """Write queries in the form of BEIR, each with its one relevant document."""
    beir = Path("beir")
    (beir / "qrels").mkdir(parents=True)
    records = [{"_id": f"q{row}", "text": text} for row, (_, text) in enumerate(asked)]
    (beir / "queries.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    corpus = [{"_id": doc, "text": text} for doc, text in asked]
    (beir / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in corpus))
    judgements = "".join(f"q{row}\t{doc}\t1\n" for row, (doc, _) in enumerate(asked))
    (beir / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judgements}")


def test_a_newcomer_moves_large_collections_by_the_commands_as_printed(capsys):
    make_rotated({"alpha": 300, "beta": 240, "gamma": 12}, n_queries=150)
    before = content_of()
    fit = ["collections", "fit", PATTERN, "--target", "tfidf:48", "--kind", "ridge", "--sample", "200"]
    fit += ["-o", "stitches"]
    done, said = follow(fit, capsys, DIR="beir")
    assert done == [("fit", 0), ("translate", 0), ("audit", 0), ("switch", 0)], said
    assert "SAFE, as the report says" in said
    assert run(["rollback", "vector_db"]) == 0
    assert content_of() == before


@pytest.mark.parametrize(("other", "is_told"), [((), False), (("beta",), True)])
def test_a_fit_tells_that_collections_are_of_two_models(other, is_told, capsys):
    make_rotated({"alpha": 200, "beta": 200}, n_queries=1, other=other)
    fit = ["collections", "fit", PATTERN, "--target", "tfidf:48", "--kind", "ridge", "--sample", "240"]
    assert run([*fit, "-o", "stitches"]) == 0
    printed = capsys.readouterr()
    assert ("the old vectors are of two kinds" in printed.out + printed.err) == is_told


def test_an_audit_that_was_killed_goes_on_where_it_was(tmp_path, capsys):
    make_rotated({"alpha": 130, "beta": 120}, n_queries=30)
    fit = ["collections", "fit", PATTERN, "--target", "tfidf:48", "--kind", "ridge", "--sample", "60"]
    assert run([*fit, "-o", "stitches"]) == 0
    assert run(["collections", "translate", PATTERN, "stitches", "-o", "new"]) == 0
    audit = ["collections", "audit", "new", "--source", PATTERN, "--judged", "beir", "-o", "reports"]
    assert run_command(audit, tmp_path, "audited:2")[0] is None
    first = Path("reports/alpha/report.json")
    made = first.stat().st_mtime_ns
    assert not Path("reports/report.json").exists()
    run(audit)
    rows = {row["name"]: row for row in json.loads(Path("reports/report.json").read_text())["collections"]}
    assert {name: row["earlier"] for name, row in rows.items()} == {"alpha": True, "beta": False}
    assert first.stat().st_mtime_ns == made


@pytest.fixture(scope="module")
def translated_once(tmp_path_factory):
    """A folder with two collections in `vector_db` and their translations in `new`."""
    folder = tmp_path_factory.mktemp("translated")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        make({"alpha": 20, "beta": 15})
        fit = ["collections", "fit", PATTERN, "--target", f"tfidf:{NEW_DIM}", "--kind", "ridge", "-o", "stitches"]
        assert run([*fit, "-q"]) == 0
        assert run(["collections", "translate", PATTERN, "stitches", "-q", "-o", "new"]) == 0
    return folder


@pytest.mark.parametrize("moment", ["gathered:1", "noted:1", "exchanged:1"])
def test_a_switch_that_was_killed_leaves_one_or_the_other_and_is_finished(translated_once, tmp_path, moment):
    shutil.copytree(translated_once, tmp_path, dirs_exist_ok=True)
    before = content_of()
    switch = ["collections", "switch", PATTERN, "new"]
    assert run_command(switch, tmp_path, moment)[0] is None
    now = {name: shape for name, (_, shape) in content_of().items()}
    assert now == dict.fromkeys(("alpha", "beta"), (NEW_DIM if moment == "exchanged:1" else DIM,))
    for _ in range(2):
        assert run(switch) == 0
        assert {shape for _, shape in content_of().values()} == {(NEW_DIM,)}
    assert run(["rollback", "vector_db"]) == 0
    assert content_of() == before


def test_stores_of_their_own_are_switched_one_by_one_whatever_their_names(tmp_path, capsys):
    import faiss

    for name in ("x", "x#y", "z*"):
        Path("indexes", name).mkdir(parents=True)
        index = faiss.IndexFlatIP(DIM)
        index.add(np.random.default_rng(len(name)).normal(size=(15, DIM)).astype(np.float32))
        faiss.write_index(index, f"indexes/{name}/index.faiss")
        lines = [json.dumps({"id": str(row), "text": text_of(name, row)}) for row in range(15)]
        Path("indexes", name, "docs.jsonl").write_text("\n".join(lines) + "\n")
    assert run(["collections", "fit", "indexes/*", "--target", "tfidf:8", "--kind", "ridge", "-o", "stitches"]) == 0
    assert run(["collections", "translate", "indexes/*", "stitches", "-o", "new"]) == 0
    switch = ["collections", "switch", "indexes/*", "new"]
    assert run_command(switch, tmp_path, "exchanged:1")[0] is None

    def dims():
        return [faiss.read_index(str(path)).d for path in sorted(Path("indexes").glob("*/index.faiss"))]

    assert dims() == [8, DIM, DIM]
    for _ in range(2):
        assert run(switch) == 0
        assert dims() == [8, 8, 8]
    assert run(["rollback", "indexes/x#y"]) == 0
    assert dims() == [8, DIM, 8]


@pytest.fixture
def tables():
    """A database of PostgreSQL with a table for each name, and a connection."""
    psycopg = pytest.importorskip("psycopg")
    from postgres import server_url

    database = f"app_{uuid.uuid4().hex[:8]}"
    with closing(psycopg.connect(server_url(), autocommit=True)) as server:
        server.execute(f"CREATE DATABASE {database}")
    url = re.sub(r"/postgres(?=\?|$)", f"/{database}", server_url())
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        for name in ("data_a", "data_b#c", "data_d"):
            connection.execute(f'CREATE TABLE "{name}" (id bigserial PRIMARY KEY, text text, embedding vector({DIM}))')
            for row, vector in enumerate(np.random.default_rng(len(name)).normal(size=(15, DIM))):
                insert = f'INSERT INTO "{name}" (text, embedding) VALUES (%s, %s::vector)'
                connection.execute(insert, [text_of(name, row), str(vector.tolist())])
        yield url, connection


def test_tables_of_a_server_are_switched_one_by_one_and_a_kill_between_is_made_good(tables, tmp_path, capsys):
    url, connection = tables
    pattern = f"pgvector:{url}#data_*"

    def dims():
        names = ("data_a", "data_b#c", "data_d")
        found = [
            connection.execute(f'SELECT vector_dims(embedding) FROM "{name}" LIMIT 1').fetchone() for name in names
        ]
        return [dim for (dim,) in found]

    fit = ["collections", "fit", pattern, "--target", "tfidf:8", "--kind", "ridge", "-o", "stitches"]
    assert run(fit) == 0
    assert run(["collections", "translate", pattern, "stitches", "-o", f"{pattern}_new"]) == 0
    assert f"collections switch '{pattern}' '{pattern}_new'" in capsys.readouterr().err
    switch = ["collections", "switch", pattern, f"{pattern}_new"]
    assert run_command(switch, tmp_path, "exchanged:2")[0] is None  # in the transaction of the second
    assert dims() == [8, DIM, DIM]
    assert run(switch) == 0
    assert dims() == [8, 8, 8]
    assert run(switch) == 0
    assert capsys.readouterr().out.count("as an earlier switch began") == 3
    assert run(["rollback", f"pgvector:{url}#data_d"]) == 0
    assert dims() == [8, 8, DIM]


def test_a_folder_of_many_stores_that_an_earlier_version_wrote_as_one_is_refused_in_one_line(capsys):
    Path("joined/alpha").mkdir(parents=True)
    facts = StoreFacts(index="chroma:vector_db#*").as_details()
    manifest = Manifest(kind="store", model=None, counts={}, details=facts)
    Path("joined", MANIFEST_NAME).write_text(json.dumps(manifest.as_json()))
    assert run(["inspect", "joined"]) == 4
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and "joined: " in said[0] and "the commit 0a3df1b0" in said[0]
