"""Commands that come by entry points: those of this package's rooms, and those of other packages."""

import pytest

from migrate.cli import main as entry
from migrate.cli.main import run

COMMANDS = """
import click

@click.command("greet", short_help="Say hello.")
def greet():
    print("hello")
"""


@pytest.fixture
def added(tmp_path, monkeypatch):
    """Install a package with commands; returns the function that does."""

    def add(entries, requires=""):
        info = tmp_path / "greeter-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: greeter\nVersion: 1\n{requires}")
        (info / "entry_points.txt").write_text(f"[lead_migrate.commands]\n{entries}\n")
        (tmp_path / "greeter_commands.py").write_text(COMMANDS)
        monkeypatch.syspath_prepend(str(tmp_path))
        entry._entry_points.cache_clear()

    yield add
    entry._entry_points.cache_clear()


def test_rooms_come_by_entry_points_and_are_where_they_belong():
    assert set(entry.ROOMS) <= set(entry._entry_points())
    assert entry.cli.list_commands(None)[: len(entry.SUMMARIES)] == list(entry.SUMMARIES)


def test_a_room_that_is_not_installed_is_listed_with_the_line_that_installs_it(monkeypatch, capsys):
    monkeypatch.setattr(entry, "_entry_points", dict)
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    for name, extra in entry.ROOMS.items():
        assert f"  {name:<10} not installed: pip install 'lead-migrate[{extra}]'\n" in shown
    for words in (["live", "status", "x", "--report", "y"], ["private"], ["compare", "--help"]):
        assert run(words) == 2
        line = f"pip install 'lead-migrate[{entry.ROOMS[words[0]]}]'"
        assert capsys.readouterr().err == f"lead-migrate: {words[0]}: not installed: {line}\n"
    assert run(["fit", "--help"]) == 0


def test_another_package_adds_a_command(added, capsys):
    added("greet = greeter_commands:greet")
    assert run(["--help"]) == 0 and "  greet      Say hello.\n" in capsys.readouterr().out
    assert run(["greet"]) == 0 and capsys.readouterr().out == "hello\n"


def test_a_command_whose_extra_lacks_a_package_says_how_to_install_it(added, capsys):
    extra = 'Provides-Extra: loud\nRequires-Dist: no-such-package-xyz>=2; extra == "loud"\nRequires-Dist: click\n'
    added("greet = greeter_commands:greet [loud]", extra)
    assert run(["--help"]) == 0
    assert "  greet      lacks a package: pip install 'greeter[loud]'\n" in capsys.readouterr().out


@pytest.mark.parametrize("entries", ["greet = no_such_module:greet", "greet = greeter_commands:COMMANDS"])
def test_a_command_that_cannot_be_loaded_spoils_no_other(added, capsys, entries):
    added(entries)
    assert run(["--help"]) == 0 and "  greet  " in capsys.readouterr().out
    assert run(["greet", "--loud"]) == 2
    assert capsys.readouterr().err.startswith("lead-migrate: greet: greeter: ")
