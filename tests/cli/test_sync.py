"""`lead-migrate sync`, as it is typed."""

import json
import shutil

import pytest

from migrate.cli.main import run

QUIET = ["-q"]


@pytest.fixture
def pair(source_folder, forget_hashes, tmp_path, monkeypatch):
    """A folder with `old`, which has changed, and `new`, which was translated from it before; the current one."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(source_folder, "old")
    assert run(["fit", "old", "--target", "tfidf:24", "--stitch", "ridge", "--sample", "100", "-o", "st", *QUIET]) == 0
    assert run(["translate", "old", "st", "-o", "new", *QUIET]) == 0
    path = tmp_path / "old" / "docs.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[3]["text"], rows[5]["metadata"] = "another text of this document", {"page": 3}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    forget_hashes(tmp_path / "old")
    return tmp_path


def said(capsys):
    found = capsys.readouterr()
    return found.out, found.err


def test_what_changed_is_told_done_and_then_up_to_date(pair, digest, capsys):
    before = digest(pair / "new")
    said(capsys)
    assert run(["sync", "old", "new", "--dry-run"]) == 0
    out, _ = said(capsys)
    first, *rest = out.splitlines()
    assert first == "new: 0 documents added, 1 changed, 0 deleted, 148 unchanged; 1 with other metadata alone"
    assert rest == ["1 would get true vectors", "to embed: nothing that costs money"]
    assert run(["sync", "old", "new", "--dry-run", "--json", *QUIET]) == 0
    told = json.loads(said(capsys)[0])
    assert (told["kind"], told["changed"], told["metadata"], told["usd"]) == ("sync", 1, 1, 0)
    assert told["dry_run"] and not told["up_to_date"]
    assert digest(pair / "new") == before, "nothing is written"

    assert run(["sync", "old", "new"]) == 0
    out, err = said(capsys)
    assert out.startswith("new: 0 documents added, 1 changed, 0 deleted, 148 unchanged; 1 with other metadata alone\n")
    assert "150 vectors, 10" in out and "the target model costs no money" in err
    assert digest(pair / "new") != before
    rows = [json.loads(line) for line in (pair / "new/docs.jsonl").read_text().splitlines()]
    assert (rows[3]["text"], rows[5]["metadata"]) == ("another text of this document", {"page": 3})

    assert run(["sync", "old", "new"]) == 0
    assert said(capsys)[0].startswith("new: up to date, 150 vectors, 10")
    assert run(["sync", "old", "new", "--json", *QUIET]) == 0
    assert json.loads(said(capsys)[0])["up_to_date"]


def test_a_full_reembed_is_brought_up_to_date_and_switched(pair, capsys):
    assert run(["reembed", "old", "--target", "tfidf:24", "-o", "full", *QUIET]) == 0
    path = pair / "old" / "docs.jsonl"
    path.write_text(path.read_text().replace("another text of this", "yet another text of this"))
    said(capsys)
    assert run(["switch", "old", "full"]) == 4
    assert "up to date with sync" in said(capsys)[1]
    assert run(["sync", "old", "full"]) == 0
    assert said(capsys)[1].splitlines()[-1] == "next: lead-migrate switch old full"
    assert run(["switch", "old", "full"]) == 0
    said(capsys)
    assert run(["rollback", "old"]) == 0
    assert run(["sync", "old", "new"]) == 0
    last = said(capsys)[1].splitlines()[-1]
    assert last == "next: lead-migrate audit new --reference pool --source old --beir DIR", "most of it is translated"


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["new", "old"], 4, "the store was not made by translate from new but by embed; is the order right?"),
        (["new", "new"], 2, "new: this is the old store itself; name the one that was translated from it"),
        (["old", "st"], 4, "st: there is no FAISS index"),
        (["old", "nowhere"], 4, "nowhere: no such file or folder"),
        (["old", "new", "--target", "tfidf:16"], 4, "the saved state is of tfidf:24, not of tfidf:16"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(words, code, line, pair, digest, capsys):
    before = digest(pair / "new")
    said(capsys)
    assert run(["sync", *words]) == code
    _, err = said(capsys)
    assert line in err and len(err.strip().splitlines()) == 1
    assert digest(pair / "new") == before


def test_stores_that_were_switched_are_told_before_a_model_is_looked_for(source_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(source_folder, "old")
    (tmp_path / "old/lead-migrate.json").unlink()
    assert run(["fit", "old", "--target", "tfidf:24", "--stitch", "ridge", "--sample", "100", "-o", "st", *QUIET]) == 0
    assert run(["translate", "old", "st", "-o", "new", *QUIET]) == 0
    assert run(["switch", "old", "new", "--unproven"]) == 0
    said(capsys)
    assert run(["sync", "old", "new"]) == 2
    assert "the stores were switched" in said(capsys)[1]
