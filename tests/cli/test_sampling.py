"""Choosing the sample from the command line."""

import json
import re
from pathlib import Path

import pytest

from migrate.pipeline import Run
from migrate.steps.fit import Fit

pytestmark = pytest.mark.slow

FIT = "fit store --target tfidf:24 --sample 60 -o stitch"
JUDGED = (0, 1, 3)


@pytest.fixture(autouse=True)
def _place(store, judged):
    """A store, judged queries and a query log."""
    Path("log.txt").write_text("open a file\nsplit a string\n")


def sample_facts():
    return json.loads(Path("stitch/lead-migrate.json").read_text())["details"]["sample"]


def test_without_a_log_the_sample_is_random(lead_migrate):
    lead_migrate(FIT)
    assert sample_facts() == {"strategy": "random", "from query log": 0}


@pytest.mark.parametrize(
    ("source", "by"),
    [("", "words only, as no source model was named"), ("--source-model tfidf:32", "old vectors and words")],
)
def test_a_log_chooses_the_sample_and_the_command_says_how_much(source, by, lead_migrate):
    said = lead_migrate(f"{FIT} --query-log log.txt {source}").out
    facts = sample_facts()
    assert facts["strategy"] == "query-log" and 0 < facts["from query log"] <= 60
    assert f"sample: {facts['from query log']} of 60 documents" in said and f"for the query log, by {by}" in said


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"strategy": "diverse", "query_log": "log.txt"}, 2, "the strategy diverse does not read a query log"),
        ({"strategy": "best"}, 2, "best"),
        ({"query_log": "bad.jsonl"}, 4, "bad.jsonl:2: not a JSON object"),
        ({"query_log": "log.txt", "source_model": "tfidf:16"}, 4, "the saved state is of tfidf:32"),
    ],
)
def test_what_does_not_go_together_is_told_in_one_line(fields, code, message, step_fields, lead_migrate):
    Path("bad.jsonl").write_text('{"text": "a"}\n{"text"\n')
    for command, step, typed in (
        ("fit store", Fit, ["source_model", "query_log"]),
        ("run store --reference pool --judged judged", Run, ["source_model"]),
    ):
        options = [f"--{name.replace('_', '-')}={fields[name]}" for name in typed if name in fields]
        step_fields(step, **{name: value for name, value in fields.items() if name not in typed})
        assert message in lead_migrate(f"{command} --target tfidf:24 -o out", *options, code=code).complaint
        assert not Path("out/stitch").exists()


def test_unfinished_work_of_another_log_is_refused(monkeypatch, step_fields, lead_migrate):
    def broken(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("migrate.pipeline.job.reembed_store", broken)
    run = "run store --target tfidf:24 --judged judged --sample 60 -o out --reference build"
    step_fields(Run, query_log="log.txt")
    lead_migrate(run, code=130)
    Path("log.txt").write_text("another question\n")
    assert "query log" in lead_migrate(run, code=2).complaint
    step_fields(Run, query_log=None)
    lead_migrate(run, code=2)


@pytest.mark.parametrize("command", ["fit store", "run store --reference pool --judged judged"])
def test_the_command_says_which_stitch_it_took(command, lead_migrate):
    stitches = "--sample 60 --kind mean --kind ridge"
    ended = lead_migrate(f"{command} --target tfidf:24 {stitches} -o out", code=JUDGED)
    took = r"took ridge: held-out overlap 0\.\d{3} ± 0\.\d{3}, the best of 2 candidates in 5 of 5 held-out parts\n"
    assert re.search(took, ended.out + ended.err)
