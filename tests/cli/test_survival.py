"""What a user sees of runs that break off: one line with a hint that is true, and the same bytes in the end."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from children import call_in_child, start_command
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
JUDGED = (0, 1, 3)


@pytest.fixture(autouse=True)
def _steady(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setenv("LEAD_MIGRATE_DEBUG", "1")  # what no run should end in is shown whole


@pytest.fixture
def embed(judged):
    """The command, whose server is another each time."""
    model = "openai:text-embedding-3-small,dimensions=8,batch-size=8,concurrency=1"
    return lambda server: f"embed judged --model {model} --base-url {server.url} --no-chunks --quiet"


class Gate:
    """Sends a signal to the child when the server is asked for the n-th time; that request is not answered."""

    def __init__(self, signals):
        self.signals, self.child = signals, None

    def __call__(self, number):
        if number in self.signals:
            os.kill(self.child.pid, self.signals[number])
            if self.signals[number] == signal.SIGKILL:
                self.child.join(WAIT_S)
            raise ConnectionError

    def start(self, command):
        """Exit code of a command that the gate may send a signal to, and what it printed."""
        self.child = start_command(shlex.split(command), Path.cwd(), Path("printed"), prelude=CHILD)
        self.child.join(WAIT_S)
        assert self.child.exitcode is not None, f"{command} still runs after {WAIT_S} s"
        return self.child.exitcode, Path("printed").read_text()


def test_no_text_is_paid_for_twice_with_the_cache(embed, digest, lead_migrate):
    with OpenAIServer() as server:
        server.gate = Gate({3: signal.SIGKILL, 9: signal.SIGKILL})
        codes = [server.gate.start(f"{embed(server)} -o killed")[0] for _ in range(3)]
        assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]
        served = len(server.texts_served)
        assert len(set(server.texts_served)) == 150 and served <= 150 + 3 * AGAIN, "but for what proves the model"
        lead_migrate(f"{embed(server)} -o whole")  # from the cache
        assert len(server.texts_served) <= served + AGAIN
    assert digest(Path("killed")) == digest(Path("whole"))


def test_one_part_at_most_is_paid_for_twice_without_the_cache_and_the_hint_is_true(embed, digest, lead_migrate):
    with OpenAIServer() as server:
        server.gate = Gate({8: signal.SIGINT, 17: signal.SIGTERM})
        command = f"{embed(server)} --cache none"
        hint = "lead-migrate: interrupted; continue with the same command: {} rows are done\n"
        for code, rows in ((130, 40), (143, 80)):
            assert server.gate.start(f"{command} -o killed") == (code, hint.format(rows))
            told = lead_migrate("inspect killed", code=4).complaint
            assert "killed: `embed` makes it, or broke off" in told
        lead_migrate(f"{command} -o killed --format langchain", code=2)
        assert server.gate.start(f"{command} -o killed")[0] == 0
        assert len(set(server.texts_served)) == 150
        assert len(server.texts_served) <= 150 + 2 * 40 + 3 * AGAIN
        lead_migrate(f"{command} -o whole")
    assert digest(Path("killed")) == digest(Path("whole"))


@pytest.mark.parametrize(
    "command",
    [
        "translate store stitch -o out",
        "translate store stitch -o sqlite-vec:out#docs",
        "reembed store --target tfidf:24 -o out",
        "reembed store --target tfidf:24 --share 50% --stitch stitch -o out",
        "embed judged --model tfidf:24 --no-chunks -o out",
        "run store --target tfidf:24 --judged judged -o out",
    ],
)
def test_a_command_that_was_killed_when_all_was_done_ends_well_the_next_time(command, here, lead_migrate):
    call_in_child(run, shlex.split(command), point="ended:1")
    made = contents("out")
    lead_migrate(command)
    assert contents("out").items() <= made.items()
    hidden = [path for path in Path().rglob(".*") if "cache" not in path.parts]
    assert hidden == [], "and nothing is left beside it"


@pytest.mark.parametrize(
    "command", ["translate store stitch -o out", "embed judged --model tfidf:24 --no-chunks -o out"]
)
def test_a_command_that_was_killed_before_it_said_so_ends_well_the_next_time(command, here, lead_migrate):
    call_in_child(run, shlex.split(command), point="told:1")
    made = contents("out")
    lead_migrate(command)
    assert contents("out") == made and list(Path().glob(".out*")) == []
    assert "the same command has done this before" in lead_migrate(command).told
    assert contents("out") == made


FIT = "fit store --target openai:text-embedding-3-small,dimensions=8,batch-size=8,concurrency=1 --sample 60 -q -o new"


@pytest.mark.parametrize("signals", [{3: signal.SIGINT}, {3: signal.SIGTERM}])
def test_what_was_embedded_is_told_and_is_not_paid_for_again(signals, store):
    with OpenAIServer() as server:
        server.gate = Gate(signals)
        command = f"{FIT} --base-url {server.url}"
        code, printed = server.gate.start(command)
        kept = len(set(server.texts_served))
        assert code == (143 if signal.SIGTERM in signals.values() else 130)
        told = f"lead-migrate: interrupted; continue with the same command: {kept} embedded texts are in the cache"
        assert printed.splitlines()[-1] == told
        assert not Path("new").exists()
        server.gate = None
        code, printed = Gate({}).start(command)
        assert (code, len(set(server.texts_served))) == (0, 60)
        assert len(server.texts_served) <= 60 + AGAIN
    assert Path("new").is_dir()


def test_whoever_is_impatient_sees_no_traceback(store, tmp_path):
    """Ctrl-C three times: while requests are in flight, and while the first is dealt with."""
    with OpenAIServer() as server:

        def press(number):
            if number == 3:
                for _ in range(3):
                    process.send_signal(signal.SIGINT)
                    time.sleep(0.05)

        server.gate = press
        words = shlex.split(f"{FIT} --base-url {server.url}")
        heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
        process = subprocess.Popen(
            [sys.executable, "-m", "migrate", *words], stderr=subprocess.PIPE, text=True, **heard
        )
        _, errors = process.communicate(timeout=2 * WAIT_S)
    assert process.returncode == 130, errors
    assert "lead-migrate: interrupted; " in errors and "Traceback" not in errors and "ignored" not in errors
    assert not Path("new").exists()


def interrupted(*_args, **_options):
    raise KeyboardInterrupt


def test_restart_is_offered_and_taken(here, monkeypatch, lead_migrate):
    command = "translate store stitch -o out --quiet"
    with monkeypatch.context() as patch:
        patch.setattr("migrate.steps.translate.job._manifest", interrupted)
        told = lead_migrate(command, code=130).complaint
    assert "the same command: 150 of 150 rows" in told
    os.utime("store/docs.jsonl")
    assert "--restart" in lead_migrate(command, code=4).complaint
    lead_migrate(f"{command} --restart")


@pytest.mark.parametrize("stage", ["Translate", "write_json"])
def test_the_whole_path_goes_on_where_it_was_interrupted(stage, store, judged, monkeypatch, lead_migrate):
    from migrate.pipeline import job as pipeline
    from migrate.steps.fit import job as fit

    command = "run store --target tfidf:24 --judged judged --sample 60 --quiet --reference build -o"
    calls = []

    def note(place, name):
        real = getattr(place, name)

        def noted(*args, **options):
            calls.append(name)
            return real(*args, **options)

        monkeypatch.setattr(place, name, noted)

    stages = {"embed_pairs": fit, "Translate": pipeline, "reembed_store": pipeline}
    for name, place in stages.items():
        note(place, name)
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, stage, interrupted)
        told = lead_migrate(f"{command} out", code=130).complaint
    kept = "out/stitch is finished"
    if stage == "write_json":
        kept = "out/stitch, out/store, out/reference are finished"
    assert told == f"lead-migrate: interrupted; continue with the same command: {kept}"
    done = calls.copy()
    calls.clear()
    code = lead_migrate(f"{command} out", code=JUDGED).code
    assert calls == list(stages)[len(done) :]
    assert not Path(".out.work").exists()
    calls.clear()
    lead_migrate(f"{command} out", code=code)
    assert not calls
    # Its page has the name of its folder
    os.rename("out", "continued")
    lead_migrate(f"{command} out", code=code)
    assert contents("continued") == contents("out")


_TIMED = ("report.json", "run.json")


def contents(folder):
    """Every file but those in which exact seconds are told; in tables, tenths of a second are left out."""
    files = (path for path in Path(folder).rglob("*") if path.is_file())
    found = {str(path.relative_to(folder)): path.read_bytes() for path in files if path.name not in _TIMED}
    return {name: re.sub(rb"<td>\d+\.\d</td>", b"", content) for name, content in found.items()}


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


@pytest.mark.parametrize("force", ["", "--force"])
def test_fits_that_are_killed_leave_nothing_behind_for_good(force, store, tmp_path, lead_migrate):
    """Before the folder is made, at each of its files, before and after each rename; real kills."""
    (tmp_path / "temporary").mkdir()
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    fit = "fit store --target tfidf:24 --kind procrustes --sample 60 -o outputs/stitch --quiet"
    lead_migrate(fit)
    whole = contents("outputs/stitch")
    if not force:
        shutil.rmtree("outputs/stitch")
    early = ["exchange_paths:1"] if force else ["output_lock:1", "fsync:3"]
    for moment in [*early, "rename:1", "sync_path:2"]:
        dies = {"prelude": DIES.format(moment=moment), "environment": environment}
        child = start_command(shlex.split(f"{fit} {force}"), tmp_path, tmp_path / "printed", **dies)
        child.join(WAIT_S)
        assert child.exitcode == -signal.SIGKILL, moment
        assert list((tmp_path / "temporary").iterdir()) == []
        left = {path.name.removeprefix(".stitch.") for path in outputs.iterdir()}
        assert left <= {"stitch", "lock", "unfinished", "replaced"}, "nothing piles up"
    lead_migrate(f"{fit} {force}")  # the last one was complete, and is done already unless it is forced
    assert [path.name for path in outputs.iterdir()] == ["stitch"]
    assert force or contents("outputs/stitch") == whole


def test_an_interrupted_reference_that_nobody_keeps_promises_nothing(here, monkeypatch, lead_migrate):
    def broken(*_args, **_options):
        error = KeyboardInterrupt()
        error.add_note("continue with the same command: 100 of 150 rows are done")
        raise error

    monkeypatch.setattr("migrate.audit.audit.reembed_store", broken)
    told = lead_migrate("audit new --reference build --judged judged --quiet", code=130).complaint
    assert "nothing unfinished was kept" in told


def test_a_verdict_is_told_before_a_page_that_cannot_be_written(here, monkeypatch, lead_migrate):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("migrate.cli.verdict.report_page", full)
    told = lead_migrate("audit new --reference build --judged judged --report page.html --quiet", code=5)
    assert "SAFE" in told.out or "INCONCLUSIVE" in told.out
    assert "No space left on device" in told.err and not Path("page.html").exists()
