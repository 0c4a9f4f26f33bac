"""The commands that are printed as next steps: each runs as it is printed, with paths as they were typed."""

import json
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
def without_words(audit_fields):
    """Leaves the arms of words out of what audits report."""
    audit_fields(no_bm25=True)


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
    """What a command printed to go on with, and running that."""

    def __init__(self, capsys, beir):
        self.capsys, self.beir = capsys, beir

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
        """Run a printed command; only judged queries are filled in. What it prints in turn."""
        return self.of(*(str(self.beir) if word == "DIR" else word for word in command), codes=codes)


@pytest.fixture
def printed(capsys, beir):
    return Printed(capsys, beir)


@pytest.mark.parametrize("kind", ["embedded", "stamped", "plain", "langchain"])
@pytest.mark.parametrize("target", ["tfidf:40", "file:vectors.npz"])
def test_from_the_assessment_to_the_audit(kind, target, vectors, source_folder, beir, printed):
    make_store(kind, source_folder, beir)
    (full,) = printed.of("assess", "store", "--target", target)
    assert full == ["reembed", "store", "--target", target, "-o", "store-full"], "so small a store"
    fit = ["fit", "store", "--target", target, "-o", "stitch", "--sample", "100", "--stitch", "ridge"]
    (translate,) = printed.of(*fit)
    assert translate[0] == "translate"
    (audit,) = printed.then(translate)
    assert (audit[0], audit[2:4]) == ("audit", ["--reference", "pool"])
    assert "--source" in audit, "whether its model is known or not"
    printed.then([*audit], codes=(0, 1, 3))


def test_the_same_audit_again_leaves_settings_to_the_file_that_is_named_again(here, source_folder, beir, printed):
    Path("settings.toml").write_text('[tool.lead-migrate]\ndevice = "cpu"\nconcurrency = 4\n')
    make_store("embedded", source_folder, beir)
    given = ["--config", "settings.toml"]
    assert run(["fit", "store", "--target", "tfidf:40", "-o", "stitch", "--sample", "100", "--stitch", "ridge"]) == 0
    (audit,) = printed.of(*given, "translate", "store", "stitch", "-o", "new")
    assert audit[:2] == ["--config=settings.toml", "audit"]
    (again,) = printed.of(*given, "audit", "new", "--beir", beir, "--source", "store", "--margin", "0.5")
    assert again[:2] == ["--config=settings.toml", "audit"]
    assert not any(word.startswith(("--device", "--concurrency")) for word in again)
    printed.then(again, codes=(0, 1, 3))


@pytest.mark.parametrize("kind", ["faiss", "parquet"])
def test_a_file_in_a_folder_of_its_own_is_switched_and_one_among_others_is_not(kind, here, source_folder, printed):
    old, name = "store", "index.faiss"
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        assert run(["reembed", str(source_folder), "--target", "tfidf:24", "-o", "parquet:store"]) == 0
        name = next(Path(old).rglob("*.parquet")).relative_to(old).as_posix()
    else:
        shutil.copytree(source_folder, old)
    for path in Path(old).iterdir():
        if path.name not in (name, "docs.jsonl"):
            path.unlink()
    file, stem = f"{old}/{name}", Path(name).stem
    (full,) = printed.of("assess", file, "--target", "tfidf:40")
    assert full == ["reembed", file, "--target", "tfidf:40", "-o", f"{stem}-full"], "beside the folder"
    (switch,) = printed.then(full)
    assert switch == ["switch", file, f"{stem}-full"]
    assert printed.then(switch) == []
    assert open_store(file).info.dim == 40
    assert run(["rollback", file]) == 0
    Path(old, "notes.txt").touch()
    (full,) = printed.of("assess", file, "--target", "tfidf:48")
    assert full[-1] == f"{old}/{stem}-full", "beside the file: the folder is of other things too"
    assert printed.then(full) == [["inspect", f"{old}/{stem}-full"]], "it cannot be switched"


