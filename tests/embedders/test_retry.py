from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from migrate.embedders.retry import RetryPolicy, TransientError, asked_wait_s
from migrate.errors import InputError


def test_waits_double_up_to_a_limit():
    policy = RetryPolicy(first_wait_s=1, longest_wait_s=10, share=lambda: 1.0)
    assert [policy.wait_s(failures) for failures in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_half_of_a_wait_is_random():
    assert RetryPolicy(share=lambda: 0.0).wait_s(3) == 2
    waits = {RetryPolicy().wait_s(3) for _ in range(20)}
    assert len(waits) > 1
    assert all(2 <= wait <= 4 for wait in waits)


def test_other_errors_are_not_tried_again():
    calls = []

    def attempt():
        calls.append(1)
        raise InputError("no")

    with pytest.raises(InputError):
        RetryPolicy(sleep=calls.append).call(attempt, service="x")
    assert calls == [1]


def test_returns_the_first_success():
    answers = iter([TransientError("a"), TransientError("b"), 3])

    def attempt():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert RetryPolicy(sleep=lambda s: None).call(attempt, service="x") == 3


def test_reads_the_wait_a_server_asks_for():
    assert asked_wait_s({}) is None
    assert asked_wait_s({"retry-after": "3"}) == 3
    assert asked_wait_s({"retry-after": "-3"}) == 0
    assert asked_wait_s({"retry-after": "soon"}) is None
    assert asked_wait_s({"retry-after": "9", "retry-after-ms": "1500"}) == 1.5
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert 85 < asked_wait_s({"retry-after": date}) <= 90
    assert asked_wait_s({"retry-after": "Mon, 01 Jan 2001 00:00:00 GMT"}) == 0
