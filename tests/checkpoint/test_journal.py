import json
import os

import pytest
from migrate.checkpoint.journal import Journal, Part, Parts, checksum, read_journal, sound_parts

from migrate.errors import OutputError

PARTS = [
    Part(10, 25, "content/rows", 14, 29, 0, {"ids": ["\ud800"]}),
    Part(0, 10, "content/rows", 4, 14, 0, {"true": 3}),
]


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.begin({"command": "translate"})
    for part in PARTS:
        journal.add_part(part)
    return journal


def test_a_journal_is_json_lines_and_is_read_as_it_was_written(journal):
    journal.add_complete({"true": 7})
    record = read_journal(journal.path)
    assert (record.configuration, list(record.parts), record.complete) == ({"command": "translate"}, PARTS, {"true": 7})
    assert record.size == journal.path.stat().st_size
    assert sorted(json.loads(journal.path.read_text().splitlines()[0])) == [
        "configuration", "crc32", "version",
    ]  # fmt: skip


def test_a_torn_tail_is_cut_wherever_it_tears(journal):
    content = journal.path.read_bytes()
    lines = content.splitlines(keepends=True)
    for size in range(len(content)):
        journal.path.write_bytes(content[:size])
        record = read_journal(journal.path)
        whole = [len(b"".join(lines[:number])) for number in range(4)]
        expected = max(number for number in range(4) if whole[number] <= size)
        if expected == 0:
            assert record is None
        else:
            assert (len(record.parts), record.size) == (expected - 1, whole[expected])
            journal.cut(record.size)
            journal.add_part(Part(25, 30, "content/rows", 29, 34, 0))
            assert len(read_journal(journal.path).parts) == expected


def test_a_damaged_line_ends_what_counts_and_is_told(journal, caplog):
    content = bytearray(journal.path.read_bytes())
    for position in range(len(content)):
        spoilt = content.copy()
        spoilt[position] ^= 1
        journal.path.write_bytes(spoilt)
        record = read_journal(journal.path)
        assert record is None or list(record.parts) == PARTS[: len(record.parts)] != PARTS
    assert "damaged" in caplog.text


@pytest.mark.parametrize("content", [b"", b"\n", b"[]\n", b"null\n1\n", b'{"version": 3}\n', b"\xff" * 99 + b"\n"])
def test_what_is_no_journal_is_none(content, tmp_path):
    (tmp_path / "journal.jsonl").write_bytes(content)
    assert read_journal(tmp_path / "journal.jsonl") is None
    assert read_journal(tmp_path / "missing") is None


def test_a_shard_that_was_made_again_counts_once(journal):
    again = Part(10, 25, "content/rows", 14, 29, 7)
    journal.add_part(again)
    assert list(read_journal(journal.path).parts) == [again, PARTS[1]]


def test_parts_that_are_not_what_was_recorded_do_not_count(tmp_path):
    (tmp_path / "rows").write_bytes(bytes(range(100)))
    descriptor = os.open(tmp_path / "rows", os.O_RDONLY)
    parts = [Part(n, n + 10, "rows", n, n + 10, checksum(descriptor, n, n + 10)) for n in (0, 10, 20)]
    os.close(descriptor)
    journal = Journal(tmp_path / "journal.jsonl")
    noted = Parts(journal.path)
    for part in parts:
        noted.add(part, journal.add_part(part))

    def sound():
        return list(sound_parts(tmp_path, noted))

    assert sound() == parts
    with (tmp_path / "rows").open("r+b") as file:
        file.seek(15)
        file.write(b"x")
    assert sound() == [parts[0], parts[2]]
    os.truncate(tmp_path / "rows", 5)
    assert sound() == []
    (tmp_path / "rows").unlink()
    assert sound() == []


def test_parts_are_read_again_from_the_journal_and_keep_only_their_rows(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.begin({})
    parts = Parts(journal.path)
    for start in (20, 0, 10, 40):
        part = Part(start, start + 10, "rows", start, start + 10, 0, {"note": "x" * 1000, "of": start})
        parts.add(part, journal.add_part(part))
    assert [part.facts["of"] for part in parts] == [20, 0, 10, 40]
    assert parts[0].facts["of"] == 20 and parts[-1].start == 40
    assert (parts.rows, parts.ranges) == (40, ((0, 30), (40, 50)))
    assert [part.start for part in parts.without_gaps()] == [0, 10, 20]
    iterator = iter(parts)
    journal.begin({})
    assert len(list(iterator)) == 4  # of the journal as it was
    with pytest.raises(OutputError, match="changed while it was read"):
        parts[0]
