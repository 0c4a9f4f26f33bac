"""Requests to an OpenAI-compatible server: the openai library sends and retries them, and answers are checked here.

The library does not check how many vectors came back, in which order, or whether they are numbers.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
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

from migrate.embedders.services import OPENAI, Service
from migrate.errors import AuthenticationError, OutputError, RemoteError
from migrate.files import describe_os_error
from migrate.locations import mask_url, scrub
from migrate.redirects import check_redirect
from migrate.vectors import Vectors, squared_norms

if TYPE_CHECKING:
    from openai import APIConnectionError, APIResponse, APIStatusError, OpenAI

TOO_LONG = (
    *("max_tokens_per_request", "context_length_exceeded"),
    *("maximum context length", "too many tokens", "tokens per request", "too long", "token limit"),
    "max allowed tokens",
)
"""Codes and words of servers for a request that holds too much."""

UNFIT = (400, 422)
"""Statuses of servers for a request that they do not take: for its options, the number of its texts, or one of them."""

NO_BASE64 = ("base64", "encoding_format")
"""Words of servers that give vectors as lists of numbers only."""

AZURE_VERSION = "api-version"
"""The parameter of addresses of Azure OpenAI, which takes keys in a header of its own."""

UNUSABLE_VECTOR = "an embedding that is zero, NaN or Inf"
PROBE = "word"
"""A text that every model can embed."""


class TooLongError(Exception):
    """The request holds more tokens than the server takes, in all or in one text; never leaves this package."""


class SeveralRefusedError(Exception):
    """The server refused a request of several texts, for their number or for whatever; never leaves this package."""


class FailedTextsError(Exception):
    """The server fails on these texts for a `reason`, or on any: then `error` is right; never leaves this package."""

    def __init__(self, reason: str, error: RemoteError) -> None:
        super().__init__(reason)
        self.error = error


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
        self.concurrency, self.rate_per_s = concurrency, rate_per_s
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
            while len(self._flying - {thread}) >= self.places and not is_stopped():
                self._lock.wait(0.1)
            self._flying.add(thread)
            start = max(time.monotonic(), self._next_start)
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
            self.places = min(self.concurrency, self.places + 1) if self._is_answered else self.concurrency
            self._is_answered = True

    def halve(self) -> None:
        """Count a 429."""
        with self._lock:
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
        self.most_texts = half if self.most_texts is None else min(half, self.most_texts)


@dataclass(eq=False)
class Client:
    """The openai library's client for one model of one server; closes its connections as a context ends.

    `base_url` None is OpenAI, `dimensions` None the model's own. `timeout_s` is for each part of an answer, and for all
    of its parts; a request is sent `attempts` times at most, while it fails in a way that may pass. `charge` is called
    with the tokens that the server charged for each answer, usable or not, in the thread of its request. `task` is what
    the `api` is told of the texts.
    """

    few: ClassVar[int] = 3
    """Attempts at a server that has never answered, which may be the wrong one, and unusable answers, which cost."""

    model: str
    base_url: str | None
    key: str = field(repr=False)
    dimensions: int | None
    timeout_s: float
    attempts: int
    limit: RequestLimit
    charge: Callable[[int], None]
    api: Service = OPENAI
    task: str | None = None
    server: ServerLimits = field(default_factory=ServerLimits)
    _is_stopped: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        import openai

        address, _, parameters = (self.base_url or self.api.base_url or "").partition("?")
        query = dict(parse_qsl(parameters, keep_blank_values=True))
        self._headers: dict[str, Any] = {}
        if AZURE_VERSION in query:
            self._headers = {"api-key": self.key, "Authorization": None}
        self._openai = openai.OpenAI(
            api_key=self.key,
            base_url=address or None,
            default_query=query,
            # A connection is accepted soon, even by a server that takes far longer to answer
            timeout=openai.Timeout(self.timeout_s, connect=min(10.0, self.timeout_s)),
            http_client=openai.DefaultHttpxClient(
                verify=_certificates(), event_hooks={"request": [self._on_request], "response": [self._on_response]}
            ),
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()
        self._openai.close()

    @property
    def service(self) -> str:
        """The name of the server in messages."""
        return mask_url(self.base_url) if self.base_url else self.api.title

    def start(self, inputs: Sequence[str], future: Future[Answer], *, is_hurried: bool = False) -> None:
        """Send a request in a thread, which is a daemon: a process that ends does not wait for its retries.

        One that `is_hurried` is sent a `few` times at most.
        """
        attempts = self.few if is_hurried else None

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(self.ask(list(inputs), attempts=attempts))
            except BaseException as error:
                future.set_exception(error)

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
                answer = read_answer(content, len(lacking), self.api)
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
            time.sleep(number)
        if best is None or len(lacking) == len(inputs):
            raise self._useless(number, reason, len(inputs))
        self.limit.succeed()
        return best

    def _useless(self, times: int, reason: str, count: int) -> Exception:
        """The error for answers without a vector that can be used; that of one text may be no fault of the server."""
        error = self._failed(times, reason, "check `base_url` and the model behind it")
        if count == 1 and reason == UNUSABLE_VECTOR:
            return FailedTextsError(reason, error)
        return error

    def responds(self) -> bool:
        """Return whether the server embeds a word, asked once."""
        try:
            answer = read_answer(self._send([PROBE], 1), 1, self.api)
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
            most = allowed if self.limit.is_reached else min(allowed, self.few)
            encoding: Literal["base64", "float"] = "base64" if self.server.takes_base64 else "float"
            try:
                with self._post(self._openai.with_options(max_retries=most - tried - 1), inputs, encoding) as response:
                    return self._read(response.iter_bytes())
            except openai.APIConnectionError as error:
                raise self._unconnected(error, tried) from error
            except openai.APIStatusError as error:
                if encoding == "base64" and _mentions(error, NO_BASE64):
                    self.server.takes_base64 = False
                    continue
                tried += _attempts(error)
                if not most <= tried < allowed:
                    raise self._refused(error, tried, len(inputs)) from error
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
        import openai

        body = self.api.body(inputs, self.model, encoding, self.dimensions, self.task)
        headers = {**self._headers, **self.api.headers(self.key)}
        headers = {name: openai.omit if it is None else it for name, it in headers.items()}
        headers["X-Stainless-Raw-Response"] = "stream"  # as the library's own calls with a streaming response have it
        answer = client.post(self.api.path(self.model), cast_to=object, body=body, options={"headers": headers})
        return closing(cast("APIResponse[Any]", answer))

    def _read(self, chunks: Iterator[bytes]) -> bytes:
        """Read an answer in time: the library's limit starts again with each byte that comes."""
        end, content = time.monotonic() + self.timeout_s, bytearray()
        try:
            for chunk in chunks:
                content += chunk
                if time.monotonic() > end:
                    break
            else:
                return bytes(content)
            reason = f"no whole answer within {self.timeout_s:g} s"
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
            self._check_redirect(response)
        if response.status_code >= 400:
            self.limit.leave()
        if response.status_code == 429:
            self.limit.halve()
            # Waiting does not help an account without quota, nor a request beyond its tokens per minute
            if any(phrase in response.read().lower() for phrase in (b"insufficient_quota", b"request too large")):
                response.headers["x-should-retry"] = "false"

    def _check_redirect(self, response: Any) -> None:
        import openai

        try:
            check_redirect(str(response.request.url), response.headers["Location"])
        except RemoteError as error:
            raise openai.OpenAIError(str(error)) from error  # for the same reason as in `_on_request`

    def _failed(self, times: int, reason: str, advice: str) -> RemoteError:
        count = "once" if times == 1 else f"{times} times, the last time"
        return RemoteError(f"{self.service} failed {count} with: {scrub(reason)}; {advice}")

    def _unconnected(self, error: APIConnectionError, tried: int) -> RemoteError:
        """The error for a connection that was not made or broke, with its cause, or for no answer in time."""
        cause = error.__cause__ or error
        if (refused := _refused_certificate(error)) is not None:
            reason = (
                f"no connection (the certificate of the server is not accepted: {refused.verify_message.rstrip('.')})"
            )
            advice = "name a file with the certificate of its authority in SSL_CERT_FILE"
            if refused.verify_code in _OTHER_HOST:
                advice = "use the host name of the certificate in `base_url`"
            return self._failed(tried + _attempts(error), reason, advice)
        cause_text = re.sub(r"^\[Errno -?\d+\] ", "", str(cause)).partition("\n")[0] or type(cause).__name__
        reason = f"no connection ({cause_text})"
        if type(error).__name__ == "APITimeoutError" and type(cause).__name__ != "ConnectTimeout":
            reason = f"no answer within {self.timeout_s:g} s, perhaps for want of a smaller batch-size"
        advice = "is the server running, and is `base_url` right?" if self.base_url else "is this machine online?"
        return self._failed(tried + _attempts(error), reason, advice)

    def _refused(self, error: APIStatusError, tried: int, count: int) -> Exception:
        """The error for an HTTP status that is not a success; the key never gets into its message."""
        details = error.body if isinstance(error.body, dict) else {}
        code = str(details.get("code") or details.get("type") or "")
        reason = str(details.get("message") or error.message).replace(self.key, "***").strip() or "no message"
        message = scrub(reason.splitlines()[0])[:300]
        status, service = error.status_code, self.service
        if code == "insufficient_quota":
            return RemoteError(
                f"{service}: the account has no quota left ({code}); add credit, then run the same again"
            )
        # With a 429 OpenAI says so where one request has more tokens than the account has per minute
        signs = {429: ("request too large",), 400: TOO_LONG, 422: TOO_LONG}.get(status, ())
        if status == 413 or any(sign in f"{code} {message}".lower() for sign in signs):
            return TooLongError(message)
        if count > 1 and status in UNFIT:
            return SeveralRefusedError(message)
        if status == 500:
            reason = f"HTTP 500 ({message})"
            return FailedTextsError(reason, self._failed(tried, reason, "try again later"))
        if status in (408, 409, 429) or status >= 500:
            wait = error.response.headers.get("retry-after")
            advice = "try again later" if wait is None else f"the server asks to wait {wait} s: run again after that"
            return self._failed(tried, f"HTTP {status} ({message})", advice)
        if status in (401, 403):
            # The server's own words are left out: they quote part of the key
            return AuthenticationError(
                f"{service} refused the key (HTTP {status}); check {self.api.key_variable} and its rights"
            )
        if status == 404:
            return RemoteError(
                f"{service} knows no model {self.model!r} (HTTP 404); check the model's name and `base_url`"
            )
        refused = RemoteError(
            f"{service} refused the request for {self.model!r} (HTTP {status}): {message}; check the options"
        )
        return FailedTextsError(f"HTTP {status} ({message})", refused) if status in UNFIT else refused


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


_OTHER_HOST = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


def _refused_certificate(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """Return what the check of a server's certificate found wrong, if that is behind an error."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return cause


def _mentions(error: APIStatusError, phrases: Sequence[str]) -> bool:
    """Return whether a refusal, in whatever form, has one of these words."""
    message = f"{error.message} {error.body}".lower()
    return any(phrase in message for phrase in phrases)


def _attempts(error: APIConnectionError | APIStatusError) -> int:
    """Count how often the library sent the request of an error."""
    return 1 + int(error.request.headers.get("x-stainless-retry-count", "0"))


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
    tokens, name = _read_tokens(answer), answer.get("model")
    if len(rows) != count:
        raise UnusableError(f"{len(rows)} embeddings for {count} texts", tokens)
    if [item["index"] for item in items] != list(range(count)):
        raise UnusableError("embeddings without the numbers of their texts (`index` is not 0, 1, 2 ...)", tokens)
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
    usage = answer.get("usage") if isinstance(answer, dict) else None
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    return max(0, int(tokens)) if isinstance(tokens, int | float) and math.isfinite(tokens) else None
