"""Streams that are closed, full, or read by nobody: the exit code says what it would have said."""

import json
import os
import shutil
import subprocess
import sys

import faiss
import pytest

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
def place(source_folder, beir, tmp_path_factory):
    """A store, one whose vectors belong to other documents, and questions."""
    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(source_folder, folder / "store")
    shutil.copytree(source_folder, folder / "mixed")
    shutil.copytree(source_folder, folder / "right")
    (folder / "right/lead-migrate.json").unlink()
    shutil.copytree(beir, folder / "beir")
    manifest = json.loads((folder / "mixed/lead-migrate.json").read_text())
    del manifest["details"]["index_hash"], manifest["manifest_sha256"]
    (folder / "mixed/lead-migrate.json").write_text(json.dumps(manifest))
    index = faiss.read_index(str(folder / "mixed/index.faiss"))
    rows = index.reconstruct_n(0, index.ntotal)
    index.reset()
    index.add(rows[::-1].copy())
    faiss.write_index(index, str(folder / "mixed/index.faiss"))
    return folder


def audit(store):
    return ["audit", store, "--reference", "right", "--judged", "beir"]


COMMANDS = {
    "version": (["--version"], 0),
    "inspect": (["inspect", "store"], 0),
    "inspect as JSON": (["inspect", "store", "--json"], 0),
    "a wrong path": (["inspect", "nothing"], 4),
    "a wrong option": (["inspect", "--wrong"], 2),
    "check": (["check", "store", "--model", "tfidf:32"], 0),
    "check of other vectors": (["check", "mixed", "--model", "tfidf:32"], 1),
    "audit of other vectors": (audit("mixed"), 1),
}


CLOSED_IN_EACH_WAY = ("inspect", "a wrong path")
CLOSED_ONCE = ("version", "inspect as JSON", "a wrong option", "check of other vectors")


@pytest.mark.parametrize(
    ("name", "closed"),
    [
        *((name, closed) for name in CLOSED_IN_EACH_WAY for closed in CLOSED if closed != "all"),
        *((name, "both") for name in CLOSED_ONCE),
        ("audit of other vectors", "a pipe"),
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
    code, _ = sh(">/dev/full", [*audit("store"), "--report", tmp_path / "report.json"], place)
    assert code == 5
    assert (tmp_path / "report.json").stat().st_size > 1_000


def test_nothing_that_is_printed_ends_in_a_file(place, tmp_path):
    output = tmp_path / "stitch"
    code, err = sh(CLOSED["all"], ["fit", "store", "--target", "tfidf:8", "--sample", "50", "-o", output], place)
    assert code == 0, err
    assert all(b"fitted on" not in path.read_bytes() for path in output.rglob("*") if path.is_file())
    assert os.access(output / "weights.safetensors", os.R_OK)
