"""Options out of pyproject.toml, as a project's own commands meet them."""

import re
from pathlib import Path

import click
import pytest

from migrate.cli.commands.audit import audit as command
from migrate.cli.configuration import find_configuration, read_defaults
from migrate.cli.main import leaf_commands
from migrate.files import cache_folder, work_folder

UNKNOWN = "warning: unknown environment variable"


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """The pyproject.toml, to be written, above the folder that the test works in."""
    inner = tmp_path / "project" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    return tmp_path / "project" / "pyproject.toml"


def test_the_nearest_file_with_the_table_counts(project, tmp_path):
    here, above = Path.cwd(), tmp_path / "pyproject.toml"
    assert find_configuration(here) is None
    above.write_text("[tool.lead-migrate]\nmargin = 0.5\n")
    for other in ("[tool.other]\nmargin = 0.7\n", "tool = 1\n", "[tool]\nlead-migrate = 1\n"):
        project.write_text(other)
        assert find_configuration(here) == above
    project.write_text("[tool.lead-migrate]\nmargin = 0.7\n")
    assert find_configuration(here) == project


def test_options_for_all_commands_and_for_one(project, lead_migrate):
    project.write_text('[tool.lead-migrate]\nmargin = 0.91\n[tool.lead-migrate.audit]\nparent-field = "dev"\n')
    audit = lead_migrate("audit --help-all").said
    assert "must be retained. [default: 0.91]" in audit and "cut from. [default: dev]" in audit
    assert "must be retained. [default: 0.91]" in lead_migrate("run --help").said


def test_a_command_of_a_group_has_a_table_by_its_whole_name(project, lead_migrate):
    project.write_text('[tool.lead-migrate."private encrypt"]\nkeys = "nowhere"\n')
    told = lead_migrate("private encrypt store -o out", code=4).complaint
    assert "store" in told, "--keys is required, and stands in the file"
    assert "--keys" in lead_migrate("private decrypt answer store -o out", code=2).complaint


def test_what_is_typed_or_in_the_environment_goes_first(project, source_folder, monkeypatch, lead_migrate):
    project.write_text('[tool.lead-migrate.fit]\ntarget = "tfidf:16"\nkind = "nonsense"\n')
    fit = f"fit {source_folder} --sample 60 -o stitch"
    assert "nonsense" in lead_migrate(fit, code=2).complaint
    monkeypatch.setenv("LEAD_MIGRATE_KIND", "other")
    assert "other" in lead_migrate(fit, code=2).complaint
    lead_migrate(f"{fit} --kind ridge")  # --target is required, and stands in the file


