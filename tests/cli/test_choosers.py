"""Queries that chose documents do not judge, whichever command asks: what a user is told, and what is paid for it."""

import json

import pytest
from openai_server import OpenAIServer

from migrate.audit.step import Audit
from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.pipeline import Run
from migrate.stores import create_store

pytestmark = pytest.mark.slow

CHOSE = "queries chose documents that have true vectors"
NOTE = f"75 of 150 {CHOSE}; they do not judge"
ALL = f"INCONCLUSIVE: docstrings: 150 of 150 {CHOSE}; they do not judge, 0 others are left"
TARGET = ["--target", "openai:tiny"]
FIT = [*TARGET, "--sample", "60", "--stitch", "ridge"]


@pytest.fixture(autouse=True)
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    with OpenAIServer() as running:
        monkeypatch.setenv("LEAD_MIGRATE_BASE_URL", running.url)
        yield running


@pytest.fixture
def logs(corpus, tmp_path):
    """Logs of all queries that judge, of the first half, and of others, each as somebody else types it."""
    texts = [" ".join(query.text.split()) for query in corpus.queries]
    logs = {"all": texts, "half": texts[:75], "others": [f"what about {text}" for text in texts[:75]]}
    for name, lines in logs.items():
        (tmp_path / f"{name}.txt").write_text("".join(f"  {line.upper()}\n" for line in lines))
    return {name: f"{name}.txt" for name in logs}


def lead_migrate(*arguments):
    return run([str(argument) for argument in arguments])


def made(*commands):
    for command in commands:
        assert lead_migrate(*command) == 0


FIT_BY_LOG = ["fit", "SOURCE", *FIT, "--query-log", "LOG", "-o", "stitch"]
FIT_AT_RANDOM = ["fit", "SOURCE", *FIT, "-o", "stitch"]
TRANSLATE = ["translate", "SOURCE", "stitch", "-o", "new"]
REEMBED = [*TRANSLATE, *TARGET, "--reembed", "60%"]

WAYS = {
    "the sample": [FIT_BY_LOG, TRANSLATE],
    "a budget": [FIT_AT_RANDOM, [*REEMBED, "--query-log", "LOG"]],
    "the sample before a budget": [FIT_BY_LOG, [*REEMBED, "--policy", "random"]],
    "a stitch that was kept": [
        FIT_AT_RANDOM,
        [*TRANSLATE[:-1], "first", *REEMBED[5:], "--query-log", "LOG"],
        ["translate", "SOURCE", "first.stitch", "-o", "new"],
    ],
    "a store that is filled in": [
        FIT_BY_LOG,
        [*TRANSLATE[:-1], "first"],
        ["backfill", "first", "-o", "new"],
    ],
    "a store that is translated again": [
        FIT_BY_LOG,
        [*TRANSLATE[:-1], "first"],
        ["fit", "first", *FIT, "--seed", "5", "-o", "second"],
        ["translate", "first", "second", "-o", "new"],
    ],
}
AUDIT = ["audit", "new", "--reference", "build", "--beir", "BEIR", "-q"]
FRONTIER = [*AUDIT, "--source", "SOURCE", "--frontier", "stitch", "--query-log", "LOG"]
RUN = ["run", "SOURCE", *FIT, "--beir", "BEIR", "--query-log", "LOG", "-o", "out", "-q"]
CASES = {
    **{way: (commands, AUDIT) for way, commands in WAYS.items()},
    "a frontier": ([FIT_AT_RANDOM, TRANSLATE], FRONTIER),
    "a frontier of a sample": ([FIT_BY_LOG, TRANSLATE], [*FRONTIER[:-2], "--policy", "random"]),
    "the stitch of a bridge": (
        [FIT_AT_RANDOM, TRANSLATE, [*FIT_BY_LOG[:-1], "bridge", "--direction", "query", "--stitch", "ols"]],
        [*AUDIT, "--source", "SOURCE", "--bridge", "bridge"],
    ),
    "a run": ([], RUN),
}


@pytest.fixture
def told(source_folder, beir, logs, step_fields):
    """Runs a command on the log of that name; a judging one has it, and a policy, as fields of its step."""

    def run_on(command, log):
        command, step = list(command), {"audit": Audit, "run": Run}.get(command[0])
        if step is Audit:
            step_fields(Audit, frontier="60%" if "--frontier" in command else None, policy=(), query_log=None)
        if step is not None and "--query-log" in command:
            at = command.index("--query-log")
            del command[at : at + 2]
            step_fields(step, query_log=logs[log])
        if step is not None and "--policy" in command:
            at = command.index("--policy")
            step_fields(step, policy=(command[at + 1],))
            del command[at : at + 2]
        places = {"SOURCE": source_folder, "BEIR": beir, "LOG": logs[log]}
        return lead_migrate(*(places.get(part, part) for part in command))

    return run_on


@pytest.mark.parametrize("case", CASES)
def test_queries_that_chose_documents_do_not_judge(case, told, server, capsys):
    before, judge = CASES[case]
    for command in before:
        assert told(command, "half") == 0
    capsys.readouterr()
    assert told([*judge, "--json"], "half") in (0, 1, 3)
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"]["queries"] == 75 == len(document["query_ids"])
    assert document["notes"].count(NOTE) == 1
    assert not any("query log" in note for note in document.get("frontier", {}).get("notes", []))


