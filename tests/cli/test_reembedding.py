"""Budgets, frontiers and backfills as a user runs them."""

import json
import shutil

import numpy as np
import pytest
from dying import interrupt_at
from openai_server import OpenAIServer

import migrate
from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.embedders.again import ASKED_AGAIN
from migrate.errors import VectorError
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def without_words(audit_fields):
    """Leaves the arms of words out of what audits report."""
    audit_fields(no_bm25=True)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def log(corpus, tmp_path):
    """A query log of 50 queries, a line each."""
    path = tmp_path / "log.txt"
    path.write_text("\n".join(query.text.replace("\n", " ") for query in corpus.queries[:50]))
    return path


@pytest.fixture
def vectors_file(corpus, log, tmp_path):
    embedder = load_embedder("tfidf:48")
    embedder.fit(corpus.documents)
    path = tmp_path / "vectors.npz"
    logged = log.read_text().split("\n")
    queries = [*(query.text for query in corpus.queries), *logged]
    np.savez(
        path,
        doc_ids=[document.id for document in corpus.documents],
        docs=embedder.embed_documents(corpus.documents),
        query_ids=[f"q{number}" for number in range(len(set(queries)))],
        query_texts=sorted(set(queries)),
        queries=embedder.embed([Text(text) for text in sorted(set(queries))], "query"),
    )
    return path


class Text:
    def __init__(self, text):
        self.id = self.text = text


def lead_migrate(*arguments):
    return run([str(argument) for argument in arguments])


def complaint(capsys, *arguments):
    code = lead_migrate(*arguments)
    captured = capsys.readouterr()
    (line,) = [line for line in captured.err.split("\n") if line.startswith("lead-migrate: ")]
    assert captured.out == ""
    return code, line


@pytest.fixture
def stitch(source_folder, vectors_file, tmp_path, capsys):
    folder = tmp_path / "stitch"
    options = ["--target", f"file:{vectors_file}", "--sample", "30", "--stitch", "ridge"]
    assert lead_migrate("fit", source_folder, *options, "-o", folder) == 0
    capsys.readouterr()
    return folder


def test_a_budget_is_spent_on_what_the_log_meets(source_folder, stitch, vectors_file, log, tmp_path, capsys):
    options = ["--reembed", "40%", "--query-log", log, "--target", f"file:{vectors_file}"]
    assert lead_migrate("translate", source_folder, stitch, *options, "-o", tmp_path / "new") == 0
    shown = capsys.readouterr()
    assert "60 of them true ones" in shown.out
    assert "to embed: 30 documents, about " in shown.err and "(30 of them hits of the query log)" in shown.err
    assert open_store(tmp_path / "new").info.manifest.counts["true vectors"] == 60
    assert (tmp_path / "new.stitch" / "lead-migrate.json").exists()


def test_the_stitch_that_was_saved_goes_on(source_folder, stitch, vectors_file, tmp_path, capsys):
    options = ["--target", f"file:{vectors_file}", "--policy", "random"]
    first = ["--reembed", "60", "--save-stitch", tmp_path / "again", "-o", tmp_path / "new"]
    assert lead_migrate("translate", source_folder, stitch, *options, *first) == 0
    more = ["--reembed", "80", "-o", tmp_path / "more"]
    assert lead_migrate("translate", source_folder, tmp_path / "again", *options, *more) == 0
    assert "to embed: 20 documents" in capsys.readouterr().err
    assert lead_migrate("translate", source_folder, tmp_path / "again", "-o", tmp_path / "plain") == 0
    assert "60 of them true ones" in capsys.readouterr().out


def test_a_killed_command_goes_on_and_ends_with_the_same_bytes(
    source_folder, stitch, vectors_file, log, tmp_path, monkeypatch, digest, capsys
):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    options = ["--reembed", "50%", "--query-log", log, "--target", f"file:{vectors_file}"]

    with monkeypatch.context() as patch:
        interrupt_at("filled", patch)
        assert lead_migrate("translate", source_folder, stitch, *options, "-o", tmp_path / "new") == 130
    assert "to embed" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    assert lead_migrate("translate", source_folder, stitch, *options, "-o", tmp_path / "new") == 0
    assert "to embed" not in capsys.readouterr().err, "the stitch that was saved is taken"
    assert lead_migrate("translate", source_folder, stitch, *options, "-o", tmp_path / "whole") == 0
    assert digest(tmp_path / "new") == digest(tmp_path / "whole")
    assert digest(tmp_path / "new.stitch") == digest(tmp_path / "whole.stitch")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "random"], "--policy goes with --reembed"),
        (["--reembed", "lots"], "no budget; give one such as 10%"),
        (["--reembed", "10%"], "30 of 150 documents are paid for already"),
        (["--reembed", "$5"], "needs a model with a known price"),
        (["--reembed", "50%", "--any-store"], "leave out --any-store"),
        (["--reembed", "50%", "--policy", "query-log"], "name it with --query-log"),
    ],
)
def test_a_budget_that_cannot_be_followed_is_told(
    options, message, source_folder, stitch, vectors_file, tmp_path, capsys
):
    base = ["translate", source_folder, stitch, "--target", f"file:{vectors_file}", "-o", tmp_path / "new"]
    code, line = complaint(capsys, *base, *options)
    assert code == 2 and message in line
    assert not (tmp_path / "new").exists() and not (tmp_path / "new.stitch").exists()


