"""When to send the next request: the server's rate limits, the user's own limit, and the waits between retries.

Nothing here waits or sends. A `Throttle` says before each request how long to wait, and learns from each answer.
Servers that speak OpenAI's protocol send, for requests and for tokens, `x-ratelimit-limit-*`,
`x-ratelimit-remaining-*` and `x-ratelimit-reset-*` (OpenAI, "Rate limits in headers"): a bucket that fills evenly, and
the time until it is full again. A `RetryPolicy` says how long to wait after a failure; the caller decides what counts
as one.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import numpy as np

from migrate.errors import RemoteError, UsageError

_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h|d))+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d)", re.ASCII)
_RATE = re.compile(r"(\d+(?:\.\d+)?)/(s|min|h)", re.ASCII)
_RATE_UNIT_S = {"s": 1.0, "min": 60.0, "h": 3600.0}
_LONGEST_ADVICE_S = 600.0


class TransientError(Exception):
    """A failure that may pass; never leaves this package.

    `wait_s` is how long the server asks to wait, in seconds; None where it does not say. `is_throttled` says that
    it wants fewer requests, `charged_tokens` what it charged for an answer that cannot be used, None where it did but
    that cannot be read. `is_unreached` says that nothing answered at all: the address may be wrong. `advice` is what
    the user may do where the failure stays.
    """

    def __init__(
        self,
        reason: str,
        *,
        advice: str = "try again later",
        wait_s: float | None = None,
        is_throttled: bool = False,
        is_unreached: bool = False,
        charged_tokens: int | None = 0,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice
        self.is_unreached = is_unreached
        self.wait_s = wait_s
        self.is_throttled = is_throttled
        self.charged_tokens = charged_tokens


def _random_share() -> float:
    """Uniform in [0, 1). Unseeded on purpose: runs that failed together must not come back together."""
    return float(np.random.default_rng().random())


class Clock:
    """Time as it passes; a test may have one that does not make it wait."""

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with jitter: the k-th wait is first_wait_s · 2^(k-1), of which half is random.

    A wait that the server requests is obeyed instead, up to `longest_obeyed_s`; a server that requests more is taken
    to be out for today. A server that has never answered may be the wrong one, and an answer that cannot be used is
    paid for all the same: there are fewer attempts at these. `clock` and `share` (a random number in [0, 1)) are
    parameters so that tests need not wait.
    """

    max_attempts: int = 6
    max_unreached: int = 3
    max_unusable: int = 3
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    longest_obeyed_s: float = 600.0
    clock: Clock = field(default_factory=Clock)
    share: Callable[[], float] = field(default=_random_share)

    def wait_s(self, failures: int) -> float:
        """Seconds to wait after this many failures in a row, from 1."""
        longest = min(self.longest_wait_s, self.first_wait_s * 2.0 ** (failures - 1))
        return longest * (0.5 + 0.5 * self.share())

    def wait_after(
        self, error: TransientError, failures: int, *, service: str, unusable: int = 0, ever_answered: bool = True
    ) -> float:
        """Seconds until the next attempt, after so many failures, `unusable` of which were answers to pay for."""
        is_unknown_server = error.is_unreached and not ever_answered
        most = min(self.max_attempts, self.max_unreached) if is_unknown_server else self.max_attempts
        if failures >= most or unusable >= self.max_unusable:
            times = "once" if failures == 1 else f"{failures} times, the last time"
            raise RemoteError(f"{service} failed {times} with: {error.reason}; {error.advice}") from error
        if error.wait_s is None:
            return self.wait_s(failures)
        if error.wait_s > self.longest_obeyed_s:
            raise RemoteError(
                f"{service} asks to wait {error.wait_s:.0f} s ({error.reason}); run the same command again after that"
            ) from error
        return error.wait_s


def asked_wait_s(headers: Mapping[str, str]) -> float | None:
    """The wait a server asks for, in seconds: `retry-after-ms`, or `Retry-After` as seconds or a date (RFC 9110)."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        return max(0.0, float(headers["retry-after"]))
    except KeyError:
        return None
    except ValueError:
        return _seconds_until(headers["retry-after"]) if "retry-after" in headers else None


def _seconds_until(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def parse_duration_s(text: str) -> float | None:
    """Seconds of a duration as servers write it; None where it is none.

    >>> parse_duration_s("6m0s"), parse_duration_s("120ms"), parse_duration_s("1.5"), parse_duration_s("soon")
    (360.0, 0.12, 1.5, None)
    """
    if _DURATION.fullmatch(text):
        return sum(float(number) * _UNIT_S[unit] for number, unit in _PART.findall(text))
    return _number(text)


def parse_rate(text: str) -> float:
    """Requests a second, of `3000/min`, `50/s` or `100/h`.

    >>> parse_rate("3000/min")
    50.0
    """
    match = _RATE.fullmatch(text.replace(" ", ""))
    per_s = float(match[1]) / _RATE_UNIT_S[match[2]] if match else 0.0
    if per_s <= 0 or not math.isfinite(per_s):
        raise UsageError(f"expected a rate of requests such as 3000/min, 50/s or 100/h, found {text!r}")
    return per_s


def _number(text: str | None) -> float | None:
    """A finite number of at least zero, or None."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None


