"""What a user sees of runs that break off: one line with a hint that is true, and the same bytes in the end."""

import json
import os
import re
import shutil
import signal
import threading
from pathlib import Path

import pytest
from children import start_command
from openai_server import OpenAIServer

from migrate.cli.main import run
from migrate.embed.corpus import AGAIN

pytestmark = pytest.mark.slow

# 150 documents in parts of 40, in requests of 8
# A shell that starts the tests in the background has them ignore Ctrl-C, and what they start too.
CHILD = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import migrate.embed.corpus
migrate.embed.corpus.BATCH_DOCUMENTS = 40
"""
WAIT_S = 60


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setenv("LEAD_MIGRATE_DEBUG", "1")  # what no run should end in is shown whole
    monkeypatch.chdir(tmp_path)


class Gate:
    """Sends a signal to the child when the server is asked for the n-th time; that request is not answered."""

    def __init__(self, signals):
        self.signals, self.child, self.seen = signals, None, threading.Event()

    def __call__(self, number):
        self.seen.set()
        if number in self.signals:
            os.kill(self.child.pid, self.signals[number])
            if self.signals[number] == signal.SIGKILL:
                self.child.join(WAIT_S)
            raise ConnectionError


def embed_command(server, beir, *options):
    model = [
        "--model",
        "openai:text-embedding-3-small,dimensions=8,batch-size=8,concurrency=1",
        "--base-url",
        server.url,
    ]
    return ["embed", str(beir), *model, "--no-chunks", "--quiet", *options]


def start(gate, command, printed):
    """Exit code of a command that the gate may send a signal to, and what it printed."""
    gate.child = start_command(command, Path.cwd(), printed, prelude=CHILD)
    gate.child.join(WAIT_S)
    assert gate.child.exitcode is not None, f"{command} still runs after {WAIT_S} s"
    return gate.child.exitcode, printed.read_text()


def test_no_text_is_paid_for_twice_with_the_cache(beir, digest, tmp_path):
    with OpenAIServer() as server:
        server.gate = gate = Gate({3: signal.SIGKILL, 9: signal.SIGKILL})
        codes = [start(gate, embed_command(server, beir, "-o", "killed"), tmp_path / "printed")[0] for _ in range(3)]
        assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]
        served = len(server.texts_served)
        assert len(set(server.texts_served)) == 150 and served <= 150 + 3 * AGAIN, "but for what proves the model"
        assert run(embed_command(server, beir, "-o", "whole")) == 0  # from the cache
        assert len(server.texts_served) <= served + AGAIN
    assert digest(tmp_path / "killed") == digest(tmp_path / "whole")


def test_one_part_at_most_is_paid_for_twice_without_the_cache_and_the_hint_is_true(beir, digest, tmp_path):
    with OpenAIServer() as server:
        server.gate = gate = Gate({8: signal.SIGINT, 17: signal.SIGTERM})
        command, printed = embed_command(server, beir, "--cache", "none", "-o", "killed"), tmp_path / "printed"
        hint = "lead-migrate: interrupted; continue with the same command: {} rows are done\n"
        for code, rows in ((130, 40), (143, 80)):
            assert start(gate, command, printed) == (code, hint.format(rows)), printed.read_text()
        changed = [*command, "--format", "langchain"]
        assert run(changed) == 2
        assert start(gate, command, printed)[0] == 0
        assert len(set(server.texts_served)) == 150
        assert len(server.texts_served) <= 150 + 2 * 40 + 3 * AGAIN
        assert run(embed_command(server, beir, "--cache", "none", "-o", "whole")) == 0
    assert digest(tmp_path / "killed") == digest(tmp_path / "whole")


def test_a_second_run_is_refused_while_the_first_one_lives(beir, tmp_path, capsys):
    with OpenAIServer() as server:
        holding, let_go = threading.Event(), threading.Event()

        def wait(_number):
            holding.set()
            let_go.wait(60)

        server.gate = wait
        command = embed_command(server, beir, "-o", "out")
        child = start_command(command, tmp_path, tmp_path / "printed", prelude=CHILD)
        assert holding.wait(WAIT_S), (tmp_path / "printed").read_text()
        assert run(command) == 6
        assert "another run is writing" in capsys.readouterr().err
        child.kill()
        child.join(WAIT_S)
        server.gate = None
        let_go.set()
        assert run(command) == 0


def test_restart_is_offered_and_taken(source_folder, tmp_path, capsys, monkeypatch):
    source = shutil.copytree(source_folder, tmp_path / "source")
    assert run(["fit", "source", "--target", "tfidf:24", "--sample", "50", "-o", "stitch", "--quiet"]) == 0
    command = ["translate", "source", "stitch", "-o", "out", "--quiet"]

    def interrupted(*_args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("migrate.steps.translate.job._manifest", interrupted)
        assert run(command) == 130
    assert "continue with the same command: 150 of 150 rows are done" in capsys.readouterr().err
    os.utime(source / "docs.jsonl")
    assert run(command) == 4
    assert "--restart" in capsys.readouterr().err
    assert run([*command, "--restart"]) == 0


@pytest.mark.parametrize("stage", ["Translate", "reembed_store", "write_json"])
def test_the_whole_path_goes_on_where_it_was_interrupted(stage, beir, source_folder, tmp_path, monkeypatch):
    from migrate.pipeline import job as pipeline
    from migrate.steps.fit import job as fit

    command = ["run", str(source_folder), "--target", "tfidf:24", "--beir", str(beir), "--sample", "60", "--quiet"]
    command += ["--reference", "build"]
    places = {"embed_pairs": fit, "Translate": pipeline, "reembed_store": pipeline}
    stages = list(places)
    real, calls = {name: getattr(place, name) for name, place in places.items()}, []
    for name, place in places.items():
        monkeypatch.setattr(place, name, lambda *a, _n=name, **k: (calls.append(_n), real[_n](*a, **k))[1])

    def interrupted(*_args, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, stage, interrupted)
        assert run([*command, "-o", "broken"]) == 130
    done, calls[:] = calls.copy(), []
    code = run([*command, "-o", "broken"])
    assert calls == stages[len(done) :]
    assert run([*command, "-o", "whole"]) == code in (0, 1, 3)
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")
    assert not (tmp_path / ".broken.work").exists()
    calls.clear()
    assert run([*command, "-o", "broken"]) == code and not calls


_TIMED = ("report.json", "run.json")


def contents(folder):
    """Every file but those in which exact seconds are told; in tables, tenths of a second are left out."""
    files = (path for path in folder.rglob("*") if path.is_file())
    found = {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name not in _TIMED}
    return {name: re.sub(rb"<td>\d+\.\d</td>", b"", content) for name, content in found.items()}


def test_no_command_changes_what_it_reads(beir, source_folder, tmp_path):
    source, questions = shutil.copytree(source_folder, "source"), shutil.copytree(beir, "beir")
    before = [state(path) for path in (tmp_path / source, tmp_path / questions)]
    audit = ["--reference", "build", "--beir", "beir", "--source", "source"]
    for command in (
        ["inspect", "source"],
        ["embed", "beir", "--model", "tfidf:16", "-o", "embedded"],
        ["fit", "source", "--target", "tfidf:24", "--sample", "60", "-o", "stitch"],
        ["translate", "source", "stitch", "-o", "new"],
        ["reembed", "source", "--target", "tfidf:24", "-o", "full"],
        ["audit", "new", *audit],
        ["run", "source", "--target", "tfidf:24", "--beir", "beir", "--sample", "60", "-o", "all"],
    ):
        assert run([*command, "--json"]) in (0, 1, 3), command
        assert [state(path) for path in (tmp_path / source, tmp_path / questions)] == before, command
    assert json.loads((tmp_path / "full" / "lead-migrate.json").read_text())["counts"] == {
        "documents": 150,
        "true vectors": 150,
    }


def state(folder):
    """Names, bytes and times of all files, and the time of the folder itself."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return folder.stat().st_mtime_ns, [(path, path.stat().st_mtime_ns, path.read_bytes()) for path in files]


