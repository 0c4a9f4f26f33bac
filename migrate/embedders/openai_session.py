"""Sends requests to an OpenAI-compatible server, several at a time, and retries those that fail.

A `Session` sends within the limits of its throttle. A `Flight` runs it in a thread of its own and hands over answers
as they arrive; it drops no answer that was paid for. Everything runs in one event loop, so nothing needs a lock.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

from migrate.embedders.openai_answers import Answer, OtherDimensionError, TooLongError, read_answer, translate_status
from migrate.embedders.openai_limits import RetryPolicy, Throttle, TransientError
from migrate.errors import RemoteError
from migrate.redirects import check_redirect

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_CONNECT_S = 10.0
"""How long a server may take to accept a connection; it may take far longer to answer."""

_OPENAI = "https://api.openai.com/v1"


T = TypeVar("T")

KeepAnswers = Callable[[Mapping[range, Answer]], None]
"""Takes the answers to requests, each a range of positions."""

GRACE_S = 10.0
"""How long a run that ends early waits for the answers to what it has sent: they are paid for."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The server and the model; `base_url` None is OpenAI, `dimensions` None is the model's own dimension."""

    model: str
    base_url: str | None
    key: str
    dimensions: int | None
    timeout_s: float

    @property
    def service(self) -> str:
        """The name of the server in messages."""
        return self.base_url or "OpenAI"

    @property
    def address(self) -> str:
        """Host and port that are connected to."""
        url = urlsplit(self.base_url or _OPENAI)
        return f"{url.hostname}:{url.port or (443 if url.scheme == 'https' else 80)}"

    @property
    def advice(self) -> str:
        """What a user can do when no server answers."""
        if self.base_url is None:
            return "is this machine online? A server of your own needs `base_url`"
        return "is the server running, and is `base_url` right?"


@dataclass(frozen=True, slots=True)
class Expected:
    """The dimension that vectors must have, who says so, and what to do where a server disagrees."""

    dim: int
    source: str
    advice: str


def first_answer(dim: int) -> Expected:
    """What to expect of the later answers of a server after its first."""
    return Expected(dim, "as earlier answers", "is another model behind `base_url` now, or more than one?")


@cache
def _certificates() -> ssl.SSLContext:
    """Whom to trust, read once a process: that takes most of the time that a client takes to make."""
    import httpx

    return httpx.create_ssl_context()


async def _stay_with_server(response: Any) -> None:
    """Called with each answer, before a redirect in it is followed."""
    if response.has_redirect_location:
        check_redirect(str(response.request.url), response.headers["Location"])


