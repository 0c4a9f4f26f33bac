"""Old names of options, which are taken for one version more, typed, in the environment and in pyproject.toml."""

from pathlib import Path

import click
import pytest

from migrate.cli.configuration import read_defaults
from migrate.cli.main import leaf_commands

FIT = "fit store --target tfidf:24 --sample 60"
OLD = {
    ("fit", "--kind"): "--stitch",
    ("run", "--kind"): "--stitch",
    ("compare", "--kind"): "--stitch",
    ("fit", "--first-tokens"): "--prefix",
    ("assess", "--first-tokens"): "--prefix",
    ("switch", "--audit"): "--report",
}


def kind_of(lead_migrate, words=""):
    """What a fit says, and the kind of its stitch."""
    ended = lead_migrate(f"{FIT} {words} --json -o stitch --force")
    return ended.err.splitlines(), ended.document["chosen"]


@pytest.fixture(autouse=True)
def _here(here):
    """A store, its translation and judged queries in the current folder."""


def test_no_other_option_has_old_flags_and_none_is_shown(lead_migrate):
    found = {}
    for name, command in leaf_commands().items():
        for option in command.params:
            for flag in getattr(option, "old_flags", ()):
                found[name, option.opts[0]] = flag
                context = click.Context(command, info_name=name)
                assert flag not in [option.opts[0] for option in command.params]
                assert all(f"  {flag} " not in line for line in command.get_help(context).splitlines())
    assert found == OLD


def test_an_old_flag_does_what_todays_does_and_says_which_that_is(lead_migrate):
    assert kind_of(lead_migrate, "--kind mean -q") == ([], "mean")
    assert kind_of(lead_migrate, "--stitch mean -q") == ([], "mean"), "and no note where none is wanted"
    told, chosen = kind_of(lead_migrate, "--stitch mean --stitch ridge")
    assert told[0] == "note: --stitch is now --kind" and chosen == "ridge"


def test_an_old_flag_beside_todays_is_refused(lead_migrate):
    told = lead_migrate(f"{FIT} --kind mean --stitch ridge -o stitch", code=2).complaint
    assert "--stitch and --kind are one option; leave --stitch out" in told


def test_the_environment_is_read_by_old_names_too_where_todays_is_not_there(lead_migrate, monkeypatch):
    monkeypatch.setenv("LEAD_MIGRATE_STITCH", "mean")
    told, chosen = kind_of(lead_migrate)
    assert told[0] == "note: LEAD_MIGRATE_STITCH is now LEAD_MIGRATE_KIND" and chosen == "mean"
    monkeypatch.setenv("LEAD_MIGRATE_KIND", "ridge")
    assert kind_of(lead_migrate, "-q") == ([], "ridge")
    monkeypatch.setenv("LEAD_MIGRATE_BEIR", "nowhere")
    assert "'nowhere' is not a BEIR folder" in lead_migrate("audit store", code=4).complaint
    assert lead_migrate("inspect store --json").err == "", "no variable that nothing reads"


def test_a_file_is_read_by_old_names_too_where_todays_are_not_there(lead_migrate):
    project = Path("pyproject.toml")
    project.write_text('[tool.lead-migrate.fit]\nstitch = ["mean", "procrustes"]\n')
    told, chosen = kind_of(lead_migrate)
    assert told[0] == f"note: stitch in {project.absolute()} is now kind" and chosen == "procrustes"
    assert kind_of(lead_migrate, "--kind ridge -q") == ([], "ridge")
    project.write_text('[tool.lead-migrate]\nkind = "ridge"\n[tool.lead-migrate.fit]\nstitch = "mean"\n')
    assert kind_of(lead_migrate)[1] == "mean", "the table of a command goes first, whatever the name"
    project.write_text('[tool.lead-migrate]\nstitch = "mean"\nkind = "ridge"\n')
    assert kind_of(lead_migrate, "-q") == ([], "ridge")


def test_judged_queries_are_read_as_beir_silently(lead_migrate):
    audit = "audit new --reference build --two-stage none"
    first, second = (lead_migrate(f"{audit} --{name} judged", code=(0, 1, 3)) for name in ("beir", "judged"))
    assert first == second and "beir" not in first.err
    told = lead_migrate(f"{audit} --beir judged --judged judged", code=2).complaint
    assert "--beir and --judged are one option; leave --beir out" in told
    Path("pyproject.toml").write_text('[tool.lead-migrate.audit]\nbeir = "judged"\n')
    assert lead_migrate(audit, code=(0, 1, 3)) == first


def test_a_report_is_read_as_proof_by_its_old_name(lead_migrate):
    ended = lead_migrate("switch store other --report none.json", code=4)
    assert "note: --report is now --audit" in ended.err.splitlines()


def test_defaults_of_a_file_have_the_flag_that_is_not_todays(tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text('[tool.lead-migrate]\nprefix = 8\nbeir = "judged"\n')
    commands = {name: command for name, command in leaf_commands().items() if name in ("fit", "audit")}
    assert read_defaults(path, commands) == {"fit": {"--prefix": "8"}, "audit": {"--beir": "judged"}}
