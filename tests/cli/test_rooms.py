"""Commands that come by entry points: those of this package's rooms, and those of other packages."""

import pytest

from migrate.cli import main as entry

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
    assert set(entry.EXTRAS) <= set(entry._entry_points())
    assert entry.cli.list_commands(None)[: len(entry.SUMMARIES)] == list(entry.SUMMARIES)


def test_a_room_that_is_not_installed_is_listed_with_the_line_that_installs_it(monkeypatch, lead_migrate):
    monkeypatch.setattr(entry, "_entry_points", dict)
    shown = lead_migrate("--help").out
    for name, extra in entry.EXTRAS.items():
        package = f"lead-migrate[{extra}]" if extra else "lead-migrate"
        assert f"  {name:<11}  not installed: pip install '{package}'\n" in shown
    for line in ("live status x --report y", "private", "compare --help"):
        name = line.split()[0]
        told = f"lead-migrate: {name}: not installed: pip install 'lead-migrate[{entry.EXTRAS[name]}]'\n"
        assert lead_migrate(line, code=2).err == told
    lead_migrate("fit --help")


def test_another_package_adds_a_command(added, lead_migrate):
    added("greet = greeter_commands:greet")
    assert "  greet        Say hello.\n" in lead_migrate("--help").out
    assert lead_migrate("greet").out == "hello\n"


def test_a_command_whose_extra_lacks_a_package_says_how_to_install_it(added, lead_migrate):
    extra = 'Provides-Extra: loud\nRequires-Dist: no-such-package-xyz>=2; extra == "loud"\nRequires-Dist: click\n'
    added("greet = greeter_commands:greet [loud]", extra)
    assert "pip install 'greeter[loud]'\n" in lead_migrate("--help").out


@pytest.mark.parametrize("entries", ["greet = no_such_module:greet", "greet = greeter_commands:COMMANDS"])
def test_a_command_that_cannot_be_loaded_spoils_no_other(entries, added, lead_migrate):
    added(entries)
    assert "  greet  " in lead_migrate("--help").out
    assert lead_migrate("greet --loud", code=2).err.startswith("lead-migrate: greet: greeter: ")
