"""What CI is left: JUnit, annotations, a summary, and the action that asks for them, its shell run for real."""

import configparser
import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from light_install import NAMES, link_installation, run_light
from openai_server import KEY, OpenAIServer
from topics import DOCUMENTS, make_store, noisy
from topics import audit as audit_topics

from migrate.audit.bounds import Bounds
from migrate.audit.document import report_of
from migrate.cli.main import cli, run
from migrate.manifest import Manifest, ModelIdentity, StoreFacts
from migrate.report.suite import MARKS, Case, State, Suite, annotation_lines, audit_suite, junit_xml
from migrate.stores.documents.jsonl import DOCS_NAME
from migrate.stores.file_store import INDEX_NAME, hash_files
from migrate.vectors import unit_rows

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "action.yml"
MODEL = "openai:text-embedding-3-small"
"""Its dimension is known without asking it."""

CASES = [
    Case("one", State.PASSED, "fine", "SAFE: y keeps 0.99"),
    Case("two: x", State.FAILED, "100 %\nlost, <all>\x07"),
    Case("3", State.OPEN, "?"),
]
SUITE = Suite("lead-migrate x", "x of y", CASES, "## z", {"retention": "0.5"}, "y")


def test_junit_counts_failures_and_open_cases_apart():
    root = ElementTree.fromstring(junit_xml(SUITE))
    (suite,) = root
    assert [suite.get(name) for name in ("tests", "failures", "errors")] == ["3", "1", "1"]
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == ["one", "two: x", "3"]
    assert [[inner.tag for inner in case] for case in cases] == [["system-out"], ["failure"], ["error"]]
    assert cases[1][0].text == "100 %\nlost, <all>\ufffd"
    assert suite.find("properties/property").attrib == {"name": "retention", "value": "0.5"}


def test_annotations_are_one_line_each_whatever_stands_in_them():
    passed, failed, undecided = annotation_lines(SUITE)
    assert passed == "::notice title=SAFE%3A y keeps 0.99::fine"
    title, message = "lead-migrate x y%3A two%3A x", "100 %25%0Alost, <all>\x07"
    assert failed == f"::error title={title}::{message}"
    assert undecided.startswith("::warning ")


@pytest.fixture
def audited(tmp_path):
    def audit(scale):
        return audit_topics(make_store(tmp_path / "t", vectors=noisy(scale)), make_store(tmp_path / "r"), margin=0.5)

    return audit


@pytest.mark.parametrize(("scale", "state"), [(0.0, State.PASSED), (50.0, State.FAILED)])
def test_an_audit_is_a_case_of_its_verdict(scale, state, audited, tmp_path):
    report = audited(scale)
    suite = audit_suite(report_of(report))
    assert (suite.cases[0].name, suite.cases[0].state) == ("verdict", state)
    assert report.verdict.sentence in suite.cases[0].message
    assert suite.markdown.count("\n| ") == len(report.arms) + 1
    outcome, kept = report.verdict.outcome, report.verdict.retention.estimate
    title = f"{outcome}: {tmp_path / 't'} keeps {100 * kept:.1f} %25"
    assert next(annotation_lines(suite)).split("::")[1].partition("=")[2] == title.replace(":", "%3A")
    assert suite.markdown.startswith(f"## {MARKS[state]} lead-migrate: `{tmp_path / 't'}`: {outcome}")


def test_another_plan_is_the_case_that_the_exit_code_is_of(audited, tmp_path):
    report = audited(50.0)
    plan = next(name for name in report.comparisons if name != "translated")
    report = replace(report, family={plan: Bounds(0.99, 0.97, 1.01)})
    (case, *_) = audit_suite(report_of(replace(report, plan=plan))).cases
    assert (case.state, case.title) == (State.PASSED, f"SAFE: {tmp_path / 't'} in plan {plan} keeps 99.0 %")
    assert audit_suite(report_of(report)).cases[0].state is State.FAILED