def test_a_switch_of_the_current_folder_prints_a_way_back_that_runs_there(here, source_folder, capsys, monkeypatch):
    shutil.copytree(source_folder, "store")
    monkeypatch.chdir("store")
    assert run(["reembed", ".", "--target", "tfidf:40", "-o", "../whole"]) == 0
    assert run(["switch", ".", "../whole"]) == 0
    printed = capsys.readouterr()
    assert f"cd {shlex.quote(str(here / 'store'))}" in printed.err, "the shell has stayed with the old store"
    (back,) = [line for line in printed.out.splitlines() if line.startswith("to roll back: lead-migrate ")]
    assert run(shlex.split(back)[4:]) == 0
    assert open_store(here / "store").info.dim == open_store(".").info.dim != 40


def test_an_output_inside_the_folder_of_the_store_is_told_and_what_follows_lies_outside(here, source_folder, capsys):
    shutil.copytree(source_folder, "store")
    same = ["--target", "tfidf:40", "-o"]
    assert run(["reembed", "store/index.faiss", *same, "store/moved"]) == 0
    told = capsys.readouterr().err
    assert "note: store/moved lies in the folder of the old store" in told and "such as -o index-new" in told
    shutil.rmtree("store/moved")
    assert run(["reembed", "store/index.faiss", *same, "moved"]) == 0
    assert "lies in the folder" not in capsys.readouterr().err


def test_a_reembed_that_a_verdict_prints_names_no_options_that_the_model_lacks(here, source_folder, beir, printed):
    shutil.copytree(source_folder, "store")
    fit = ["fit", "store", "--target", PACKAGED, "--sample", "20", "--stitch", "mean", "-o", "stitch"]
    printed.of(*fit)
    printed.of("translate", "store", "stitch", "-o", "new")
    (full,) = printed.of("audit", "new", "--reference", "pool", "--beir", beir, "--source", "store", codes=(1, 3))
    assert full[:2] == ["reembed", "store"] and [word for word in full if word.startswith("-")] == ["--target", "-o"]
    assert printed.then(full)[0][0] == "switch"


def test_from_a_run_to_a_full_reembed(here, vectors, source_folder, beir, printed):
    shutil.copytree(source_folder, "store")
    shutil.copytree(beir, "judged")
    command = ["run", "store", "--target", vectors, "--beir", "judged", "--sample", "60", "--stitch", "mean"]
    whole = [*command, "--source-model", "tfidf:32", "--margin", "0.9", "-o", "out"]
    (full,) = printed.of(*whole, codes=(1, 3))
    assert full == ["reembed", "store", "--target", vectors, "-o", "out-full"]
    found = json.loads(Path("out", "report.json").read_text())["recommendation"]
    assert (found["plan"], found["command"]) == ("full re-embed", full), "the report says the same"
    assert printed.of(*whole, codes=(1, 3)) == [full], "said again"


def test_a_plan_decides_the_exit_code_and_what_switch_takes(here, source_folder, beir, printed, capsys):
    shutil.copytree(source_folder, "store")
    assert run(["fit", "store", "--target", "tfidf:48", "--sample", "60", "--stitch", "mean", "-o", "stitch"]) == 0
    assert run(["translate", "store", "stitch", "-o", "new"]) == 0
    audit = ["audit", "new", "--reference", "build", "--beir", str(beir), "--source", "store"]
    assert run(audit) == 1
    assert run([*audit, "--plan", "two-stage-20000", "--report", "no.json"]) == 2
    assert "--plan two-stage-20000 ranks all of the store's 150 documents again" in capsys.readouterr().err
    assert run([*audit, "--plan", "three-stage"]) == 2
    assert "--plan: there is no plan 'three-stage'; did you mean two-stage-20?" in capsys.readouterr().err
    assert run([*audit, "--plan", "mine"]) == 2
    assert "--plan: there is no plan 'mine'; name one such as translated, bridge," in capsys.readouterr().err
    (switch,) = printed.of(*audit, "--plan", "two-stage-149", "--report", "report.json", "--margin", "0.7")
    assert switch == ["switch", "store", "new", "--report", "report.json"]
    capsys.readouterr()
    assert run(switch) == 0
    said = capsys.readouterr().out
    assert "SAFE in two stages alone" in said and "LiveLimits(depth=149, max_documents=149" in said


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
    (full,) = printed.of(*command, codes=(1, 3))
    assert full == ["reembed", "store", "--target", PACKAGED, "-o", "out-full"]
    assert printed.of(*command, codes=(1, 3)) == [full], "said again"
    (switch,) = printed.of(*command, "--reference", "build", codes=(1, 3))
    assert switch == ["switch", "store", "out/reference"], "the reference is there"


