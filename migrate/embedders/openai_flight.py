"""Requests in flight: so many at a time, answers handed over as they come, nothing dropped that was paid for."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from migrate.embedders.openai_answers import Answer, TooLongError

GRACE_S = 10.0
"""How long a run that ends early waits for the answers to what it has sent: they are paid for."""


class LoopThread:
    """An event loop in a thread of its own: the caller's may be running one already, as in a notebook."""

    def __enter__(self) -> LoopThread:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="openai", daemon=True)
        self._thread.start()
        return self

    def start(self, coroutine: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Start a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function: Callable[[], object]) -> None:
        """Have the loop call a function soon."""
        self._loop.call_soon_threadsafe(function)

    def close(self, closing: Coroutine[Any, Any, None]) -> None:
        """Cancel what runs, then run what closes; returns when that is done."""
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        asyncio.run_coroutine_threadsafe(closing, self._loop).result()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@dataclass
class Flight:
    """Requests, each a range of positions, sent `concurrency` at a time.

    A place is free again only when the answer has been kept: never is more lost by a kill than what `concurrency`
    requests ask for.

    Parameters
    ----------
    waiting
        Requests, in the order in which they are to be sent.
    concurrency
        Requests in flight at most.
    send
        Sends one.
    keep
        Takes an answer; called in the thread that runs the flight.
    landed
        Called after an answer was kept, with the number of its texts.
    refuse
        Raises the error for a single text that is too long.
    stop
        Told when no further request is to be sent and none to be tried again.
    """

    waiting: deque[range]
    concurrency: int
    send: Callable[[range], Future[Answer]]
    keep: Callable[[range, Answer], None]
    landed: Callable[[int], None]
    refuse: Callable[[int, TooLongError], None]
    stop: Callable[[], None]
    _aloft: dict[Future[Answer], range] = field(default_factory=dict)

    def run(self) -> None:
        """Send everything. Where anything raises, keep what is still answered within `GRACE_S`, and raise it."""
        try:
            while self.waiting or self._aloft:
                while self.waiting and len(self._aloft) < self.concurrency:
                    request = self.waiting.popleft()
                    self._aloft[self.send(request)] = request
                done, _ = wait(self._aloft, return_when=FIRST_COMPLETED)
                for future in [future for future in self._aloft if future in done]:
                    self._land(future)
        except BaseException:
            self._call_home()
            raise

    def _land(self, future: Future[Answer]) -> None:
        request = self._aloft[future]
        try:
            answer = future.result()
        except TooLongError as error:
            self._halve(request, error)
            del self._aloft[future]
            return
        self.keep(request, answer)
        del self._aloft[future]
        self.landed(len(request))

    def _halve(self, request: range, error: TooLongError) -> None:
        """Where the server finds the texts of a request too long, each half is sent on its own."""
        if len(request) == 1:
            self.refuse(request.start, error)
        half = len(request) // 2
        self.waiting.extendleft([request[half:], request[:half]])

    def _call_home(self) -> None:
        """Keep what was paid for; where keeping is what failed, it may fail again, and the first error is told."""
        self.stop()
        done, _ = wait(self._aloft, timeout=GRACE_S)
        for future in done:
            if not future.cancelled() and future.exception() is None:
                with suppress(Exception):
                    self.keep(self._aloft[future], future.result())
