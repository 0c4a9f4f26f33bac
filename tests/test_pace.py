"""The pace of a command: rests as long as its pieces of work ask for, in whichever thread they are asked for."""

import signal
import threading
import time
from dataclasses import fields
from types import SimpleNamespace

import pytest
from kind_faiss import Faiss
from sync_tools import Hashed, some_records

import migrate
from migrate.errors import UsageError
from migrate.pace import has_pace, keep_pace, with_rests
from migrate.stitch.fitted import FittedStitch
from migrate.stores import open_store
from migrate.translate import translated_blocks
from migrate.work.shards import Shard


def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@pytest.fixture
def clock(monkeypatch):
    """Let a list of seconds be the clock, which rests put forward; the rests are the other list."""
    now, rests = [100.0], []

    def sleep(seconds):
        rests.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("migrate.pace.time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    return now, rests


def test_each_piece_of_work_is_rested_for_before_the_next(clock):
    now, rests = clock
    with keep_pace(0.25):
        for seconds in with_rests([1.0, 3.0, 0.5]):
            now[0] += seconds
    # Three times as long, so that a quarter of the time is work
    assert rests == [3.0, 9.0, 1.5]


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_no_more_than_the_share_of_the_time_is_work(share):
    begin = time.monotonic()
    with keep_pace(share):
        for _ in with_rests(range(5)):
            work(0.01)
    assert 0.05 / (time.monotonic() - begin) <= share


def test_work_is_rested_for_once(clock):
    now, rests = clock
    with keep_pace(0.25):
        for _ in with_rests(with_rests(with_rests(range(2)))):
            now[0] += 1
    assert sum(rests) == 6, "rests within rests have nothing left to rest for"


def test_without_a_pace_nothing_rests(clock):
    now, rests = clock
    with keep_pace(None):
        assert not has_pace()
        for _ in with_rests(range(2)):
            now[0] += 1
    assert not rests


@pytest.mark.parametrize("pace", [0, 1e-12, -1, 1.5, float("nan"), "fast", "2000/s"])
def test_what_is_no_share_is_refused_before_anything_is_opened(pace):
    with pytest.raises(UsageError, match=r"is a share of the time, from 0\.001 to 1"):
        migrate.translate("no-store", "no-stitch", "new", pace=pace)


def test_a_process_that_was_stopped_for_long_rests_for_ten_seconds_of_work_at_most(clock):
    now, rests = clock
    with keep_pace(0.5):
        for _ in with_rests([None]):
            now[0] += 3_600
    assert rests == [10]


def test_a_signal_ends_a_rest():
    class Ended(Exception):
        pass

    def end(*_):
        raise Ended

    before = signal.signal(signal.SIGALRM, end)
    try:
        with keep_pace(1e-6), pytest.raises(Ended):  # which rests for hours
            for _ in with_rests([None]):
                work(0.01)
                signal.setitimer(signal.ITIMER_REAL, 0.05)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not has_pace()


def test_a_client_may_ask_for_pieces_from_a_thread_of_its_own(clock):
    now, rests = clock
    with keep_pace(0.5):
        pieces = with_rests(iter([1, 2, 3]))
    found = []

    def ask():
        for piece in pieces:
            now[0] += 1
            found.append(piece)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert found == [1, 2, 3] and rests == [1, 1, 1]


def test_no_thread_translates_while_it_rests(tmp_path, monkeypatch):
    begun, begun_before_rests = [], []

    class Noted(FittedStitch):
        def translate(self, batch, *arguments, **options):
            begun.append(len(batch))
            return super().translate(batch, *arguments, **options)

    monkeypatch.setattr("migrate.translate._CACHE_BYTES", 1)  # so that a chunk has 256 rows
    monkeypatch.setattr(
        "migrate.pace.time",
        SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: begun_before_rests.append(len(begun))),
    )
    store = open_store(Faiss().make(tmp_path / "old", some_records(count=5 * 256)))
    fitted = migrate.fit(store, Hashed(), kind="ridge", sample=40)
    noted = Noted(**{field.name: getattr(fitted, field.name) for field in fields(fitted)})
    with keep_pace(0.5):
        blocks = list(translated_blocks(store, noted, 1_000_000, True, Shard(0, store.info.count)))
    assert [len(block.vectors) for block in blocks] == [256] * 5
    assert begun_before_rests == [1, 2, 3, 4, 5]