def test_a_check_is_a_case_of_its_answer_and_of_each_finding(tmp_path, monkeypatch, capsys):
    store = str(make_store(tmp_path / "store").folder)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    junit = tmp_path / "junit.xml"
    options = ["--report", str(junit), "--cache", "none"]
    assert run(["check", store, "--model", MODEL, *options]) == 1
    told = capsys.readouterr()
    (suite,) = ElementTree.parse(junit).getroot()
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert "other dimension" in cases["compatible"].find("failure").get("message")
    assert int(suite.get("failures")) == sum(case.find("failure") is not None for case in cases.values()) >= 2
    assert f"::error title=NOT COMPATIBLE%3A {store} with {MODEL.replace(':', '%3A')}::not compatible with" in told.err
    assert "::" not in told.out
    assert f"::error title=lead-migrate check {store}%3A " in told.err
    heading = f"## ❌ lead-migrate: `{store}`: not compatible with {MODEL}"
    assert (tmp_path / "summary.md").read_text().startswith(heading)
    junit.write_text("of somebody else")
    assert run(["check", store, "--model", MODEL, *options]) == 2, "the file is there already"
    assert run(["check", store, "--model", MODEL, *options, "--force"]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["missing", "--model", "tfidf:8"], 4, "missing"),
        (["a store", "--model", "tfidf:8", "--sample", "0"], 2, "--sample"),
        (["a store", "--model", "openai:some", "--base-url", "http://127.0.0.1:9/v1", "--full"], 7, "127.0.0.1:9"),
    ],
)
def test_a_command_that_an_error_ends_is_shown_under_the_name_of_its_store(
    arguments, code, line, tmp_path, monkeypatch, capsys
):
    make_store(tmp_path / "a store")
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    assert run(["check", *arguments]) == code
    (told,) = capsys.readouterr().err.splitlines()
    assert line in told and not Path("summary.md").exists()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert run(["check", *arguments]) == code
    message = told.removeprefix("lead-migrate: ")
    shown = f"::error title=lead-migrate check {arguments[0]}%3A exit {code}::{message}"
    assert capsys.readouterr().err.splitlines() == [told, shown]
    assert Path("summary.md").read_text() == f"## ❌ lead-migrate: `{arguments[0]}`: {message}\n\n"


def step(identifier):
    """A step of the action, by its id or its name."""
    steps = yaml.safe_load(ACTION.read_text())["runs"]["steps"]
    return next(step for step in steps if identifier in (step.get("id"), step["name"]))


def run_shell(identifier, folder, environment, **job):
    """The shell of a step, as a runner starts it, in the environment of a job; returns what is done and the outputs."""
    (folder / "output").unlink(missing_ok=True)
    wanted = step(identifier)
    assert set(environment) == set(wanted["env"])
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", wanted["run"]]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "GITHUB_OUTPUT": str(folder / "output"), **environment, **job}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    written = (folder / "output").read_text().splitlines() if (folder / "output").exists() else []
    return done, dict(line.split("=", 1) for line in written)


def run_action(
    tmp_path, code, *, inconclusive="fail", arguments="check 'my store' --model tfidf:8", program=None, **job
):
    """The action's own shell, with a lead-migrate that notes what it was given and exits as it is told."""
    tools = tmp_path / "venv" / "bin"
    tools.mkdir(parents=True, exist_ok=True)
    fake = tools / "lead-migrate"
    told = f'import sys\nprint(*sys.argv[1:], sep="|")\nsys.exit({code})'
    fake.write_text(f"#!{sys.executable}\n{program or told}\n")
    fake.chmod(0o755)
    given = {"ARGUMENTS": arguments, "REPORTS": "out", "INCONCLUSIVE": inconclusive, "VENV": str(tmp_path / "venv")}
    given["LEAD_MIGRATE_CACHE"] = str(tmp_path / "embedded" / "embeddings.sqlite")
    done, outputs = run_shell("run", tmp_path, given, **job)
    return done.returncode, done.stdout.strip(), outputs


REAL = "from migrate.cli.main import main; main()"
"""Not a stand-in: the command line itself."""


@pytest.mark.parametrize(
    ("code", "inconclusive", "ends"), [(0, "fail", 0), (1, "pass", 1), (3, "fail", 3), (3, "pass", 0), (4, "pass", 4)]
)
def test_the_shell_of_the_action_ends_as_it_should(code, inconclusive, ends, tmp_path):
    returned, told, outputs = run_action(tmp_path, code, inconclusive=inconclusive)
    assert (returned, outputs) == (ends, {"exit-code": str(code)})
    assert told == "check|my store|--model|tfidf:8|--report|out/1.xml|--report|out/1.json|--force"


def test_the_action_runs_the_real_command_line_by_line_and_ends_with_the_first_that_fails(tmp_path):
    store = make_store(tmp_path / "a store").folder
    good = f"check '{store}' --model {MODEL}"
    for lines, fails, written in (
        (good, 1, ["1.json", "1.xml", "summary.md"]),
        (f"inspect-nothing x\n\n  \n{good}\n", 2, ["2.json", "2.xml", "summary.md"]),
    ):
        code, told, outputs = run_action(tmp_path, 0, arguments=lines, program=REAL)
        assert (code, outputs) == (fails, {"exit-code": str(fails)})
        assert told.startswith(f"not compatible with {MODEL}: other dimension")
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == written
    assert (tmp_path / "out" / "2.xml").read_bytes().startswith(b"<?xml")


