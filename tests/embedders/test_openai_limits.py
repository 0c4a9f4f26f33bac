import pytest

from migrate.embedders.openai_limits import Allowance, Throttle, parse_duration_s, parse_rate
from migrate.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6m0s", 360),
        ("120ms", 0.12),
        ("1h2m3.5s", 3723.5),
        ("1d", 86_400),
        ("17.5µs", 17.5e-6),
        ("12", 12),
        ("0s", 0),
        *((text, None) for text in ("", "soon", "-3s", "6m 0s", "inf", "nan", "s", "1e400", "-1", "٣s")),
    ],
)
def test_reads_durations_as_servers_write_them(text, seconds):
    assert parse_duration_s(text) == (pytest.approx(seconds) if seconds is not None else None)


@pytest.mark.parametrize(("text", "per_s"), [("3000/min", 50), ("2/s", 2), ("36 / h", 0.01), ("0.5/s", 0.5)])
def test_reads_rates(text, per_s):
    assert parse_rate(text) == pytest.approx(per_s)


@pytest.mark.parametrize("text", ["3000", "0/s", "-1/s", "fast", "3/day", "", "1e3/s", "9" * 400 + "/s"])
def test_a_rate_that_cannot_be_read_is_named(text):
    with pytest.raises(UsageError, match="such as 3000/min"):
        parse_rate(text)


def headers(kind, limit, remaining, reset):
    return {f"x-ratelimit-{word}-{kind}": value for word, value in zip(
        ("limit", "remaining", "reset"), (limit, remaining, reset), strict=True
    )}  # fmt: skip


def open_throttle(concurrency=8, **options):
    """One whose first answer has come, so that it lets all requests go at once."""
    throttle = Throttle(concurrency, **options)
    throttle.succeed()
    return throttle


def test_nothing_is_known_so_nothing_is_waited_for():
    assert open_throttle().wait_s(300_000, now=0.0) == 0


def test_a_bucket_that_is_empty_is_waited_for_as_long_as_it_takes_to_fill():
    allowance = Allowance()
    allowance.learn(headers("tokens", "1000", "0", "10s"), "tokens", in_flight=0, now=5.0)
    assert allowance.wait_s(300, now=5.0) == pytest.approx(3)
    assert allowance.wait_s(300, now=7.0) == pytest.approx(1)
    assert allowance.wait_s(300, now=9.0) == 0
    allowance.take(300, now=9.0)
    assert allowance.wait_s(300, now=9.0) == pytest.approx(2)
    # More than there ever is: when the bucket is full, the server shall say what it thinks
    assert allowance.wait_s(5_000, now=9.0) == pytest.approx(9)
    assert allowance.wait_s(5_000, now=99.0) == 0


def test_what_is_in_flight_is_taken_off_what_a_server_says_is_left():
    allowance = Allowance()
    allowance.learn(headers("tokens", "1000", "500", "5s"), "tokens", in_flight=400, now=0.0)
    assert allowance.wait_s(200, now=0.0) == pytest.approx(1)


def test_each_of_two_users_takes_half_of_what_a_server_says():
    allowance = Allowance()
    allowance.learn(headers("tokens", "1000", "500", "5s"), "tokens", in_flight=0, now=0.0, users=2)
    assert allowance.wait_s(250, now=0.0) == 0
    assert allowance.wait_s(300, now=0.0) == pytest.approx(1)  # 50 a second are this one's


@pytest.mark.parametrize(
    "spoiled",
    [
        headers("tokens", "many", "0", "10s"),
        headers("tokens", "1000", "-1", "10s"),
        headers("tokens", "1000", "0", "tomorrow"),
        headers("tokens", "0", "0", "10s"),
        headers("tokens", "inf", "0", "10s"),
        {"x-ratelimit-remaining-tokens": "0"},
    ],
)
def test_headers_that_make_no_sense_change_nothing(spoiled):
    allowance = Allowance()
    allowance.learn(spoiled, "tokens", in_flight=0, now=0.0)
    assert allowance == Allowance()


def test_headers_pace_requests_and_tokens_each():
    throttle = open_throttle()
    throttle.send(10, now=0.0)
    both = headers("requests", "60", "0", "60s") | headers("tokens", "100", "50", "50s")
    throttle.learn(both, 10, now=0.0)
    throttle.come_back(10)
    assert throttle.wait_s(50, now=0.0) == pytest.approx(1)
    assert throttle.wait_s(70, now=0.0) == pytest.approx(20)


def test_advice_to_wait_for_hours_is_left_to_the_server_to_repeat():
    throttle = open_throttle()
    throttle.send(10, now=0.0)
    throttle.learn(headers("requests", "10", "0", "24h"), 10, now=0.0)
    assert throttle.wait_s(10, now=0.0) == 0


def test_a_pause_is_everybodys_and_the_longest_one_counts():
    throttle = open_throttle()
    throttle.pause(7, now=0.0)
    throttle.pause(2, now=1.0)
    assert throttle.wait_s(1, now=3.0) == pytest.approx(4)
    assert throttle.wait_s(1, now=7.0) == 0


def test_a_rate_spaces_requests_so_that_no_minute_has_more():
    throttle, now, starts = open_throttle(rate_per_s=0.5), 0.0, []
    for _ in range(40):
        now += throttle.wait_s(1, now)
        throttle.send(1, now)
        throttle.come_back(1)
        starts.append(now)
    assert all(sum(start <= other < start + 60 for other in starts) <= 30 for start in starts)
    assert starts[-1] == pytest.approx(78)


def test_the_first_request_goes_alone_and_a_429_halves_how_many_may_follow():
    throttle = Throttle(8)
    seen = []

    def width():
        count = 0
        while not throttle.is_full:
            throttle.send(1, 0.0)
            count += 1
        for _ in range(count):
            throttle.come_back(1)
        seen.append(count)

    width()
    for step in (throttle.succeed, throttle.narrow, throttle.narrow, throttle.succeed, *[throttle.narrow] * 3):
        step()
        width()
    assert seen == [1, 8, 4, 2, 3, 1, 1, 1]
