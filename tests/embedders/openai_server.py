"""A local server that speaks OpenAI's embeddings protocol, keeps its limits, and misbehaves on demand.

Used as a context manager; `server.url` is the base URL for clients. Each entry of `server.faults` spoils one request,
in order; what comes after them is answered well. Vectors are a function of model and text: see `vector_of`. What is
answered with HTTP 200 is billed, whether the answer can be used or not: see `billed`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np

KEY = "sk-test-0123456789"
DIMENSIONS = {"text-embedding-3-small": 1536, "text-embedding-ada-002": 1536, "tiny": 8, "tiny-raw": 8}
DIMENSIONS |= {"voyage-4": 1024, "embed-v4.0": 1536, "gemini-embedding-001": 3072, "gemini-embedding-2": 3072}
MAX_TEXTS = 2048
MAX_REQUEST_TOKENS = 300_000
MAX_TEXT_TOKENS = 8191


def count_tokens(text: str) -> int:
    """One token a word: easy to steer from a test."""
    return len(text.split())


def vector_of(text: str, dim: int = 8, *, unit: bool = True) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    vector = np.random.default_rng(seed).standard_normal(dim)
    return (vector / np.linalg.norm(vector) if unit else 3 * vector).astype(np.float32)


@dataclass
class Fault:
    """One spoiled answer: an HTTP status with headers and an error, a change to a good answer, or a way to send it."""

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    error: dict[str, Any] = field(default_factory=dict)
    spoil: Callable[[dict[str, Any]], Any] | None = None
    sent: Literal["whole", "cut", "late", "drop by drop", "not at all", "in half"] = "whole"


def status(code: int, message: str = "spoiled", error_code: str | None = None, **headers: str) -> Fault:
    """An HTTP error; header names with underscores for dashes."""
    error = {"message": message, "type": error_code or "error", "code": error_code, "param": None}
    return Fault(status=code, headers={name.replace("_", "-"): value for name, value in headers.items()}, error=error)


def _spoil_items(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Fault:
    return Fault(spoil=lambda answer: {**answer, "data": change(answer["data"])})


def _changed(item: dict[str, Any], change: Callable[[np.ndarray], np.ndarray]) -> dict[str, Any]:
    vector = np.frombuffer(base64.b64decode(item["embedding"]), dtype="<f4")
    return {**item, "embedding": _encode(change(vector), "base64")}


def _replace_first(change: Callable[[np.ndarray], np.ndarray]) -> Fault:
    return _spoil_items(lambda items: [_changed(items[0], change), *items[1:]])


def _replace_each(change: Callable[[np.ndarray], np.ndarray]) -> Fault:
    return _spoil_items(lambda items: [_changed(item, change) for item in items])


SLOW = Fault(sent="late")
DRIP = Fault(sent="drop by drop")
RESET = Fault(sent="not at all")
RESET_MIDWAY = Fault(sent="in half")
TRUNCATED = Fault(sent="cut")
NOT_JSON = Fault(spoil=lambda answer: "<html>bad gateway</html>")
TOO_FEW = _spoil_items(lambda items: items[:-1])
TOO_MANY = _spoil_items(lambda items: [*items, {**items[-1], "index": len(items)}])
SAME_INDEX = _spoil_items(lambda items: [{**item, "index": 0} for item in items])
SHUFFLED = _spoil_items(lambda items: [*items[1::2], *items[::2]])
NAN = _replace_first(lambda vector: np.full_like(vector, np.nan))
ZERO = _replace_first(np.zeros_like)
RAGGED = _replace_first(lambda vector: vector[:-1])
NO_INDEX = _spoil_items(lambda items: [{"object": "embedding", "embedding": item["embedding"]} for item in items])
CONSTANT = _replace_each(lambda vector: vector_of("one", len(vector)))
SHORTER = _replace_each(lambda vector: vector[:-1])


class ImpatientTime:
    """The module `time` for a client that does not wait: what it would have waited for is noted."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


def do_not_wait(patch: Any) -> list[float]:
    """Patch the client, by pytest's `monkeypatch`, so that it tries again at once; returns its waits as they come."""
    impatient = ImpatientTime()
    patch.setattr("openai._base_client.time", impatient)
    patch.setattr("openai._base_client.random", lambda: 0.0)
    patch.setattr("migrate.embedders.openai_requests.time", impatient)
    return impatient.waits


