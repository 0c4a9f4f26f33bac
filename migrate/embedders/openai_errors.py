"""Errors of a server of embeddings: what a refusal means, and what to do about it.

The key never gets into a message.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from migrate.embedders.services import OPENAI, Service
from migrate.errors import AuthenticationError, RemoteError
from migrate.locations import mask_url, scrub

if TYPE_CHECKING:
    from openai import APIConnectionError, APIStatusError

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

_OTHER_HOST = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


class TooLongError(Exception):
    """The request holds more tokens than the server takes, in all or in one text; never leaves this package."""


class SeveralRefusedError(Exception):
    """The server refused a request of several texts, for their number or for whatever; never leaves this package."""


class FailedTextsError(Exception):
    """The server fails on these texts for a `reason`, or on any: then `error` is right; never leaves this package."""

    def __init__(self, reason: str, error: RemoteError) -> None:
        super().__init__(reason)
        self.error = error


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model of a server, and how it is asked.

    `base_url` None is that of the `api`, `dimensions` None the model's own. `timeout_s` is for each part of an answer,
    and for all of its parts. `task` is what the `api` is told of the texts.
    """

    model: str
    base_url: str | None
    key: str = field(repr=False)
    dimensions: int | None
    timeout_s: float
    api: Service = OPENAI
    task: str | None = None

    @property
    def service(self) -> str:
        """The name of the server in messages."""
        if self.base_url:
            return mask_url(self.base_url)
        return self.api.title

    def failed(self, times: int, reason: str, advice: str) -> RemoteError:
        """Return the error for a server that failed so many times."""
        count = "once" if times == 1 else f"{times} times, the last time"
        return RemoteError(f"{self.service} failed {count} with: {scrub(reason)}; {advice}")

    def unconnected(self, error: APIConnectionError, tried: int) -> RemoteError:
        """Return the error for a connection that was not made or broke, with its cause, or for no answer in time."""
        cause = error.__cause__ or error
        if (refused := _refused_certificate(error)) is not None:
            reason = (
                f"no connection (the certificate of the server is not accepted: {refused.verify_message.rstrip('.')})"
            )
            advice = "name a file with the certificate of its authority in SSL_CERT_FILE"
            if refused.verify_code in _OTHER_HOST:
                advice = "use the host name of the certificate in `base_url`"
            return self.failed(tried + attempts_of(error), reason, advice)
        cause_text = re.sub(r"^\[Errno -?\d+\] ", "", str(cause)).partition("\n")[0] or type(cause).__name__
        reason = f"no connection ({cause_text})"
        if type(error).__name__ == "APITimeoutError" and type(cause).__name__ != "ConnectTimeout":
            reason = f"no answer within {self.timeout_s:g} s, perhaps for want of a smaller batch-size"
        advice = "is this machine online?"
        if self.base_url:
            advice = "is the server running, and is `base_url` right?"
        return self.failed(tried + attempts_of(error), reason, advice)

    def refused(self, error: APIStatusError, tried: int, count: int) -> Exception:
        """Return the error for an HTTP status that is not a success; the key never gets into its message."""
        # Proxies answer with a page or with nothing
        details = error.body if isinstance(error.body, dict) else {}
        code = str(details.get("code") or details.get("type") or "")
        reason = str(details.get("message") or error.message).replace(self.key, "***").strip() or "no message"
        # The words of a server, which may hold control characters, or a page
        message = scrub(reason.splitlines()[0])[:300]
        status = error.status_code
        service = self.service
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
            return FailedTextsError(reason, self.failed(tried, reason, "try again later"))
        if status in (408, 409, 429) or status >= 500:
            wait = error.response.headers.get("retry-after")
            advice = "try again later"
            if wait is not None:
                advice = f"the server asks to wait {wait} s: run again after that"
            return self.failed(tried, f"HTTP {status} ({message})", advice)
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
        if status in UNFIT:
            return FailedTextsError(f"HTTP {status} ({message})", refused)
        return refused


def _refused_certificate(error: BaseException) -> ssl.SSLCertVerificationError | None:
    """Return what the check of a server's certificate found wrong, if that is behind an error."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    return cause


def mentions(error: APIStatusError, phrases: Sequence[str]) -> bool:
    """Return whether a refusal, in whatever form, has one of these words."""
    message = f"{error.message} {error.body}".lower()
    return any(phrase in message for phrase in phrases)


def attempts_of(error: APIConnectionError | APIStatusError) -> int:
    """Count how often the library sent the request of an error."""
    return 1 + int(error.request.headers.get("x-stainless-retry-count", "0"))