def test_undecided_commands_let_through_hide_none_that_fail(tmp_path):
    program = "import sys; sys.exit(int(sys.argv[1]))"
    for lines, ends in (("3\n0\n1\n4", 1), ("0\n3\n0", 0)):
        code, _, outputs = run_action(tmp_path, 0, arguments=lines, program=program, inconclusive="pass")
        assert (code, outputs["exit-code"]) == (ends, str(ends or 3))


@pytest.mark.parametrize("lines", ["", "\n \n", "check 'my store"])
def test_an_action_with_nothing_to_run_fails(lines, tmp_path):
    code, told, _ = run_action(tmp_path, 0, arguments=lines)
    assert code == 2 and "|" not in told


def test_the_pages_of_audits_and_runs_are_kept_for_upload_and_nothing_in_arguments_is_obeyed(tmp_path):
    harmful = "check $(touch made) `touch made` ; touch made"
    _, told, _ = run_action(tmp_path, 0, arguments=f"audit new\nrun store -o made\ncheck new\n{harmful}")
    *lines, last = told.splitlines()
    assert lines == [
        "audit|new|--report|out/1.xml|--report|out/1.json|--force|--report|out/1.html",
        "run|store|-o|made|--report|out/2.xml|--report|out/2.json|--force|--report|out/2.html",
        "check|new|--report|out/3.xml|--report|out/3.json|--force",
    ]
    assert last.startswith("check|$(touch|made)") and not (tmp_path / "made").exists()


def wanted(tmp_path, **changed):
    given = {
        "INSTALL": "light",
        "REQUIREMENT": "",
        "SOURCE": str(ROOT),
        "PLATFORM": "Linux-X64",
        "ARGUMENTS": "check x",
    }
    return run_shell("wanted", tmp_path, given | changed)


def test_an_installation_is_found_again_by_version_python_and_system(tmp_path):
    first, again = wanted(tmp_path), wanted(tmp_path)
    assert wanted(tmp_path, ARGUMENTS="check  x\n")[1] == first[1], "spaces name no other store"
    other = wanted(tmp_path, ARGUMENTS="check y")[1]
    assert other["key"] == first[1]["key"]
    assert other["embeddings"] != first[1]["embeddings"]
    assert first[1] == again[1]
    version = ".".join(map(str, sys.version_info[:3]))
    assert first[1]["prefix"] == f"lead-migrate-light-Linux-X64-{version}-"
    assert first[1]["key"].startswith(first[1]["prefix"])
    source = tmp_path / "source"
    (source / "migrate").mkdir(parents=True)
    for name in ("setup.cfg", "light.txt", "migrate/version.py"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    changes = {"INSTALL": "full"}, {"PLATFORM": "macOS-ARM64"}, {"REQUIREMENT": "lead-migrate==0.1.0"}
    others = [wanted(tmp_path, **changed) for changed in (*changes, {"SOURCE": str(source)})]
    (source / "migrate/version.py").write_text("__version__ = '9'")
    others.append(wanted(tmp_path, SOURCE=str(source)))
    assert len({outputs["key"] for _, outputs in [first, *others]}) == 6
    refused, outputs = wanted(tmp_path, INSTALL="small")
    assert (refused.returncode, outputs) == (2, {})
    assert refused.stdout.startswith("::error title=lead-migrate::install: ") and "found small" in refused.stdout


def run_found(tmp_path):
    script = str(ROOT / ".github" / "action" / "found.py")
    done, outputs = run_shell("found", tmp_path, {"REPORTS": "out", "SCRIPT": script})
    assert done.returncode == 0, done.stderr
    return outputs


def test_the_verdict_of_the_first_audit_is_an_output(audited, tmp_path):
    report = replace(audited(0.0), plan="translated")
    reports = tmp_path / "out"
    reports.mkdir()
    assert run_found(tmp_path) == {}
    (reports / "1.json").write_text('{"kind": "check"}')
    for number in (10, 2):
        (reports / f"{number}.json").write_text(json.dumps(report_of(report).document))
    bounds = report.verdict.retention
    assert run_found(tmp_path) == {
        "verdict": "SAFE",
        "retention": f"{bounds.estimate:.4f}",
        "lower-bound": f"{bounds.lower:.4f}",
        "report": "out/2.html",
    }


def test_a_second_run_of_the_action_pays_only_the_proof_that_the_model_is_the_same(tmp_path):
    store = make_store(tmp_path / "store", vectors=noisy(0.0)[:, :8]).folder
    asked = f"check {store} --model openai:tiny --full --sample all"
    summary = tmp_path / "page.md"
    with OpenAIServer() as server:
        job = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url, "GITHUB_ACTIONS": "true", "HOME": str(tmp_path)}
        job["GITHUB_STEP_SUMMARY"] = str(summary)
        first, told, _ = run_action(tmp_path, 0, arguments=asked, program=REAL, **job)
        paid = len(server.billed)
        again, _, _ = run_action(tmp_path, 0, arguments=asked, program=REAL, **job)
        assert (first, again) == (1, 1), told
        assert paid >= len(DOCUMENTS)
        assert len(server.billed) - paid <= 9
    assert summary.read_text().count("## ") == 2, "the page of the job has what each run found"