@dataclass
class Request:
    inputs: list[str]
    model: str
    dimensions: int | None
    encoding_format: str
    authorization: str
    task: str | None = None
    query: str = ""
    api_key: str | None = None


class OpenAIServer:
    """The server. `requests` are all that came in; `texts_served` are the texts of good answers only.

    `billed` are the texts of all answers with HTTP 200, written down before the answer leaves; `in_flight` is how many
    requests are being answered and `most_in_flight` how many ever were; `latency_s` passes before each answer.
    `gate` is called before each answer with the number of the request; a fault that it returns is the answer.
    `vectors`, where it is set, gives the vectors of the texts of a request, and `names` the model of its answer.
    `takes_base64`, `most_texts`, `refuses` (the refusal of a request, by its texts), `fails_on` (the texts of a request
    that end it with HTTP 500) and `api_version` (of Azure, whose key is in another header) are the habits of other
    servers. With `certificate`, the files of a certificate and its key, it speaks HTTPS.
    `before_bill` is called while nothing else is billed; where it raises, the request is neither billed nor answered.
    """

    def __init__(
        self,
        *,
        key: str | None = None,
        encoding: str | None = None,
        handler: type[_Handler] | None = None,
        certificate: tuple[Path, Path] | None = None,
    ) -> None:
        self.key = key
        self.takes_base64 = True
        self.most_texts = MAX_TEXTS
        self.refuses: Callable[[list[str]], Fault | None] = lambda _texts: None
        self.fails_on: Callable[[str], bool] = lambda _text: False
        self.api_version: str | None = None
        self.encoding = encoding
        self.faults: deque[Fault] = deque()
        self.requests: list[Request] = []
        self.texts_served: list[str] = []
        self.billed: list[str] = []
        self.billed_tokens = 0
        self.in_flight = self.most_in_flight = 0
        self.latency_s = 0.0
        self.vectors: Callable[[list[str]], np.ndarray] | None = None
        self.names: Callable[[Request], str | None] = lambda request: request.model
        self.before_bill: Callable[[Request], None] | None = None
        self.lock = threading.Lock()
        self.max_request_tokens = MAX_REQUEST_TOKENS
        self.stopping = threading.Event()
        self.gate: Callable[[int], Fault | None] | None = None
        own_handler = type("Handler", (handler or _Handler,), {"owner": self})
        self._http = _QuietServer(("127.0.0.1", 0), own_handler)
        self._scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
            self._scheme = "https"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> OpenAIServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    owner: OpenAIServer
    endpoint = "/embeddings"
    max_texts = MAX_TEXTS
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def read_request(self) -> Request:
        """The request in OpenAI's form; a server of another form reads its own."""
        facts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        inputs = [facts["input"]] if isinstance(facts["input"], str) else facts["input"]
        how = facts.get("dimensions"), facts.get("encoding_format", "float")
        return Request(
            inputs,
            facts["model"],
            *how,
            self.headers.get("Authorization", ""),
            query=urlsplit(self.path).query,
            api_key=self.headers.get("api-key"),
        )

    def in_its_form(self, answer: Any) -> Any:
        """A good or spoilt answer as the server gives it."""
        return answer

    def do_POST(self) -> None:
        request = self.read_request()
        with self._counted(request) as number:
            fault = None
            if self.owner.gate is not None:
                fault = self.owner.gate(number)
            if fault is None:
                with self.owner.lock:
                    fault = self.owner.faults.popleft() if self.owner.faults else Fault()
            refusal = self._refusal(request)
            if refusal is not None and fault == Fault():
                fault = refusal
            self.owner.stopping.wait(self.owner.latency_s)
            self._answer(request, fault)

    @contextmanager
    def _counted(self, request: Request) -> Iterator[int]:
        owner = self.owner
        with owner.lock:
            owner.requests.append(request)
            number = len(owner.requests)
            owner.in_flight += 1
            owner.most_in_flight = max(owner.most_in_flight, owner.in_flight)
        try:
            yield number
        finally:
            with owner.lock:
                owner.in_flight -= 1

    def _refusal(self, request: Request) -> Fault | None:
        tokens = [count_tokens(text) for text in request.inputs]
        if self.owner.api_version is not None:
            return self._azure_refusal(request)
        if self.owner.key is not None and request.authorization != f"Bearer {self.owner.key}":
            return status(401, f"Incorrect API key provided: {request.authorization}", "invalid_api_key")
        if not urlsplit(self.path).path.endswith(self.endpoint) or request.model not in DIMENSIONS:
            return status(404, f"The model `{request.model}` does not exist", "model_not_found")
        if len(tokens) > self.max_texts or not all(request.inputs):
            return status(400, "'$.input' is invalid", "invalid_request_error")
        if max(tokens) > MAX_TEXT_TOKENS:
            return status(400, f"This model's maximum context length is {MAX_TEXT_TOKENS + 1} tokens, you sent more")
        if sum(tokens) > self.owner.max_request_tokens:
            return status(400, f"Requested {sum(tokens)} tokens, too much", "max_tokens_per_request")
        return self._refusal_by_habit(request)

    def _refusal_by_habit(self, request: Request) -> Fault | None:
        """What OpenAI itself would answer."""
        if len(request.inputs) > self.owner.most_texts:
            return status(400, "Too many inputs")
        if (fault := self.owner.refuses(request.inputs)) is not None:
            return fault
        if request.encoding_format == "base64" and not self.owner.takes_base64:
            return status(400, "base64 encoding is not currently supported", "BadRequestError")
        if any(map(self.owner.fails_on, request.inputs)):
            return status(500, "failed to encode response: json: unsupported value: NaN", "api_error")
        return None

    def _azure_refusal(self, request: Request) -> Fault | None:
        if request.query != f"api-version={self.owner.api_version}":
            return status(404, "Resource not found", "404")
        if request.api_key != self.owner.key or request.authorization:
            return status(401, "Access denied due to invalid subscription key", "401")
        return None

    def _answer(self, request: Request, fault: Fault) -> None:
        if fault.sent == "not at all":
            self._reset()
        elif fault.sent == "late":
            self.owner.stopping.wait(30)
            self.close_connection = True
        elif fault.sent == "drop by drop":
            self._drip()
        elif fault.status is not None:
            self._send(fault.status, {"error": fault.error}, fault.headers)
        else:
            answer = self._good_answer(request)
            with self.owner.lock:
                if self.owner.before_bill is not None:
                    self.owner.before_bill(request)
                self.owner.billed += request.inputs
                self.owner.billed_tokens += answer["usage"]["total_tokens"]
                if fault in (Fault(), SHUFFLED):
                    self.owner.texts_served += request.inputs
            spoilt = fault.spoil(answer) if fault.spoil else answer
            self._send(200, self.in_its_form(spoilt), {}, fault.sent)

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def _drip(self) -> None:
        """An answer that never ends, a byte at a time, so that no wait for the next byte is long."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
        self.close_connection = True
        while not self.owner.stopping.wait(0.02):
            self.wfile.write(b" ")

    def _good_answer(self, request: Request) -> dict[str, Any]:
        dim = request.dimensions or DIMENSIONS[request.model]
        encoding = self.owner.encoding or request.encoding_format
        unit = not request.model.endswith("-raw")
        vectors = [vector_of(text, dim, unit=unit) for text in request.inputs]
        if self.owner.vectors is not None:
            vectors = list(self.owner.vectors(request.inputs))
        encoded = enumerate(_encode(vector, encoding) for vector in vectors)
        items = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in encoded]
        tokens = sum(count_tokens(text) for text in request.inputs)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": items, "model": self.owner.names(request), "usage": usage}

    def _send(self, code: int, answer: Any, headers: dict[str, str], sent: str = "whole") -> None:
        body = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        body = body[: len(body) // 2] if sent == "cut" else body
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if sent == "in half" else body)
        if sent == "in half":
            self.wfile.flush()
            self._reset()


def _encode(vector: np.ndarray, encoding: str) -> str | list[float]:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return [float(value) for value in vector]
