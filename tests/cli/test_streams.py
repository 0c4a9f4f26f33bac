"""Streams that are closed, full, or read by nobody: the exit code says what it would have said."""

import shutil
import subprocess
import sys

import pytest

from migrate.datasets.beir import write_beir
from migrate.stores import open_store

pytestmark = pytest.mark.slow

ENTRY = "from migrate.cli.main import main; main()"
CLOSED = {"stdout": ">&-", "stderr": "2>&-", "both": ">&- 2>&-", "all": "<&- >&- 2>&-", "a pipe": "| true"}


def sh(redirection, arguments, folder):
    """Exit code and stderr of a command that a shell started so."""
    line = f'set -o pipefail; "$@" {redirection}'
    command = ["bash", "-c", line, "bash", sys.executable, "-c", ENTRY, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=100)
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def place(source_folder, corpus, target_file, tmp_path_factory):
    """A store, a full re-embed of it, few questions, and another model in a file."""
    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(source_folder, folder / "store")
    shutil.copytree(source_folder, folder / "full")
    (folder / "full/lead-migrate.json").unlink()
    write_beir(folder / "judged", corpus.documents, corpus.queries[:5], corpus.qrels)
    shutil.copyfile(target_file, folder / "other.npz")
    return folder


COMMANDS = {
    "version": (["--version"], 0),
    "inspect": (["inspect", "store"], 0),
    "inspect as JSON": (["inspect", "store", "--json"], 0),
    "a wrong path": (["inspect", "nothing"], 4),
    "a wrong option": (["inspect", "--wrong"], 2),
    "check": (["check", "store", "--model", "tfidf:32"], 0),
    "check of another model": (["check", "store", "--model", "file:other.npz"], 1),
    "audit by few queries": (["audit", "store", "--reference", "full", "--judged", "judged"], 3),
}


CLOSED_ONCE = ("version", "inspect as JSON", "a wrong option", "check of another model", "audit by few queries")


@pytest.mark.parametrize(
    ("name", "closed"),
    [
        *(("inspect", closed) for closed in CLOSED if closed != "all"),
        *(("a wrong path", closed) for closed in ("stderr", "both")),
        *((name, "both") for name in CLOSED_ONCE),
    ],
)
def test_the_exit_code_stays_when_nobody_listens(name, closed, place):
    arguments, expected = COMMANDS[name]
    code, err = sh(CLOSED[closed], arguments, place)
    assert code == expected, err
    assert "Traceback" not in err
    assert "Exception ignored" not in err


@pytest.mark.parametrize("name", ["version", "inspect as JSON", "check"])
def test_a_full_device_is_told(name, place):
    code, err = sh(">/dev/full", COMMANDS[name][0], place)
    assert code == 5, err
    assert err.count("lead-migrate: ") == 1
    assert "No space left on device" in err.splitlines()[-1]


@pytest.mark.parametrize("name", ["inspect", "a wrong path"])
def test_a_full_device_for_advice_changes_nothing(name, place):
    arguments, expected = COMMANDS[name]
    assert sh("2>/dev/full", arguments, place) == (expected, "")


def test_files_are_written_where_the_verdict_cannot_be_printed(place, tmp_path):
    arguments, _ = COMMANDS["check"]
    code, _ = sh(">/dev/full", [*arguments, "--report", tmp_path / "report.html"], place)
    assert code == 5
    assert (tmp_path / "report.html").stat().st_size > 1_000


def test_nothing_that_is_printed_ends_in_a_file(place, tmp_path):
    output = tmp_path / "new"
    arguments = ["reembed", "store", "--target", "file:other.npz", "-o", output]
    code, err = sh(CLOSED["all"], arguments, place)
    assert code == 0, err
    assert all(b"vectors of dimension 24" not in path.read_bytes() for path in output.rglob("*") if path.is_file())
    store = open_store(output)
    assert sum(len(batch) for batch in store.scan()) == store.info.count == 150
