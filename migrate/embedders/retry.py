"""Trying again: which wait comes after which failure. What counts as a failure is the caller's to say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import numpy as np

from migrate.errors import RemoteError


class TransientError(Exception):
    """A failure that may pass; never leaves this package.

    `wait_s` is how long the server asked to be left alone, in seconds; None where it did not. `is_throttled` says that
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
        """Come back after so many seconds."""
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with jitter: the k-th wait is first_wait_s · 2^(k-1), of which half is random.

    A wait that the server asks for is obeyed instead, up to `longest_obeyed_s`; a server that asks for more is taken
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
        """Seconds to wait after so many failures in a row, 1 and up."""
        longest = min(self.longest_wait_s, self.first_wait_s * 2.0 ** (failures - 1))
        return longest * (0.5 + 0.5 * self.share())

    def wait_after(
        self, error: TransientError, failures: int, *, service: str, unusable: int = 0, ever_answered: bool = True
    ) -> float:
        """Seconds until the next attempt, after so many failures, of which `unusable` were answers that were paid for.

        Raises
        ------
        RemoteError
            There were as many attempts as there may be, or the server asks for a longer wait than is obeyed.
        """
        is_stranger = error.is_unreached and not ever_answered
        most = min(self.max_attempts, self.max_unreached) if is_stranger else self.max_attempts
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