class Session:
    """Asks for vectors. `expected` is what is known of their dimension; the first answer tells it otherwise.

    `charge` is called with the tokens that the server charged for each answer, usable or not.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        throttle: Throttle,
        retry: RetryPolicy,
        *,
        expected: Expected | None,
        charge: Callable[[int], None],
    ) -> None:
        self.endpoint = endpoint
        self.throttle = throttle
        self.retry = retry
        self.expected = expected
        self._charge = charge
        self._turn = asyncio.Lock()
        self._came_back = asyncio.Event()
        self._idle: set[asyncio.Task[Any]] = set()
        self._stopping = False

    async def ask(self, inputs: list[str], tokens: int) -> Answer:
        """The answer to a request of about this many tokens, after as many attempts as it takes.

        A 429 counts as a failure of this request only where no other one was answered meanwhile: it is then the server
        that is down, not its patience.

        Raises
        ------
        RemoteError, AuthenticationError, TooLongError
            The server refused the request or kept failing.
        """
        failures, unread, unusable, answered = 0, 0, 0, self.throttle.answered
        while True:
            try:
                answer = await self._attempt(inputs, tokens)
            except OtherDimensionError as error:
                self._charge(error.tokens * (1 + unread))
                raise self._refused_dimension(error.dim) from error
            except TransientError as error:
                self._charge(error.charged_tokens or 0)
                unread += error.charged_tokens is None
                unusable += error.charged_tokens != 0
                if self._stopping:
                    raise
                others_answered = self.throttle.answered > answered
                failures = 1 if error.is_throttled and others_answered else failures + 1
                answered = self.throttle.answered
                await self._wait_after(error, failures, unusable)
            else:
                # An answer that could not be read was charged like this one: it was to the same texts
                self._charge(answer.tokens * (1 + unread))
                return answer

    def stop(self) -> None:
        """Send nothing any more; what is in flight may come back."""
        self._stopping = True
        for task in self._idle:
            task.cancel()

    async def _attempt(self, inputs: list[str], tokens: int) -> Answer:
        with self._idling():
            await self._wait_for_leave(tokens)
        try:
            answer = await self._send(inputs, tokens)
        finally:
            self.throttle.come_back(tokens)
            self._came_back.set()
        return answer

    async def _wait_for_leave(self, tokens: int) -> None:
        """Return when the request may be sent, and has been counted as sent; first come, first served."""
        async with self._turn:
            while True:
                now = self.retry.clock.now()
                if self.throttle.is_full:
                    self._came_back.clear()
                    await self._came_back.wait()
                elif (wait_s := self.throttle.wait_s(tokens, now)) > 0:
                    await self.retry.clock.sleep(wait_s)
                else:
                    return self.throttle.send(tokens, now)

    def _refused_dimension(self, dim: int) -> RemoteError:
        expected = cast("Expected", self.expected)  # what the answer was checked against
        return RemoteError(
            f"{self.endpoint.service}: expected vectors of dimension {expected.dim} ({expected.source}), found {dim}; "
            f"{expected.advice.format(dim=dim)}"
        )

    async def _wait_after(self, error: TransientError, failures: int, unusable: int) -> None:
        """Wait before the next attempt: all requests together where the server is asking for it, this one otherwise."""
        wait_s = self.retry.wait_after(
            error,
            failures,
            service=self.endpoint.service,
            unusable=unusable,
            ever_answered=bool(self.throttle.answered),
        )
        if error.is_throttled or error.wait_s is not None:
            self.throttle.pause(wait_s, self.retry.clock.now())
        else:
            with self._idling():
                await self.retry.clock.sleep(wait_s)

    @contextmanager
    def _idling(self) -> Iterator[None]:
        """Nothing is in flight here, so that `stop` may end it, or has."""
        if self._stopping:
            raise asyncio.CancelledError
        task = cast("asyncio.Task[Any]", asyncio.current_task())  # coroutines run in tasks
        self._idle.add(task)
        try:
            yield
        finally:
            self._idle.discard(task)

    async def _send(self, inputs: list[str], tokens: int) -> Answer:
        """Send one request once, and read the answer as bytes: the client's own parser trusts the server."""
        import openai

        endpoint = self.endpoint
        options: dict[str, Any] = {} if endpoint.dimensions is None else {"dimensions": endpoint.dimensions}
        create = self._client.embeddings.with_raw_response.create
        try:
            # The client's own limit starts again with each byte that comes; this one is for the whole answer.
            async with asyncio.timeout(endpoint.timeout_s):
                response = await create(input=inputs, model=endpoint.model, encoding_format="base64", **options)
        except (TimeoutError, openai.APITimeoutError) as error:
            raise _overdue(error, endpoint) from error
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, RemoteError):
                raise error.__cause__ from None
            raise _unconnected(error, endpoint) from error
        except openai.APIStatusError as error:
            self.throttle.learn(error.response.headers, tokens, self.retry.clock.now())
            refusal = translate_status(error, service=endpoint.service, model=endpoint.model, key=endpoint.key)
            if isinstance(refusal, TransientError) and refusal.is_throttled:
                self.throttle.narrow()
            raise refusal from error
        self.throttle.learn(response.headers, tokens, self.retry.clock.now())
        dim = None if self.expected is None else self.expected.dim
        answer = read_answer(response.content, count=len(inputs), dim=dim)
        if self.expected is None:
            self.expected = first_answer(answer.vectors.shape[1])
        self.throttle.succeed()
        return answer

    @cached_property
    def _client(self) -> AsyncOpenAI:
        """Its own retries are off: it tries again where no quota is left, and counts nothing."""
        import openai

        endpoint = self.endpoint
        return openai.AsyncOpenAI(
            api_key=endpoint.key,
            base_url=endpoint.base_url,
            max_retries=0,
            timeout=openai.Timeout(endpoint.timeout_s, connect=min(_CONNECT_S, endpoint.timeout_s)),
            http_client=openai.DefaultAsyncHttpxClient(
                verify=_certificates(), event_hooks={"response": [_stay_with_server]}
            ),
        )

    async def close(self) -> None:
        """Close the connections."""
        if "_client" in self.__dict__:
            await self._client.close()