@pytest.mark.parametrize("where", ["file", "environment"])
def test_settings_of_all_models_are_read_below_those_of_a_spec(
    where, project, source_folder, monkeypatch, lead_migrate
):
    def settings(dimensions):
        if where == "file":
            project.write_text(f'[tool.lead-migrate]\ndimensions = {dimensions}\nrate = "2/s"\n')
        else:
            monkeypatch.setenv("LEAD_MIGRATE_DIMENSIONS", str(dimensions))
            monkeypatch.setenv("LEAD_MIGRATE_RATE", "2/s")

    check = f"check {source_folder} --model tfidf:32"
    settings(0)
    origin = f"dimensions in {project}" if where == "file" else "LEAD_MIGRATE_DIMENSIONS"
    assert f"Invalid value for {origin}: 0 is not in the range" in lead_migrate(check, code=2).complaint
    settings(4)
    assert "dimensions=4 does not fit 'tfidf:32'" in lead_migrate(check, code=2).complaint
    assert (
        "dimensions=5 does not fit 'tfidf:32,dimensions=5'" in lead_migrate(f"{check},dimensions=5", code=2).complaint
    )


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("MARGIN", "abc", "audit store --judged x"),
        ("FORCE", "maybe", "fit store --target tfidf:8 -o out"),
        ("MAX_COST", "lots", "run store --target tfidf:8 -o out"),
        ("PACE", "7", "translate store stitch -o out"),
        ("JSON", "maybe", "inspect store"),
        ("CONFIG", "nowhere.toml", "inspect store"),
    ],
)
def test_a_bad_value_of_the_environment_is_told_by_the_name_of_its_variable(
    name, value, line, lead_migrate, monkeypatch
):
    monkeypatch.setenv(f"LEAD_MIGRATE_{name}", value)
    assert f"Invalid value for LEAD_MIGRATE_{name}: " in lead_migrate(line, code=2).complaint


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[tool.lead-migrate]\nmargn = 0.9\n", "unknown option 'margn' in [tool.lead-migrate]; did you mean margin?"),
        ("[tool.lead-migrate.audti]\nplan = 'x'\n", "unknown command 'audti' in [tool.lead-migrate]"),
        ("[tool.lead-migrate.fit]\nmargin = 0.9\n", "unknown option of fit 'margin' in [tool.lead-migrate]"),
        ("[tool.lead-migrate]\nmargin = 7\n", "Invalid value for margin in "),
        ("[tool.lead-migrate\n", "this is not TOML"),
        ("[tool.lead-migrate]\nmargin = [0.9]\n", "[0.9] of margin is not text, a number, true or false"),
        ("[tool.lead-migrate]\nmargin = 2026-01-01\n", "of margin is not text, a number, true or false"),
        ("[tool.lead-migrate.audit]\nslice = [['x']]\n", "[['x']] of slice is not text, a number, true or false"),
        ("[tool.lead-migrate]\nseed = true\n", "Invalid value for seed in "),
        ("[tool.lead-migrate]\nseed = -1\n", "Invalid value for seed in "),
        ("[tool.lead-migrate]\nquiet = 7\n", "Invalid value for quiet in "),
        ("[tool.lead-migrate]\nquiet = inf\n", "Invalid value for quiet in "),
        ("[tool.lead-migrate]\nx = '\udcff'\n", "this is not TOML"),
        ("[tool.lead-migrate]\nx = " + "[" * 5_000, "this is not TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_told(text, told, project, lead_migrate):
    project.write_text(text, errors="surrogateescape")
    ended = lead_migrate("audit store --reference build --judged x", code=2)
    assert told in ended.complaint and ended.err.count("\n") == 1


def test_a_file_can_be_named(lead_migrate):
    Path("ci.toml").write_text("[tool.lead-migrate]\nmargin = 0.42\n")
    assert "[default: 0.42]" in lead_migrate("--config ci.toml audit --help").said
    Path("ci.toml").write_text("[tool.other]\n")
    told = lead_migrate("--config ci.toml demo", code=2).complaint
    assert "there is no table [tool.lead-migrate]" in told


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (
            'report = 5\ntwo-stage = 50\nslice = "shelf"\nquiet = true\nmargin = 0.9\n',
            {"report": ["../5"], "two_stage": "50", "slice": ["shelf"], "quiet": True, "margin": "0.9"},
        ),
        ('slice = ["shelf", 7]\n', {"slice": ["shelf", "7"]}),
    ],
)
def test_values_are_taken_as_if_they_were_typed(text, values, project):
    project.write_text(f"[tool.lead-migrate.audit]\n{text}")
    assert read_defaults(project, {"audit": command})["audit"] == values


def test_a_list_for_all_commands_goes_to_those_where_the_option_can_be_repeated(project):
    commands = {name: command for name, command in leaf_commands().items() if name in ("assess", "audit", "fit")}
    project.write_text('[tool.lead-migrate]\ntarget = ["tfidf:8", "tfidf:9"]\n')
    assert read_defaults(project, commands) == {"assess": {"target": ["tfidf:8", "tfidf:9"]}, "audit": {}, "fit": {}}
    project.write_text('[tool.lead-migrate.fit]\ntarget = ["tfidf:8", "tfidf:9"]\n')
    with pytest.raises(click.UsageError, match="of target is not text"):
        read_defaults(project, commands)


def test_a_variable_that_nothing_reads_is_told_once(source_folder, monkeypatch, lead_migrate):
    monkeypatch.setenv("LEAD_MIGRATE_SORCE_MODEL", "tfidf:9")
    monkeypatch.setenv("LEAD_MIGRATE_ZZ9", "1")
    for name in ("MARGIN", "DEBUG", "BEIR_URL", "TWO_STAGE"):  # of other commands, or of none
        monkeypatch.setenv(f"LEAD_MIGRATE_{name}", "0.9")
    misspelled, strange = lead_migrate(f"inspect {source_folder} --json").err.splitlines()
    named = re.findall("LEAD_MIGRATE_[A-Z0-9_]+", misspelled)
    assert named == ["LEAD_MIGRATE_SORCE_MODEL", "LEAD_MIGRATE_SOURCE_MODEL"]
    assert misspelled.startswith(UNKNOWN) and strange == f"{UNKNOWN} LEAD_MIGRATE_ZZ9"


def test_the_work_folder_is_that_of_the_option_or_of_the_environment(tmp_path, monkeypatch, lead_migrate):
    monkeypatch.setenv("LEAD_MIGRATE_WORK_FOLDER", str(tmp_path / "one"))  # and is set back after what the option does
    assert work_folder() == tmp_path / "one"
    assert UNKNOWN not in lead_migrate(f"--work-folder {tmp_path / 'two'} inspect none", code=4).err
    assert work_folder() == tmp_path / "two"
    monkeypatch.delenv("LEAD_MIGRATE_WORK_FOLDER")
    assert work_folder() == cache_folder()
