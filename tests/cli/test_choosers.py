"""Queries that chose documents do not judge, whichever command asks: what a user is told, and what is paid for it."""

import json
import shlex
from pathlib import Path

import pytest

from migrate.datasets.beir import write_beir
from migrate.pipeline import Run

pytestmark = pytest.mark.slow

CHOSE = "queries chose documents that have true vectors"
N_QUERIES = 60
NOTE = f"30 of 60 {CHOSE}; they do not judge"
ALL = f"INCONCLUSIVE: judged: 60 of 60 {CHOSE}; they do not judge, 0 others are left"
JUDGED = (0, 1, 3)

FIT = "--target openai:tiny --sample 60 --kind ridge"
FIT_BY_LOG = f"fit store {FIT} --query-log LOG -o stitch"
FIT_AT_RANDOM = f"fit store {FIT} -o stitch"
TRANSLATE = "translate store stitch -o new"
REEMBED = "--target openai:tiny --reembed 60%"
FIRST = "translate store stitch -o first"
WAYS = {
    "the sample": [FIT_BY_LOG, TRANSLATE],
    "a budget": [FIT_AT_RANDOM, f"{TRANSLATE} {REEMBED} --query-log LOG"],
    "the sample before a budget": [FIT_BY_LOG, f"{TRANSLATE} {REEMBED} --policy random"],
    "a stitch that was kept": [
        FIT_AT_RANDOM, f"{FIRST} {REEMBED} --query-log LOG", "translate store first.stitch -o new"
    ],
    "a store that is filled in": [FIT_BY_LOG, FIRST, "backfill first -o new"],
    "a store that is translated again": [
        FIT_BY_LOG, FIRST, f"fit first {FIT} --seed 5 -o second", "translate first second -o new"
    ],
}  # fmt: skip
AUDIT = "audit new --reference build --judged judged -q"
CASES = {
    **{way: (commands, AUDIT) for way, commands in WAYS.items()},
    "the stitch of a bridge": (
        [FIT_AT_RANDOM, TRANSLATE, f"fit store {FIT} --query-log LOG -o bridge --direction query --kind procrustes"],
        f"{AUDIT} --source store --bridge bridge",
    ),
    "a run": ([], f"run store --reference pool {FIT} --judged judged --query-log LOG -o out -q"),
}


@pytest.fixture(autouse=True)
def _place(corpus, store, server, monkeypatch):
    """Judged queries; logs of all of them, of the first half, and of others, each as somebody else types it."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LEAD_MIGRATE_BASE_URL", server.url)
    queries = corpus.queries[:N_QUERIES]
    write_beir(Path("judged"), corpus.documents, queries, {query.id: corpus.qrels[query.id] for query in queries})
    texts = [" ".join(query.text.split()) for query in queries]
    half = texts[: N_QUERIES // 2]
    logs = {"all": texts, "half": half, "others": [f"what about {text}" for text in half]}
    for name, lines in logs.items():
        Path(f"{name}.txt").write_text("".join(f"  {line.upper()}\n" for line in lines))


@pytest.fixture
def typed(step_fields, lead_migrate):
    """Runs a command on the log of that name; `run` has it as a field of its step."""

    def run_on(command, log, code=JUDGED):
        words = shlex.split(command)
        if words[0] == "run" and "--query-log" in words:
            at = words.index("--query-log")
            del words[at : at + 2]
            step_fields(Run, query_log=f"{log}.txt")
        return lead_migrate("", *(f"{log}.txt" if word == "LOG" else word for word in words), code=code)

    return run_on


@pytest.fixture
def judge(typed):
    """Does what comes before a case with the log of that name; what its judging command prints."""

    def of(case, log):
        before, command = CASES[case]
        for line in before:
            typed(line, log, code=0)
        return typed(f"{command} --json", log).document

    return of


@pytest.mark.parametrize("case", CASES)
def test_queries_that_chose_documents_do_not_judge(case, judge):
    document = judge(case, "half")
    assert document["verdict"]["queries"] == 30 == len(document["query_ids"])
    assert document["notes"].count(NOTE) == 1


@pytest.mark.parametrize("case", ["the sample", "the stitch of a bridge", "a run"])
def test_where_no_query_is_left_that_shows_before_money_is_spent(case, typed, server):
    before, command = CASES[case]
    for line in before:
        typed(line, "all", code=0)
    billed = len(server.billed)
    ended = typed(f"{command} --cache none --json", "all", code=3)
    assert ended.complaint.startswith(f"lead-migrate: {ALL}, and a verdict needs at least 20: give")
    assert ended.err.count("\n") == 1
    assert len(server.billed) - billed <= 1, "at most the question for the dimension"
    assert not Path("out").exists()


@pytest.mark.parametrize("case", ["the sample", "a run"])
def test_a_log_of_other_queries_lets_all_judge(case, judge):
    document = judge(case, "others")
    assert document["verdict"]["queries"] == N_QUERIES
    assert not any("query log" in note for note in document["notes"])


def test_what_the_queries_ask_is_not_kept_and_a_stitch_that_does_not_say_it_lets_all_judge(typed):
    for command in WAYS["the sample"]:
        typed(command, "half", code=0)
    asked = Path("half.txt").read_text().casefold().split("\n")[0].strip()
    for name in ("stitch", "new"):
        text = Path(name, "lead-migrate.json").read_text()
        assert len(json.loads(text)["details"]["chosen by queries"]) == 30
        assert asked not in text.casefold()
    path = Path("stitch/lead-migrate.json")  # as an older version left it
    facts = json.loads(path.read_text())
    del facts["details"]["chosen by queries"], facts["manifest_sha256"]
    path.write_text(json.dumps(facts))
    typed(f"{TRANSLATE} --force", "half", code=0)
    assert typed(f"{AUDIT} --json", "half").document["verdict"]["queries"] == N_QUERIES