class PullRequest(BaseHTTPRequestHandler):
    """The comments of a pull request, as GitHub's API lists, adds and edits them; a page holds two."""

    def do_GET(self):
        page = int(parse_qs(urlsplit(self.path).query)["page"][0])
        self.answer(self.server.comments[2 * page - 2 : 2 * page])

    def do_POST(self):
        assert self.path == "/repos/o/r/issues/7/comments"
        self.server.comments.append({"id": len(self.server.comments), "html_url": "http://new", **self.body()})
        self.answer(self.server.comments[-1])

    def do_PATCH(self):
        comment = self.server.comments[int(self.path.removeprefix("/repos/o/r/issues/comments/"))]
        comment |= {**self.body(), "html_url": "http://edited"}
        self.answer(comment)

    def body(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, document):
        code = 200 if self.headers["Authorization"] == "Bearer secret" else 403
        payload = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *words):
        pass


@pytest.fixture
def pull_request():
    with HTTPServer(("127.0.0.1", 0), PullRequest) as server:
        server.comments = [{"id": number, "body": "of a person"} for number in range(3)]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def run_comment(server, tmp_path, text, mark="ci/check/reports", token="secret"):
    (tmp_path / "out").mkdir(exist_ok=True)
    (tmp_path / "out" / "summary.md").write_text(text)
    (tmp_path / "event.json").write_text('{"pull_request": {"number": 7}}')
    given = {"GITHUB_TOKEN": token, "MARK": mark, "REPORTS": "out"}
    given["SCRIPT"] = str(ROOT / ".github" / "action" / "comment.py")
    job = {"GITHUB_API_URL": f"http://127.0.0.1:{server.server_port}", "GITHUB_REPOSITORY": "o/r"}
    job["GITHUB_EVENT_PATH"] = str(tmp_path / "event.json")
    done, _ = run_shell("Comment on the pull request", tmp_path, given, **job)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_comment_is_edited_and_not_repeated_and_each_job_has_its_own(pull_request, tmp_path):
    assert run_comment(pull_request, tmp_path, "first") == "http://new\n"
    assert run_comment(pull_request, tmp_path, "second") == "http://edited\n"
    assert run_comment(pull_request, tmp_path, "x" * 70_000, mark="ci/other") == "http://new\n"
    *people, first, other = [comment["body"] for comment in pull_request.comments]
    assert people == ["of a person"] * 3
    assert first.splitlines()[1:] == ["second"]
    assert len(other) < 65_536, "the most that GitHub takes"


def test_a_token_that_may_not_write_fails_nothing(pull_request, tmp_path):
    told = run_comment(pull_request, tmp_path, "first", token="of a fork")
    assert told.startswith("::warning title=lead-migrate::no comment was written: 403 ")


def test_other_actions_are_named_by_their_commit():
    for path in (ACTION, *(ROOT / ".github" / "workflows").iterdir()):
        for used in re.findall(r"uses: (.+)", path.read_text()):
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", used), path.name


@pytest.fixture(scope="module")
def light(tmp_path_factory):
    """Runs the command line with nothing to import but what light.txt names."""
    folder = tmp_path_factory.mktemp("light")
    link_installation(folder)
    return lambda *arguments: run_light(folder, "-m", "migrate", *arguments, cwd=folder)


@pytest.fixture
def stamped(tmp_path):
    """A store whose manifest says that it is of `MODEL`."""
    vectors = unit_rows(np.random.default_rng(0).normal(size=(len(DOCUMENTS), 1536)).astype(np.float32))
    folder = make_store(tmp_path / "stamped", vectors=vectors).folder
    details = {**StoreFacts(made_by="embed").as_details(), **hash_files(folder, INDEX_NAME, (DOCS_NAME,))}
    Manifest("store", model=ModelIdentity(MODEL, 1536, normalized=True), details=details).write(folder)
    return folder


