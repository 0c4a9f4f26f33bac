"""The same command again, after a kill at its last moment or when it was done: it ends as the first one did."""

import os
import random
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from killed import AT_THE_END, kill_at, run_and_count

DONE = "the same command has done this before, and all is as it left it; nothing was done"
AUDIT = "audit new --reference build --judged judged --source store"
CHECK = "check store --model tfidf:32 --judged judged --sample 20 --report r.json --report r.html"


@pytest.fixture(autouse=True)
def _steady(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def contents(folder="."):
    """Every file but those of cache and state, without seconds that were measured, and if a run was continued."""
    measured = re.compile(rb'<td>[\d.]+</td>|"\w*(_s|seconds)": [\d.e-]+|\btime="[\d.]+"|"is_continued": \w+')
    paths = [path for path in Path(folder).rglob("*") if path.is_file()]
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    own = ("cache/", "state/")
    return {name: measured.sub(b"", path.read_bytes()) for name, path in names.items() if not name.startswith(own)}


@pytest.mark.parametrize(
    "command",
    [
        "fit store --target tfidf:24 --sample 50 --kind ridge -o out",
        "translate store stitch -o out --json",
        "reembed store --target tfidf:24 -o out",
        "stamp store --model tfidf:32",
        pytest.param(f"{AUDIT} --report r.json --report r.html --report r.xml", marks=pytest.mark.slow),
        pytest.param(f"{AUDIT} --report r.html --json", marks=pytest.mark.slow),
        "check store --model tfidf:32 --report r.xml",
        "assess store --target tfidf:24 --report r.json",
        pytest.param("assess store --target tfidf:24 --judged judged --report r.html", marks=pytest.mark.slow),
        "compare store new --report r.html --csv figures",
        "carry store stitch --directions d.npz -o out",
    ],
)
def test_the_same_command_again_is_done_and_prints_the_same(command, here, lead_migrate):
    (here / "store/lead-migrate.json").unlink()
    np.savez("d.npz", x=np.random.default_rng(0).normal(size=32).astype(np.float32))
    codes = (0, 1, 3)
    first = lead_migrate(command, code=codes)
    before = contents()
    again = lead_migrate(command, code=first.code)
    assert contents() == before
    if command.split()[0] not in ("fit", "reembed", "stamp"):  # which find it done by themselves
        assert DONE in again.told and again.out == first.out


@pytest.mark.parametrize(
    ("change", "spoil"),
    [
        ("--seed 9", lambda: None),
        ("", lambda: os.utime("store/docs.jsonl", (0, 0))),
        ("", lambda: os.utime("judged/queries.jsonl", (0, 0))),
        ("", lambda: Path("r.json").write_text("{}")),
        ("", lambda: Path("r.html").unlink()),
        ("", lambda: shutil.rmtree("state")),
    ],
)
def test_another_request_or_one_whose_inputs_or_outputs_changed_is_refused(change, spoil, here, lead_migrate):
    lead_migrate(CHECK)
    spoil()
    before = contents()
    assert "r.json exists" in lead_migrate(f"{CHECK} {change}", code=2).complaint
    assert contents() == before


def test_a_store_that_is_unpacked_over_another_of_its_size_and_time_is_another(here, lead_migrate):
    lead_migrate("translate store stitch -o out")
    index = Path("store/index.faiss")
    times = index.stat().st_atime_ns, index.stat().st_mtime_ns
    content = bytearray(index.read_bytes())
    content[-1] ^= 1
    index.write_bytes(content)
    os.utime(index, ns=times)
    assert "its BLAKE3" in lead_migrate("translate store stitch -o out", code=4).complaint


def test_another_server_is_another_request(here, monkeypatch, lead_migrate):
    lead_migrate("translate store stitch -o out")
    monkeypatch.setenv("VOYAGE_BASE_URL", "http://127.0.0.1:9/v1")
    assert "out exists" in lead_migrate("translate store stitch -o out", code=2).complaint


def test_what_was_to_be_made_again_by_force_and_could_not_is_refused(here, monkeypatch, lead_migrate):
    command = "translate store stitch -o out --force"
    lead_migrate(command)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    assert "SOURCE_DATE_EPOCH" in lead_migrate(command, code=2).complaint


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"made": 5, "code": null, "printed": ""}',
        '{"made": {}, "code": 0, "printed": "SAFE"}',
        '{"made": {}, "code": "0", "printed": "SAFE"}',
        '{"made": {"out": null}, "code": 0, "printed": 5}',
    ],
)
def test_a_damaged_note_is_none(content, here, lead_migrate):
    lead_migrate("translate store stitch -o out")
    (note,) = Path("state/lead-migrate/requests").iterdir()
    note.write_text(content)
    refused = lead_migrate("translate store stitch -o out", code=2)
    assert "out exists" in refused.complaint and not refused.out


