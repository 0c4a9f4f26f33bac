"""Progress on stderr: a bar on a terminal, which leaves nothing behind; lines elsewhere."""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from itertools import pairwise
from pathlib import Path

import click
import pytest
from children import run_command, start_child, type_command
from schema import check_document

from migrate.cli import progress
from migrate.cli.progress import progress_bar
from migrate.cli.terminal import JSON_PROGRESS
from migrate.progress import one_step

PLAIN = ("NO_COLOR", "CI", "COLUMNS", "TERM")
DRAWN = re.compile(r"\r(?!\n)([^\r\n]*\S) *(?=\r(?!\n)|$)")
"""A line that is drawn over another one."""


def read_within(descriptor, seconds):
    """What has come, waited for: whatever a command leaves running may hold the other end of a terminal open."""
    ready, _, _ = select.select([descriptor], [], [], seconds)
    assert ready, f"nothing was written for {seconds} s, and the terminal was not closed"
    return os.read(descriptor, 65_536)


def open_terminal(columns):
    """Both ends of a terminal of so many columns."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    return leader, follower


def variables_of(**variables):
    """The environment of a command on a terminal."""
    environment = {name: value for name, value in os.environ.items() if name not in PLAIN}
    return environment | {"TERM": "xterm-256color", **variables}


def without_colours(written):
    return re.sub(r"\x1b\[[\d;]*m|\x1b\[\?25[lh]", "", written.decode())


def typed_on_terminal(arguments, folder, columns):
    """What `lead-migrate` writes to a terminal of so many columns."""
    leader, follower = open_terminal(columns)
    given = (list(map(str, arguments)), folder, variables_of(), Path(os.ttyname(follower)))
    process, receiver = start_child(type_command, *given)
    written = b""
    while process.is_alive() or select.select([leader], [], [], 0)[0]:
        if select.select([leader], [], [], 0.05)[0]:
            written += os.read(leader, 65_536)
    os.close(follower)
    os.close(leader)
    with receiver:
        assert receiver.recv() in (0, 1, 3), written
    return without_colours(written)


def on_terminal(command, folder, columns=80, **variables):
    """What a program writes to a terminal of so many columns."""
    environment = variables_of(**variables)
    leader, follower = open_terminal(columns)
    streams = {"stdin": follower, "stdout": follower, "stderr": follower}
    with subprocess.Popen(command, **streams, cwd=folder, env=environment, start_new_session=True) as process:
        os.close(follower)
        written = b""
        try:
            while part := read_within(leader, 120):
                written += part
        except OSError:  # so Linux says that the other end is closed
            pass
    os.close(leader)
    assert process.returncode == 0, written
    return without_colours(written)


def drawn_in(written):
    return [line.rstrip() for line in DRAWN.findall(written)]


def lines_left(written):
    """What a terminal shows in the end, line by line, however long; knows what the bar uses."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"[\r\n]|[^\r\n]+", written):
        if part == "\r":
            column = 0
        elif part == "\n":
            row, column = row + 1, 0
            lines += [""] * (row == len(lines))
        else:
            assert not part.startswith("\x1b"), part
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in lines]


def without_seconds(lines):
    """The words; what is measured in seconds has more or fewer columns, and lines are wrapped elsewhere."""
    return re.sub(r"<?\d+\.\d+|<?\d+(?= (?:ms|s|min)\b)", "-", " ".join(" ".join(lines).split()))


@pytest.fixture(scope="module")
def fitting(source_folder, tmp_path_factory):
    """A command that embeds, fits and prints advice in between; what it prints into a file."""
    command = ["fit", str(source_folder), "--target", "tfidf:24", "--sample", "60", "--cache", "none", "-o", "stitch"]
    code, printed = run_command(command, tmp_path_factory.mktemp("file"))
    assert code == 0
    return command, printed


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 160])
def test_a_bar_fits_the_terminal_and_nothing_is_glued_to_it(columns, fitting, tmp_path):
    command, piped = fitting
    written = typed_on_terminal(command, tmp_path, columns)
    drawn = drawn_in(written)
    candidates = [line for line in drawn if line.startswith("fit candidates")]
    assert candidates and all(re.search(r" \d+/\d+\b", line) for line in candidates)
    assert any("█" in line for line in drawn)
    assert max(map(len, drawn)) <= columns
    assert without_seconds(lines_left(written)) == without_seconds(piped.splitlines())
    assert "█" not in piped and "\x1b" not in piped and "\r" not in piped


@pytest.mark.slow
def test_every_long_step_of_a_run_is_shown(source_folder, beir, tmp_path):
    run = f"run {source_folder} --target tfidf:24 --judged {beir} --kind ridge --reference build --cache none -o out"
    written = typed_on_terminal(run.split(), tmp_path, 40)
    drawn = drawn_in(written)
    for stage in ("fit candidates", "translate", "embed", "rank"):
        assert any(line.startswith(stage) for line in drawn), f"{stage}: {drawn}"
    assert max(map(len, drawn)) <= 40
    assert not {line for line in lines_left(written) if line in drawn}


