"""The commands that are printed as next steps: each runs as it is printed, from another folder."""

import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.stores import open_store

pytestmark = pytest.mark.slow

PACKAGED = "packaged:all-MiniLM-L6-v2"


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder to work in whose name needs quoting, with a file of vectors and a query log."""
    folder = tmp_path / "my work; here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def vectors(here, corpus):
    embedder = load_embedder("tfidf:48")
    embedder.fit(corpus.documents)
    np.savez(
        here / "vectors.npz",
        doc_ids=[document.id for document in corpus.documents],
        docs=embedder.embed_documents(corpus.documents),
        query_ids=[query.id for query in corpus.queries],
        queries=embedder.embed_queries(corpus.queries),
    )
    return "file:vectors.npz"


def make_store(kind, source_folder, beir):
    """A store in the current folder: as `embed` leaves it, stamped, without a manifest, or a folder of LangChain."""
    if kind == "langchain":
        command = ["embed", str(beir), "--model", "tfidf:32", "--no-chunks", "--format", "langchain", "-o", "store"]
        assert run(command) == 0
    else:
        shutil.copytree(source_folder, "store")
    if kind != "embedded":
        Path("store", "lead-migrate.json").unlink()
    if kind in ("plain", "langchain"):
        for state in Path("store").glob("tfidf*"):
            state.unlink()
    if kind == "stamped":
        assert run(["stamp", "store", "--model", "tfidf:32"]) == 0


class Printed:
    """What a command printed to go on with, and running that from another folder."""

    def __init__(self, capsys, monkeypatch, elsewhere, beir):
        self.capsys, self.monkeypatch, self.elsewhere, self.beir = capsys, monkeypatch, elsewhere, beir

    def of(self, *arguments, codes=(0,)):
        """The commands that a command prints."""
        self.capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        error = self.capsys.readouterr().err
        assert code in codes, error
        lines = [line.removeprefix("next: ") for line in error.splitlines() if line.startswith("next: ")]
        commands = [shlex.split(line) for line in lines]
        assert all(words[0] == "lead-migrate" for words in commands), lines
        return [words[1:] for words in commands]

    def then(self, command, *, codes=(0,)):
        """Run a printed command from elsewhere; only judged queries are filled in. What it prints in turn."""
        self.monkeypatch.chdir(self.elsewhere)
        return self.of(*(str(self.beir) if word == "DIR" else word for word in command), codes=codes)


@pytest.fixture
def printed(capsys, monkeypatch, tmp_path, beir):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    return Printed(capsys, monkeypatch, elsewhere, beir)


@pytest.mark.parametrize("kind", ["embedded", "stamped", "plain", "langchain"])
@pytest.mark.parametrize("target", ["tfidf:40", "file:vectors.npz"])
def test_from_the_assessment_to_the_audit(kind, target, vectors, source_folder, beir, printed):
    make_store(kind, source_folder, beir)
    (fit,) = printed.of("assess", "store", "--target", target)
    assert fit[0] == "fit"
    (translate,) = printed.then([*fit, "--sample", "100", "--stitch", "ridge"])
    assert translate[0] == "translate"
    (audit,) = printed.then(translate)
    assert audit[0] == "audit" and ("--source" in audit) == (kind in ("embedded", "stamped"))
    assert printed.then([*audit, "--no-bm25"], codes=(0, 1, 3)) == []


def test_from_a_run_to_its_frontier(here, vectors, source_folder, beir, printed):
    shutil.copytree(source_folder, "store")
    shutil.copytree(beir, "judged")
    command = ["run", "store", "--target", vectors, "--beir", "judged", "--sample", "60", "--stitch", "mean"]
    (audit,) = printed.of(*command, "--source-model", "tfidf:32", "--margin", "0.9", "-o", "out", codes=(1, 3))
    assert audit[0] == "audit" and "--margin=0.9" in audit
    assert printed.then([*audit, "--no-bm25"], codes=(0, 1, 3)) == []


def test_from_a_run_that_embedded_every_text_to_a_whole_store(here, short_folder, short_beir, printed):
    shutil.copytree(short_folder, "store")
    command = [
        "run",
        "store",
        "--target",
        PACKAGED,
        "--beir",
        short_beir,
        "--sample",
        "60",
        "--stitch",
        "mean",
        "-o",
        "out",
    ]
    (backfill,) = printed.of(*command, codes=(1, 3))
    assert backfill[0] == "backfill"
    assert printed.of(*command, codes=(1, 3)) == [backfill], "said again"
    assert printed.of(*command, "--reference", "build", codes=(1, 3)) == [], "the reference is there"
    printed.then(backfill)
    assert open_store(here / "out-full").info.manifest.counts["true vectors"] == 150


def test_a_packaged_model_needs_no_hub(here, short_beir, printed):
    """Neither as the source, which the manifest says, nor as the target, which the stitch says."""
    embed = ["embed", short_beir, "--model", PACKAGED, "--document-prefix", "title: ", "--no-chunks", "-o", "store"]
    assert printed.of(*embed) == []
    (translate,) = printed.of("fit", "store", "--target", PACKAGED, "--stitch", "procrustes", "--sample", "40",
                              "-o", "stitch")  # fmt: skip
    (audit,) = printed.then(translate)
    assert "--source" in audit
    assert printed.then([*audit, "--no-bm25"], codes=(0, 1, 3)) == []


def test_what_was_typed_for_the_model_goes_along(here, source_folder, printed):
    shutil.copytree(source_folder, "store")
    command = ["fit", "store", "--target", "tfidf:16", "--sample", "60", "--stitch", "ridge", "-o", "stitch"]
    (translate,) = printed.of(*command, "--cache", "own.sqlite", "--device", "cpu", "--no-cache")
    assert translate[-3:] == ["--device=cpu", f"--cache={here / 'own.sqlite'}", "--no-cache"]
    (audit,) = printed.then(translate)
    assert audit[-3:] == translate[-3:]


def test_a_file_that_is_out_of_sight_is_asked_for_by_its_option(here, vectors, source_folder, beir, printed, capsys):
    shutil.copytree(source_folder, "store")
    for command in (["fit", "store", "--target", vectors, "--sample", "60", "-o", "stitch"],
                    ["embed", str(beir), "--no-chunks", "--model", vectors, "-o", "of-a-file"]):  # fmt: skip
        assert run(command) == 0
    (here / "vectors.npz").rename(here / "moved.npz")
    capsys.readouterr()
    assert run(["translate", "store", "stitch", "-o", "new"]) == 0
    assert "next: audit new; name its model with --target file:PATH, as vectors.npz is not" in capsys.readouterr().err
    audit = ["audit", "new", "--reference", "build", "--beir", str(beir), "--no-bm25"]
    assert run(audit) == 2
    assert "expected vectors.npz, the vectors that it is of, in the current folder" in capsys.readouterr().err
    assert run([*audit, "--target", "file:moved.npz", "--source", "of-a-file"]) == 2
    assert "--source-model file:PATH" in capsys.readouterr().err
    assert run([*audit, "--target", "file:moved.npz"]) in (0, 1, 3)


def test_from_a_verdict_that_is_safe_to_the_switch_and_back(here, source_folder, beir, printed, capsys):
    shutil.copytree(source_folder, "store")
    assert run(["fit", "store", "--target", "tfidf:48", "--sample", "140", "--stitch", "ridge", "-o", "stitch"]) == 0
    assert run(["translate", "store", "stitch", "-o", "new"]) == 0
    audit = ["audit", "new", "--reference", "build", "--beir", str(beir), "--source", "store", "--margin", "0.8"]
    assert printed.of(*audit, codes=(0,)) == [], "without a report there is nothing to switch by"
    (switch,) = printed.of(*audit, "--report", "report.json", codes=(0,))
    assert switch[0] == "switch"
    assert printed.then(switch) == []
    assert open_store(here / "store").info.dim == 48
    assert run(["rollback", str(here / "store")]) == 0
    assert open_store(here / "store").info.dim == 32
    capsys.readouterr()
    assert run(switch) == 0
    said = capsys.readouterr().out
    assert "queries must be embedded with tfidf:48 instead of tfidf:32 from now on" in said
    assert f"to roll back: lead-migrate rollback {shlex.quote(str(here / 'store'))}" in said
    assert run(["forget", str(here / "store")]) == 2
    assert "agree with --yes" in capsys.readouterr().err
    assert run(["forget", str(here / "store"), "--yes"]) == 0
    assert not (here / "new").exists()
