"""Downloading one file over HTTP: resumed after a cut, tried again, never trusted. Hashes are the caller's."""

from __future__ import annotations

import http.client
import logging
import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, BinaryIO

from migrate.errors import RemoteError, UsageError
from migrate.files import output_errors
from migrate.redirects import check_redirect
from migrate.vectors import Progress, no_progress

ATTEMPTS = 5
TIMEOUT_S = 30.0
"""Longest silence of the server, not of the whole transfer."""
_CHUNK = 1 << 16
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_log = logging.getLogger(__name__)


class _SameServer(urllib.request.HTTPRedirectHandler):
    """Follows redirects within a server; a mirror is named by whoever trusts it, not by another server."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        check_redirect(req.full_url, newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_SameServer)


class _CutError(Exception):
    """The transfer ended early; what has arrived is kept and the rest can be asked for."""


def download(
    url: str, part: Path, *, progress: Progress = no_progress, timeout_s: float = TIMEOUT_S, wait_s: float = 1.0
) -> None:
    """Bring `part` to the whole content of `url`, going on where an earlier run was cut.

    A server that ignores Range makes the file start anew. Waits `wait_s`, then twice that, and so on between
    attempts.

    Parameters
    ----------
    part
        The file to write; what it holds already is taken for the beginning of the content.
    progress
        Called with the bytes that are there, those of earlier runs included.

    Raises
    ------
    RemoteError
        The server refused, sent us on to another one, or did not deliver in `ATTEMPTS` attempts; `part` keeps what
        has arrived.
    UsageError
        `url` is not http or https.
    OutputError
        The operating system refused to write.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"expected an http or https address, found {url!r}; mend the base URL")
    reason = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            _log.warning("%s: %s; trying again", url, reason)
            time.sleep(wait_s * 2 ** (attempt - 1))
        try:
            _attempt(url, part, progress, timeout_s)
        except _CutError as error:
            reason = str(error)
        else:
            return
    raise RemoteError(f"cannot download {url}: {reason}; {ATTEMPTS} attempts failed, run again to go on")


def _attempt(url: str, part: Path, progress: Progress, timeout_s: float) -> None:
    there = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "lead-migrate"} | ({"Range": f"bytes={there}-"} if there else {})
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  the scheme is checked in download()
    try:
        with _OPENER.open(request, timeout=timeout_s) as response:
            start = there if _continues(response, there) else 0
            with output_errors(part):
                file = part.open("r+b" if start else "wb")
            with file:
                file.seek(start)
                _receive(response, file, part, start, progress)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and there:
            return  # nothing is left to send; whether what is there is right, its hash will say
        if error.code not in _TRANSIENT:
            raise RemoteError(f"cannot download {url}: {error.code} {error.reason}; check the address") from error
        raise _CutError(f"{error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _CutError(str(getattr(error, "reason", None) or error or type(error).__name__)) from error


def _continues(response: http.client.HTTPResponse, there: int) -> bool:
    """Whether a response is the content from byte `there` on, rather than the whole content."""
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        return False
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    if not match or int(match[1]) != there:
        raise RemoteError(f"cannot resume {response.url}: expected bytes from {there}, found others; try again later")
    return True


def _receive(response: http.client.HTTPResponse, file: BinaryIO, part: Path, start: int, progress: Progress) -> None:
    length = response.headers.get("Content-Length")
    total = start + int(length) if length and length.isdecimal() else None
    done = start
    while chunk := response.read1(_CHUNK):  # read() would lose what came before a cut in a chunked response
        with output_errors(part):
            file.write(chunk)
            file.flush()  # here, so that a full disk is not taken for a cut when the file is closed
        done += len(chunk)
        progress("download", done, total)
    if total is not None and done < total:
        raise _CutError(f"expected {total} bytes, found {done}")
