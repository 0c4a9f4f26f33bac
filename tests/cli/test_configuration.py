"""Options out of pyproject.toml, as a project's own commands meet them."""

import click
import pytest

from migrate.cli.audit import command
from migrate.cli.configuration import find_configuration, read_defaults
from migrate.cli.main import leaf_commands, run
from migrate.files import cache_folder, work_folder


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder inside a project whose pyproject.toml is to be written."""
    inner = tmp_path / "project" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    return tmp_path / "project" / "pyproject.toml"


def shown(capsys, *arguments):
    code = run(list(arguments))
    told = capsys.readouterr()
    return code, " ".join(told.out.split()), told.err


def test_the_nearest_file_with_the_table_counts(project, tmp_path):
    assert find_configuration(project.parent / "inner") is None
    (tmp_path / "pyproject.toml").write_text("[tool.lead-migrate]\nmargin = 0.5\n")
    project.write_text("[tool.other]\nmargin = 0.7\n")
    assert find_configuration(project.parent / "inner") == tmp_path / "pyproject.toml"
    project.write_text("[tool.lead-migrate]\nmargin = 0.7\n")
    assert find_configuration(project.parent / "inner") == project


def test_options_for_all_commands_and_for_one(project, capsys):
    project.write_text('[tool.lead-migrate]\nmargin = 0.91\n[tool.lead-migrate.audit]\nparent-field = "dev"\n')
    assert "must be retained. [default: 0.91]" in shown(capsys, "audit", "--help")[1]
    assert "cut from. [default: dev]" in shown(capsys, "audit", "--help")[1]
    assert "must be retained. [default: 0.91]" in shown(capsys, "run", "--help")[1]


def test_a_command_of_a_group_has_a_table_by_its_whole_name(project, capsys):
    project.write_text('[tool.lead-migrate."private encrypt"]\nkeys = "nowhere"\n')
    code, _, error = shown(capsys, "private", "encrypt", "store", "-o", "out")
    assert code == 4 and "store" in error, "--keys is required, and stands in the file"
    assert "--keys" in shown(capsys, "private", "decrypt", "answer", "store", "-o", "out")[2]


def test_what_is_typed_or_in_the_environment_goes_first(project, source_folder, tmp_path, monkeypatch, capsys):
    project.write_text('[tool.lead-migrate.fit]\ntarget = "tfidf:16"\nstitch = "nonsense"\n')
    arguments = ["fit", str(source_folder), "--sample", "60", "-o", str(tmp_path / "stitch")]
    code, _, error = shown(capsys, *arguments)
    assert code == 2 and "nonsense" in error
    monkeypatch.setenv("LEAD_MIGRATE_STITCH", "other")
    assert "other" in shown(capsys, *arguments)[2]
    assert shown(capsys, *arguments, "--stitch", "ridge")[0] == 0, "--target is required, and stands in the file"


@pytest.mark.parametrize("where", ["file", "environment"])
def test_settings_of_all_models_are_read_below_those_of_a_spec(where, project, source_folder, monkeypatch, capsys):
    if where == "file":
        project.write_text('[tool.lead-migrate]\ndimensions = 0\nrate = "2/s"\n')
    else:
        monkeypatch.setenv("LEAD_MIGRATE_DIMENSIONS", "0")
        monkeypatch.setenv("LEAD_MIGRATE_RATE", "2/s")
    check = ["check", str(source_folder), "--model"]
    code, _, error = shown(capsys, *check, "tfidf:32")
    origin = f"dimensions in {project}" if where == "file" else "LEAD_MIGRATE_DIMENSIONS"
    assert code == 2 and f"Invalid value for {origin}: 0 is not in the range" in error
    if where == "file":
        project.write_text("[tool.lead-migrate]\ndimensions = 4\n")
    else:
        monkeypatch.setenv("LEAD_MIGRATE_DIMENSIONS", "4")
    assert "found 4 for 'tfidf:32'" in shown(capsys, *check, "tfidf:32")[2]
    assert "found 5 for 'tfidf:32'" in shown(capsys, *check, "tfidf:32,dimensions=5")[2]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[tool.lead-migrate]\nmargn = 0.9\n", "unknown option 'margn' in [tool.lead-migrate]; did you mean margin?"),
        ("[tool.lead-migrate.audti]\nplan = 'x'\n", "unknown command 'audti' in [tool.lead-migrate]"),
        ("[tool.lead-migrate.fit]\nmargin = 0.9\n", "unknown option of fit 'margin' in [tool.lead-migrate]"),
        ("[tool.lead-migrate]\nmargin = 7\n", "Invalid value for '--margin'"),
        ("[tool.lead-migrate\n", "this is not TOML"),
        ("[tool.lead-migrate]\nmargin = [0.9]\n", "[0.9] of margin is no text, number, true or false"),
        ("[tool.lead-migrate]\nmargin = 2026-01-01\n", "of margin is no text, number, true or false"),
        ("[tool.lead-migrate.audit]\nslice = [['x']]\n", "[['x']] of slice is no text, number, true or false"),
        ("[tool.lead-migrate]\nseed = true\n", "Invalid value for '--seed'"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_file_is_told(text, told, project, capsys):
    project.write_text(text)
    code, out, error = shown(capsys, "audit", "store", "--reference", "build", "--beir", "x")
    assert (code, out) == (2, "")
    assert told in error
    assert error.count("\n") == 1


def test_a_file_can_be_named(project, tmp_path, capsys):
    named = tmp_path / "ci.toml"
    named.write_text("[tool.lead-migrate]\nmargin = 0.42\n")
    assert "[default: 0.42]" in shown(capsys, "--config", str(named), "audit", "--help")[1]
    named.write_text("[tool.other]\n")
    assert "there is no table [tool.lead-migrate]" in shown(capsys, "--config", str(named), "demo")[2]


@pytest.mark.parametrize("text", ["tool = 1\n", "[tool]\nlead-migrate = 1\n"])
def test_a_file_without_such_a_table_is_passed_by(text, project):
    project.write_text(text)
    assert find_configuration(project.parent) is None


def test_values_are_taken_as_if_they_were_typed(project):
    project.write_text(
        '[tool.lead-migrate.audit]\nreport = 5\ntwo-stage = 50\nslice = "shelf"\nquiet = true\nmargin = 0.9\n'
    )
    audit = read_defaults(project, {"audit": command})["audit"]
    assert audit == {"report": ["5"], "two_stage": "50", "slice": ["shelf"], "quiet": True, "margin": "0.9"}
    project.write_text('[tool.lead-migrate.audit]\nslice = ["shelf", 7]\n')
    assert read_defaults(project, {"audit": command})["audit"] == {"slice": ["shelf", "7"]}


def test_a_list_for_all_commands_goes_to_those_where_the_option_can_be_repeated(project):
    commands = {name: command for name, command in leaf_commands().items() if name in ("audit", "switch", "fit")}
    project.write_text('[tool.lead-migrate]\nreport = ["a.json", "b.html"]\n')
    assert read_defaults(project, commands) == {"audit": {"report": ["a.json", "b.html"]}, "switch": {}, "fit": {}}
    project.write_text('[tool.lead-migrate.switch]\nreport = ["a.json", "b.html"]\n')
    with pytest.raises(click.UsageError, match="of report is no text"):
        read_defaults(project, commands)


def test_a_variable_that_nothing_reads_is_told_once(project, source_folder, monkeypatch, capsys):
    monkeypatch.setenv("LEAD_MIGRATE_SORCE_MODEL", "tfidf:9")
    monkeypatch.setenv("LEAD_MIGRATE_ZZ9", "1")
    for name in ("MARGIN", "DEBUG", "BEIR_URL", "TWO_STAGE"):  # of other commands, or of none
        monkeypatch.setenv(f"LEAD_MIGRATE_{name}", "0.9")
    code, _, error = shown(capsys, "inspect", str(source_folder), "--json")
    assert code == 0
    assert error.splitlines() == [
        "warning: nothing reads the environment variable LEAD_MIGRATE_SORCE_MODEL; "
        "did you mean LEAD_MIGRATE_SOURCE_MODEL?",
        "warning: nothing reads the environment variable LEAD_MIGRATE_ZZ9",
    ]


def test_the_work_folder_is_that_of_the_option_or_of_the_environment(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LEAD_MIGRATE_WORK_FOLDER", str(tmp_path / "one"))  # and is set back after what the option does
    assert work_folder() == tmp_path / "one"
    assert run(["--work-folder", str(tmp_path / "two"), "inspect", str(tmp_path / "none")]) == 4
    assert work_folder() == tmp_path / "two"
    assert "nothing reads" not in capsys.readouterr().err
    monkeypatch.delenv("LEAD_MIGRATE_WORK_FOLDER")
    assert work_folder() == cache_folder()
