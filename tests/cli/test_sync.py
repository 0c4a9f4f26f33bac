"""`lead-migrate sync`, as it is typed."""

import json
from pathlib import Path

import pytest

DOCS = Path("store/docs.jsonl")
CHANGES = "new: 0 documents added, 1 changed, 0 deleted, 148 unchanged; 1 with other metadata alone"


@pytest.fixture
def changed(here, forget_hashes):
    """A migration whose old store has changed since."""
    rows = [json.loads(line) for line in DOCS.read_text().splitlines()]
    rows[3]["text"], rows[5]["metadata"] = "another text of this document", {"page": 3}
    DOCS.write_text("".join(json.dumps(row) + "\n" for row in rows))
    forget_hashes(here / "store")


def test_what_changed_is_told_done_and_then_up_to_date(changed, digest, lead_migrate):
    before = digest(Path("new"))
    assert lead_migrate("sync store new --dry-run").out.splitlines() == [
        CHANGES,
        "1 would get true vectors",
        "to embed: nothing that costs money",
    ]
    told = lead_migrate("sync store new --dry-run --json -q").document
    assert (told["kind"], told["changed"], told["metadata"], told["usd"]) == ("sync", 1, 1, 0)
    assert told["dry_run"] and not told["up_to_date"]
    assert digest(Path("new")) == before, "nothing is written"

    ended = lead_migrate("sync store new")
    assert ended.out.startswith(f"{CHANGES}\n")
    assert "150 vectors, 6" in ended.out and "the target model costs no money" in ended.err
    assert digest(Path("new")) != before
    rows = [json.loads(line) for line in Path("new/docs.jsonl").read_text().splitlines()]
    assert (rows[3]["text"], rows[5]["metadata"]) == ("another text of this document", {"page": 3})

    ended = lead_migrate("sync store new")
    assert ended.out.startswith("new: up to date, 150 vectors, 6") and ended.next is None
    assert lead_migrate("sync store new --json -q").document["up_to_date"]


def test_a_full_reembed_is_brought_up_to_date_and_switched(changed, lead_migrate):
    lead_migrate("reembed store --target tfidf:24 -o full -q")
    DOCS.write_text(DOCS.read_text().replace("another text of this", "yet another text of this"))
    assert "up to date with `sync`" in lead_migrate("switch store full", code=4).complaint
    assert lead_migrate("sync store full").next == "switch store full"
    lead_migrate("switch store full")
    lead_migrate("rollback store")
    command, *words = lead_migrate("sync store new").next.split()
    assert command == "audit" and "new" in words and "--source" in words, "most of it is translated"


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        ("new store", 4, "the store was not made by translate from new but by embed; is the order right?"),
        ("new new", 2, "new: this is the old store itself; name the one that was translated from it"),
        ("store stitch", 4, "stitch: this is a stitch, not a store"),
        ("store nowhere", 4, "nowhere: no such file or folder"),
        ("store new --target tfidf:16", 4, "the saved state is of tfidf:24, not of tfidf:16"),
    ],
)
def test_what_cannot_be_is_one_line(words, code, line, changed, digest, lead_migrate):
    before = digest(Path("new"))
    ended = lead_migrate(f"sync {words}", code=code)
    assert line in ended.complaint and ended.err.count("\n") == 1
    assert digest(Path("new")) == before


def test_stores_that_were_switched_are_told_before_a_model_is_looked_for(store, lead_migrate):
    (store / "lead-migrate.json").unlink()
    lead_migrate("fit store --target tfidf:24 --kind ridge --sample 100 -o stitch -q")
    lead_migrate("translate store stitch -o new -q")
    lead_migrate("switch store new --unproven")
    assert "the stores were switched" in lead_migrate("sync store new", code=2).complaint
