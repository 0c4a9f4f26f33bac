"""The live state: shared by threads and processes, kept over kills, recognised."""

import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

from migrate.errors import InputError, LockedError, OutputError
from migrate.live import state as module
from migrate.live.state import STOP, LiveState, ServedQuery, WorkerFacts, state_path, text_hash
from migrate.stores import open_store


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".store.live" / "state.sqlite"


def served(number, ids=("b", "a"), **fields):
    scores = np.array([0.5, 0.25], np.float32)
    return ServedQuery(np.array([number, 1, 2], np.float32), ids, scores, **fields)


def test_the_most_wanted_come_first_and_the_sure_ones_last(path):
    with LiveState(path) as state:
        state.demand.add({"often": (6, 0.25), "unsure": (2, 0.75), "sure": (50, 0.0), "seldom": (1, 0.75)})
        state.demand.add({"unsure": (3, 0.5), "done": (9, 1.0), "bad": (9, 1.0)})
        state.documents.mark_true({"done": text_hash("done")})
        state.documents.refuse({"bad": (text_hash(""), "no text")})
        assert list(state.demand.queue(10)) == ["unsure", "often", "seldom", "sure"]
        assert state.demand.queue(1) == {"unsure": 5}
        assert state.documents.refused() == {"bad": (text_hash(""), "no text")}
        state.documents.settle({}, ["bad"])
        assert list(state.demand.queue(2)) == ["bad", "done"]


def test_a_closed_state_says_so_in_a_line_and_blocks_no_other_thread(path):
    state = LiveState(path)
    state.close()
    for _ in range(2):  # each in a thread of its own, as a lock that is held is no obstacle to its thread
        with ThreadPoolExecutor(1) as thread, pytest.raises(OutputError, match="cannot write the live state"):
            thread.submit(state.count, {"queries": 1}).result(timeout=20)


def test_all_is_there_when_it_is_opened_again(path):
    query = served(1, ("ü", "a"), untrue=3, at=5.0)
    facts = WorkerFacts("running", 42, "on it")
    with LiveState(path) as state:
        state.adopt("model", "g1")
        state.queries.add([query])
        state.count({"queries": 2, "usd": 0.25})
        facts.keep(state)
        state.note("retention", [1, 2])
        state.note(STOP, True)
    with LiveState(path) as state:
        (kept,) = state.queries.after(0)
        np.testing.assert_array_equal(kept.vector, query.vector)
        np.testing.assert_array_equal(kept.scores, query.scores)
        assert (kept.ids, kept.untrue, kept.at, kept.number) == (("ü", "a"), 3, 5.0, 1)
        counted = state.counters()
        assert (counted["queries"], counted["usd"], counted["embedder_failures"]) == (2, 0.25, 0)
        assert WorkerFacts.kept_in(state) == facts
        assert state.value("retention") == [1, 2] and state.value("other") is None
        assert state.value("generation") == "g1" and state.value(STOP)
    assert path.stat().st_mode & 0o077 == 0


def test_another_generation_forgets_the_marks(path):
    with LiveState(path) as state:
        state.adopt("model", "g1")
        state.documents.mark_true({"a": text_hash("a")})
        state.adopt("model", "g1")
        state.documents.mark_true({"b": text_hash("b")})
        assert state.documents.true().keys() == {"a", "b"}
        assert state.documents.true()["b"] == text_hash("b")
        state.demand.add({"c": (1, 1.0)})
        state.adopt("model", "g3")
        assert not state.documents.true() and list(state.demand.queue(5)) == ["c"]
        state.count({"queries": 1})
        state.adopt("another model", "g3")
        assert not state.demand.queue(5) and state.counters()["queries"] == 1


def test_a_change_of_the_marks_shows(path):
    with LiveState(path) as state, LiveState(path) as other:
        before = other.documents.version
        state.documents.mark_true({"a": b"1"})
        between = other.documents.version
        state.documents.settle({"b": b"2"}, [])
        assert len({before, between, other.documents.version}) == 3
        assert state.documents.true() == {"b": b"2"}