@pytest.mark.parametrize("case", CASES)
def test_where_no_query_is_left_that_shows_before_money_is_spent(case, told, server, tmp_path, capsys):
    before, judge = CASES[case]
    for command in before:
        assert told(command, "all") == 0
    billed = len(server.billed)
    capsys.readouterr()
    assert told([*judge, "--cache", "none", "--json"], "all") == 3
    captured = capsys.readouterr()
    (line,) = captured.err.strip().split("\n")
    assert captured.out == ""
    assert line.startswith(f"lead-migrate: {ALL}, and at least 20 are needed: give another --beir")
    assert len(server.billed) - billed <= 1, "at most the question for the dimension"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("case", ["the sample", "a frontier", "a run"])
def test_a_log_of_other_queries_lets_all_judge(case, told, capsys):
    before, judge = CASES[case]
    for command in before:
        assert told(command, "others") == 0
    capsys.readouterr()
    assert told([*judge, "--json"], "others") in (0, 1, 3)
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"]["queries"] == 150
    assert not any("query log" in note for note in document["notes"])


def test_what_the_queries_ask_is_not_kept(told, logs, tmp_path):
    for command in WAYS["the sample"]:
        assert told(command, "half") == 0
    asked = (tmp_path / logs["half"]).read_text().casefold().split("\n")[0].strip()
    for name in ("stitch", "new"):
        text = (tmp_path / name / "lead-migrate.json").read_text()
        assert len(json.loads(text)["details"]["chosen by queries"]) == 75
        assert asked not in text.casefold()


def test_a_stitch_of_an_older_version_opens_and_lets_all_judge(told, tmp_path, capsys):
    assert told(FIT_BY_LOG, "half") == 0
    path = tmp_path / "stitch" / "lead-migrate.json"
    facts = json.loads(path.read_text())
    del facts["details"]["chosen by queries"], facts["manifest_sha256"]
    path.write_text(json.dumps(facts))
    assert told(TRANSLATE, "half") == 0
    capsys.readouterr()
    assert told([*AUDIT, "--json"], "half") in (0, 1, 3)
    assert json.loads(capsys.readouterr().out)["verdict"]["queries"] == 150


def test_queries_that_repeat_each_other_count_once(told, beir, tmp_path, capsys):
    """Fifteen questions in forty spellings are not six hundred."""
    queries = [json.loads(line) for line in (beir / "queries.jsonl").read_text().splitlines()][:15]
    lines = [line.split("\t") for line in (beir / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    folder = tmp_path / "repeated"
    (folder / "qrels").mkdir(parents=True)
    spell = [str.upper, str.lower, str.title, str.swapcase]
    with (folder / "queries.jsonl").open("w") as asked, (folder / "qrels" / "test.tsv").open("w") as judged:
        for number in range(40):
            for query in queries:
                name = f"{query['_id']}.{number}"
                asked.write(json.dumps({"_id": name, "text": spell[number % 4](query["text"]) + " " * number}) + "\n")
                judged.writelines(f"{name}\t{doc}\t{grade}\n" for q, doc, grade in lines if q == query["_id"])
    for command in (FIT_AT_RANDOM, TRANSLATE):
        assert told(command, "all") == 0
    capsys.readouterr()
    audit = ["audit", "new", "--reference", "build", "--beir", folder, "--json", "-q"]
    assert lead_migrate(*audit, "--margin", "0.5") == 3
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"]["queries"] == 15
    assert "15 queries are too few for a verdict" in document["verdict"]["sentence"]
    assert any("585 of 600 queries repeat the text of another" in note for note in document["notes"])


def test_a_store_of_a_handful_of_documents_is_not_safe(corpus, server, tmp_path, capsys):
    """Whatever the vectors, its first ten documents are all that it has."""
    lines = [json.dumps({"id": one.id, "text": one.text}) for one in corpus.documents[:10]]
    (tmp_path / "few.jsonl").write_text("\n".join(lines))
    folder = tmp_path / "few"
    (folder / "qrels").mkdir(parents=True)
    (folder / "queries.jsonl").write_text(
        "\n".join(json.dumps({"_id": query.id, "text": query.text}) for query in corpus.queries)
    )
    judged = "".join(f"{query.id}\t{one.id}\t1\n" for query in corpus.queries for one in corpus.documents[:10])
    (folder / "qrels" / "test.tsv").write_text(judged)
    assert lead_migrate("embed", tmp_path / "few.jsonl", "--model", "openai:tiny", "--no-chunks", "-o", "new") == 0
    capsys.readouterr()
    vectors = load_embedder("openai:tiny", base_url=server.url).embed_documents(corpus.documents[:10])
    (tmp_path / "reference").mkdir()
    copied = create_store(tmp_path / "reference", format="faiss", dim=vectors.shape[1])  # of an unknown origin
    copied.append(corpus.documents[:10], vectors)
    copied.finish()
    audit = ["audit", "new", "--reference", "reference", "--beir", folder, "-q"]
    assert lead_migrate(*audit, "--margin", "0.9") == 3
    text = " ".join(capsys.readouterr().out.split())
    assert "INCONCLUSIVE" in text
    assert "the first 10 of 10 documents are hardly a selection, at least 100 are needed to say SAFE" in text