def test_a_stitch_to_a_file_of_vectors_asks_where_it_is(source_folder, stitch, tmp_path, capsys):
    code, line = complaint(capsys, "translate", source_folder, stitch, "--reembed", "50%", "-o", tmp_path / "new")
    assert code == 2 and "where vectors.npz is" in line and "--target SPEC" in line


def test_a_model_of_another_dimension_than_the_stitchs_is_refused(source_folder, stitch, tmp_path, capsys):
    target = ["--target", "openai:text-embedding-3-small"]
    said = "the stitch: its vectors have dimension 48, those of openai:text-embedding-3-small 1536"
    code, line = complaint(capsys, "translate", source_folder, stitch, *target, "-o", tmp_path / "new")
    assert code == 4 and said in line and "leave out --target" in line
    with pytest.raises(VectorError, match=said):
        migrate.translate(source_folder, stitch, tmp_path / "new", target=target[1])
    assert not (tmp_path / "new").exists()


def test_what_is_there_is_told_before_anything_is_spent(source_folder, stitch, vectors_file, tmp_path, capsys):
    options = ["--target", f"file:{vectors_file}", "--reembed", "50%", "-o", tmp_path / "new"]
    for there in ("new", "new.stitch"):
        (tmp_path / there).mkdir()
        code, line = complaint(capsys, "translate", source_folder, stitch, *options)
        assert code == 2 and f"{there} exists" in line
        (tmp_path / there).rmdir()


@pytest.fixture
def migrated(source_folder, stitch, vectors_file, tmp_path, beir, capsys):
    """The arguments of an audit of a translated store."""
    target = f"file:{vectors_file}"
    assert lead_migrate("translate", source_folder, stitch, "-o", tmp_path / "new") == 0
    reference = ["--no-chunks", "-o", tmp_path / "full"]
    assert lead_migrate("embed", beir / "corpus.jsonl", "--model", target, *reference) == 0
    capsys.readouterr()
    return ["audit", tmp_path / "new", "--reference", tmp_path / "full", "--beir", beir, "--target", target]


def test_a_frontier_is_told_above_the_verdict(migrated, source_folder, stitch, audit_fields, tmp_path, capsys):
    audit_fields(frontier="50%,100%")
    report = tmp_path / "report.json"
    # BM25 and staying are better than this small model, and nothing would be SAFE beside them
    shutil.copytree(source_folder, tmp_path / "old")
    (tmp_path / "old/lead-migrate.json").unlink()
    options = ["--source", tmp_path / "old", "--frontier", stitch, "--report", report]
    code = lead_migrate(*migrated, *options, "--margin", "0.9", "--verbose")
    text = capsys.readouterr().out
    document = json.loads(report.read_text())
    assert code == {"SAFE": 0, "NOT SAFE": 1, "INCONCLUSIVE": 3}[document["verdict"]["outcome"]]
    assert "the cheapest budget that is SAFE: " in text
    assert text.index("re-embed by") < text.rindex(f"{document['verdict']['outcome']}: ")
    assert document["frontier"]["cheapest_safe"]["outcome"] == "SAFE"
    tried = [(point["policy"], point["documents"]) for point in document["frontier"]["points"]]
    assert tried == [("sample", 30), ("confidence", 75), ("confidence", 150), ("random", 75), ("random", 150)]
    assert max(len(line) for line in text.split("\n")) <= 100


@pytest.fixture
def unsure(stitch):
    """The stitch, as if its confidence had ranked nothing."""
    path = stitch / "lead-migrate.json"
    facts = json.loads(path.read_text())
    facts["details"]["selection"]["confidence"]["spearman"] = 0.1
    del facts["manifest_sha256"]
    path.write_text(json.dumps(facts))
    return stitch


def test_a_confidence_that_ranks_nothing_chooses_no_documents(unsure, source_folder, vectors_file, tmp_path, capsys):
    options = ["--reembed", "40%", "--target", f"file:{vectors_file}", "-o", tmp_path / "better"]
    code, line = complaint(capsys, "translate", source_folder, unsure, *options, "--policy", "confidence")
    assert code == 2 and "Spearman 0.10, below 0.2; take --policy query-log with a --query-log" in line
    assert lead_migrate("translate", source_folder, unsure, *options) == 0
    assert "Spearman 0.10, below 0.2; the documents to embed are drawn at random" in capsys.readouterr().err
    asked = load_stitch(tmp_path / "better.stitch").manifest.details["re-embedding"]["asked"]
    assert asked["policy"] == "random"


