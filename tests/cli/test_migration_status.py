"""Where a migration stands, after each of its commands and after what went wrong between them."""

import json
import shutil
from pathlib import Path

import pytest

from migrate.cli.project.status import other_model
from migrate.files import sha256_file
from migrate.manifest import ModelIdentity

FILE = Path("lead-migrate.toml")
JUDGED = (0, 1, 3)


def say(text):
    FILE.write_text(text)


@pytest.fixture
def status(lead_migrate):
    """What `status --json` says; the same command is the next one for a reader."""

    def ask():
        told = lead_migrate("status --json").document
        shown = lead_migrate("status")
        assert told["next"] == (None if shown.next is None else f"lead-migrate {shown.next}")
        assert all(sentence in shown.said for sentence in told["stale"])
        return told

    return ask


@pytest.fixture
def stepwise(here):
    """A store with stitch and new store, and their file."""
    say(
        'store = "store"\ntarget = "tfidf:24"\njudged = "judged"\noutput = "out"\nstitch = "stitch"\n'
        'new-store = "new"\nsample = 60\nkind = "ridge"\n'
    )
    return here


@pytest.fixture
def ran(finished_here):
    """A store, what a run has made of it, and their file."""
    say(
        'store = "old"\ntarget = "tfidf:24"\njudged = "judged"\noutput = "made"\nsample = 60\nkind = "ridge"\n'
        '[run]\nreference = "pool"\n'
    )


@pytest.mark.slow
def test_each_step_leads_to_the_next(store, judged, status, lead_migrate):
    lead_migrate("init store --target tfidf:24 --judged judged")
    with FILE.open("a") as file:
        file.write('sample = 60\nkind = "ridge"\n')
    assert status()["next"] == "lead-migrate run"
    lead_migrate("fit")
    told = status()
    assert (told["next"], told["stitch"]["spec"], told["new"]) == ("lead-migrate translate", "ridge", None)
    lead_migrate("translate")
    told = status()
    assert (told["next"], told["new"]["true"], told["verdict"]) == ("lead-migrate audit", 60, None)
    code = lead_migrate("audit", code=JUDGED).code
    told = status()
    assert told["verdict"]["outcome"] == {0: "SAFE", 1: "NOT SAFE", 3: "INCONCLUSIVE"}[code]
    report = json.loads(Path("moved/report.json").read_text())
    assert told["verdict"]["lower"] == report["verdict"]["retention"]["lower"]
    assert told["verdict"]["created"] == report["manifest"]["created"] and told["stale"] == []
    lead_migrate("reembed")
    assert status()["next"] == "lead-migrate switch"
    lead_migrate("switch")
    told = status()
    assert told["switched"]["model"] == "tfidf:24"
    assert lead_migrate(told["next"].removeprefix("lead-migrate ")).code == 0
    lead_migrate("rollback")
    assert status()["next"] == "lead-migrate switch"


def test_a_run_and_what_it_is_asked_anew(ran, status, lead_migrate):
    told = status()
    assert told["verdict"]["report"] == "made/report.json" and told["stale"] == []
    say(FILE.read_text().replace("sample", "margin = 0.9\nsample", 1))
    told = status()
    assert told["stale"] == ["made/report.json is for margin 0.95, and the file names 0.9"]
    assert told["next"] == "lead-migrate run"
    lead_migrate("run -q", code=JUDGED)
    assert status()["stale"] == []


def test_commands_before_a_run_lead_to_the_places_of_the_file(store, judged, lead_migrate):
    lead_migrate("init store --target tfidf:24 --judged judged")
    assert lead_migrate("assess").next in (
        "run store --target tfidf:24 -o moved",
        "reembed store --target tfidf:24 -o moved/full",
    )
    assert lead_migrate("fit --sample 60 --kind mean").next == "translate"
    translated = lead_migrate("translate")
    assert translated.next.startswith("audit moved/store --reference pool --source store")
    assert "DIR" not in translated.err, "the file has judged queries"


def test_a_store_that_changed_after_it_was_translated(stepwise, forget_hashes, status, lead_migrate):
    assert status()["next"] == "lead-migrate audit"
    docs = Path("store/docs.jsonl")
    rows = [json.loads(line) for line in docs.read_text().splitlines()]
    rows[3]["text"] = "another text of this document"
    docs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    forget_hashes(stepwise / "store")
    told = status()
    assert told["stale"][-1] == "the store has changed since new was made: 1 changed"
    assert told["next"] == "lead-migrate sync"
    lead_migrate("sync -q")
    assert not any("has changed since" in sentence for sentence in status()["stale"])
    assert status()["next"] == "lead-migrate audit", "the stitch is older than the store, and is used no more"


