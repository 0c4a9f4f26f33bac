"""Files that a command reads besides vectors and texts, damaged in many ways: each is one line, and never a bug."""

import json
import os
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from odd_values import changed, places
from safe_reports import safe_report

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


def mutations(facts, count):
    """Some of all values in all places, always the same."""
    every = [(path, value) for path in places(facts) for value in VALUES]
    chosen = [changed(facts, *every[at]) for at in random.Random(0).sample(range(len(every)), min(count, len(every)))]
    return [other for other in chosen if other != facts]


@pytest.fixture
def outcome(lead_migrate):
    """Runs a command; it must end as a command may: with one line if it failed, and not with a bug."""

    def ends(line):
        ended = lead_migrate(line, code=tuple(range(8)))
        told = [one for one in ended.err.splitlines() if one.startswith("lead-migrate: ")]
        assert "Traceback" not in ended.err, line
        assert len(told) == (ended.code not in (0, 1, 3)), (line, ended)
        return ended.code

    return ends


def remove(*names):
    for name in names:
        shutil.rmtree(name, ignore_errors=True)


def contents_like(facts, count):
    """What a file of such facts may hold instead: bytes that are no JSON, and facts of other values."""
    return [*BYTES.values(), *(json.dumps(other).encode() for other in mutations(facts, count))]


@pytest.mark.parametrize(
    ("which", "commands"),
    [
        ("old", ["inspect old", "translate old made/stitch -o out"]),
        (
            "made/store",
            [
                "inspect made/store",
                "switch old made/store --unproven",
                "audit made/store --reference old --judged judged",
            ],
        ),
        ("made/stitch", ["inspect made/stitch", "translate old made/stitch -o out"]),
    ],
)  # fmt: skip
def test_a_manifest_of_other_values(which, commands, finished_here, outcome):
    path = Path(which, "lead-migrate.json")
    facts = json.loads(path.read_text())
    del facts["manifest_sha256"]
    for content in contents_like(facts, 20):
        path.write_bytes(content)
        for command in commands:
            if outcome(command) == 0 and command.startswith("switch"):
                outcome("rollback old")
            remove("out", ".out.work")


def test_a_report_that_switch_is_given(finished_here, outcome):
    switch = "switch old made/store --audit r.json"
    path = Path("r.json")
    for content in BYTES.values():
        path.write_bytes(content)
        assert outcome(switch) == 4
    report = json.loads(Path("made/report.json").read_text())
    few = safe_report(report["stores"])
    for other in mutations(few, 30):
        path.write_text(json.dumps(other))
        if outcome(switch) == 0:
            outcome("rollback old")
    path.unlink()
    for make in (path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to("/dev/zero")):
        make()
        assert outcome(switch) == 4
        path.rmdir() if path.is_dir() else path.unlink()
    path.write_text(json.dumps(few))
    assert outcome(switch) == 0, "the sound one"


def test_a_report_that_assess_is_given(finished_here, outcome):
    assess = "assess old --target tfidf:24 --audit r.json -q"
    bounds = {"estimate": 0.9, "lower": 0.8, "upper": None}
    sound = safe_report({}, options=[{"name": "stay", "retention": bounds}])
    Path("r.json").write_text(json.dumps(sound))
    assert outcome(assess) == 0
    for content in contents_like(sound, 30):
        Path("r.json").write_bytes(content)
        outcome(assess)


def test_a_report_that_is_shown_again(finished_here, outcome):
    sound = Path("made/report.json").read_bytes()
    for content in BYTES.values():
        Path("r.json").write_bytes(content)
        assert outcome("report r.json --report page.html --force") == 4
    for other in mutations(json.loads(sound), 20):
        Path("r.json").write_text(json.dumps(other))
        outcome("report r.json --report page.html --force")
    Path("r.json").unlink()
    os.mkfifo("r.json")
    assert outcome("report r.json") == 4


def test_the_record_of_a_finished_run(finished_here, outcome):
    path = Path("made/run.json")
    sound = path.read_bytes()
    for content in contents_like(json.loads(sound), 25):
        path.write_bytes(content)
        assert outcome(finished_here) in (2, 4), content[:100]
    path.write_bytes(sound)
    assert outcome(finished_here) in (0, 1, 3)


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


def test_a_database_of_sqlite_vec(finished_here, outcome):
    pytest.importorskip("sqlite_vec", reason="needs the extra sqlite-vec")
    assert outcome("translate old made/stitch -o sqlite-vec:new#t -q") == 0
    (path,) = Path("new").glob("*.db")
    sound = path.read_bytes()

    def asked(question):
        path.write_bytes(sound)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute(question)

    def spoiled():
        chance = random.Random(0)
        for at in range(0, len(sound), 16 * 4_096 + 100):
            yield path.write_bytes(sound[:at])
            yield path.write_bytes(sound[:at] + bytes(4_096) + sound[at + 4_096 :])
        for count in (1, 5, 50, 500) * 2:
            content = bytearray(sound)
            for _ in range(count):
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            yield path.write_bytes(content)
        yield from map(asked, QUESTIONS)

    for _ in spoiled():
        outcome(f"inspect sqlite-vec:{path}#t")
        outcome(f"check sqlite-vec:{path}#t --model tfidf:24")
        outcome(f"translate sqlite-vec:{path}#t made/stitch -o out")
        remove("out", ".out.work")