@pytest.mark.parametrize(
    ("model", "code", "answer"),
    [
        (MODEL, 0, f"compatible with {MODEL}: the manifest names {MODEL}"),
        ("openai:text-embedding-3-large", 1, "not compatible with openai:text-embedding-3-large: other dimension"),
    ],
)
def test_the_light_installation_checks_by_the_manifest(model, code, answer, light, stamped, tmp_path):
    done = light("check", stamped, "--model", model, "--report", tmp_path / "junit.xml")
    assert done.returncode == code, done.stderr
    assert " ".join(done.stdout.split()).startswith(answer)
    assert "not installed" not in done.stderr
    assert (tmp_path / "junit.xml").exists()


def test_a_light_installation_that_is_asked_for_more_says_what_is_missing(light, stamped):
    done = light("fit", stamped, "--target", "sentence-transformers:all-MiniLM-L6-v2", "-o", "x")
    assert done.returncode == 2
    assert "is not installed, and this needs it: install lead-migrate with all" in done.stderr.splitlines()[-1]


def test_the_hook_runs_with_what_it_installs(stamped, tmp_path):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    without, *names = hook["additional_dependencies"]
    assert without == "--no-deps", "of the package's own requirements nothing is installed"
    assert set(names) < set(NAMES)
    folder = tmp_path / "hook"
    folder.mkdir()
    link_installation(folder, names, whole=False)
    program, *arguments = hook["entry"].split()
    assert program == "lead-migrate"
    for model, code in ((MODEL, 0), ("openai:text-embedding-ada-002", 1)):
        done = run_light(folder, "-m", "migrate", *arguments, stamped, "--model", model, cwd=tmp_path)
        assert done.returncode == code, done.stderr
    files = [str(path.relative_to(stamped.parent)) for path in stamped.iterdir()]
    assert len(files) == 3
    assert all(re.search(hook["files"], name) for name in files)
    assert not re.search(hook["files"], "src/app.py")


@pytest.fixture
def page():
    return (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")


def test_the_workflow_of_the_page_uses_the_action_as_it_is(page):
    workflow = yaml.safe_load(page.split("```yaml\n")[1].split("```")[0])
    (used,) = [step for step in workflow["jobs"]["check"]["steps"] if "lead-migrate" in step["uses"]]
    assert used["uses"].partition("@")[0] == "OWNER/lead-migrate", "the action is at the root"
    inputs = list(yaml.safe_load(ACTION.read_text())["inputs"])
    assert set(used["with"]) <= set(inputs)
    tables = page[page.index("| input |") : page.index("## GitLab")]
    taken, given = tables.split("| output of the step |")
    assert re.findall(r"^\| `([\w-]+)` \|", taken, re.MULTILINE) == inputs
    rows = [line.split("|")[1] for line in given.splitlines() if line.startswith("| `")]
    assert re.findall(r"`([\w-]+)`", "".join(rows)) == list(yaml.safe_load(ACTION.read_text())["outputs"])
    stores = []
    for line in used["with"]["arguments"].splitlines():
        command, *arguments = line.split()
        with cli.get_command(None, command).make_context(
            command, [*arguments, "--report", "x.xml", "--force"]
        ) as context:
            stores.append(context.params["store"])
    assert stores == ["my-store", "my-other-store"]


def test_the_hook_and_the_light_installation_of_the_page_are_those_that_are_there(page):
    (repository,) = yaml.safe_load(page.split("```yaml\n")[3].split("```")[0])["repos"]
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    (used,) = repository["hooks"]
    assert used["id"] == hook["id"]
    with cli.get_command(None, "check").make_context("check", list(used["args"])) as context:
        assert context.params["store"] == "my-store"
    assert "pip install -r light.txt\n" in page
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    assert set(NAMES) < set(config["options"]["install_requires"].split("\n")), "a part of the full one"


def test_the_options_that_the_page_puts_into_pyproject_are_read(page, tmp_path, monkeypatch, capsys):
    (tmp_path / "pyproject.toml").write_text(page.split("```toml\n")[1].split("```")[0])
    monkeypatch.chdir(tmp_path)
    assert run(["audit", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split()).replace("two- stage", "two-stage")
    assert "[default: 0.97]" in told and "together-N. [default: two-stage-20]" in told
