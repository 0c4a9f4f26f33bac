"""A worker that runs is paused, goes on and ends; what was asked of it outlives it."""

import shutil
import threading
from contextlib import contextmanager

import pytest
from worker_tools import Hashed, translate, wait_for

from migrate.cli.main import run
from migrate.embedders.cache import CachedEmbedder
from migrate.live import control
from migrate.live.control import as_iso, is_running, pause_worker, paused_at, resume_worker, stop_worker
from migrate.live.report import status_document, status_text
from migrate.live.state import LiveState, WorkerFacts, state_path
from migrate.live.status import status_of
from migrate.live.worker import Worker, WorkerOptions
from migrate.stores import open_store

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_folders")]


class Held(Hashed):
    """Answers once it is let go, again for each request."""

    def __init__(self):
        super().__init__()
        self.is_asked, self.may_answer = threading.Event(), threading.Semaphore(0)

    def embed(self, texts, role, *, progress=None):
        self.is_asked.set()
        assert self.may_answer.acquire(timeout=60)
        return super().embed(texts, role, progress=progress)


@pytest.fixture(scope="module")
def made(source_folder, tmp_path_factory):
    """A `store` of 150 documents, 40 of them true, and the `cache.sqlite` of these."""
    folder = tmp_path_factory.mktemp("made")
    translate(source_folder, CachedEmbedder(Hashed(), folder / "cache.sqlite"), folder / "store")
    return folder


@pytest.fixture
def location(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return str(tmp_path / "store")


@pytest.fixture
def held(tmp_path):
    return CachedEmbedder(Held(), tmp_path / "cache.sqlite")


@pytest.fixture
def state(location):
    with LiveState(state_path(open_store(location))) as opened:
        yield opened


@contextmanager
def running(location, embedder, state, **options):
    """A worker at work, until the block ends."""
    worker = Worker(location, embedder, WorkerOptions(**options))
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    try:
        wait_for(lambda: is_running(state))
        yield worker
    finally:
        if isinstance(embedder.embedder, Held):
            embedder.embedder.may_answer.release(100)
        assert stop_worker(state)
        thread.join(60)


def said(location):
    return " ".join(status_text(status_of(location)).split())


def test_a_paused_worker_embeds_and_writes_nothing_until_it_is_resumed(location, held, state, monkeypatch):
    model = held.embedder
    with running(location, held, state):
        assert model.is_asked.wait(60)
        monkeypatch.setattr(control, "PATIENCE_S", 0.2)
        assert not pause_worker(state), "it is at a batch"
        monkeypatch.undo()
        model.may_answer.release()
        assert pause_worker(state)
        since, embedded = paused_at(state), list(model.asked)
        assert 0 < len(embedded) < 110
        wait_for(lambda: WorkerFacts.kept_in(state).phase == "paused")
        model.may_answer.release(100)
        assert f"the worker is paused since {as_iso(since)}" in said(location)
        assert status_document(status_of(location))["paused_since"] == as_iso(since)
        assert pause_worker(state) and paused_at(state) == since
        assert model.asked == embedded
        assert resume_worker(state) and not resume_worker(state)
        wait_for(lambda: WorkerFacts.kept_in(state).phase == "complete")
    assert sorted(model.asked) == sorted(set(model.asked)), "each once"
    assert len(model.asked) == 110
    assert "paused_since" not in status_document(status_of(location))


def test_another_budget_pays_for_nothing_twice_and_a_lower_one_than_is_spent_for_nothing(location, embedder):
    for budget, sent in (("10", 10), ("5%", 10), ("20", 20), ("1tok", 20), ("100%", 110)):
        report = Worker(location, embedder, WorkerOptions(budget=budget, once=True)).run()
        assert len(embedder.embedder.asked) == len(set(embedder.embedder.asked)) == sent
        used_up = f"the budget of {budget} is used up"
        assert report.message == ("all 150 true vectors are in the cache" if sent == 110 else used_up)


def test_a_worker_starts_while_others_look_if_one_is_running(location, embedder, state):
    ended = threading.Event()

    def look():
        with LiveState(state.path) as mine:
            while not ended.is_set():
                is_running(mine)

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(4):
            assert Worker(location, embedder, WorkerOptions(once=True, budget="1")).run().phase == "paused"
    finally:
        ended.set()
        for looker in lookers:
            looker.join()


def test_a_pause_holds_for_a_worker_that_is_started_later_even_once(location, embedder, state):
    assert pause_worker(state), "nobody is to be waited for"
    assert "no worker is running" in said(location) and "is paused since" in said(location)
    with running(location, embedder, state, once=True):
        wait_for(lambda: WorkerFacts.kept_in(state).phase == "paused")
    assert not embedder.embedder.asked
    assert (WorkerFacts.kept_in(state).phase, status_of(location).true) == ("stopped", 40)
    resume_worker(state)
    assert Worker(location, embedder, WorkerOptions(once=True)).run().phase == "complete"


def commands(location, *words):
    return run(["live", *words[:1], location, *words[1:]])


@pytest.mark.parametrize("action", ["pause", "resume"])
def test_a_store_that_was_never_served_is_one_line(action, source_folder, capsys):
    assert commands(str(source_folder), action) == 2
    error = capsys.readouterr().err
    assert "was not served live yet" in error and error.count("\n") == 1


def test_commands_say_what_they_did(location, held, state, capsys):
    with running(location, held, state):
        assert held.embedder.is_asked.wait(60)
        held.embedder.may_answer.release(100)
        assert commands(location, "pause") == 0
        printed = capsys.readouterr()
        assert "the worker is paused since" in printed.out and "next: lead-migrate live resume" in printed.err
        assert commands(location, "resume") == 0
        assert "the worker goes on" in capsys.readouterr().out
    assert commands(location, "resume") == 0
    assert "it was not paused; no worker is running" in capsys.readouterr().out
