"""Opening a page: in the browser where there is a screen, else its path; refused where no page is written."""

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from stores_tools import make_store

from migrate.cli.main import run

IDS = [f"d{row}" for row in range(40)]


@pytest.fixture
def stores(tmp_path, monkeypatch):
    """Two stores, and a program in the place of the one that opens files, which notes what it is to open."""
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    make_store(tmp_path / "a", IDS, x)
    make_store(tmp_path / "b", IDS, x + 1)
    programs = tmp_path / "programs"
    programs.mkdir()
    opener = programs / "xdg-open"
    opener.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened.part && mv {tmp_path}/opened.part {tmp_path}/opened\n')
    opener.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "a", "b"],
        ["check", "a", "--model", "tfidf:6"],
        ["assess", "a", "--target", "openai:text-embedding-3-small"],
        ["audit", "a", "--reference", "b", "--queries", "synthetic"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_without_a_page_there_is_nothing_to_open(arguments, stores, capsys):
    assert run([*arguments, "--open"]) == 2
    assert capsys.readouterr().err == (
        "lead-migrate: --open: expected a page to open, found none; add --html FILE, or leave --open out\n"
    )


def test_in_a_pipe_the_path_is_printed_and_nothing_is_opened(stores, capsys):
    assert run(["compare", "a", "b", "--html", "page.html", "--open"]) == 0
    told = capsys.readouterr()
    assert told.err.endswith("page: page.html\n") and "page.html" not in told.out
    assert not (stores / "opened").exists()


def at_a_terminal(*arguments, **environment):
    """What the command says to whoever sits at a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "migrate", *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, **environment},
    ) as process:  # fmt: skip
        os.close(theirs)
        said = b""
        while True:
            ready, _, _ = select.select([ours], [], [], 120)
            assert ready, f"nothing was written for 120 s, and the terminal was not closed: {said}"
            try:
                part = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            said += part
    os.close(ours)
    assert process.returncode == 0, said.decode()
    return said.decode()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems open files by other programs")
def test_at_a_screen_the_page_is_opened(stores):
    said = at_a_terminal("compare", "a", "b", "--html", "page.html", "--open")
    deadline = time.monotonic() + 60
    while not (stores / "opened").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert Path((stores / "opened").read_text().strip()) == stores / "page.html"
    assert "page: " not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment", [{"CI": "true"}, {"DISPLAY": "", "WAYLAND_DISPLAY": ""}], ids=["CI", "no screen"]
)
def test_without_a_screen_the_path_is_printed(environment, stores):
    said = at_a_terminal("compare", "a", "b", "--html", "page.html", "--open", **environment)
    assert "page: page.html" in said
    assert not (stores / "opened").exists()


def test_a_check_leaves_a_page(stores, capsys):
    assert run(["check", "a", "--model", "packaged:all-MiniLM-L6-v2", "--html", "page.html"]) == 1
    assert "other dimension" in Path("page.html").read_text()
    assert run(["check", "a", "--model", "packaged:all-MiniLM-L6-v2", "--html", "page.html"]) == 2
    assert "page.html" in capsys.readouterr().err