def test_a_packaged_model_needs_no_hub(here, short_beir, printed):
    """Neither as the source, which the manifest says, nor as the target, which the stitch says."""
    embed = ["embed", short_beir, "--model", f"{PACKAGED},document-prefix=title: ", "--no-chunks", "-o", "store"]
    assert printed.of(*embed) == [["assess", "store", "--target", "SPEC"]]
    (translate,) = printed.of("fit", "store", "--target", PACKAGED, "--stitch", "procrustes", "--sample", "40",
                              "-o", "stitch")  # fmt: skip
    (audit,) = printed.then(translate)
    assert "--source" in audit
    printed.then([*audit], codes=(0, 1, 3))


def test_what_was_typed_for_the_model_goes_along(here, source_folder, printed):
    shutil.copytree(source_folder, "store")
    command = [
        "fit",
        "store",
        "--target",
        "tfidf:16,batch-size=8",
        "--sample",
        "60",
        "--stitch",
        "ridge",
        "-o",
        "stitch",
    ]
    (translate,) = printed.of(*command, "--cache", "own.sqlite")
    assert translate[-3:] == ["--target", "tfidf:16,batch-size=8", "--cache=own.sqlite"]
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
    told = capsys.readouterr().err
    assert "file:PATH: where vectors.npz is, which is not in this folder" in told
    filled = {"DIR": str(beir), "file:PATH": "file:moved.npz"}
    words = [filled.get(word, word) for word in shlex.split(told.splitlines()[-1])]
    assert words[:4] == ["next:", "lead-migrate", "audit", "new"] and {*filled.values()} <= {*words}
    assert run([*words[2:]]) in (0, 1, 3)
    audit = ["audit", "new", "--reference", "build", "--beir", str(beir)]
    assert run(audit) == 2
    assert "vectors.npz, the vectors that it is of, is not in the current folder" in capsys.readouterr().err
    assert run([*audit, "--target", "file:moved.npz", "--source", "of-a-file"]) == 2
    assert "--source-model file:PATH" in capsys.readouterr().err
    assert run([*audit, "--target", "file:moved.npz"]) in (0, 1, 3)


def test_from_a_verdict_that_is_safe_to_the_switch_and_back(here, source_folder, beir, printed, capsys):
    shutil.copytree(source_folder, "store")
    assert run(["fit", "store", "--target", "tfidf:48", "--sample", "140", "--stitch", "ridge", "-o", "stitch"]) == 0
    assert run(["translate", "store", "stitch", "-o", "new"]) == 0
    audit = ["audit", "new", "--reference", "build", "--beir", str(beir), "--source", "store", "--margin", "0.8"]
    (again,) = printed.of(*audit, codes=(0,))
    assert again[:2] == ["audit", "new"] and again[-1] == "--report=report.json", "a switch wants the report"
    (switch,) = printed.then(again)
    assert switch == ["switch", "store", "new", "--report", "report.json"]
    assert printed.then(switch) == []
    assert open_store(here / "store").info.dim == 48
    assert run(["rollback", str(here / "store")]) == 0
    assert open_store(here / "store").info.dim == 32
    capsys.readouterr()
    assert run(switch) == 0
    said = capsys.readouterr().out
    assert "queries must be embedded with tfidf:48 instead of tfidf:32 from now on" in said
    assert "to roll back: lead-migrate rollback store" in said
    assert run(["forget", str(here / "store")]) == 2
    assert "agree with --yes" in capsys.readouterr().err
    assert run(["forget", str(here / "store"), "--yes"]) == 0
    assert not (here / "new").exists()
