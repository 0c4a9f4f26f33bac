"""Reads the answers of an OpenAI-compatible server: checked vectors, or one of our errors. Sends nothing.

The client library does not check how many vectors came back, in which order, or whether they are numbers.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from migrate.embedders.openai_limits import TransientError, asked_wait_s
from migrate.errors import AuthenticationError, LeadMigrateError, RemoteError
from migrate.vectors import Vectors, squared_norms

if TYPE_CHECKING:
    from openai import APIStatusError

_TRANSIENT_STATUSES = (408, 409, 425, 429)
_LENGTH_CODES = ("max_tokens_per_request", "context_length_exceeded")
_LENGTH_WORDS = ("maximum context length", "too many tokens", "tokens per request", "too long", "token limit")

_FEWEST_ALIKE = 4
"""Texts that differ by more than capitals and signs, and share one vector: not by chance."""

_ROUNDING = 1e-5

_TOO_LARGE_FOR_A_MINUTE = "request too large"
"""What OpenAI says with a 429 where one request has more tokens than the account has a minute: waiting never helps."""


class TooLongError(Exception):
    """The request holds more tokens than the server takes, in all or in one text; never leaves this package.

    `position` is that of the text, where a request of this text alone was refused.
    """

    position: int = 0


class OtherDimensionError(Exception):
    """All vectors of an answer are of a dimension that was not expected: another model; never leaves this package.

    Asking again would be charged again. `dim` is the dimension, `tokens` what the answer was charged for.
    """

    def __init__(self, dim: int, tokens: int) -> None:
        super().__init__(dim)
        self.dim = dim
        self.tokens = tokens


@dataclass(frozen=True, slots=True)
class Answer:
    """The vectors of one request, in the order of its texts, the tokens the server charged for them, and its model.

    `model` is the name that the server gives it, empty where it gives none.
    """

    vectors: Vectors
    tokens: int
    model: str = ""


class Sameness:
    """Detects from the first answers a server that gives one vector to all texts, as a stub or broken model does."""

    def __init__(self) -> None:
        self._vector: Vectors | None = None
        self._texts: set[str] = set()
        self._is_over = False

    def add(self, texts: Sequence[str], vectors: Vectors, *, service: str) -> None:
        """Look at further texts and their vectors (n, dim); once two vectors differ, nothing is looked at any more."""
        if self._is_over:
            return
        first = self._vector = vectors[0].copy() if self._vector is None else self._vector
        if len(first) != vectors.shape[1] or (np.abs(vectors - first) > _ROUNDING * np.abs(first).max()).any():
            self._is_over = True
            return
        # Models without capitals or accents rightly give one vector to some texts that differ
        self._texts.update("".join(filter(str.isalnum, text.casefold())) for text in texts)
        if len(self._texts) >= _FEWEST_ALIKE:
            raise RemoteError(
                f"{service}: the server returned one and the same vector for {len(self._texts)} different "
                "texts; check the model behind `base_url`"
            )


class SameModel:
    """Detects a server that answers with another model than it was asked for, or than before, by what it says of it.

    Servers of open models name them as they like: by a path, a file, a tag, or a name that is always the same. So what
    the first answer says counts, and another spelling of it. One name is wrong from the beginning: that of another
    model of the provider whose model was asked for.

    Parameters
    ----------
    asked
        The name in the requests.
    siblings
        Names of the models of its provider, where it is known; none for a name that anybody may give.
    """

    def __init__(self, asked: str, siblings: Collection[str] = ()) -> None:
        self._asked = asked
        self._others = [name for name in siblings if name != asked]
        self._first = ""

    def add(self, name: str, *, service: str) -> None:
        """Look at the name in a further answer.

        Raises
        ------
        RemoteError
            It is that of another model.
        """
        if not name:
            return
        if any(is_same_name(name, other) for other in self._others) and not is_same_name(name, self._asked):
            raise RemoteError(
                f"{service}: expected answers of {self._asked!r}, found the server to answer with {name!r}; check "
                "`base_url` and the model's name there"
            )
        self._first = self._first or name
        if not is_same_name(name, self._first):
            raise RemoteError(
                f"{service}: expected all answers of one model, found {self._first!r} and then {name!r}; ask a server "
                "that keeps to one"
            )


def is_same_name(one: str, other: str) -> bool:
    """Whether two names are of one model, as far as names tell: without provider, folder, file type and version.

    >>> is_same_name("text-embedding-3-small", "openai/text-embedding-3-small-2024-05-01")
    True
    >>> is_same_name("/models/bge-m3.gguf", "BAAI/bge-m3:latest")
    True
    >>> is_same_name("text-embedding-3-small", "text-embedding-3-large")
    False
    """
    return _bare_name(one) == _bare_name(other)


def _bare_name(name: str) -> str:
    base = re.split(r"[/\\]", name.casefold().rstrip("/\\"))[-1]
    return re.sub(r"(\.(gguf|bin|onnx|safetensors)|:latest|[-@:]v?\d{4}-?\d{2}-?\d{2}|(?<=-\d{3})-v\d+)$", "", base)


def read_answer(body: bytes, *, count: int, dim: int | None) -> Answer:
    """Vectors of an answer to a request of `count` texts; `dim` is None where it is not known yet."""
    facts: Any = None
    try:
        facts = _parse(body)
        answer = Answer(_read_vectors(facts, body, count, dim), _read_tokens(facts), _read_model(facts))
    except _UnusableError as error:
        advice = "check `base_url` and the model behind it"
        raise TransientError(str(error), advice=advice, charged_tokens=_read_tokens(facts) or None) from error
    if dim is not None and answer.vectors.shape[1] != dim:
        raise OtherDimensionError(answer.vectors.shape[1], answer.tokens)
    return answer


class _UnusableError(Exception):
    """An answer that cannot be used, although the server charges for it."""


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _no_embeddings(body) from error


def _no_embeddings(body: bytes) -> _UnusableError:
    return _UnusableError(f"an answer that is not a list of embeddings ({len(body)} bytes)")


def _read_vectors(facts: Any, body: bytes, count: int, dim: int | None) -> Vectors:
    """Vectors (count, dim) in the order of the texts, which need not be that of the answer."""
    try:
        items = sorted(facts["data"], key=lambda item: int(item.get("index", -1)))
        rows = [_read_vector(item["embedding"]) for item in items]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise _no_embeddings(body) from error
    if len(rows) != count:
        raise _UnusableError(f"{len(rows)} embeddings for {count} texts")
    if [item.get("index") for item in items] != list(range(count)):
        raise _UnusableError("embeddings that do not say which text each belongs to (`index` is not 0, 1, 2 ...)")
    dims = {len(row) for row in rows}
    if len(dims) != 1:
        dimensions = ", ".join(map(str, sorted(dims)))
        raise _UnusableError(f"embeddings of dimension {dimensions} where {dim or 'one dimension'} was expected")
    return _check_values(np.stack(rows))


def _read_vector(embedding: Any) -> Vectors:
    """One vector, from base64 of little-endian float32 or from a list of numbers."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").astype(np.float32)
    with np.errstate(over="ignore"):
        vector = np.asarray(embedding, dtype=np.float32)
    if vector.ndim != 1:
        raise ValueError("not a vector")
    return vector


