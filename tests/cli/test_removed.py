"""Options that a command does not have any more: one line names what took their place or the commit that has them."""

import re
from pathlib import Path

import click
import pytest

from migrate.cli.main import leaf_commands
from migrate.cli.options import variable_of
from migrate.removed import COMMANDS, LAST_READER, OPTIONS


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_no_command_has_it_and_one_line_says_what_to_do(name, lead_migrate):
    command, flag = name.rsplit(" ", 1) if " " in name else ("run", name)
    told = lead_migrate(f"{command} {flag}=1", code=2).complaint
    assert f"the option {flag} was removed: " in told and "Did you mean" not in told
    for leaf, made in leaf_commands().items():
        flags = {flag for option in made.params if isinstance(option, click.Option) for flag in option.opts}
        assert flag not in flags or (" " in name and leaf != command)


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_what_took_its_place_is_there(name):
    words = OPTIONS[name].split(";")[0].split(" ")
    flags = {flag for made in leaf_commands().values() for option in made.params for flag in option.opts}
    named = {word.strip(":,") for word in words if word.startswith("--")}
    named -= {"--frontier"}  # which is named as it is gone too
    assert named <= flags
    commands = re.findall("`([^`]+)`", OPTIONS[name])
    assert set(commands) <= set(leaf_commands())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("audit new --beir judged", "the option --beir was removed: give --judged; see"),
        ("audit new --frontier", f"{LAST_READER} of lead-migrate is the last that has it"),
        ("fit store --first-tokens 32", f"the option --first-tokens was removed: the commit {LAST_READER} of"),
        ("fit store --target tfidf:8 --outside", "No such option '--outside'"),
        ("live run new --runner=dask", "the option --runner was removed: `translate` of Parquet has --engine"),
    ],
)
def test_it_is_said_where_it_was_typed(line, said, lead_migrate):
    assert said in lead_migrate(line, code=2).complaint


def test_settings_and_variables_are_told_so_too(lead_migrate, monkeypatch):
    for text in ('[tool.lead-migrate]\nbeir = "judged"\n', '[tool.lead-migrate.audit]\nbeir = "judged"\n'):
        Path("pyproject.toml").write_text(text)
        assert "pyproject.toml: the option --beir" in lead_migrate("inspect x", code=2).err
    Path("pyproject.toml").unlink()
    monkeypatch.setenv("LEAD_MIGRATE_BEIR", "judged")
    assert "LEAD_MIGRATE_BEIR: the option --beir" in lead_migrate("inspect x", code=4).err
    monkeypatch.delenv("LEAD_MIGRATE_BEIR")
    monkeypatch.setenv("LEAD_MIGRATE_ON_UNSAFE", "stop")  # of one command alone
    told = lead_migrate("inspect x", code=4).err
    assert "LEAD_MIGRATE_ON_UNSAFE: " in told and "`live status` has --json" in told


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_the_variable_of_each_is_told_unless_another_command_reads_it(name, lead_migrate, monkeypatch):
    flag = name.split(" ")[-1]
    variable = f"LEAD_MIGRATE_{flag.removeprefix('--').replace('-', '_').upper()}"
    read = {variable_of(option) for made in leaf_commands().values() for option in made.params}
    monkeypatch.setenv(variable, "1")
    told = f"{variable}: the option {flag} was removed: " in lead_migrate("inspect x", code=4).err
    assert told == (variable not in read)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_that_is_gone_is_told_so_too(name, lead_migrate):
    assert name not in leaf_commands()
    told = lead_migrate(f"{name} store --budget 10%", code=2).complaint
    assert f"the command {name} was removed: " in told and LAST_READER in told
    assert set(re.findall("`([^`]+)`", COMMANDS[name])) <= set(leaf_commands())
    Path("pyproject.toml").write_text(f'[tool.lead-migrate."{name}"]\nbudget = "10%"\n')
    assert f"pyproject.toml: the command {name} was removed: " in lead_migrate("inspect x", code=2).err