def _overdue(error: BaseException, endpoint: Endpoint) -> TransientError:
    """No connection in time, or no answer."""
    if type(error.__cause__).__name__ == "ConnectTimeout":
        reason = f"no connection to {endpoint.address} within {min(_CONNECT_S, endpoint.timeout_s):g} s"
        return TransientError(reason, advice=endpoint.advice, is_unreached=True)
    reason = f"no answer from {endpoint.address} within {endpoint.timeout_s:g} s"
    advice = "is the server busy, or is `base_url` wrong? A smaller `batch_size` asks less of it at a time"
    return TransientError(reason, advice=advice, is_unreached=True)


def _unconnected(error: BaseException, endpoint: Endpoint) -> TransientError:
    """A connection that was not made, by its cause, or one that broke."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ConnectionRefusedError):
            reason = f"nothing listens at {endpoint.address} (connection refused)"
        elif isinstance(cause, socket.gaierror):
            reason = f"the host of {endpoint.address} is not known ({cause.strerror})"
        elif isinstance(cause, ssl.SSLError):
            reason = f"no secure connection to {endpoint.address} ({cause.reason or cause})"
        else:
            continue
        return TransientError(reason, advice=endpoint.advice, is_unreached=True)
    name = type(error.__cause__ or error).__name__
    return TransientError(f"the connection to {endpoint.address} failed ({name})")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes: asyncio raises a single one for all addresses of a host."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class LoopThread:
    """An event loop in a separate thread, since the caller's may run one already, as in a notebook.

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
        try:
            self.start(self._finish()).result()
        except Exception:
            if error is None:  # what ended the requests is told, not what came of closing their connections
                raise
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _finish(self) -> None:
        unfinished = asyncio.all_tasks() - {asyncio.current_task()}
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        await self._close()


class Flight:
    """Requests for runs of `inputs`, as many in flight at a time as the session's throttle ever lets go.

    A place is free again only when the answer was kept: a kill never costs more than the requests in flight.
    `tokens` are those of the inputs, estimated; `before_request` gets those of each request before it is sent.
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
        self._in_flight: dict[Future[Answer], range] = {}
        self._done = 0

    def run(self, requests: Iterable[range], *, keep: KeepAnswers, on_progress: Callable[[int], None]) -> None:
        """Send requests, each a range of positions, and hand their answers to `keep` as they come, in this thread.

        Answers that came while others were kept are handed over together. `on_progress` then gets the number of texts
        done. Where anything raises, nothing further is sent, what is answered within `GRACE_S` is kept, and the error
        goes on.
        """
        waiting = deque(requests)
        try:
            while waiting or self._in_flight:
                while waiting and len(self._in_flight) < self._session.throttle.places:
                    self._send(waiting.popleft())
                wait(self._in_flight, return_when=FIRST_COMPLETED)
                if self._keep_answers(keep):
                    on_progress(self._done)
                waiting.extendleft(reversed(self._halves()))
        except BaseException:
            self._keep_late_answers(keep)
            raise

    def _send(self, request: range) -> None:
        run = slice(request.start, request.stop)
        tokens = sum(self._tokens[run])
        self._before_request(tokens)
        self._in_flight[self._loop.start(self._session.ask(list(self._inputs[run]), tokens))] = request

    def _keep_answers(self, keep: KeepAnswers) -> bool:
        """Hand over what is answered by now; whether there was anything."""
        answered = [future for future in self._in_flight if _is_answered(future)]
        if answered:
            keep({self._in_flight[future]: future.result() for future in answered})
        for future in answered:
            self._done += len(self._in_flight.pop(future))
        return bool(answered)

    def _halves(self) -> list[range]:
        """The halves of requests that were too long for the server; any other failure is raised."""
        halves: list[range] = []
        for future in [future for future in self._in_flight if future.done() and not _is_answered(future)]:
            request = self._in_flight.pop(future)
            try:
                future.result()
            except TooLongError as error:
                if len(request) == 1:
                    error.position = request.start
                    raise
                half = len(request) // 2
                halves += [request[:half], request[half:]]
        return halves

    def _keep_late_answers(self, keep: KeepAnswers) -> None:
        """Save what was paid for; if saving itself failed, it may fail again, and the first error is raised."""
        self._loop.call(self._session.stop)
        wait(self._in_flight, timeout=GRACE_S)
        with suppress(Exception):
            self._keep_answers(keep)


def _is_answered(future: Future[Answer]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
