"""A margin that nobody typed is named beside the verdict, and a low one has to be meant."""

import json

import pytest

from migrate.audit.verdict import margin_remarks
from migrate.cli.main import run
from migrate.live.monitor import Monitor


@pytest.fixture(autouse=True)
def without_words(audit_fields):
    """Leaves the arms of words out of what audits report."""
    audit_fields(no_bm25=True)


@pytest.fixture(scope="module")
def migrated(beir, source_folder, tmp_path_factory):
    """Arguments of an audit of a translated store."""
    folder = tmp_path_factory.mktemp("margin")
    fit = ["fit", source_folder, "--target", "tfidf:24", "--sample", 60, "--stitch", "ridge", "-o", folder / "stitch"]
    assert run([*map(str, fit), "-q"]) == 0
    translate = ["translate", source_folder, folder / "stitch", "-o", folder / "new"]
    assert run([*map(str, translate), "-q"]) == 0
    audit = ["audit", folder / "new", "--reference", "build", "--beir", beir]
    return [*map(str, audit), "--two-stage", "none", "-q"]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The pyproject.toml, not written yet, of the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "pyproject.toml"


COMMANDS = (
    ["audit", "new", "--reference", "build", "--beir", "beir"],
    ["run", "old", "--target", "tfidf:8", "--beir", "beir", "-o", "out"],
    ["live", "run", "new"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    "typed",
    [
        ["--margin", "0.3"],
        ["--margin", "0.499"],
        ["--margin", "0.3", "--accept-margin", "0.4"],
        ["--accept-margin", "0.3", "--margin", "0.2"],
    ],
    ids=" ".join,
)
def test_a_low_margin_that_nobody_confirmed_is_refused(command, typed, project, capsys):
    assert run([*command, *typed]) == 2
    told = capsys.readouterr().err
    margin = typed[typed.index("--margin") + 1]
    assert told.count("\n") == 1 and f"type --accept-margin {margin} on the command line" in told


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_low_margin_that_is_confirmed_goes_on_to_the_store(command, project, capsys):
    for typed in (["--margin", "0.3", "--accept-margin", "0.3"], ["--margin", "0.5"], ["--accept-margin", "0.3"]):
        assert run([*command, *typed]) != 2 or "margin" not in capsys.readouterr().err


def test_only_what_is_typed_confirms(project, monkeypatch, capsys):
    project.write_text("[tool.lead-migrate]\nmargin = 0.3\naccept-margin = 0.3\n")
    assert run(COMMANDS[0]) == 2 and f"--margin 0.3 (from {project}): " in capsys.readouterr().err
    monkeypatch.setenv("LEAD_MIGRATE_ACCEPT_MARGIN", "0.3")
    assert run(COMMANDS[0]) == 2 and "type --accept-margin 0.3" in capsys.readouterr().err
    monkeypatch.setenv("LEAD_MIGRATE_MARGIN", "0.25")
    assert run(COMMANDS[0]) == 2 and "--margin 0.25 (from LEAD_MIGRATE_MARGIN): " in capsys.readouterr().err
    assert run([*COMMANDS[0], "--accept-margin", "0.25"]) == 4, "there is no such store"


def test_a_margin_that_nobody_typed_is_named_wherever_the_verdict_is(migrated, project, monkeypatch, capsys):
    project.write_text("[tool.lead-migrate]\nmargin = 0.8\n")
    files = [project.parent / f"report.{ending}" for ending in ("json", "html", "xml")]
    outputs = [f"--report={file}" for file in files]
    run([*migrated, *outputs])
    remark = f"the margin of 0.8 is from {project}"
    assert f"caveat: {remark}" in " ".join(capsys.readouterr().out.split())
    assert json.loads(files[0].read_text())["verdict"]["caveats"] == [remark]
    for file in files[1:]:
        assert remark in " ".join(file.read_text().split())
    monkeypatch.setenv("LEAD_MIGRATE_MARGIN", "0.7")
    run([*migrated, "--json"])
    caveats = json.loads(capsys.readouterr().out)["verdict"]["caveats"]
    assert caveats == ["the margin of 0.7 is from LEAD_MIGRATE_MARGIN"]
    run([*migrated, "--json", "--margin", "0.8"])
    assert json.loads(capsys.readouterr().out)["verdict"]["caveats"] == []
    run([*migrated, "--json", "--margin", "0.4", "--accept-margin", "0.4"])
    caveats = json.loads(capsys.readouterr().out)["verdict"]["caveats"]
    assert caveats == ["a margin of 0.4 calls SAFE what loses up to 60% of the quality"]


def test_a_run_from_a_file_is_not_said_again_as_one_that_was_typed(beir, source_folder, project, capsys):
    project.write_text("[tool.lead-migrate]\nmargin = 0.8\n")
    arguments = ["run", source_folder, "--target", "tfidf:24", "--beir", beir, "--sample", 60, "--stitch", "ridge"]
    command = [*map(str, arguments), "-o", "out", "-q", "--json"]
    for _ in range(2):
        run(command)
        document = json.loads(capsys.readouterr().out)
        assert document["verdict"]["caveats"] == [f"the margin of 0.8 is from {project}"]
    run([*command, "--margin", "0.8"])
    assert json.loads(capsys.readouterr().out)["verdict"]["caveats"] == []


def test_the_verdict_of_a_live_store_remembers_where_its_margin_is_from():
    verdict = Monitor.of_json(Monitor(0.8, margin_from="LEAD_MIGRATE_MARGIN").as_json()).verdict()
    assert verdict.margin_from == "LEAD_MIGRATE_MARGIN"
    kept = Monitor().as_json()
    del kept["margin_from"]
    assert Monitor.of_json(kept).margin_from == ""


def test_what_is_remarked_of_a_margin():
    assert margin_remarks(0.95) == margin_remarks(0.5) == ()
    assert len(margin_remarks(0.2, "a file")) == 2
