"""Requests to an OpenAI-compatible server: the openai library sends and retries them, and answers are checked here.

The library does not check how many vectors came back, in which order, or whether they are numbers.
"""

from __future__ import annotations

import base64
import json
import math
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.openai_errors import (
    NO_BASE64,
    Endpoint,
    FailedTextsError,
    attempts_of,
    mentions,
)
from migrate.embedders.services import OPENAI, Service
from migrate.errors import OutputError, RemoteError
from migrate.files import describe_os_error
from migrate.redirects import check_redirect
from migrate.vectors import Vectors, squared_norms

if TYPE_CHECKING:
    from openai import APIResponse, OpenAI

AZURE_VERSION = "api-version"
"""The parameter of addresses of Azure OpenAI, which takes keys in a header of its own."""

UNUSABLE_VECTOR = "an embedding that is zero, NaN or Inf"
PROBE = "word"
"""A text that every model can embed."""


class UnusableError(Exception):
    """An answer that cannot be used, although the server charges for it: so many tokens, None where it does not say."""

    def __init__(self, reason: str, tokens: int | None = None) -> None:
        super().__init__(reason)
        self.tokens = tokens


class RequestLimit:
    """A semaphore for requests in flight: a 429 halves its places, and each answer adds one.

    There is one until the first answer, so that a wrong key is refused only once. A request that waits before it is
    sent again has none.
    `rate_per_s` is the user's own limit, None for none.
    """

    def __init__(self, concurrency: int, rate_per_s: float | None) -> None:
        self.concurrency = concurrency
        self.rate_per_s = rate_per_s
        self.places = 1
        self.is_reached = self._is_answered = False
        self._interval = 1 / rate_per_s if rate_per_s else 0.0
        self._next_start = -math.inf
        self._flying: set[int] = set()
        self._lock = threading.Condition()

    def enter(self, is_stopped: Callable[[], bool]) -> None:
        """Wait until there is a place for the request of this thread, and the user's rate allows it."""
        thread = threading.get_ident()
        with self._lock:
            # A request that is sent again has its place still, and would wait for itself
            while len(self._flying - {thread}) >= self.places and not is_stopped():
                self._lock.wait(0.1)
            self._flying.add(thread)
            start = max(time.monotonic(), self._next_start)
            # Taken before the wait, so that threads get one moment each
            self._next_start = start + self._interval
        if (wait := start - time.monotonic()) > 0:
            time.sleep(wait)

    def leave(self) -> None:
        """Give up the place of this thread, if it has one."""
        with self._lock:
            self._flying.discard(threading.get_ident())
            self._lock.notify_all()

    def succeed(self) -> None:
        """Count an answer."""
        with self._lock:
            if self._is_answered:
                self.places = min(self.concurrency, self.places + 1)
            else:
                # The key is right and the model there: no need to find the limit from below
                self.places = self.concurrency
            self._is_answered = True

    def halve(self) -> None:
        """Count a 429."""
        with self._lock:
            # As TCP does where packets are lost: down fast and up slowly
            self.places = max(1, self.places // 2)


@dataclass(frozen=True, slots=True)
class Answer:
    """Vectors of one request, in the order of its texts, the tokens charged for them, and the model's name, if any."""

    vectors: Vectors
    tokens: int
    model: str

    @property
    def is_usable(self) -> NDArray[np.bool_]:
        """True for each vector that is finite and not zero, (n,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            squares = squared_norms(self.vectors)
        usable: NDArray[np.bool_] = np.isfinite(squares) & (squares > 0)
        return usable


@dataclass
class ServerLimits:
    """The encoding and the number of texts in a request that a server takes, as its refusals have shown."""

    takes_base64: bool = True
    most_texts: int | None = None

    def refuse_texts(self, count: int) -> None:
        """Take note that so many texts are too many."""
        half = count // 2
        if self.most_texts is None or half < self.most_texts:
            self.most_texts = half


@dataclass(eq=False)
class Client:
    """The openai library's client for one model of one server; closes its connections as a context ends.

    A request is sent `attempts` times at most, while it fails in a way that may pass. `charge` is called with the
    tokens that the server charged for each answer, usable or not, in the thread of its request.
    """

    few: ClassVar[int] = 3
    """Attempts at a server that has never answered, which may be the wrong one, and unusable answers, which cost."""

    endpoint: Endpoint
    attempts: int
    limit: RequestLimit
    charge: Callable[[int], None]
    server: ServerLimits = field(default_factory=ServerLimits)
    _is_stopped: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        import openai

        endpoint = self.endpoint
        address, _, parameters = (endpoint.base_url or endpoint.api.base_url or "").partition("?")
        query = dict(parse_qsl(parameters, keep_blank_values=True))
        headers = dict(endpoint.api.headers(endpoint.key))
        if AZURE_VERSION in query:
            headers = {"api-key": endpoint.key, "Authorization": None}
        # The library sends its own key with every request unless it is told to omit it, and Azure wants another header
        self._headers = {name: openai.omit if it is None else it for name, it in headers.items()}
        self._headers["X-Stainless-Raw-Response"] = "stream"  # as the library's own calls have it for a stream
        self._openai = openai.OpenAI(
            api_key=endpoint.key,
            base_url=address or None,
            default_query=query,
            # A connection is accepted soon, even by a server that takes far longer to answer
            timeout=openai.Timeout(endpoint.timeout_s, connect=min(10.0, endpoint.timeout_s)),
            http_client=openai.DefaultHttpxClient(
                verify=_certificates(), event_hooks={"request": [self._on_request], "response": [self._on_response]}
            ),
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        # What waits for its turn must not be sent after the error that ends the call
        self.stop()
        self._openai.close()

    def start(self, inputs: Sequence[str], future: Future[Answer], *, is_hurried: bool = False) -> None:
        """Send a request in a thread, which is a daemon: a process that ends does not wait for its retries.

        One that `is_hurried` is sent a `few` times at most.
        """
        attempts = None
        if is_hurried:
            attempts = self.few

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(self.ask(list(inputs), attempts=attempts))
            except BaseException as error:
                future.set_exception(error)

        # No pool: its threads are joined at the end of the process, retries and all
        threading.Thread(target=work, name="openai", daemon=True).start()

    def stop(self) -> None:
        """Send nothing any more; what is in flight may come back."""
        self._is_stopped = True

    def ask(self, inputs: list[str], *, attempts: int | None = None) -> Answer:
        """Return the answer to a request, sent `attempts` times at most; those of the client where None.

        Some vectors, but not all of several, may still be unusable after a `few` answers.

        Raises RemoteError, AuthenticationError, TooLongError, SeveralRefusedError, FailedTextsError: the server refused
        the request or kept failing.
        """
        unread = 0
        lacking = list(range(len(inputs)))
        best: Answer | None = None
        for number in range(1, self.few + 1):
            try:
                # What was answered well is not paid for again
                content = self._send([inputs[position] for position in lacking], attempts)
                answer = read_answer(content, len(lacking), self.endpoint.api)
                # An answer that could not be read was charged like this one: it was to the same texts
                self.charge(answer.tokens * (1 + unread))
                unread = 0
                best = answer if best is None else _with_rows(best, lacking, answer)
                lacking = np.flatnonzero(~best.is_usable).tolist()
                reason = UNUSABLE_VECTOR
            except UnusableError as error:
                self.charge(error.tokens or 0)
                unread += error.tokens is None
                reason = str(error)
            if not lacking:
                break
            if number == self.few or self._is_stopped:
                break
            # Longer each time: whatever makes a server answer so may pass
            time.sleep(number)
        if best is None or len(lacking) == len(inputs):
            raise _useless(self.endpoint, number, reason, len(inputs))
        self.limit.succeed()
        return best

    def responds(self) -> bool:
        """Return whether the server embeds a word, asked once."""
        try:
            answer = read_answer(self._send([PROBE], 1), 1, self.endpoint.api)
        except Exception:  # whatever it is, the caller has an error to raise
            return False
        self.charge(answer.tokens)
        return bool(answer.is_usable.all())

    def _send(self, inputs: list[str], attempts: int | None) -> bytes:
        """Return the content of an answer, which is read here: the library's own parser trusts the server."""
        import openai

        allowed = self.attempts if attempts is None else min(attempts, self.attempts)
        tried = 0
        while True:
            # A server that never answered may be a wrong address, which no patience mends
            most = allowed if self.limit.is_reached else min(allowed, self.few)
            encoding: Literal["base64", "float"] = "base64" if self.server.takes_base64 else "float"
            try:
                with self._post(self._openai.with_options(max_retries=most - tried - 1), inputs, encoding) as response:
                    return self._read(response.iter_bytes())
            except openai.APIConnectionError as error:
                raise self.endpoint.unconnected(error, tried) from error
            except openai.APIStatusError as error:
                # Some servers that speak this API know no base64; numbers as text are larger and slower to read
                if encoding == "base64" and mentions(error, NO_BASE64):
                    self.server.takes_base64 = False
                    continue
                tried += attempts_of(error)
                if not most <= tried < allowed:
                    raise self.endpoint.refused(error, tried, len(inputs)) from error
            except openai.OpenAIError as error:
                if isinstance(error.__cause__, RemoteError):  # of `_on_response`
                    raise error.__cause__ from None
                raise
            finally:
                self.limit.leave()

    def _post(
        self, client: OpenAI, inputs: list[str], encoding: Literal["base64", "float"]
    ) -> AbstractContextManager[APIResponse[Any]]:
        """Send a request, in the form of the API; its answer is read later."""
        endpoint = self.endpoint
        body = endpoint.api.body(inputs, endpoint.model, encoding, endpoint.dimensions, endpoint.task)
        path = endpoint.api.path(endpoint.model)
        answer = client.post(path, cast_to=object, body=body, options={"headers": self._headers})
        return closing(cast("APIResponse[Any]", answer))

    def _read(self, chunks: Iterator[bytes]) -> bytes:
        """Read an answer in time: the library's limit starts again with each byte that comes."""
        end = time.monotonic() + self.endpoint.timeout_s
        content = bytearray()
        try:
            for chunk in chunks:
                content += chunk
                if time.monotonic() > end:
                    break
            else:
                return bytes(content)
            reason = f"no whole answer within {self.endpoint.timeout_s:g} s"
        except Exception as error:  # of the HTTP library, which depends on the version of openai
            reason = f"an answer that broke off ({type(error).__name__})"
        raise UnusableError(reason, 0)

    def _on_request(self, _request: Any) -> None:
        """Called before each request, retries included."""
        self.limit.enter(lambda: self._is_stopped)
        if self._is_stopped:
            import openai

            raise openai.OpenAIError("stopped")  # which the library does not retry, as it would any other error

    def _on_response(self, response: Any) -> None:
        """Called with each response before it is read, and before a redirect in it is followed."""
        self.limit.is_reached = True
        if response.has_redirect_location:
            _check_redirect(response)
        # The library waits before it tries again, and others may use the place meanwhile
        if response.status_code >= 400:
            self.limit.leave()
        if response.status_code == 429:
            self.limit.halve()
            # Waiting does not help an account without quota, nor a request beyond its tokens per minute
            if any(phrase in response.read().lower() for phrase in (b"insufficient_quota", b"request too large")):
                response.headers["x-should-retry"] = "false"


def _useless(endpoint: Endpoint, times: int, reason: str, count: int) -> Exception:
    """The error for answers without a vector that can be used; that of one text may be no fault of the server."""
    error = endpoint.failed(times, reason, "check `base_url` and the model behind it")
    if count == 1 and reason == UNUSABLE_VECTOR:
        return FailedTextsError(reason, error)
    return error


def _check_redirect(response: Any) -> None:
    import openai

    try:
        check_redirect(str(response.request.url), response.headers["Location"])
    except RemoteError as error:
        # The library would retry any other error; `Client` raises the cause of this one
        raise openai.OpenAIError(str(error)) from error


def load_library() -> None:
    """Load the client's library and the certificates, most of what a first request waits for."""
    with suppress(ImportError):  # which the first request tells
        _certificates()


@cache
def _certificates() -> ssl.SSLContext:
    """TLS certificates, loaded once per process because loading takes most of the time that a client takes to make."""
    import openai

    library = import_module(openai.DefaultHttpxClient.__mro__[1].__module__)  # httpx2 from openai 3 on, before it httpx
    try:
        context: ssl.SSLContext = library.create_ssl_context()
    except OSError as error:  # of OpenSSL too
        path = os.environ.get("SSL_CERT_FILE")
        raise OutputError(
            f"cannot read the certificates of SSL_CERT_FILE, {path}: {describe_os_error(error)}; name a file of "
            "certificates in PEM form"
        ) from error
    return context


def read_answer(body: bytes, count: int, api: Service = OPENAI) -> Answer:
    """Return the checked answer to a request of `count` texts.

    Raises UnusableError: there are not `count` vectors of one dimension with the numbers of their texts.
    """
    answer: Any = None
    try:
        answer = api.as_openai(json.loads(body))
        items = sorted(answer["data"], key=lambda item: int(item["index"]))
        rows = [_read_vector(item["embedding"]) for item in items]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        reason = f"an answer that is not a list of embeddings with an index each ({len(body)} bytes)"
        raise UnusableError(reason, _read_tokens(answer)) from error
    tokens = _read_tokens(answer)
    name = answer.get("model")
    if len(rows) != count:
        raise UnusableError(f"{len(rows)} embeddings for {count} texts", tokens)
    # Without numbers nothing says which vector is of which text, as servers may answer in any order
    if [item["index"] for item in items] != list(range(count)):
        raise UnusableError("embeddings without the numbers of their texts (`index` is not 0, 1, 2 ...)", tokens)
    # NumPy would make an array of objects of them
    if len({len(row) for row in rows}) != 1:
        raise UnusableError("embeddings of several dimensions", tokens)
    return Answer(np.stack(rows), tokens or 0, name if isinstance(name, str) else "")


def _with_rows(answer: Answer, rows: Sequence[int], newer: Answer) -> Answer:
    """Return an answer with some of its vectors from a newer one."""
    if newer.vectors.shape[1] != answer.vectors.shape[1]:
        raise UnusableError("embeddings of several dimensions", 0)
    vectors = answer.vectors.copy()
    vectors[rows] = newer.vectors
    return replace(answer, vectors=vectors, tokens=answer.tokens + newer.tokens)


def _read_vector(embedding: Any) -> Vectors:
    """One vector, from base64 of little-endian float32 or from a list of numbers."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").astype(np.float32)
    with np.errstate(over="ignore"):
        vector = np.asarray(embedding, dtype=np.float32)
    if vector.ndim != 1:
        raise ValueError("not a vector")
    return vector


def _read_tokens(answer: Any) -> int | None:
    usage = None
    if isinstance(answer, dict):
        usage = answer.get("usage")
    tokens = None
    if isinstance(usage, dict):
        tokens = usage.get("total_tokens")
    if isinstance(tokens, int | float) and math.isfinite(tokens):
        return max(0, int(tokens))
    return None