def test_a_confidence_that_ranks_nothing_slices_no_queries(
    migrated, unsure, source_folder, tmp_path, capsys, audit_fields
):
    report = tmp_path / "report.json"
    assert "confidence" in slices_of(report, *migrated)
    capsys.readouterr()
    audit_fields(policy=("confidence",))
    code, line = complaint(capsys, *migrated, "--source", source_folder, "--frontier", unsure)
    audit_fields(policy=())
    assert code == 2 and "--policy confidence: the confidence is not to be used" in line
    assert lead_migrate("translate", source_folder, unsure, "-o", tmp_path / "new", "--force") == 0
    assert "note: the confidence is not to be used" in capsys.readouterr().out
    assert "confidence" not in slices_of(report, *migrated)
    assert "Spearman 0.10, below 0.2; nothing is sliced by it" in capsys.readouterr().out.replace("\n  ", " ")


def slices_of(report, *audit):
    """What an audit tells queries apart by."""
    assert lead_migrate(*audit, "--report", report, "--force", "--verbose") in (0, 1, 3)
    return {row["by"] for row in json.loads(report.read_text())["slices"]}


def test_a_policy_that_is_decided_on_beforehand_is_tried_alone(
    migrated, source_folder, stitch, tmp_path, audit_fields, capsys
):
    audit_fields(frontier="50%", policy=("random",))
    options = ["--source", source_folder, "--frontier", stitch, "--report", tmp_path / "report.json"]
    assert lead_migrate(*migrated, *options, "-v") in (0, 1, 3)
    head = next(line for line in capsys.readouterr().out.split("\n") if line.startswith("re-embed by"))
    assert " 95 % bounds" in head
    points = json.loads((tmp_path / "report.json").read_text())["frontier"]["points"]
    assert [point["policy"] for point in points] == ["sample", "random"]
    audit_fields(policy=("query-log",))
    assert lead_migrate(*migrated, *options, "--force") == 2
    assert "the policy query-log needs a query log, and there is none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "fields", "message"),
    [
        (["--frontier", "x"], {}, "--frontier needs --source STORE, the store that its stitch was fitted on"),
        (["--frontier", "x", "--source", "y"], {"frontier": "5000"}, "'5000' are no shares of the store; give some"),
        ([], {"frontier": "10%"}, "frontier goes with the stitch of a frontier"),
        ([], {"policy": ("random",)}, "policy goes with the stitch of a frontier"),
        (["--two-stage", "many"], {}, "--two-stage: 'many' are no numbers of documents such as 50,200, or none"),
    ],
)
def test_an_audit_that_cannot_be_had_is_told(options, fields, message, migrated, audit_fields, capsys):
    audit_fields(**fields)
    code, line = complaint(capsys, *migrated, *options)
    assert code == 2 and message in line


def test_queries_of_the_log_judge_neither_frontier_nor_store(
    migrated, source_folder, stitch, log, beir, capsys, audit_fields
):
    base = [*migrated, "--source", source_folder, "--frontier", stitch, "-q"]
    audit_fields(frontier="50%", query_log=beir / "queries.jsonl")
    code, line = complaint(capsys, *base)
    assert code == 3 and "INCONCLUSIVE: docstrings: 150 of 150 queries chose documents" in line
    audit_fields(query_log=log)
    assert lead_migrate(*base, "--json") in (0, 1, 3)
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"]["queries"] == 100 == document["dataset"]["queries"]
    note = "50 of 150 queries chose documents that have true vectors"
    assert f"{note}; they do not judge" in document["notes"] and not document["frontier"]["notes"], "told once"


def test_a_backfill_takes_what_is_in_the_cache_and_asks_for_little(source_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with OpenAIServer() as server:
        monkeypatch.setenv("LEAD_MIGRATE_BASE_URL", server.url)
        options = ["--target", "openai:tiny", "--stitch", "ridge"]
        assert lead_migrate("fit", source_folder, *options, "--sample", "30", "-o", tmp_path / "stitch") == 0
        assert lead_migrate("translate", source_folder, tmp_path / "stitch", "-o", tmp_path / "new") == 0
        assert lead_migrate("fit", source_folder, *options, "--sample", "90", "-o", tmp_path / "other") == 0
        served = len(server.texts_served)
        capsys.readouterr()
        assert lead_migrate("backfill", tmp_path / "new", "-o", tmp_path / "better", "--json") == 0
        assert len(server.texts_served) - served <= 1 + ASKED_AGAIN, "the dimension, and what proves the model"
    found = json.loads(capsys.readouterr().out)
    assert (found["count"], found["true"], found["true before"], found["left"]) == (150, 90, 30, 60)


def test_a_backfill_needs_a_cache(migrated, source_folder, tmp_path, capsys):
    code, line = complaint(capsys, "backfill", source_folder, "-o", tmp_path / "better")
    assert code == 2 and "the vectors of the model are not cached" in line
    code, line = complaint(capsys, "backfill", source_folder, "-o", source_folder / "inside")
    assert code == 2 and "overlaps" in line
