"""What a user sees when something is wrong: one line that says what to do, the right exit code, nothing left behind."""

import json
import os
import subprocess
import sys

import pytest
from openai_server import OpenAIServer, status

from migrate.cli.main import run

COPY = ("index.faiss", "docs.jsonl", "lead-migrate.json")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def store(source_folder, tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    for name in (*COPY, "embedder.json", "embedder.safetensors"):
        (folder / name).write_bytes((source_folder / name).read_bytes())
    return folder


def complaint(capsys, *arguments):
    code = run([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    lines = [line for line in captured.err.split("\n") if line.startswith("lead-migrate: ")]
    assert len(lines) == 1, captured.err
    assert "Traceback" not in captured.err and captured.out == ""
    return code, lines[0]


def spoil_lfs(store):
    (store / "index.faiss").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")


def spoil_truncate(store):
    os.truncate(store / "index.faiss", 5_000)


def spoil_html(store):
    (store / "index.faiss").write_text("<!DOCTYPE html><html><body>Sign in</body></html>")


def spoil_empty_folder(store):
    for path in store.iterdir():
        path.unlink()


def spoil_missing(store):
    spoil_empty_folder(store)
    store.rmdir()


def spoil_texts(store):
    lines = (store / "docs.jsonl").read_text().splitlines()
    (store / "docs.jsonl").write_text("\n".join(lines[:-3]))


def spoil_pickle(store):
    class Payload:
        def __reduce__(self):
            return os.system, (f"touch {store}/executed",)

    import pickle

    (store / "docs.jsonl").unlink()
    (store / "index.pkl").write_bytes(pickle.dumps(Payload()))


def spoil_manifest(store):
    (store / "lead-migrate.json").write_text("{")


SPOILED = {
    spoil_lfs: "run git lfs pull",
    spoil_truncate: "FAISS cannot read the file",
    spoil_html: "no FAISS index but a web page",
    spoil_empty_folder: "but an empty folder",
    spoil_missing: "no such file or folder",
    spoil_texts: "147",
    spoil_pickle: "system",
    spoil_manifest: "not valid JSON",
}


@pytest.mark.slow
@pytest.mark.parametrize("spoil", SPOILED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("command", ["fit", "translate", "run"])
def test_an_unusable_store_is_one_line_and_exit_4(spoil, command, store, beir, tmp_path, capsys):
    rest = {
        "fit": ["--target", "tfidf:8", "-o", "out"],
        "translate": ["stitch", "-o", "out"],
        "run": ["--target", "tfidf:8", "--beir", beir, "-o", "out"],
    }[command]
    spoil(store)
    code, line = complaint(capsys, command, store, *rest)
    assert code == 4
    assert SPOILED[spoil] in line
    assert not (tmp_path / "out").exists()
    assert not (store / "executed").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["fit", "{store}", "--target", "tfidf:8", "--stitch", "magic", "-o", "out"], 2, "unknown stitch 'magic'"),
        (["fit", "{store}", "--target", "tfidf:8", "-o", "{beir}"], 2, "--force"),
        (["fit", "{store}", "--target", "tfidf:8"], 2, "--output"),
        (["fit", "{store}", "--target", "tfidf:8", "--sample", "1", "-o", "out"], 2, "--sample"),
        (["fit", "{store}", "--target", "openai:text-embedding-3-small", "-o", "out"], 7, "OPENAI_API_KEY"),
        (["audit", "{store}", "--reference", "nowhere", "--beir", "{beir}"], 4, "no such file or folder"),
        (["audit", "{store}", "--reference", "{store}", "--beir", "nowhere"], 4, "nowhere"),
        (["audit", "{store}", "--reference", "{store}", "--beir", "{beir}", "--margin", "0"], 2, "--margin"),
        (["embed", "nowhere.jsonl", "--model", "tfidf:8", "-o", "out"], 4, "nowhere.jsonl"),
        (["embed", "{beir}", "--model", "tfidf:8", "--chunk-overlap", "300", "-o", "out"], 2, "overlap"),
        (["embed", "{beir}", "--model", "tfidf:8", "-o", "/proc/nothing/here"], 5, "cannot write"),
        (["translte"], 2, "translte"),
    ],
)
def test_wrong_input_is_one_line_with_its_exit_code(arguments, code, part, store, beir, capsys, tmp_path):
    filled = [argument.format(store=store, beir=beir) for argument in arguments]
    found, line = complaint(capsys, *filled)
    assert (found, part in line) == (code, True), line
    assert not (tmp_path / "out").exists()


def test_a_source_without_a_known_model_must_be_named(store, beir, capsys):
    (store / "lead-migrate.json").unlink()
    code, line = complaint(capsys, "audit", store, "--reference", store, "--beir", beir)
    assert code == 2 and "--target SPEC" in line


def test_the_wrong_beir_set_is_refused(store, tmp_path, capsys):
    folder = tmp_path / "beir"
    (folder / "qrels").mkdir(parents=True)
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "tea"}))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tdoc-9\t1\n")
    code, line = complaint(capsys, "audit", store, "--reference", store, "--beir", folder)
    assert code == 4 and "is it the right BEIR set" in line


