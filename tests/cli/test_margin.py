"""A margin that nobody typed is named beside the verdict, and a low one has to be meant."""

import json
from pathlib import Path

import pytest

from migrate.audit.verdict import margin_remarks
from migrate.live.monitor import Monitor

JUDGED = (0, 1, 3)
COMMANDS = (
    "audit new --reference build --judged beir",
    "run old --reference pool --target tfidf:8 --judged beir -o out",
    "live run new",
)


@pytest.fixture
def project(tmp_path):
    """The pyproject.toml, not written yet, of the working directory."""
    return tmp_path / "pyproject.toml"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.split()[0])
def test_a_low_margin_has_to_be_confirmed(command, lead_migrate):
    for margin, typed in (
        (0.3, "--margin 0.3"),
        (0.499, "--margin 0.499"),
        (0.3, "--margin 0.3 --accept-margin 0.4"),
        (0.2, "--accept-margin 0.3 --margin 0.2"),
    ):
        ended = lead_migrate(f"{command} {typed}", code=2)
        assert f"type --accept-margin {margin} on the command line" in ended.complaint and ended.err.count("\n") == 1
    for confirmed in ("--margin 0.3 --accept-margin 0.3", "--margin 0.5", "--accept-margin 0.3"):
        told = lead_migrate(f"{command} {confirmed}", code=(2, 4)).complaint
        assert "margin" not in told, "it goes on to the store, which is not there"


def test_only_what_is_typed_confirms(project, monkeypatch, lead_migrate):
    project.write_text("[tool.lead-migrate]\nmargin = 0.3\naccept-margin = 0.3\n")
    audit = COMMANDS[0]
    assert f"--margin 0.3 (from {project}): " in lead_migrate(audit, code=2).complaint
    monkeypatch.setenv("LEAD_MIGRATE_ACCEPT_MARGIN", "0.3")
    assert "type --accept-margin 0.3" in lead_migrate(audit, code=2).complaint
    monkeypatch.setenv("LEAD_MIGRATE_MARGIN", "0.25")
    assert "--margin 0.25 (from LEAD_MIGRATE_MARGIN): " in lead_migrate(audit, code=2).complaint
    lead_migrate(f"{audit} --accept-margin 0.25", code=4)  # there is no such store


@pytest.mark.slow
def test_a_margin_that_nobody_typed_is_named_wherever_the_verdict_is(here, project, monkeypatch, lead_migrate):
    def caveats(options):
        return lead_migrate(f"{audit} --json {options}", code=JUDGED).document["verdict"]["caveats"]

    audit = "audit new --reference build --judged judged --two-stage none -q"
    project.write_text("[tool.lead-migrate]\nmargin = 0.8\n")
    remark = f"the margin of 0.8 is from {project}"
    reports = "--report report.json --report report.html --report report.xml"
    assert f"caveat: {remark}" in lead_migrate(f"{audit} {reports}", code=JUDGED).said
    assert json.loads(Path("report.json").read_text())["verdict"]["caveats"] == [remark]
    for name in ("report.html", "report.xml"):
        assert remark in " ".join(Path(name).read_text().split())
    monkeypatch.setenv("LEAD_MIGRATE_MARGIN", "0.7")
    assert caveats("") == ["the margin of 0.7 is from LEAD_MIGRATE_MARGIN"]
    assert caveats("--margin 0.8") == []
    low = "a margin of 0.4 calls SAFE what loses up to 60% of the quality"
    assert caveats("--margin 0.4 --accept-margin 0.4") == [low]


@pytest.mark.slow
def test_a_run_from_a_file_is_not_said_again_as_one_that_was_typed(store, judged, project, lead_migrate):
    project.write_text("[tool.lead-migrate]\nmargin = 0.8\n")
    command = "run store --reference pool --target tfidf:24 --judged judged --sample 60 --kind ridge -o out -q --json"
    remark = f"the margin of 0.8 is from {project}"
    for options, caveats in (("", [remark]), ("", [remark]), ("--margin 0.8", [])):
        assert lead_migrate(f"{command} {options}", code=JUDGED).document["verdict"]["caveats"] == caveats


def test_the_verdict_of_a_live_store_remembers_where_its_margin_is_from():
    kept = Monitor(0.8, margin_from="LEAD_MIGRATE_MARGIN").as_json()
    assert Monitor.of_json(kept).verdict().margin_from == "LEAD_MIGRATE_MARGIN"


def test_what_is_remarked_of_a_margin():
    assert margin_remarks(0.95) == margin_remarks(0.5) == ()
    assert len(margin_remarks(0.2, "a file")) == 2
