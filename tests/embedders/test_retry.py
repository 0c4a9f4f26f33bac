from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from migrate.embedders.openai_limits import RetryPolicy, TransientError, asked_wait_s
from migrate.errors import RemoteError


def test_waits_double_up_to_a_limit():
    policy = RetryPolicy(first_wait_s=1, longest_wait_s=10, share=lambda: 1.0)
    assert [policy.wait_s(failures) for failures in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_half_of_a_wait_is_random():
    assert RetryPolicy(share=lambda: 0.0).wait_s(3) == 2
    waits = {RetryPolicy().wait_s(3) for _ in range(20)}
    assert len(waits) > 1
    assert all(2 <= wait <= 4 for wait in waits)


def test_a_wait_that_is_asked_for_is_obeyed_within_reason():
    policy = RetryPolicy(max_attempts=3, longest_obeyed_s=60, share=lambda: 1.0)
    assert policy.wait_after(TransientError("busy"), 2, service="x") == 2
    assert policy.wait_after(TransientError("busy", wait_s=60), 2, service="x") == 60
    with pytest.raises(RemoteError, match="asks to wait 61 s"):
        policy.wait_after(TransientError("busy", wait_s=61), 1, service="x")
    with pytest.raises(RemoteError, match="failed 3 times, the last time with: busy"):
        policy.wait_after(TransientError("busy"), 3, service="x")


def test_reads_the_wait_a_server_asks_for():
    assert asked_wait_s({}) is None
    assert asked_wait_s({"retry-after": "3"}) == 3
    assert asked_wait_s({"retry-after": "-3"}) == 0
    assert asked_wait_s({"retry-after": "soon"}) is None
    assert asked_wait_s({"retry-after": "9", "retry-after-ms": "1500"}) == 1.5
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert 85 < asked_wait_s({"retry-after": date}) <= 90
    assert asked_wait_s({"retry-after": "Mon, 01 Jan 2001 00:00:00 GMT"}) == 0
