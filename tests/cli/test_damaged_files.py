"""Files that a command reads besides vectors and texts, damaged in many ways: each is one line, and never a bug."""

import copy
import json
import os
import random
import shutil
import sqlite3
from contextlib import closing

import pytest

from migrate.cli.main import run

pytestmark = pytest.mark.slow

BYTES = {
    "nothing": b"",
    "nested lists": b"[" * 100_000,
    "nested tables": b'{"a":' * 100_000,
    "a huge number": b"1" * 5_000,
    "no UTF-8": b'{"kind": "\xff"}',
    "UTF-16": '{"kind": "audit"}'.encode("utf-16"),
    "zeros": b"\0" * 50,
    "a list": b"[]",
    "a number": b"3",
    "NaN": b"NaN",
}


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


VALUES = [None, True, 7, -7, 10**400, 1 << 80, 1.5, float("nan"), "x", "", "\ud800", [], [1, "a", None], {}]
VALUES += [{"a": {"b": 1}}, nested(90), nested(400)]


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(value, path, new):
    if not path:
        return new
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return value


def mutations(facts, count):
    """Some of all values in all places, always the same."""
    every = [(path, value) for path in places(facts) for value in VALUES]
    chosen = [changed(facts, *every[at]) for at in random.Random(0).sample(range(len(every)), min(count, len(every)))]
    return [other for other in chosen if other != facts]


@pytest.fixture
def outcome(capsys):
    """Runs a command; it must end as a command may: with one line if it failed, and not with a bug."""

    def ends(*arguments):
        code = run([str(argument) for argument in arguments])
        error = capsys.readouterr().err
        told = [line for line in error.splitlines() if line.startswith("lead-migrate: ")]
        assert code != 70 and "Traceback" not in error, (arguments, error)
        assert len(told) == (code not in (0, 1, 3)), (arguments, code, error)
        return code, "".join(told)

    return ends


