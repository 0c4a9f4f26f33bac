"""`report`: an audit shown again from its JSON file, as when it was made."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

FORMS = ("json", "html", "xml")


@pytest.fixture
def audited(finished_here, lead_migrate):
    """An audit with a report of every form, and how it ended."""
    reports = " ".join(f"--report first.{form}" for form in FORMS)
    return lead_migrate(f"audit made/store --judged judged --source old {reports}", code=(0, 1, 3))


@pytest.mark.parametrize("how", ["", "--verbose", "--json"])
def test_an_audit_is_shown_again_in_every_form(how, audited, lead_migrate):
    if how:
        fresh = lead_migrate(f"audit made/store --judged judged --source old --report first.json --force {how}",
                             code=audited.code)  # fmt: skip
    else:
        fresh = audited
    html = "" if how else "--report first.html --force"
    ended = lead_migrate(f"report first.json {html} {how}", code=audited.code)
    assert ended.out == fresh.out
    if how != "--json":
        assert ended.err and fresh.err.endswith(ended.err), "what it advises"


def test_the_files_of_an_audit_are_written_again(audited, lead_migrate):
    reports = " ".join(f"--report again.{form}" for form in FORMS)
    lead_migrate(f"report first.json {reports}", code=audited.code)
    for form in FORMS:
        assert Path(f"again.{form}").read_bytes() == Path(f"first.{form}").read_bytes()


def test_github_is_told_the_same_again(finished_here, lead_migrate, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    told = []
    audit = "audit made/store --judged judged --source old --report told.json -q"
    for number, command in enumerate((audit, "report told.json -q")):
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", f"summary-{number}.md")
        ended = lead_migrate(command, code=(0, 1, 3))
        told.append((ended.err, Path(f"summary-{number}.md").read_text()))
    assert told[0] == told[1] and told[0][1]


def test_the_report_of_a_run_is_what_the_run_says_again(finished_here, lead_migrate):
    again = lead_migrate(finished_here, code=(0, 1, 3))
    Path("page.html").write_bytes(b"")
    ended = lead_migrate("report made/report.json --report made/report.html --force", code=again.code)
    assert ended.out == again.out


def test_the_file_itself_is_not_written_over(audited, lead_migrate):
    before = Path("first.json").read_bytes()
    for line in ("report first.json --report first.json --force", "report first.json --report first.html"):
        lead_migrate(line, code=2)
    assert Path("first.json").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda report: report["plan"].update(outcome="SAFE", name="two-stage 20"), "its own numbers do not bear"),
        (lambda report: report.update(schema_version=4), "has schema version 4"),
        (lambda report: report.update(kind="fit"), "not the report of an audit"),
        (lambda report: report.pop("query_texts"), "'query_texts' is missing"),
    ],
)
def test_a_report_that_is_not_sound_is_refused_in_one_line(change, said, audited, lead_migrate):
    report = json.loads(Path("first.json").read_text())
    report["family"]["two-stage 20"] = {"estimate": 0.5, "lower": 0.4, "upper": 0.6}
    change(report)
    Path("odd.json").write_text(json.dumps(report))
    ended = lead_migrate("report odd.json --report page.html", code=4)
    assert said in ended.complaint and ended.err.count("\n") == 1 and not ended.out
    assert not Path("page.html").exists()


def test_a_report_that_is_not_there_is_refused(here, lead_migrate):
    assert "nothing.json" in lead_migrate("report nothing.json", code=4).complaint
