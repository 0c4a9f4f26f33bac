"""Choosing the sample from the command line."""

import json
import re
from pathlib import Path

import pytest

from migrate.cli.main import run
from migrate.pipeline import Run
from migrate.steps.fit import Fit

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def log(tmp_path):
    (tmp_path / "log.txt").write_text("open a file\nsplit a string\n")
    return "log.txt"


def fit(store, *options):
    return run(["fit", str(store), "--target", "tfidf:24", "--sample", "60", "-o", "stitch", *options])


def sample_facts():
    return json.loads(Path("stitch/lead-migrate.json").read_text())["details"]["sample"]


@pytest.mark.parametrize("strategy", [None, "random"])
def test_without_a_log_the_sample_is_random(strategy, source_folder, step_fields):
    step_fields(Fit, strategy=strategy)
    assert fit(source_folder) == 0
    assert sample_facts() == {"strategy": "random", "from query log": 0}


@pytest.mark.parametrize(
    ("source", "by"), [([], "words only, as no source model was named"), (["tfidf:32"], "old vectors and words")]
)
def test_a_log_chooses_the_sample_and_the_command_says_how_much(source, by, source_folder, log, capsys):
    options = [part for spec in source for part in ("--source-model", spec)]
    assert fit(source_folder, "--query-log", log, *options) == 0
    facts = sample_facts()
    assert facts["strategy"] == "query-log" and 0 < facts["from query log"] <= 60
    assert f"sample: {facts['from query log']} of 60 documents are near the top for the query log, by {by}" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"strategy": "query-log"}, 2, "the strategy query-log needs a query log"),
        ({"strategy": "random", "query_log": "log.txt"}, 2, "the strategy random does not read a query log"),
        ({"strategy": "diverse", "query_log": "log.txt"}, 2, "the strategy diverse does not read a query log"),
        ({"strategy": "best"}, 2, "best"),
        ({"query_log": "nowhere"}, 4, "nowhere: no such file"),
        ({"query_log": "empty"}, 4, "empty: the file has no queries"),
        ({"query_log": "bad.jsonl"}, 4, "bad.jsonl:2: not a JSON object"),
        ({"query_log": "log.txt", "source_model": "tfidf:16"}, 4, "the saved state is of tfidf:32"),
    ],
)
@pytest.mark.parametrize("command", ["fit", "run"])
def test_what_does_not_go_together_is_told_in_one_line(
    command, fields, code, message, source_folder, beir, log, tmp_path, step_fields, capsys
):
    fields = dict(fields)
    typed = ["source_model", "query_log"] if command == "fit" else ["source_model"]
    options = [f"--{name.replace('_', '-')}={fields.pop(name)}" for name in typed if name in fields]
    step_fields(Fit if command == "fit" else Run, **fields)
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text"\n')
    judged = ["--beir", str(beir)] if command == "run" else []
    arguments = [command, str(source_folder), "--target", "tfidf:24", *judged, "-o", "out", *options]
    assert run(arguments) == code
    lines = [line for line in capsys.readouterr().err.split("\n") if line.startswith("lead-migrate: ")]
    assert len(lines) == 1 and message in lines[0]
    assert not (tmp_path / "out" / "stitch").exists()


def test_unfinished_work_of_another_log_is_refused(
    source_folder, beir, log, tmp_path, capsys, monkeypatch, step_fields
):
    def broken(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("migrate.pipeline.job.reembed_store", broken)
    arguments = ["run", str(source_folder), "--target", "tfidf:24", "--beir", str(beir), "--sample", "60", "-o", "out"]
    arguments += ["--reference", "build"]
    step_fields(Run, query_log=log)
    assert run(arguments) == 130
    (tmp_path / "log.txt").write_text("another question\n")
    assert run(arguments) == 2
    assert "query log" in capsys.readouterr().err
    step_fields(Run, query_log=None)
    assert run(arguments) == 2


@pytest.mark.parametrize("command", ["fit", "run"])
def test_the_command_says_which_stitch_it_took(command, source_folder, beir, capsys):
    judged = ["--beir", str(beir)] if command == "run" else []
    stitches = ["--stitch", "mean", "--stitch", "ridge"]
    run([command, str(source_folder), "--target", "tfidf:24", *judged, "--sample", "60", *stitches, "-o", "out"])
    said = "".join(capsys.readouterr())
    assert re.search(r"took ridge: held-out overlap 0\.\d{3} ± 0\.\d{3}, best of 2 in 5 of 5 splits\n", said)