@pytest.fixture
def moved(source_folder, beir, tmp_path, monkeypatch, outcome):
    """A store, and what a run made of it, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(source_folder, tmp_path / "old")
    options = ["--target", "tfidf:24", "--sample", "60", "--stitch", "ridge", "--beir", beir]
    assert outcome("run", "old", *options, "-o", "made", "-q")[0] in (0, 1, 3)
    return ["run", "old", *options, "-o", "made"]


def remove(*names):
    for name in names:
        shutil.rmtree(name, ignore_errors=True)


@pytest.mark.parametrize("which", ["old", "made/store", "made/stitch"])
def test_a_manifest_of_other_values(which, moved, beir, tmp_path, outcome):
    commands = {
        "old": [("inspect", "old"), ("translate", "old", "made/stitch", "-o", "out")],
        "made/store": [
            ("inspect", "made/store"),
            ("switch", "old", "made/store", "--unproven"),
            ("audit", "made/store", "--reference", "old", "--beir", beir),
        ],
        "made/stitch": [("inspect", "made/stitch"), ("translate", "old", "made/stitch", "-o", "out")],
    }[which]
    path = tmp_path / which / "lead-migrate.json"
    facts = json.loads(path.read_text())
    del facts["manifest_sha256"]
    for content in [*BYTES.values(), *(json.dumps(other).encode() for other in mutations(facts, 50))]:
        path.write_bytes(content)
        for command in commands:
            if outcome(*command)[0] == 0 and command[0] == "switch":
                outcome("rollback", "old")
            remove("out", ".out.work")


def test_a_report_that_switch_is_given(moved, tmp_path, outcome):
    switch = ("switch", "old", "made/store", "--report", "r.json")
    path = tmp_path / "r.json"
    for content in BYTES.values():
        path.write_bytes(content)
        assert outcome(*switch)[0] == 4
    report = json.loads((tmp_path / "made/report.json").read_text())
    report["verdict"] = {"outcome": "SAFE", "provisional": False}
    few = {name: report[name] for name in ("kind", "verdict", "stores")}
    for other in mutations({**few, "downstream": {"outcome": "SAFE"}}, 80):
        path.write_text(json.dumps(other))
        if outcome(*switch)[0] == 0:
            outcome("rollback", "old")
    path.unlink()
    for make in (path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to("/dev/zero")):
        make()
        assert outcome(*switch)[0] == 4
        path.rmdir() if path.is_dir() else path.unlink()
    path.write_text(json.dumps(few))
    assert outcome(*switch)[0] == 0, "the sound one"


def test_a_report_that_assess_is_given(moved, tmp_path, outcome):
    assess = ("assess", "old", "--target", "tfidf:24", "--audit", "r.json", "-q")
    bounds = {"estimate": 0.9, "lower": 0.8, "upper": None}
    point = {"documents": 10, "policy": "sample", "outcome": "SAFE", "retention": bounds}
    frontier = {"documents": 150, "measured": "retention", "cheapest_safe": point, "points": [point]}
    stay = {"name": "stay", "retention": bounds}
    sound = {"frontier": frontier, "verdict": {"measured": "retention"}, "options": [stay]}
    (tmp_path / "r.json").write_text(json.dumps(sound))
    assert outcome(*assess)[0] == 0
    for content in [*BYTES.values(), *(json.dumps(other).encode() for other in mutations(sound, 60))]:
        (tmp_path / "r.json").write_bytes(content)
        outcome(*assess)


def test_the_record_of_a_finished_run(moved, tmp_path, outcome):
    path = tmp_path / "made/run.json"
    sound = path.read_bytes()
    for content in [*BYTES.values(), *(json.dumps(other).encode() for other in mutations(json.loads(sound), 60))]:
        path.write_bytes(content)
        code, told = outcome(*moved)
        assert code in (2, 4) and told, content[:100]
    path.write_bytes(sound)
    assert outcome(*moved)[0] in (0, 1, 3)


TOML = {
    "nested lists": "x = " + "[" * 5_000,
    "a nested key": ".".join("a" * 5_000) + " = 1",
    "a huge number": "seed = " + "9" * 5_000,
    "a flag that is a number": "quiet = 7",
    "a flag without limit": "quiet = inf",
    "a list": "seed = [1]",
    "a date": "seed = 2020-01-01",
    "a negative number": "seed = -1",
    "a number that is a text": "seed = 'x'",
    "zeros": "\0",
}


@pytest.mark.parametrize("name", TOML)
def test_a_configuration(name, source_folder, tmp_path, monkeypatch, outcome):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(f"[tool.lead-migrate]\n{TOML[name]}\n")
    assert outcome("fit", source_folder, "--target", "tfidf:24", "-o", "out")[0] == 2
    (tmp_path / "pyproject.toml").write_bytes(b"[tool.lead-migrate]\nx = '\xff'\n")
    assert outcome("inspect", source_folder)[0] == 2


QUESTIONS = [
    question.format(name)
    for name in ("t_info", "t_chunks", "t_rowids", "t_vector_chunks00", "t_auxiliary")
    for question in (
        "DELETE FROM sqlite_master WHERE name = '{0}'",
        "UPDATE sqlite_master SET sql = 'CREATE TABLE {0} (a, b)' WHERE name = '{0}'",
        "DELETE FROM {0}",
    )
]
QUESTIONS += [
    f"UPDATE OR IGNORE {column} = {value}"
    for column in ("t_vector_chunks00 SET vectors", "t_auxiliary SET value00", "t_auxiliary SET value01")
    for value in ("NULL", "7", "1.5", "x'00'", "'text'")
]
QUESTIONS += [
    f"UPDATE sqlite_master SET sql = replace(sql, 'float[24]', '{kind}') WHERE name = 't'"
    for kind in ("float[0]", "float[25]", "float[99999999999]", "int8[24]")
]


def test_a_database_of_sqlite_vec(moved, tmp_path, outcome):
    pytest.importorskip("sqlite_vec", reason="needs the extra sqlite-vec")
    assert outcome("translate", "old", "made/stitch", "-o", "sqlite-vec:new#t", "-q")[0] == 0
    (path,) = (tmp_path / "new").glob("*.db")
    sound, store = path.read_bytes(), f"sqlite-vec:{path}#t"

    def asked(question):
        path.write_bytes(sound)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute(question)

    def spoiled():
        chance = random.Random(0)
        for at in range(0, len(sound), 8 * 4_096 + 100):
            yield path.write_bytes(sound[:at])
            yield path.write_bytes(sound[:at] + bytes(4_096) + sound[at + 4_096 :])
        for count in (1, 5, 50, 500) * 5:
            content = bytearray(sound)
            for _ in range(count):
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            yield path.write_bytes(content)
        yield from map(asked, QUESTIONS)

    for _ in spoiled():
        outcome("inspect", store)
        outcome("check", store, "--model", "tfidf:24")
        outcome("translate", store, "made/stitch", "-o", "out")
        remove("out", ".out.work")
