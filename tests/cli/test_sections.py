"""The list of commands: by the order of the job, and what a mistyped name is told."""

import re

from migrate.cli import SECTIONS
from migrate.cli.main import run


def test_commands_are_listed_in_the_order_of_the_job(capsys):
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    listed = re.findall(r"^(\w[\w ]*):$|^  ([a-z]+)  ", shown.partition("--help ")[2], re.MULTILINE)
    assert [title or name for title, name in listed] == [x for title in SECTIONS for x in (title, *SECTIONS[title])]


def test_a_mistyped_command_is_told_the_nearest(capsys):
    assert run(["tranlate", "store", "stitch"]) == 2
    assert capsys.readouterr().err == (
        "lead-migrate: no command is called 'tranlate'; the nearest is 'translate'; see lead-migrate --help\n"
    )
    assert run(["zzz"]) == 2
    assert capsys.readouterr().err == "lead-migrate: No such command 'zzz'; see lead-migrate --help\n"