def _check_values(vectors: Vectors) -> Vectors:
    with np.errstate(over="ignore", invalid="ignore"):
        squares = squared_norms(vectors)
    if not (np.isfinite(squares) & (squares > 0)).all():
        raise _UnusableError("an embedding that is zero, NaN or Inf")
    return vectors


def _read_model(facts: Any) -> str:
    name = facts.get("model") if isinstance(facts, dict) else None
    return name if isinstance(name, str) else ""


def _read_tokens(facts: Any) -> int:
    usage = facts.get("usage") if isinstance(facts, dict) else None
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    return max(0, int(tokens)) if isinstance(tokens, int | float) and math.isfinite(tokens) else 0


def translate_status(error: APIStatusError, *, service: str, model: str, key: str) -> Exception:
    """The error of ours for an HTTP status that is not a success; the key never gets into its message."""
    facts = error.body if isinstance(error.body, dict) else {}
    code = str(facts.get("code") or facts.get("type") or "")
    message = _shorten(str(facts.get("message") or error.message), key)
    status = error.status_code
    if code == "insufficient_quota":
        return RemoteError(f"{service}: the account has no quota left ({code}); add credit, then run the same again")
    if status == 429 and _TOO_LARGE_FOR_A_MINUTE in message.lower():
        return TooLongError(message)
    if status in _TRANSIENT_STATUSES or status >= 500:
        wait_s = asked_wait_s(error.response.headers)
        return TransientError(f"HTTP {status} ({message})", wait_s=wait_s, is_throttled=status == 429)
    if status == 413 or (status in (400, 422) and _is_about_length(code, message)):
        return TooLongError(message)
    return _final_error(status, message, service=service, model=model)


def _final_error(status: int, message: str, *, service: str, model: str) -> LeadMigrateError:
    if status in (401, 403):
        # The server's own words are left out: they quote part of the key.
        return AuthenticationError(f"{service} refused the key (HTTP {status}); check OPENAI_API_KEY and its rights")
    if status == 404:
        return RemoteError(f"{service} knows no model {model!r} (HTTP 404); check the model's name and `base_url`")
    return RemoteError(f"{service} refused the request for {model!r} (HTTP {status}): {message}; check the options")


def _is_about_length(code: str, message: str) -> bool:
    return code in _LENGTH_CODES or any(words in message.lower() for words in _LENGTH_WORDS)


def _shorten(message: str, key: str, limit: int = 300) -> str:
    """The first line of a message, without the key."""
    clean = message.replace(key, "***") if key else message
    line = (clean.strip() or "no message").splitlines()[0]
    return line if len(line) <= limit else line[:limit] + "…"