def test_only_the_latest_queries_are_kept_and_their_numbers_grow(path, monkeypatch):
    monkeypatch.setattr(module, "KEPT_QUERIES", 5)
    with LiveState(path) as state:
        state.queries.add([served(number) for number in range(8)])
        assert [int(query.vector[0]) for query in state.queries.after(0)] == [3, 4, 5, 6, 7]
        state.queries.add([served(8)])
        assert [query.number for query in state.queries.after(7)] == [8, 9]
        assert [query.number for query in state.queries.after(0, limit=2)] == [5, 6]


def test_threads_and_objects_count_as_one(path):
    def work(state):
        for _ in range(25):
            state.count({"queries": 1})
            state.demand.add({"a": (1, 0.5)})

    with LiveState(path) as one, LiveState(path) as other, ThreadPoolExecutor(8) as threads:
        list(threads.map(work, (one, other) * 4))
        assert one.counters()["queries"] == 200 and other.demand.queue(1) == {"a": 200}


WRITER = """
import sys
from pathlib import Path
from migrate.live.state import LiveState
with LiveState(Path(sys.argv[1])) as state:
    for number in range(100_000):
        state.documents.mark_true({str(number): b"x"})
        print(number, flush=True)
"""


@pytest.mark.slow
def test_what_was_written_outlives_a_kill_and_others_go_on(path):
    command = [sys.executable, "-c", WRITER, str(path)]
    killed, other = (subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2))
    try:
        for process in (killed, other):
            for _ in range(20):
                process.stdout.readline()
        killed.kill()
        killed.communicate()
        for _ in range(20):
            last = int(other.stdout.readline())
    finally:
        for process in (killed, other):
            process.kill()
            process.communicate(timeout=60)
    with LiveState(path) as state:
        assert state.documents.true().keys() >= {str(number) for number in range(last + 1)}
        state.count({"queries": 1})


def test_a_database_of_something_else_is_left_alone(path):
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE mine (id)")
    before = path.read_bytes()
    with pytest.raises(InputError, match="another application"):
        LiveState(path)
    assert path.read_bytes() == before


def test_a_holder_is_waited_for_and_then_named(path, monkeypatch):
    monkeypatch.setattr(LiveState, "busy_s", 0.2)
    with LiveState(path) as state, closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        with pytest.raises(LockedError, match=str(path)):
            state.count({"queries": 1})
        assert time.monotonic() - started > 0.1
        assert state.counters()["queries"] == 0, "reading waits for nobody"
        holder.execute("ROLLBACK")
        state.count({"queries": 1})
        assert state.counters()["queries"] == 1


def test_the_state_lies_beside_a_folder_whichever_way_it_is_named(source_folder, tmp_path, monkeypatch):
    expected = source_folder.with_name(f".{source_folder.name}.live") / "state.sqlite"
    assert state_path(open_store(source_folder)) == expected
    (index,) = source_folder.glob("*.faiss")
    assert state_path(open_store(index)) == expected
    link = tmp_path / "link"
    link.symlink_to(source_folder)
    assert state_path(open_store(link)) == expected


@pytest.mark.slow
def test_tables_of_one_folder_have_states_of_their_own_by_whatever_name(tmp_path):
    lancedb = pytest.importorskip("lancedb")
    rows = [{"id": "a", "text": "x", "vector": np.ones(4, np.float32)}]
    lancedb.connect(str(tmp_path / "db")).create_table("one.2", rows)
    alone = state_path(open_store(f"lancedb:{tmp_path / 'db'}"))
    lancedb.connect(str(tmp_path / "db")).create_table("two", rows)
    first, second = (state_path(open_store(f"lancedb:{tmp_path / 'db'}#{name}")) for name in ("one.2", "two"))
    assert alone == first != second
    assert first.parents[1] == second.parents[1] == tmp_path / ".db.live"