def test_a_user_without_a_home_folder_is_told_what_to_set(here, monkeypatch, lead_migrate):
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)  # in no list of users
    lead_migrate("inspect store")
    refused = lead_migrate("reembed store --target tfidf:24 -o out", code=5)
    assert "no home folder; set HOME, or XDG_CACHE_HOME" in refused.complaint


def test_a_state_folder_that_cannot_be_written_to_keeps_nobody_from_an_output(here, lead_migrate):
    Path("state").mkdir()
    Path("state/lead-migrate").write_text("")
    lead_migrate("translate store stitch -o out")
    assert "out exists" in lead_migrate("translate store stitch -o out", code=2).complaint


def test_only_the_newest_notes_are_kept(here, monkeypatch, lead_migrate):
    monkeypatch.setattr("migrate.command_notes._MOST_NOTES", 2)
    for number in range(4):
        lead_migrate(f"check store --model tfidf:32 --report {number}.json")
    assert len(list(Path("state/lead-migrate/requests").iterdir())) == 2
    lead_migrate("check store --model tfidf:32 --report 3.json")
    lead_migrate("check store --model tfidf:32 --report 0.json", code=2)


def test_a_rollback_of_a_rollback_is_refused(here, lead_migrate):
    lead_migrate("reembed store --target tfidf:24 -o full -q")
    lead_migrate("switch store full")
    lead_migrate("rollback store")
    before = contents()
    assert "rolled back or forgotten already" in lead_migrate("rollback store", code=2).complaint
    assert "nothing was switched here" in lead_migrate("rollback full", code=2).complaint
    assert contents() == before


def test_what_was_forgotten_cannot_be_rolled_back(here, lead_migrate):
    lead_migrate("reembed store --target tfidf:24 -o full -q")
    lead_migrate("switch store full")
    lead_migrate("forget store --yes")
    assert DONE in lead_migrate("forget store --yes").told
    assert "nothing was switched here" in lead_migrate("rollback store", code=2).complaint


KILLED = {
    "translate store stitch -o out": [],
    "translate parquet:columns of-columns --into more": [
        "translate store stitch -o parquet:columns",
        "fit parquet:columns --target tfidf:16 --kind ridge --sample 50 -o of-columns",
    ],
    f"{AUDIT} --report r.json --report r.html --report r.xml": [],
    "stamp bare --model tfidf:32": [],
    "rollback store": ["reembed store --target tfidf:24 -o full", "switch store full"],
    "forget store --yes": ["reembed store --target tfidf:24 -o full", "switch store full"],
    "demo --from tfidf:32 --docs 300 --sample 60 -o out": [],
}

DEMO = list(KILLED)[-1]
LONG = f"{AUDIT} --report r.json --report r.html --report r.xml"
"""What is not killed anywhere, as its parts are other commands, which are; the longest one at its last change alone."""


@pytest.mark.slow
@pytest.mark.parametrize("command", KILLED)
def test_a_command_that_is_killed_ends_well_the_next_time(command, here, tmp_path_factory, lead_migrate):
    """At its last change of the folder, when only its process has to end, and anywhere; nothing is left behind."""
    shutil.copytree("store", "bare")
    Path("bare/lead-migrate.json").unlink()
    for line in KILLED[command]:
        lead_migrate(line)
    arguments, before = shlex.split(command), tmp_path_factory.mktemp("before")
    shutil.copytree(here, before, dirs_exist_ok=True)
    code, _, count = run_and_count(arguments, here)
    assert code in (0, 1, 3)
    whole = contents()
    numbers = [count]
    if command != DEMO:
        numbers.append(AT_THE_END)
    if command not in (DEMO, LONG):
        numbers.append(random.Random(command).randrange(1, count))
    for number in numbers:
        for path in list(here.iterdir()):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(before, here, dirs_exist_ok=True)
        assert kill_at(number, arguments, here), number
        is_told = command == "rollback store" and number == AT_THE_END  # another rollback would be one of a rollback
        assert run_and_count(arguments, here)[0] == (2 if is_told else code), number
        found = contents()
        assert found.keys() == whole.keys(), number
        for name in whole:
            assert found[name] == whole[name] or name == "out/run.json", (number, name)  # it has seconds