SLOWLY = """
import sys
import time
import click
from migrate.cli.progress import progress_bar
from migrate.cli.terminal import QUIET, bar_hidden, complain
context = click.Context(click.Command("slowly"))
context.meta[QUIET] = "quiet" in sys.argv
with context, progress_bar() as report:
    for done in range(3):
        report("embed", 5_000 + 500 * done, 10_000)
        time.sleep(0.12)  # longer than a bar stays as it is
        if done == 1:
            complain("something worth knowing")
    report("look around", 3, None)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables", [{}, {"NO_COLOR": "1"}, {"CI": "true"}, {"TERM": "dumb"}, {"COLUMNS": "39"}], ids=str
)
def test_no_cursor_is_moved_where_plain_text_is_wanted(variables, tmp_path):
    written = on_terminal([sys.executable, "-c", SLOWLY], tmp_path, **variables)
    assert bool(DRAWN.search(written)) == (not variables)
    assert "something worth knowing" in lines_left(written)


def test_quiet_draws_nothing(tmp_path):
    assert on_terminal([sys.executable, "-c", SLOWLY, "quiet"], tmp_path) == "something worth knowing\r\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (40, r"embed 6000/10000 00:0\d<00:0\d$"),
        (60, r"embed █+[▏▎▍▌▋▊▉]? +6000/10000 [\d.]+it/s 00:0\d<00:0\d$"),
    ],
)
def test_a_bar_has_total_rate_and_time_left(columns, shown, tmp_path):
    written = on_terminal([sys.executable, "-c", SLOWLY], tmp_path, columns)
    drawn = drawn_in(written)
    assert any(re.match(shown, line) for line in drawn), drawn
    assert any(re.match(r"look around 3 .*\d\d:\d\d$", line) for line in drawn), drawn
    assert "\n".join(lines_left(written)).rstrip("\n") == "something worth knowing"
    rates = [float(rate) for rate in re.findall(r" ([\d.]+)it/s", written)]
    assert columns == 40 or rates
    assert max(rates, default=0) < 5_000, "of this run: 500 in 0.12 s at most"


def test_progress_in_a_pipe_is_a_line_from_time_to_time(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_LINES_EVERY_S", 0.02)
    with progress_bar() as report:
        for done in range(5):
            report("embed", done, 4)
            time.sleep(0.03)
        report("embed", 0, 4)  # other texts
        report("look around", 1, None)
    lines = capsys.readouterr().err.splitlines()
    done = [re.fullmatch(r"embed: (\d)/4 \[00:00<\S+, +\S+it/s\]", line) for line in lines]
    assert all(done) and len(lines) >= 4  # "look around" was over too soon
    assert all(int(a[1]) <= int(b[1]) for a, b in pairwise(done))


def test_a_short_stage_has_no_lines(capsys):
    with progress_bar() as report:
        report("embed", 0, 2)
        report("embed", 2, 2)
    assert capsys.readouterr().err == ""


def read_progress(written):
    """The lines of progress and those for people."""
    lines = written.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")], [x for x in lines if not x.startswith("{")]


def steps_in(progress):
    """The lines of each step, which begins with its first and ends with its last."""
    steps = []
    for line in progress:
        if line["state"] == "begin":
            steps.append([])
        steps[-1].append(line)
    return steps


@pytest.mark.parametrize(
    ("command", "names", "code"),
    [
        ("fit store --target tfidf:24 --sample 60 --kind ridge -o other", {"embed", "fit candidates"}, 0),
        ("translate store stitch -o other", {"translate"}, 0),
        ("reembed store --target tfidf:24 -o other", {"embed every document"}, 0),
        ("audit new --judged judged --reference build", {"embed", "search new"}, (0, 1, 3)),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_progress_for_programs(command, names, code, here, lead_migrate):
    ended = lead_migrate(f"{command} --json-progress --json", code=code)
    progress, notes = read_progress(ended.err)
    for line in progress:
        check_document(line)
        assert line["command"] == command.split()[0]
    steps = steps_in(progress)
    assert names <= {step[0]["step"] for step in steps}
    for step in steps:
        assert [line["state"] for line in step] == ["begin", *["running"] * (len(step) - 2), "end"]
        assert len({line["step"] for line in step}) == 1
        assert all(before["done"] <= after["done"] for before, after in pairwise(step))
        assert all(line["remaining_s"] == 0 for line in step[-1:] if line["rate"] and line["done"] == line["total"])
    assert "it/s" not in ended.err and ended.document["kind"] == command.split()[0]
    assert not any("{" in line for line in notes)


def test_quiet_leaves_programs_their_progress(here, lead_migrate):
    progress, notes = read_progress(lead_migrate("reembed store --target tfidf:24 -o other --json-progress -q").err)
    assert progress and notes == []


def test_programs_read_of_a_step_that_takes_long(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_TICK_S", 0.01)
    monkeypatch.setattr(progress, "_JSON_EVERY_S", 0.05)
    monkeypatch.setattr(progress, "_SIGN_EVERY_S", 0.05)
    monkeypatch.setattr(progress, "_SILENT_S", 0.05)
    context = click.Context(click.Command("slowly"))
    context.meta[JSON_PROGRESS] = True
    with context, progress_bar() as report:
        for done in range(100, 200):
            report("embed", done, 200)
        report("embed", 200, 200)
        time.sleep(0.12)
        with one_step("load the model"):
            time.sleep(0.12)
    lines, _ = read_progress(capsys.readouterr().err)
    steps = {step[0]["step"]: step for step in steps_in(lines)}
    assert list(steps) == ["embed", "working", "load the model"]
    first, *_, last = steps["embed"]
    assert (first["done"], first["rate"], last["done"], last["unit"]) == (100, None, 200, "texts")
    assert len(steps["embed"]) <= 4, "100 reports within moments"
    assert last["rate"] == pytest.approx(100 / last["elapsed_s"], rel=0.2)
    assert len(steps["load the model"]) >= 3, "a sign of life"
