"""The pace of a command: rests as long as its work asks for, small requests, one pace in whichever thread."""

import signal
import threading
import time

import pytest

import migrate
from migrate.errors import UsageError
from migrate.pace import has_pace, keep_pace, rest_for_pace, rows_at_once, with_this_pace


def work(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_no_more_than_the_share_of_the_time_is_work(share):
    begin = time.monotonic()
    with keep_pace(share):
        for _ in range(5):
            work(0.01)
            rest_for_pace()
    assert 0.05 / (time.monotonic() - begin) <= share


def test_work_is_rested_for_once():
    with keep_pace(0.25):
        work(0.05)
        rest_for_pace()
        begin = time.monotonic()
        for _ in range(100):  # deeper and deeper in calls that have nothing left to rest for
            rest_for_pace()
    assert time.monotonic() - begin < 0.15


def test_without_a_pace_nothing_rests_and_requests_are_as_large_as_ever():
    with keep_pace(None):
        assert not has_pace() and rows_at_once(1_000) == 1_000
        work(0.01)
        begin = time.monotonic()
        rest_for_pace()
        assert time.monotonic() - begin < 0.01


def test_requests_are_small_under_a_pace_and_smaller_where_they_take_long():
    with keep_pace(0.9):
        first = rows_at_once(1_000)
        assert has_pace() and first < 100 and rows_at_once(1) == 1
        work(0.03)
        rest_for_pace()
        assert rows_at_once(1_000) < first
        for _ in range(20):
            work(0.03)
            rest_for_pace()
        assert rows_at_once(1_000) == 1
        for _ in range(20):
            rest_for_pace()  # for nothing: no request was as short
        assert rows_at_once(1_000) == 1
        for _ in range(20):
            work(0.002)
            rest_for_pace()
        assert rows_at_once(1_000) == 1_000
    assert not has_pace()


@pytest.mark.parametrize("pace", [0, 1e-12, -1, 1.5, float("nan"), "fast", "2000/s"])
def test_what_is_no_share_is_refused_before_anything_is_opened(pace):
    with pytest.raises(UsageError, match=r"is a share of the time, from 0\.001 to 1"):
        migrate.translate("no-store", "no-stitch", "new", pace=pace)


def test_a_process_that_was_stopped_for_long_rests_for_ten_seconds_of_work_at_most(monkeypatch):
    rests = []
    monkeypatch.setattr("migrate.pace.time.sleep", rests.append)
    with keep_pace(0.5):
        now = time.monotonic()
        monkeypatch.setattr("migrate.pace.time.monotonic", lambda: now + 3_600)
        rest_for_pace()
    assert rests == [10]


def test_a_signal_ends_a_rest():
    class Ended(Exception):
        pass

    def end(*_):
        raise Ended

    before = signal.signal(signal.SIGALRM, end)
    try:
        with keep_pace(1e-6), pytest.raises(Ended):  # which rests for hours
            work(0.01)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            rest_for_pace()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not has_pace()


def test_a_client_may_ask_for_items_from_a_thread_of_its_own():
    def items():
        for number in range(3):
            yield number, has_pace()

    found = []
    with keep_pace(0.5):
        iterator = with_this_pace(items())
        thread = threading.Thread(target=lambda: found.extend(iterator))
        thread.start()
        thread.join()
    assert found == [(0, True), (1, True), (2, True)]
