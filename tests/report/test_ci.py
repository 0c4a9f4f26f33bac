"""What CI is left: JUnit, annotations, a summary, and the action that asks for them, its shell run for real."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from topics import audit as audit_topics
from topics import make_store, noisy

from migrate.cli.main import cli, run
from migrate.report.suite import Case, State, Suite, annotation_lines, audit_suite, junit_xml

pytestmark = pytest.mark.slow

ACTION = Path(__file__).parents[2] / ".github" / "actions" / "lead-migrate" / "action.yml"
MODEL = "openai:text-embedding-3-small"
"""Its dimension is known without asking it."""

CASES = [
    Case("one", State.PASSED, "fine"),
    Case("two: x", State.FAILED, "100 %\nlost, <all>\x07"),
    Case("3", State.OPEN, "?"),
]
SUITE = Suite("lead-migrate x", "x of y", CASES, "## z", {"retention": "0.5"})


def test_junit_counts_failures_and_open_cases_apart():
    root = ElementTree.fromstring(junit_xml(SUITE))
    (suite,) = root
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "3",
        "failures": "1",
        "errors": "1",
    }
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == ["one", "two: x", "3"]
    assert [[inner.tag for inner in case] for case in cases] == [["system-out"], ["failure"], ["error"]]
    assert cases[1][0].text == "100 %\nlost, <all>\ufffd"
    assert suite.find("properties/property").attrib == {"name": "retention", "value": "0.5"}


def test_annotations_are_one_line_each_whatever_stands_in_them():
    assert list(annotation_lines(SUITE))[:2] == [
        "::notice title=lead-migrate x%3A one::fine",
        "::error title=lead-migrate x%3A two%3A x::100 %25%0Alost, <all>\x07",
    ]
    assert list(annotation_lines(SUITE))[2].startswith("::warning ")


@pytest.mark.parametrize(("scale", "state"), [(0.0, State.PASSED), (50.0, State.FAILED)])
def test_an_audit_is_a_case_of_its_verdict(scale, state, tmp_path):
    report = audit_topics(make_store(tmp_path / "t", vectors=noisy(scale)), make_store(tmp_path / "r"), margin=0.5)
    suite = audit_suite(report)
    assert (suite.cases[0].name, suite.cases[0].state) == ("verdict", state)
    assert report.verdict.sentence in suite.cases[0].message
    assert suite.markdown.count("\n| ") == len(report.arms) + 1


def test_a_check_is_a_case_of_its_answer_and_of_each_finding(tmp_path, monkeypatch, capsys):
    store = str(make_store(tmp_path / "store").folder)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    junit = tmp_path / "junit.xml"
    options = ["--junit", str(junit), "--github", "--no-cache"]
    assert run(["check", store, "--model", MODEL, *options]) == 1
    told = capsys.readouterr()
    (suite,) = ElementTree.parse(junit).getroot()
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert "other dimension" in cases["compatible"].find("failure").get("message")
    assert int(suite.get("failures")) == sum(case.find("failure") is not None for case in cases.values()) >= 2
    assert f"::error title=lead-migrate check%3A compatible::not compatible with {MODEL}" in told.err
    assert "::" not in told.out
    assert (tmp_path / "summary.md").read_text().startswith(f"## ❌ lead-migrate: not compatible with {MODEL}")
    assert run(["check", store, "--model", MODEL, *options]) == 2, "the file is there already"
    assert run(["check", store, "--model", MODEL, *options, "--force"]) == 1


def run_action(tmp_path, code, *, inconclusive="fail", arguments="check 'my store' --model tfidf:8", program=None):
    """The action's own shell, with a lead-migrate that notes what it was given and exits as it is told."""
    step = next(step for step in yaml.safe_load(ACTION.read_text())["runs"]["steps"] if step.get("id") == "run")
    tools = tmp_path / "bin"
    tools.mkdir()
    fake = tools / "lead-migrate"
    told = f'import sys\nprint(*sys.argv[1:], sep="|")\nsys.exit({code})'
    fake.write_text(f"#!{sys.executable}\n{program or told}\n")
    fake.chmod(0o755)
    given = {"ARGUMENTS": arguments, "JUNIT": "out.xml", "INCONCLUSIVE": inconclusive}
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "GITHUB_OUTPUT": str(tmp_path / "output"), **given}
    assert set(given) == set(step["env"])
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip(), (tmp_path / "output").read_text().strip()


@pytest.mark.parametrize(
    ("code", "inconclusive", "ends"), [(0, "fail", 0), (1, "pass", 1), (3, "fail", 3), (3, "pass", 0), (4, "pass", 4)]
)
def test_the_shell_of_the_action_ends_as_it_should(code, inconclusive, ends, tmp_path):
    returned, told, output = run_action(tmp_path, code, inconclusive=inconclusive)
    assert (returned, output) == (ends, f"exit-code={code}")
    assert told == "check|my store|--model|tfidf:8|--github|--junit|out.xml|--force"


def test_the_action_runs_the_real_command(tmp_path):
    """Not a stand-in: the command line itself, out of the shell of the action."""
    store = make_store(tmp_path / "store").folder
    real = "from migrate.cli.main import main; main()"
    code, told, output = run_action(tmp_path, 0, arguments=f"check {store} --model {MODEL}", program=real)
    assert (code, output) == (1, "exit-code=1")
    assert told.startswith(f"not compatible with {MODEL}: other dimension")
    assert (tmp_path / "out.xml").read_bytes().startswith(b"<?xml")


def test_the_shell_of_the_action_runs_nothing_that_stands_in_its_arguments(tmp_path):
    _, told, _ = run_action(tmp_path, 0, arguments="check $(touch made) `touch made` ; touch made")
    assert not (tmp_path / "made").exists()
    assert told.startswith("check|$(touch|made)")


def test_the_workflow_of_the_page_uses_the_action_as_it_is():
    text = (ACTION.parents[3] / "docs" / "ci.md").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    (step,) = [step for step in workflow["jobs"]["check"]["steps"] if "lead-migrate" in step["uses"]]
    path = step["uses"].partition("@")[0].removeprefix("OWNER/lead-migrate/")
    assert ACTION.parents[3] / path == ACTION.parent
    action = yaml.safe_load(ACTION.read_text())
    assert set(step["with"]) <= set(action["inputs"])
    command, *arguments = step["with"]["arguments"].split()
    with cli.get_command(None, command).make_context(
        command, [*arguments, "--github", "--junit", "x", "--force"]
    ) as context:
        assert context.params["store"] == "my-store"


def test_the_options_that_the_page_puts_into_pyproject_are_read(tmp_path, monkeypatch, capsys):
    text = (ACTION.parents[3] / "docs" / "ci.md").read_text(encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(text.split("```toml\n")[1].split("```")[0])
    monkeypatch.chdir(tmp_path)
    assert run(["audit", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "[default: 0.97; 0<x<=1]" in told and "judge by. [default: dev]" in told
