"""The query side as a user meets it: `fit --direction query`, `audit --bridge`, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

JUDGED = (0, 1, 3)
BRIDGE = "fit store --target tfidf:24 --sample 100 --direction query -o bridge"
AUDIT = "audit new --reference build --judged judged"


@pytest.fixture(autouse=True)
def _place(here):
    """A migration: a store, a stitch for documents, and the store that it translates."""


@pytest.fixture(scope="module")
def made_bridge(migrated, lead_migrate, tmp_path_factory):
    """A stitch for queries."""
    folder = tmp_path_factory.mktemp("made") / "bridge"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(migrated)
        lead_migrate(f"{BRIDGE.removesuffix('bridge')} {folder} --quiet")
    return folder


@pytest.fixture
def bridge(made_bridge, tmp_path):
    """A copy of it in the folder of the test."""
    shutil.copytree(made_bridge, tmp_path / "bridge")


def test_fit_shows_the_candidates_and_what_to_do_next(lead_migrate):
    ended = lead_migrate(BRIDGE)
    assert [line.split()[-6] for line in ended.out.replace(" (control)", "").split("\n")[1:7]] == [
        "procrustes", "ridge", "adjoint:procrustes", "adjoint", "mean", "random",
    ]  # fmt: skip
    assert "fitted on 100 of 150 documents" in ended.out and ended.next is None
    assert "--source store --bridge bridge" in ended.err
    assert lead_migrate(f"{BRIDGE} --force --json --quiet").document["direction"] == "query"
    facts = json.loads(Path("bridge/lead-migrate.json").read_text())
    assert (facts["model"]["spec"], facts["source_model"]["spec"]) == ("tfidf:24", "tfidf:32")


def test_audit_has_the_arm(bridge, lead_migrate):
    ended = lead_migrate(f"{AUDIT} --source store --bridge bridge --report report.json", code=JUDGED)
    assert [arm["name"] for arm in json.loads(Path("report.json").read_text())["arms"]] == [
        "full re-embed", "translated", "stay", "bridge", "hybrid", "hybrid, full", "BM25", "mean", "random",
        "two-stage 20", "two-stage 50", "together",
    ]  # fmt: skip
    assert any(line.startswith("bridge ") for line in ended.out.split("\n"))


def test_the_source_model_may_be_unknown(bridge, lead_migrate):
    for path in Path("store").iterdir():
        if path.name not in ("index.faiss", "docs.jsonl"):
            path.unlink()
    audit = f"{AUDIT} --source store --json"
    assert "no --source-model" in lead_migrate(audit, code=JUDGED).err
    ended = lead_migrate(f"{audit} --bridge bridge", code=JUDGED)
    assert "stay" not in [arm["name"] for arm in ended.document["arms"]]
    assert "no --source-model" in ended.err


@pytest.mark.parametrize(
    ("line", "code", "part"),
    [
        ("translate store bridge -o out", 4, "the stitch maps new queries into the old space, and one is needed"),
        ("translate store bridge -o out --any-store", 4, "--direction document"),
        (f"{AUDIT} --bridge stitch --source store", 4, "fit it with --direction query"),
        (f"{AUDIT} --bridge bridge --source new", 4, "new is the audited store itself"),
        (f"{AUDIT} --bridge bridge --source other", 4, "the bridge was fitted on another store"),
        (f"{AUDIT} --bridge bridge", 2, "--source STORE"),
        (f"{AUDIT} --bridge new --source store", 4, "this is a store, not a stitch"),
        (f"{AUDIT} --bridge nowhere --source store", 4, "no stitch here"),
        ("fit store --target tfidf:8 --direction back -o out", 2, "--direction"),
        ("fit store --target tfidf:8 --kind adjoint -o out", 2, "does not map a document"),
    ],
)
def test_a_wrong_direction_is_one_line_with_its_exit_code(line, code, part, bridge, lead_migrate):
    shutil.copytree("store", "other")
    Path("other/lead-migrate.json").unlink()
    Path("other/docs.jsonl").write_text(Path("store/docs.jsonl").read_text().replace('"text": "', '"text": "other ', 1))
    assert part in lead_migrate(line, code=code).complaint
    assert not Path("out").exists(), "refused before anything is embedded"