DIES = """
import os, signal
from migrate import files
name, number = {moment!r}.split(":")
place = files if hasattr(files, name) else os
real, calls = getattr(place, name), []

def dying(*arguments, **options):
    calls.append(1)
    if len(calls) == int(number):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments, **options)

setattr(place, name, dying)
"""


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_fits_that_are_killed_leave_nothing_behind_for_good(force, source_folder, tmp_path):
    """Before the folder is made, at each of its files, before and after each rename; real kills."""
    (tmp_path / "temporary").mkdir()
    (tmp_path / "outputs").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    output = tmp_path / "outputs" / "stitch"
    fit = ["fit", str(source_folder), "--target", "tfidf:24", "--stitch", "ols", "--sample", "60", "-o", str(output)]
    assert run([*fit, "--quiet"]) == 0
    if not force:
        whole = contents(output)
        shutil.rmtree(output)
    early = ["exchange_paths:1"] if force else ["output_lock:1", "fsync:3"]
    for moment in [*early, "rename:1", "sync_path:2"]:
        child = start_command(
            [*fit, "--quiet", *force],
            tmp_path,
            tmp_path / "printed",
            prelude=DIES.format(moment=moment),
            environment=environment,
        )
        child.join(WAIT_S)
        assert child.exitcode == -signal.SIGKILL, moment
        assert list((tmp_path / "temporary").iterdir()) == []
        left = {path.name.removeprefix(".stitch.") for path in output.parent.iterdir()}
        assert left <= {"stitch", "lock", "unfinished", "replaced"}, "nothing piles up"
    code = run([*fit, "--quiet", *force])
    assert code == (0 if force else 2), "the last one was complete"
    assert [path.name for path in output.parent.iterdir()] == ["stitch"]
    assert force or contents(output) == whole


def test_an_interrupted_reference_that_nobody_keeps_promises_nothing(beir, source_folder, monkeypatch, capsys):
    assert run(["fit", str(source_folder), "--target", "tfidf:24", "--sample", "60", "-o", "stitch", "--quiet"]) == 0
    assert run(["translate", str(source_folder), "stitch", "-o", "new", "--quiet"]) == 0

    def interrupted(*_args, **_options):
        error = KeyboardInterrupt()
        error.add_note("continue with the same command: 100 of 150 rows are done")
        raise error

    monkeypatch.setattr("migrate.embed.reembed_store", interrupted)
    capsys.readouterr()
    assert run(["audit", "new", "--reference", "build", "--beir", str(beir), "--quiet"]) == 130
    assert "nothing unfinished was kept" in capsys.readouterr().err


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_verdict_is_told_before_a_page_that_cannot_be_written(as_json, beir, source_folder, monkeypatch, capsys):
    assert run(["fit", str(source_folder), "--target", "tfidf:24", "--sample", "60", "-o", "stitch", "--quiet"]) == 0
    assert run(["translate", str(source_folder), "stitch", "-o", "new", "--quiet"]) == 0

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("migrate.report.page.report_page", full)
    capsys.readouterr()
    options = ["--reference", "build", "--beir", str(beir), "--report", "page.html", "--quiet", *as_json]
    assert run(["audit", "new", *options]) == 5
    told = capsys.readouterr()
    assert "SAFE" in told.out or "INCONCLUSIVE" in told.out
    assert "No space left on device" in told.err and not Path("page.html").exists()
