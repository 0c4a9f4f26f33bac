"""What a user sees when something is wrong: one line that says what to do, the right exit code, nothing left behind."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from openai_server import status

from migrate.cli.terminal import coloured_verdict, warn


@pytest.fixture(autouse=True)
def _place(store, judged):
    """A store and judged queries."""


@pytest.mark.parametrize(
    ("line", "code", "part"),
    [
        ("fit store --target tfidf:8 --kind magic -o out", 2, "unknown stitch 'magic'"),
        ("fit store --target tfidf:8 -o judged", 2, "--force"),
        ("fit store --target tfidf:8", 2, "--output"),
        ("fit", 2, "Missing argument 'STORE', option '--output' / '-o', option '--target'; see"),
        ("fit store --target tfidf:8 --sample 1 -o out", 2, "--sample"),
        ("fit store --target openai:text-embedding-3-small -o out", 7, "OPENAI_API_KEY"),
        ("audit store --reference nowhere --judged judged", 4, "no such file or folder"),
        ("audit store --reference store --judged nowhere", 4, "nowhere"),
        ("audit store --reference store --judged judged --margin 0", 2, "--margin"),
        ("audit nowhere --source old --judged judged", 4, "no such files or folders: nowhere, old; check the paths"),
        ("run nowhere --target file:v.npz --queries q -o out", 4, "no such files or folders: nowhere, q, v.npz;"),
        ("translate nowhere gone -o out", 4, "no such files or folders: nowhere, gone;"),
        ("fit nowhere --target tfidf:8 --query-log log --sample 20 -o out", 4, "nowhere, log;"),
        ("fit store#?text=text --target file:v.npz -o out", 4, "v.npz: no .npz file"),
        ("fit nowhere --target file:store/docs.jsonl,query-prefix=q -o out", 4, "nowhere: no such file or folder"),
        ("reembed store#?text=text --target tfidf:8 -o store --force", 2, "store overlaps store, which is read"),
        ("embed nowhere.jsonl --model tfidf:8 -o out", 4, "nowhere.jsonl"),
        ("embed judged --model tfidf:8 --chunk-overlap 300 -o out", 2, "overlap"),
        ("embed judged --model tfidf:8 -o /proc/nothing/here", 5, "cannot write"),
        ("translte", 2, "translte"),
    ],
)
def test_wrong_input_is_one_line_with_its_exit_code(line, code, part, lead_migrate):
    assert part in lead_migrate(line, code=code).complaint
    assert not Path("out").exists()


def test_a_source_without_a_known_model_must_be_named(store, lead_migrate):
    (store / "lead-migrate.json").unlink()
    assert "--target SPEC" in lead_migrate("audit store --reference store --judged judged", code=2).complaint


def test_the_wrong_beir_set_is_refused(lead_migrate):
    Path("beir/qrels").mkdir(parents=True)
    Path("beir/queries.jsonl").write_text(json.dumps({"_id": "q", "text": "tea"}))
    Path("beir/qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tdoc-9\t1\n")
    told = lead_migrate("audit store --judged beir", code=4).complaint
    assert "is it the right BEIR set" in told


def test_a_failing_server_is_exit_7(server, monkeypatch, lead_migrate):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-0000")
    server.faults.extend([status(401, "no such key")] * 3)
    fit = f"fit store --target openai:text-embedding-3-small --base-url {server.url} -o out"
    told = lead_migrate(fit, code=7).complaint
    assert "key" in told and "sk-wrong-0000" not in told


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (ZeroDivisionError("surprise\nin two lines"), 70, "surprise in two lines; this is a bug"),
        (MemoryError(), 5, "out of memory"),
        (OSError(28, "No space left on device"), 5, "No space left on device"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
    ids=["bug", "memory", "disk", "ctrl-c"],
)
def test_whatever_stops_a_command_is_one_line(error, code, told, monkeypatch, lead_migrate):
    def failing(*_args, **_kwargs):
        raise error

    monkeypatch.setattr("migrate.report.inspect.open_store", failing)
    line = lead_migrate("inspect store", code=code).complaint
    assert told in line and ("report" in line) == (code == 70)


def test_a_warning_is_printed_once_a_command(capsys):
    for _ in range(2):
        with click.Context(click.Command("fit")):
            for text in ("long texts", "long texts", "no price"):
                warn(text)
        assert capsys.readouterr().err == "warning: long texts\nwarning: no price\n"


@pytest.mark.slow
def test_a_closed_pipe_is_quiet():
    script = f"{sys.executable} -c 'from migrate.cli.main import main; main()' inspect store --json | true"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_no_color_and_pipes_are_plain(monkeypatch):
    assert coloured_verdict("x\nSAFE: fine") == "x\nSAFE: fine"  # not a terminal here
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert "\x1b[" in coloured_verdict("x\nNOT SAFE: lost")
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured_verdict("x\nSAFE: fine") == "x\nSAFE: fine"


@pytest.fixture
def moved(target_file, lead_migrate):
    """A store, `moved`, that was translated to a model of a file that lies elsewhere."""
    lead_migrate(f"fit store --target file:{target_file} -o stitch --kind ridge -q")
    lead_migrate("translate store stitch -o moved -q")


def test_a_file_of_vectors_that_lies_elsewhere_is_asked_for(moved, lead_migrate):
    told = lead_migrate("audit moved --reference build --judged judged -q", code=2).complaint
    assert told.endswith("say where it is with --target file:PATH")


def test_a_target_of_another_dimension_is_refused_before_it_is_paid_for(moved, server, lead_migrate):
    audit = "audit moved --reference build --judged judged -q --target openai:"
    told = lead_migrate(f"{audit}text-embedding-3-small", code=4).complaint
    assert "dimension 24" in told and "openai:text-embedding-3-small 1536" in told
    assert server.requests == []
    told = lead_migrate(f"{audit}tiny --cache none", code=7).complaint
    assert "vectors of dimension 8, not 24 (as " in told and "name the model" in told
    assert len(server.requests) == 1


KEEPS_OUT = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "sklearn":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Finder())
from migrate.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_library_that_a_finder_keeps_out_is_one_line():
    typed = [sys.executable, "-c", KEEPS_OUT, "fit", "store", "--target", "tfidf:8", "-o", "out"]
    done = subprocess.run(typed, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("lead-migrate: sklearn is not installed")
