"""The query side as a user meets it: `fit --direction query`, `audit --bridge`, and what is refused."""

import json

import pytest

from migrate.cli.main import run

pytestmark = pytest.mark.slow


def lead_migrate(*arguments):
    return run([str(argument) for argument in arguments])


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def prepared(source_folder, tmp_path, capsys):
    """Beside the store: a bridge, a stitch for documents, and the store that it translates."""
    options = ("--target", "tfidf:24", "--sample", "100", "--quiet")
    assert lead_migrate("fit", source_folder, *options, "--direction", "query", "-o", "bridge") == 0
    assert lead_migrate("fit", source_folder, *options, "-o", "stitch") == 0
    assert lead_migrate("translate", source_folder, "stitch", "-o", "new", "--quiet") == 0
    capsys.readouterr()
    return tmp_path


def complaint(capsys, *arguments):
    code = lead_migrate(*arguments)
    captured = capsys.readouterr()
    lines = [line for line in captured.err.split("\n") if line.startswith("lead-migrate: ")]
    assert len(lines) == 1 and captured.out == "", captured
    return code, lines[0]


def test_fit_shows_the_candidates_and_what_to_do_next(source_folder, tmp_path, capsys):
    options = ("--target", "tfidf:24", "--sample", "100", "--direction", "query", "-o", "bridge")
    assert lead_migrate("fit", source_folder, *options) == 0
    captured = capsys.readouterr()
    assert [line.split()[-6] for line in captured.out.replace(" (control)", "").split("\n")[1:7]] == [
        "procrustes", "ridge", "adjoint:procrustes", "adjoint", "mean", "random",
    ]  # fmt: skip
    assert "fitted on 100 of 150 documents" in captured.out
    assert f"--source {source_folder} --bridge bridge" in captured.err
    assert lead_migrate("fit", source_folder, *options, "--force", "--json", "--quiet") == 0
    assert json.loads(capsys.readouterr().out)["direction"] == "query"
    facts = json.loads((tmp_path / "bridge" / "lead-migrate.json").read_text())
    assert (facts["model"]["spec"], facts["source_model"]["spec"]) == ("tfidf:24", "tfidf:32")


def test_audit_has_the_arm(prepared, source_folder, beir, capsys):
    options = ("--reference", "build", "--beir", beir, "--source", source_folder, "--bridge", "bridge")
    assert lead_migrate("audit", "new", *options, "--json") in (0, 1, 3)
    arms = json.loads(capsys.readouterr().out)["arms"]
    names = [arm["name"] for arm in arms]
    assert names == [
        "full re-embed", "translated", "stay", "bridge", "hybrid", "hybrid, full", "BM25", "mean", "random",
        "two-stage 20", "two-stage 50",
    ]  # fmt: skip
    assert lead_migrate("audit", "new", *options) in (0, 1, 3)
    assert any(line.startswith("bridge ") for line in capsys.readouterr().out.split("\n"))


def test_the_source_model_may_be_unknown(prepared, source_folder, beir, capsys):
    bare = prepared / "bare"
    bare.mkdir()
    for name in ("index.faiss", "docs.jsonl"):
        (bare / name).write_bytes((source_folder / name).read_bytes())
    options = ("--reference", "build", "--beir", beir, "--source", bare, "--json")
    assert lead_migrate("audit", "new", *options) in (0, 1, 3)
    assert "no --source-model" in capsys.readouterr().err
    assert lead_migrate("audit", "new", *options, "--bridge", "bridge") in (0, 1, 3)
    captured = capsys.readouterr()
    assert "stay" not in [arm["name"] for arm in json.loads(captured.out)["arms"]]
    assert "no --source-model" in captured.err


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (
            ["translate", "{store}", "bridge", "-o", "out"],
            4,
            "the stitch maps new queries into the old space, and one is needed",
        ),
        (["translate", "{store}", "bridge", "-o", "out", "--any-store"], 4, "--direction document"),
        (["audit", "new", "--bridge", "stitch", "--source", "{store}"], 4, "fit it with --direction query"),
        (["audit", "new", "--bridge", "bridge", "--source", "new"], 4, "the bridge was fitted on another store"),
        (["audit", "new", "--bridge", "bridge"], 2, "--source STORE"),
        (["audit", "new", "--bridge", "new", "--source", "{store}"], 4, "this is a store, not a stitch"),
        (["audit", "new", "--bridge", "nowhere", "--source", "{store}"], 4, "no stitch here"),
        (["fit", "{store}", "--target", "tfidf:8", "--direction", "back", "-o", "out"], 2, "--direction"),
        (["fit", "{store}", "--target", "tfidf:8", "--stitch", "adjoint", "-o", "out"], 2, "does not map a document"),
    ],
)
def test_a_wrong_direction_is_one_line_with_its_exit_code(arguments, code, part, prepared, source_folder, beir, capsys):
    filled = [argument.format(store=source_folder) for argument in arguments]
    if filled[0] == "audit":
        filled += ["--reference", "build", "--beir", str(beir), "--quiet"]
    found, line = complaint(capsys, *filled)
    assert (found, part in line) == (code, True), line
    assert not (prepared / "out").exists(), "refused before anything is embedded"
