"""A worker that runs is paused, goes on, and is given another budget or pace; all of it outlives the worker."""

import shutil
import threading
from contextlib import contextmanager

import pytest
from worker_tools import Hashed, translate, wait_for

from migrate.cli.main import run
from migrate.embedders.cache import CachedEmbedder
from migrate.errors import UsageError
from migrate.live.control import control_of, is_running, pause_worker, resume_worker, set_limits, stop_worker
from migrate.live.report import status_document, status_sections
from migrate.live.state import LiveState, state_path
from migrate.live.status import status_of
from migrate.live.worker import Worker, WorkerOptions
from migrate.report.terminal import report_text
from migrate.stores import open_store

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_folders")]

SLOW = "1/min"
QUICK = "100000/s"


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
        wait_for(lambda: is_obeyed(state))
        yield worker
    finally:
        assert stop_worker(state, seconds=60)
        thread.join(60)


def is_obeyed(state):
    return is_running(state) and state.value("own control that is obeyed") == state.value("control") is not None


def said(location):
    return " ".join(report_text(status_sections(status_of(location))).split())


def test_a_paused_worker_embeds_and_writes_nothing_until_it_is_resumed(location, embedder, state):
    with running(location, embedder, state, pace=SLOW):
        wait_for(lambda: embedder.embedder.asked)
        assert pause_worker(state, seconds=30), "it waits for its pace"
        embedded = list(embedder.embedder.asked)
        set_limits(state, 150, pace=QUICK)
        wait_for(lambda: is_obeyed(state))
        wait_for(lambda: state.worker().phase == "paused")
        assert embedder.embedder.asked == embedded, "though its pace would let it"
        since = control_of(state).paused_since
        assert f"the worker is paused since {since}" in said(location)
        assert status_document(status_of(location))["paused_since"] == since
        assert pause_worker(state, seconds=30) and control_of(state).paused_since == since
        assert resume_worker(state) and not resume_worker(state)
        wait_for(lambda: state.worker().phase == "complete")
    assert sorted(embedder.embedder.asked) == sorted(set(embedder.embedder.asked)), "each once"
    assert len(embedder.embedder.asked) == 110
    assert "paused_since" not in status_document(status_of(location))


def test_another_pace_is_not_waited_for(location, embedder, state):
    with running(location, embedder, state, pace=SLOW):
        wait_for(lambda: embedder.embedder.asked)
        set_limits(state, 150, pace=QUICK)
        wait_for(lambda: state.worker().phase == "complete", 30)


def test_a_raised_budget_goes_on_and_pays_for_nothing_twice(location, embedder, state):
    with running(location, embedder, state, budget="10"):
        wait_for(lambda: "the budget of 10 is used up" in state.worker().message)
        assert len(embedder.embedder.asked) == 10
        assert set_limits(state, 150, budget="5%") == "10 texts"
        assert set_limits(state, 150, budget="20") is None
        wait_for(lambda: "the budget of 20 is used up" in state.worker().message)
        set_limits(state, 150, budget="100%")
        wait_for(lambda: state.worker().phase == "complete")
        spent = state.counters()["tokens"]
        set_limits(state, 150, budget=f"{10 * spent:.0f}tok")
        wait_for(lambda: is_obeyed(state))
    assert len(embedder.embedder.asked) == len(set(embedder.embedder.asked)) == 110
    assert state.counters()["tokens"] == spent


def test_a_budget_below_what_is_spent_ends_the_embedding_in_a_line(location, embedder, state):
    with running(location, embedder, state, pace=SLOW, price=1.0):
        wait_for(lambda: state.counters()["tokens"])
        assert set_limits(state, 150, budget="1tok", pace=QUICK).endswith(" tokens")
        wait_for(lambda: state.worker().message == "the budget of 1tok is used up")
        embedded = len(embedder.embedder.asked)
        assert set_limits(state, 150, budget="$0.0000001").startswith("<$0.0001")
        wait_for(lambda: state.worker().message == "the budget of $1e-07 is used up")
        assert len(embedder.embedder.asked) == embedded
        assert "budget $0.0000001, pace 100000/s by `live set`" in said(location)


def test_what_is_set_holds_until_the_worker_is_started_by_another_option(location, embedder, state):
    with running(location, embedder, state, budget="10"):
        set_limits(state, 150, budget="5")
        wait_for(lambda: is_obeyed(state))
    for budget, in_force in (("10", "5"), ("10", "5"), ("15", "15"), ("10", "10")):
        report = Worker(location, embedder, WorkerOptions(budget=budget, once=True)).run()
        assert report.message == f"the budget of {in_force} is used up"


def test_a_budget_in_dollars_needs_the_price_that_the_worker_has(location, embedder, state):
    with running(location, embedder, state, pace=SLOW):
        with pytest.raises(UsageError, match="price is not known"):
            set_limits(state, 150, budget="$1")
        with pytest.raises(UsageError, match="not a pace"):
            set_limits(state, 150, budget="50", pace="soon")
        assert not control_of(state).limits, "neither is kept"


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
        for _ in range(10):
            assert Worker(location, embedder, WorkerOptions(once=True, budget="1")).run().phase == "paused"
    finally:
        ended.set()
        for looker in lookers:
            looker.join()


def test_a_pause_holds_for_a_worker_that_is_started_later_even_once(location, embedder, state):
    assert pause_worker(state, seconds=0), "nobody is to be waited for"
    assert "no worker is running, and one that is started is paused since" in said(location)
    with running(location, embedder, state, once=True):
        wait_for(lambda: state.worker().phase == "paused")
    assert not embedder.embedder.asked
    assert (state.worker().phase, status_of(location).true) == ("stopped", 40)
    resume_worker(state)
    assert Worker(location, embedder, WorkerOptions(once=True)).run().phase == "complete"


def commands(location, *words):
    return run(["live", *words[:1], location, *words[1:]])


@pytest.mark.parametrize("words", [["pause"], ["resume"], ["set", "--pace", SLOW]])
def test_a_store_that_was_never_served_is_one_line(words, source_folder, capsys):
    assert commands(str(source_folder), *words) == 2
    error = capsys.readouterr().err
    assert "was not served live yet" in error and error.count("\n") == 1


def test_commands_say_what_they_did(location, embedder, state, capsys):
    assert commands(location, "set", "--budget", "50") == 2
    assert "no worker has run yet; give --budget and --pace to `lead-migrate live run`" in capsys.readouterr().err
    assert commands(location, "set") == 2
    assert "give --budget, --pace or both" in capsys.readouterr().err
    with running(location, embedder, state, pace=SLOW):
        wait_for(lambda: embedder.embedder.asked)
        assert commands(location, "pause") == 0
        printed = capsys.readouterr()
        assert "the worker is paused since" in printed.out and "next: lead-migrate live resume" in printed.err
        assert commands(location, "set", "--pace", QUICK, "--budget", "1tok") == 0
        assert "that is used up already" in capsys.readouterr().out
        assert commands(location, "set", "--budget", "much") == 2
        assert capsys.readouterr().err.count("\n") == 1
        assert commands(location, "resume") == 0
        assert "the worker goes on" in capsys.readouterr().out
        wait_for(lambda: "is used up" in state.worker().message)
    assert commands(location, "resume") == 0
    assert "it was not paused; no worker is running" in capsys.readouterr().out
    assert commands(location, "set", "--budget", "50") == 0
    assert "budget 50; no worker is running: start it by the same `live run`" in capsys.readouterr().out
    report = Worker(location, embedder, WorkerOptions(pace=SLOW, once=True)).run()
    assert report.message == "the budget of 50 is used up"
