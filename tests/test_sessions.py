"""The terminal sessions of the pages: every command in a ```console block is run, and prints what stands there.

`...` on a line of its own stands for any lines. Seconds are not compared; the last digit of a figure may be another.
"""

import os
import re
from pathlib import Path

import pytest
from children import call_in_child, type_command
from packaged_demo import cache_packaged

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "docs" / "quick-start.md"]
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
SECONDS = re.compile(r"(?<=  )(?:fit )?s(?=  |$)")
"""The head of a column of seconds."""

PROGRESS = re.compile(r"[\w ]+: \d+/\S+ \[\S+<\S+, +\S+\]")
"""What a slow machine prints besides."""


def sessions(page):
    """Commands of the page's console blocks, in order, with the lines printed below each."""
    for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        for session in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = session.splitlines()
            yield command, lines


def comparable(lines):
    """Lines without seconds, without drawn bounds, and without the padding that goes by the widest cell."""
    end = None
    for line in lines:
        if head := SECONDS.search(line):
            end = head.end()
        elif not line:
            end = None
        elif end and (cell := re.search(r"(?<=  )\d+\.\d+$", line[:end])):
            line = f"{line[: cell.start()]}-{line[end:]}"
        yield re.sub(r" {2,}", "  ", re.sub(r" [ ─●│┼]*[●│][ ─●│┼]*", "  ", line).rstrip())


def is_alike(expected, printed):
    """Whether the words are the same, and each figure within two units of its last digit or one percent."""
    if NUMBER.sub("0", expected) != NUMBER.sub("0", printed):
        return False
    for old, new in zip(NUMBER.findall(expected), NUMBER.findall(printed), strict=True):
        unit = 10.0 ** -len(old.partition(".")[2])
        old, new = float(old.replace(",", "")), float(new.replace(",", ""))
        if abs(new - old) > max(2.001 * unit if unit < 1 else 0, 0.01 * old):
            return False
    return True


def missing(expected, printed):
    """The first part between two `...` that was not printed in its place; None where all were."""
    lines, place = list(comparable(printed)), 0
    parts = re.split(r"^ *\.\.\.$\n?", "\n".join(comparable(expected)), flags=re.MULTILINE)
    for number, part in enumerate(map(str.splitlines, parts)):
        last = len(lines) - len(part)
        starts = range(place, 1 if number == 0 else last + 1)
        if part and number == len(parts) - 1:
            starts = range(max(last, place), starts.stop)  # nothing may follow
        place = next((at + len(part) for at in starts if fits(part, lines[at : at + len(part)])), None)
        if place is None:
            return "\n".join(part)
    return None


def fits(part, lines):
    return len(part) == len(lines) and all(map(is_alike, part, lines))


@pytest.fixture
def terminal(tmp_path):
    """Runs a command in a folder that all pages share, once; returns what it prints, as lines."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEAD_MIGRATE_")}
    environment = {**kept, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    printed = {}

    def run(command):
        program, *arguments = command.split()
        assert program == "lead-migrate"
        if command not in printed:
            output = tmp_path / "output"
            output.unlink(missing_ok=True)
            call_in_child(type_command, arguments, tmp_path, environment, output)
            if "--hard" in arguments:
                cache = tmp_path / "cache" / "lead-migrate" / "embeddings.sqlite"
                call_in_child(cache_packaged, tmp_path / "hard", cache)
            printed[command] = [line for line in output.read_text("utf-8").splitlines() if not PROGRESS.fullmatch(line)]
        return printed[command]

    return run


@pytest.mark.slow
def test_commands_print_what_stands_on_the_pages(terminal):
    for page in PAGES:
        for command, lines in sessions(page):
            printed = terminal(command)
            part = missing(lines, printed)
            assert part is None, f"{page.name}: $ {command}\ndoes not print\n{part}\nbut\n" + "\n".join(printed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_sessions(page):
    assert [command for command, lines in sessions(page) if not [line for line in lines if line != "..."]] == []
    assert list(sessions(page))


TABLE = ["arm         nDCG@10    s  Mtok", "translated    0.549  0.2  0.05", "", "SAFE: 1,500 of 1,500"]


@pytest.mark.parametrize(
    ("expected", "gap"),
    [
        (TABLE, None),
        (["arm         nDCG@10     s  Mtok", "translated    0.549  12.5  0.05", "...", "SAFE: 1,500 of 1,500"], None),
        (["...", TABLE[1], "..."], TABLE[1].replace("    ", "  ")),  # no head says that there are seconds
        ([TABLE[0], "...", TABLE[3]], None),
        ([TABLE[0], "translated    0.551  0.2  0.05", "..."], None),
        ([TABLE[0], "translated    0.589  0.2  0.05", "..."], "arm  nDCG@10  s  Mtok\ntranslated  0.589  -  0.05"),
        ([TABLE[0], "translated    0.549  0.2  0.09", "..."], "arm  nDCG@10  s  Mtok\ntranslated  0.549  -  0.09"),
        (["...", "NOT SAFE: 1,500 of 1,500"], "NOT SAFE: 1,500 of 1,500"),
        (["...", "SAFE: 1,400 of 1,500"], "SAFE: 1,400 of 1,500"),
        (["...", TABLE[3], "...", TABLE[0], "..."], TABLE[0].replace("         ", "  ").replace("    ", "  ")),
        (TABLE[:2], "arm  nDCG@10  s  Mtok\ntranslated  0.549  -  0.05"),  # more is printed, and no `...` says so
        (TABLE[3:], TABLE[3]),
        (["..."], None),
    ],
)
def test_a_session_that_is_out_of_date_is_noticed(expected, gap):
    assert missing(expected, TABLE) == gap


def test_where_a_bound_is_drawn_is_not_compared():
    drawn = ["translated   0.878     0.858       0             ──●──     │", "full     1.000       0      │    ●  yes"]
    elsewhere = [
        "translated   0.878     0.858       0            ──●──      │",
        "full     1.000       0      │   ─●  yes",
    ]
    assert missing(drawn, elsewhere) is None
    assert missing(drawn, [elsewhere[0], elsewhere[1].removesuffix("  yes")]) is not None