def test_a_reference_of_another_model_is_refused(store, beir, capsys):
    assert run(["embed", str(beir), "--model", "tfidf:16", "--no-chunks", "-o", "other", "--quiet"]) == 0
    capsys.readouterr()
    code, line = complaint(capsys, "audit", store, "--reference", "other", "--beir", beir)
    assert code == 4 and "its vectors have dimension 16, those of tfidf:32 32" in line


def test_a_failing_server_is_exit_7(store, capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-0000")
    with OpenAIServer() as server:
        server.faults.extend([status(401, "no such key")] * 3)
        options = ["--target", "openai:text-embedding-3-small", "--base-url", server.url]
        code, line = complaint(capsys, "fit", store, *options, "-o", "out")
    assert code == 7 and "key" in line and "sk-wrong-0000" not in line


def test_a_bug_is_exit_70_and_says_where_to_report(store, capsys, monkeypatch):
    def broken(*_args, **_kwargs):
        raise ZeroDivisionError("surprise\nin two lines")

    monkeypatch.setattr("migrate.report.inspect.open_store", broken)
    code, line = complaint(capsys, "inspect", store)
    assert code == 70 and "surprise in two lines" in line and "report" in line


@pytest.mark.parametrize(("error", "code"), [(MemoryError(), 5), (OSError(28, "No space left on device"), 5)])
def test_what_the_machine_refuses_is_exit_5(error, code, store, capsys, monkeypatch):
    def failing(*_args, **_kwargs):
        raise error

    monkeypatch.setattr("migrate.report.inspect.open_store", failing)
    assert complaint(capsys, "inspect", store)[0] == code


def test_ctrl_c_is_exit_130(store, capsys, monkeypatch):
    def interrupted(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("migrate.report.inspect.open_store", interrupted)
    assert complaint(capsys, "inspect", store)[0] == 130


def test_a_closed_pipe_is_quiet(store):
    script = f"{sys.executable} -c 'from migrate.cli.main import main; main()' inspect {store} --json | true"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_no_color_and_pipes_are_plain(monkeypatch):
    from migrate.cli.terminal import coloured_verdict

    assert coloured_verdict("x\nSAFE: fine") == "x\nSAFE: fine"  # not a terminal here
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert "\x1b[" in coloured_verdict("x\nNOT SAFE: lost")
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured_verdict("x\nSAFE: fine") == "x\nSAFE: fine"


@pytest.fixture
def moved(source_folder, target_file, tmp_path, capsys):
    """A store that was translated to a model of a file."""
    assert (
        run(["fit", str(source_folder), "--target", f"file:{target_file}", "-o", "stitch", "--stitch", "ridge", "-q"])
        == 0
    )
    assert run(["translate", str(source_folder), "stitch", "-o", "moved", "-q"]) == 0
    capsys.readouterr()
    return tmp_path / "moved"


def test_a_file_of_vectors_that_lies_elsewhere_is_asked_for(moved, beir, capsys):
    code, line = complaint(capsys, "audit", moved, "--reference", "build", "--beir", beir, "-q")
    assert code == 2
    assert line.endswith(
        "target.npz, the vectors that it is of, is not in the current folder; say where it is with --target file:PATH"
    )


def test_a_target_of_another_dimension_is_refused_before_it_is_paid_for(moved, beir, capsys, tmp_path):
    with OpenAIServer() as server:
        options = ["--target", "openai:text-embedding-3-small", "--base-url", server.url]
        code, line = complaint(capsys, "audit", moved, "--reference", "build", "--beir", beir, *options, "-q")
        assert code == 4 and "have dimension 24, those of openai:text-embedding-3-small 1536" in line
        assert server.requests == []
        options = ["--target", "openai:tiny", "--base-url", server.url, "--cache", "none"]
        code, line = complaint(capsys, "audit", moved, "--reference", "build", "--beir", beir, *options, "-q")
        assert code == 7 and "vectors of dimension 8, not 24 (as " in line and "name the model" in line
        assert len(server.requests) == 1