@dataclass(slots=True)
class Allowance:
    """The remainder of one limit: a bucket of `limit`, at `level` at the time `at`, filling by `refill_per_s`."""

    limit: float = math.inf
    level: float = math.inf
    refill_per_s: float = 0.0
    at: float = 0.0

    def learn(self, headers: Mapping[str, str], kind: str, *, in_flight: float, now: float, users: int = 1) -> None:
        """Take over what an answer says of a kind, `requests` or `tokens`; nothing where it does not say all.

        The server may or may not have counted the requests in flight; they are subtracted, to be safe. Of several
        users each takes an equal part.
        """
        limit, remaining = (_number(headers.get(f"x-ratelimit-{word}-{kind}")) for word in ("limit", "remaining"))
        reset_s = parse_duration_s(headers.get(f"x-ratelimit-reset-{kind}", ""))
        if not limit or remaining is None or reset_s is None:
            return
        if reset_s > 0 and remaining < limit:
            self.refill_per_s = (limit - remaining) / reset_s / users
        self.limit, self.level, self.at = limit / users, remaining / users - in_flight, now

    def take(self, amount: float, now: float) -> None:
        """Count what is sent."""
        self.level, self.at = self._level_at(now) - amount, now

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until there is room for the amount, or for as much of it as there ever is."""
        lacking = min(amount, self.limit) - self._level_at(now)
        if lacking <= 0 or not self.refill_per_s:
            return 0.0
        return lacking / self.refill_per_s

    def _level_at(self, now: float) -> float:
        return min(self.limit, self.level + self.refill_per_s * (now - self.at))


@dataclass(slots=True)
class Throttle:
    """When the next request may be sent, and how many at once. Times are seconds of one clock.

    The first request goes alone: a wrong key is refused only once, and the answer carries the limits. A 429 halves the
    number of requests in flight, and each later answer allows one more; a wait from the server holds for all requests.

    Attributes
    ----------
    concurrency
        Requests in flight at most.
    rate_per_s
        Requests a second at most, evenly spaced; None for the server's limits alone.
    answered
        Requests that were answered well so far.
    users
        How many processes share the server's limits; each takes its part of what an answer says is left. The other
        limits are this one's own.
    """

    concurrency: int
    rate_per_s: float | None = None
    answered: int = 0
    users: int = 1
    _width: int = 1
    _flying: list[int] = field(default_factory=list)
    _paused_until: float = -math.inf
    _next_start: float = -math.inf
    _requests: Allowance = field(default_factory=Allowance)
    _tokens: Allowance = field(default_factory=Allowance)

    @property
    def places(self) -> int:
        """How many requests are worth having ready, to be sent or to be tried again."""
        return self.concurrency if self.answered else 1

    @property
    def is_full(self) -> bool:
        """Whether a request has to come back before another one goes."""
        return len(self._flying) >= self._width

    def wait_s(self, tokens: int, now: float) -> float:
        """Seconds to wait before a request of this many tokens; call again after them.

        Waits from headers are limited to ten minutes: after that the server may refuse the request itself.
        """
        advised = max(self._requests.wait_s(1, now), self._tokens.wait_s(tokens, now))
        advised = advised if advised <= _LONGEST_ADVICE_S else 0.0
        return max(0.0, self._paused_until - now, self._next_start - now, advised)

    def begin(self, now: float) -> None:
        """Begin some requests where several processes take turns: the one before may just have sent its last."""
        if self.users > 1 and self.rate_per_s is not None:
            self._next_start = max(self._next_start, now + 1 / self.rate_per_s)

    def send(self, tokens: int, now: float) -> None:
        """Count a request that is sent."""
        self._flying.append(tokens)
        self._requests.take(1, now)
        self._tokens.take(tokens, now)
        if self.rate_per_s is not None:
            self._next_start = max(now, self._next_start) + 1 / self.rate_per_s

    def come_back(self, tokens: int) -> None:
        """Count a request that came back, answered or not."""
        self._flying.remove(tokens)

    def learn(self, headers: Mapping[str, str], tokens: int, now: float) -> None:
        """Read the limits off what answered a request of so many tokens, before it is counted as back."""
        self._requests.learn(headers, "requests", in_flight=len(self._flying) - 1, now=now, users=self.users)
        self._tokens.learn(headers, "tokens", in_flight=sum(self._flying) - tokens, now=now, users=self.users)

    def succeed(self) -> None:
        """Count an answer: more may go at once."""
        self._width = min(self.concurrency, self._width + 1) if self.answered else self.concurrency
        self.answered += 1

    def pause(self, wait_s: float, now: float) -> None:
        """Nobody sends anything for some seconds."""
        self._paused_until = max(self._paused_until, now + wait_s)

    def narrow(self) -> None:
        """Let half as many requests go at once."""
        self._width = max(1, self._width // 2)