@pytest.mark.slow
def test_a_report_of_another_store(stepwise, status, lead_migrate):
    lead_migrate("audit -q", code=JUDGED)
    assert status()["stale"] == []
    lead_migrate("fit --seed 7 --force -q")
    assert status()["stale"] == ["stitch was fitted again since new was translated"]
    assert status()["next"] == "lead-migrate translate --force"
    lead_migrate("translate --force -q")
    told = status()
    assert told["stale"] == ["out/report.json is of another store than new, or that changed since"]
    assert told["next"] == "lead-migrate audit"
    assert "out/report.json: the audit of 20" in lead_migrate("audit", code=JUDGED).told
    assert status()["stale"] == []
    Path("out/report.json").write_text("{")
    assert "out/report.json" in status()["stale"][0] and status()["next"] == "lead-migrate audit --force"
    assert "out/report.json" in lead_migrate("audit", code=2).complaint, "what is no report of ours is not replaced"


def test_a_typed_report_is_not_replaced(stepwise, lead_migrate):
    lead_migrate("audit -q", code=JUDGED)
    assert "--force" in lead_migrate("audit --report out/report.json --seed 7", code=2).complaint


def test_a_model_file_is_told_by_its_content(tmp_path):
    path = tmp_path / "vectors.npz"
    path.write_bytes(b"some")
    model = ModelIdentity("file:vectors.npz", 8, normalized=True, revision=sha256_file(path))
    assert other_model(f"file:{path},dimensions=8", model) == ""
    assert other_model("file:others.npz", model) == "the file names file:others.npz"
    path.write_bytes(b"others")
    assert other_model(f"file:{path}", model) == f"file:{path} has other content now"


def test_after_a_switch_commands_take_the_store_and_its_model_as_they_are_now(store, lead_migrate):
    say('store = "store"\nsource-model = "tfidf:32"\ntarget = "tfidf:24"\noutput = "out"\n')
    assert lead_migrate("check").next == "assess store --target tfidf:24"
    lead_migrate("reembed -q")
    assert lead_migrate("live status").next == "switch store out/full"
    lead_migrate("switch")
    lead_migrate("check")
    assert lead_migrate("live status").next is None
    lead_migrate("rollback")
    lead_migrate("check")
    assert lead_migrate("live status").next == "switch store out/full"


def test_an_output_that_was_deleted(ran, status, lead_migrate):
    shutil.rmtree("made/store")
    told = status()
    assert (told["new"], told["next"]) == (None, "lead-migrate run --force")
    lead_migrate("run --force -q", code=JUDGED)
    assert status()["new"]["vectors"] == 150


@pytest.mark.slow
def test_another_target(ran, status, lead_migrate):
    say(FILE.read_text().replace("tfidf:24", "tfidf:16"))
    told = status()
    assert "made/store is of tfidf:24, and the file names tfidf:16" in told["stale"]
    assert told["next"] == "lead-migrate run --force"
    lead_migrate("run -q", code=2)  # it does not replace what it was not asked to
    lead_migrate("run --force -q", code=JUDGED)
    assert status()["stale"] == []


def test_a_store_of_the_target_has_nothing_to_migrate(store, judged, status, lead_migrate):
    say('store = "store"\ntarget = "tfidf:32"\njudged = "judged"\noutput = "out"\n')
    assert "nothing to migrate" in lead_migrate("run").said
    assert status()["next"] is None
    assert "nothing to migrate" in lead_migrate("status").err


def test_two_targets_have_a_file_each(ran, lead_migrate):
    Path("small.toml").write_text(FILE.read_text().replace("tfidf:24", "tfidf:16").replace('"made"', '"small"'))
    assert lead_migrate("--config small.toml status").next == "--config=small.toml run"
    assert lead_migrate("status").said.count("tfidf:24") == 2


def test_a_store_that_is_gone_is_no_fault_of_the_file(status):
    say('store = "gone"\ntarget = "tfidf:24"\noutput = "out"\n')
    told = status()
    assert "gone: no such file or folder" in told["store"]["problem"] and told["next"] is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "write one: lead-migrate init STORE"),
        ("margin = 0.9\n", "there is no store in it"),
        ('store = "x"\n', "there is no output in it"),
    ],
)
def test_without_a_migration_there_is_no_status(text, told, lead_migrate):
    if text is not None:
        say(text)
    assert told in lead_migrate("status", code=2).complaint
