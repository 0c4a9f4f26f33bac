"""Requests in flight: so many at a time, answers handed over as they come, nothing dropped that was paid for."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from migrate.embedders.openai_answers import Answer, TooLongError
from migrate.embedders.openai_session import Session

T = TypeVar("T")

KeepAnswers = Callable[[Mapping[range, Answer]], None]
"""Takes the answers to requests, each a range of positions."""

GRACE_S = 10.0
"""How long a run that ends early waits for the answers to what it has sent: they are paid for."""


class LoopThread:
    """An event loop in a thread of its own: the caller's may be running one already, as in a notebook.

    In the end everything that still runs in it is cancelled, and `close` is awaited.
    """

    def __init__(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._close = close

    def __enter__(self) -> LoopThread:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="openai", daemon=True)
        self._thread.start()
        return self

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine in the loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function: Callable[[], object]) -> None:
        """Have the loop call a function soon."""
        self._loop.call_soon_threadsafe(function)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.start(self._finish()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _finish(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._close()


class Flight:
    """Requests for runs of `inputs`, as many in flight at a time as the session's throttle ever lets go.

    A place is free again only when the answer was kept: a kill never costs more than what so many requests ask for.
    `tokens` are those of the inputs, estimated; `before_request` is told those of each request before it is sent.
    """

    def __init__(
        self,
        loop: LoopThread,
        session: Session,
        inputs: Sequence[str],
        tokens: Sequence[int],
        *,
        before_request: Callable[[int], None],
    ) -> None:
        self._loop = loop
        self._session = session
        self._inputs = inputs
        self._tokens = tokens
        self._before_request = before_request
        self._aloft: dict[Future[Answer], range] = {}
        self._done = 0

    def run(self, requests: Iterable[range], *, keep: KeepAnswers, landed: Callable[[int], None]) -> None:
        """Send requests, each a range of positions, and hand their answers to `keep` as they come, in this thread.

        Answers that came while others were kept are handed over together. `landed` is told then how many texts are
        done. Where anything raises, nothing further is sent, what is answered within `GRACE_S` is kept, and the error
        goes on.

        Raises
        ------
        TooLongError
            A single text is too long; tells its position.
        RemoteError
            As the session.
        """
        waiting = deque(requests)
        try:
            while waiting or self._aloft:
                while waiting and len(self._aloft) < self._session.throttle.places:
                    self._send(waiting.popleft())
                wait(self._aloft, return_when=FIRST_COMPLETED)
                if self._keep_answers(keep):
                    landed(self._done)
                waiting.extendleft(reversed(self._halves()))
        except BaseException:
            self._call_home(keep)
            raise

    def _send(self, request: range) -> None:
        run = slice(request.start, request.stop)
        tokens = sum(self._tokens[run])
        self._before_request(tokens)
        self._aloft[self._loop.start(self._session.ask(list(self._inputs[run]), tokens))] = request

    def _keep_answers(self, keep: KeepAnswers) -> bool:
        """Hand over what is answered by now; whether there was anything."""
        answered = [future for future in self._aloft if _is_answered(future)]
        if answered:
            keep({self._aloft[future]: future.result() for future in answered})
        for future in answered:
            self._done += len(self._aloft.pop(future))
        return bool(answered)

    def _halves(self) -> list[range]:
        """What to send instead of requests that the server found too long; any other failure is raised."""
        halves: list[range] = []
        for future in [future for future in self._aloft if future.done() and not _is_answered(future)]:
            request = self._aloft.pop(future)
            try:
                future.result()
            except TooLongError as error:
                if len(request) == 1:
                    error.position = request.start
                    raise
                half = len(request) // 2
                halves += [request[:half], request[half:]]
        return halves

    def _call_home(self, keep: KeepAnswers) -> None:
        """Keep what was paid for; where keeping is what failed, it may fail again, and the first error is told."""
        self._loop.call(self._session.stop)
        wait(self._aloft, timeout=GRACE_S)
        with suppress(Exception):
            self._keep_answers(keep)


def _is_answered(future: Future[Answer]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
