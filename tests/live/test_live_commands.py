"""`lead-migrate live`: a worker from the command line, beside a searcher, and what is told of it."""

import json
import shutil
from contextlib import suppress

import numpy as np
import pytest
from children import start_command
from openai_server import OpenAIServer
from worker_tools import wait_for

from migrate.cli.main import run
from migrate.embedders import load_embedder
from migrate.errors import LeadMigrateError
from migrate.live.status import status_of
from migrate.stores import open_store
from migrate.stores.base import read_all

pytestmark = pytest.mark.slow

SMALL = "openai:text-embedding-3-small"
ADA = "openai:text-embedding-ada-002"
TARGET = f"{SMALL},dimensions=24"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with OpenAIServer() as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", running.url)
        patch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
        patch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path_factory.mktemp("none")))
        yield running


@pytest.fixture(autouse=True)
def own_cache(server, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def lead_migrate(*arguments):
    return run([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def made(source_folder, server, tmp_path_factory):
    """A stitch `st`, a store `new` that it translated, and the `cache` of the 50 vectors that it was fitted on."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        fit = ["--target", TARGET, "--sample", 50, "--kind", "ridge", "-o", folder / "st"]
        assert lead_migrate("fit", source_folder, *fit) == 0
        assert lead_migrate("translate", source_folder, folder / "st", "-o", folder / "new") == 0
    return folder


@pytest.fixture
def translated(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "new"


def words_of(printed):
    return " ".join(printed.split())


def test_a_store_is_completed_and_says_so(translated, tmp_path, capsys):
    capsys.readouterr()
    assert lead_migrate("live", "run", translated, "--once", "--budget", "48", "--json") == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["phase"], done["true"], done["count"]) == ("paused", 90, 150)
    complete = tmp_path / "new-complete"
    for _ in range(2):
        assert lead_migrate("live", "run", translated, "--once", "--budget", "$1") == 0
        printed = capsys.readouterr()
        assert "complete: all 150 true vectors are in the cache" in words_of(printed.out)
        assert f"next: lead-migrate backfill {translated} -o {complete}" in printed.err
    assert lead_migrate("live", "status", translated) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("INCONCLUSIVE: no sampled query was scored yet"), "the verdict comes first"
    assert "150 of 150 vectors are true ones (100.0 %)" in printed.out
    assert f"next: lead-migrate backfill {translated} -o {complete}" in printed.err
    assert lead_migrate("live", "stop", translated) == 0
    assert "no worker is running" in capsys.readouterr().out
    assert lead_migrate("backfill", translated, "-o", complete) == 0
    embedder = load_embedder(SMALL, dimensions=24)
    true = embedder.embed_documents(list(open_store(complete).documents()))
    assert np.array_equal(read_all(open_store(complete).scan()).vectors, true)
    capsys.readouterr()
    assert lead_migrate("live", "status", complete) == 0
    assert capsys.readouterr().out.startswith("SAFE: every vector is the model's own")


def test_a_folder_is_completed_from_inside(translated, capfd, monkeypatch):
    monkeypatch.chdir(translated)
    words = ("--budget", "121", "--cache", "../own.sqlite")
    assert lead_migrate("live", "run", ".", "--once", *words) == 0, capfd.readouterr().err
    assert "113 of 150 vectors are true ones" in words_of(capfd.readouterr().out)
    assert status_of(str(translated)).true == 113


def test_a_paid_model_without_a_budget_is_asked_about(translated, capsys):
    assert lead_migrate("live", "run", translated, "--once") == 2
    assert "--budget" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "difference"),
    [
        (f"{TARGET},document-prefix=x: ", "the document prefix is '', for the model as named 'x: '"),
        (f"{TARGET},query-prefix=q: ", "the query prefix is '', for the model as named 'q: '"),
        (f"{ADA},dimensions=24", f"the model is '{SMALL}', for the model as named '{ADA}'"),
    ],
)
def test_another_model_is_told_by_what_differs(target, difference, translated, server, capsys):
    embedded = len(server.texts_served)
    assert lead_migrate("live", "run", translated, "--once", "--yes", "--target", target) == 4
    error = capsys.readouterr().err
    assert difference in error and error.count("\n") == 1
    assert set(server.texts_served[embedded:]) <= {"word"}, "what is asked to know the model by"


def test_status_starts_the_worker_again_by_the_options_that_it_had(translated, tmp_path, capsys):
    cache = tmp_path / "own.sqlite"
    options = ("--once", "--budget", "20", "--cache", cache)
    assert lead_migrate("live", "run", translated, *options) == 0
    capsys.readouterr()
    assert lead_migrate("live", "status", translated) == 0
    line = f"next: lead-migrate live run {translated} --cache={cache}"
    assert line in capsys.readouterr().err, "the budget is used up"


def test_a_store_that_nobody_serves_has_no_status(source_folder, capsys):
    assert lead_migrate("live", "status", source_folder) == 2
    assert "lead-migrate live run" in capsys.readouterr().err


def is_known(place):
    with suppress(LeadMigrateError):
        return status_of(place) is not None
    return False


@pytest.mark.parametrize("kind", ["pgvector", "qdrant"])
def test_a_database_has_one_worker_that_says_how_it_does_and_is_stopped(
    kind, translated, source_folder, place_of, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = place_of(kind)
    assert lead_migrate("translate", source_folder, tmp_path / "st", "-o", place) == 0
    said = tmp_path / "said"
    worker = start_command(["live", "run", place, "--budget", "58"], tmp_path, said)

    def has_used_its_budget():
        assert worker.is_alive(), said.read_text()
        return is_known(place) and "budget" in status_of(place).worker.message

    try:
        wait_for(has_used_its_budget, 200)
        assert lead_migrate("live", "run", place, "--once", "--yes") == 6
        assert f"another worker is running (process {worker.pid})" in capsys.readouterr().err
        # 100, or fewer: where the database did not answer at once, the model was proven again from the same budget
        filled = status_of(place).true
        assert 50 < filled <= 100
        assert lead_migrate("live", "status", place) == 0
        assert f"{filled} of 150 vectors are true ones" in capsys.readouterr().out
        assert lead_migrate("live", "stop", place) == 0
        assert "the worker has ended" in capsys.readouterr().out
        worker.join(30)
        assert worker.exitcode == 0
    finally:
        worker.kill()


def test_a_pause_outlives_a_worker_that_is_killed(translated, tmp_path, server, capsys, monkeypatch):
    arguments = ["live", "run", str(translated), "--once", "--yes"]
    n_served = len(server.texts_served)
    monkeypatch.setattr(server, "latency_s", 0.4)
    worker = start_command(arguments, tmp_path, tmp_path / "said")
    try:
        wait_for(lambda: len(server.texts_served) > n_served, 200)
        assert lead_migrate("live", "pause", translated) == 0
    finally:
        worker.kill()
        worker.join(30)
    monkeypatch.setattr(server, "latency_s", 0.0)
    before, n_served = status_of(str(translated)), len(server.texts_served)
    assert before.true < 150, "it was not yet done"
    capsys.readouterr()
    assert lead_migrate("live", "status", translated) == 0
    printed = capsys.readouterr()
    assert "no worker is running" in words_of(printed.out) and "is paused since" in words_of(printed.out)
    assert f"next: lead-migrate live run {translated} --once --yes" in printed.err
    said = tmp_path / "said again"
    worker = start_command(arguments, tmp_path, said)
    try:
        wait_for(lambda: said.is_file() and "paused since" in said.read_text())
        wait_for(lambda: status_of(str(translated)).is_running)
        assert lead_migrate("live", "pause", translated) == 0, "it still waits"
        tokens = before.counters["tokens"]
        assert (status_of(str(translated)).counters["tokens"], len(server.texts_served)) == (tokens, n_served)
        assert lead_migrate("live", "resume", translated) == 0
        worker.join(60)
        assert worker.exitcode == 0
    finally:
        worker.kill()
    done = status_of(str(translated))
    assert (done.true, done.counters["embedded_by_worker"]) == (150, 100), "each is paid for once"
