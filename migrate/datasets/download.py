"""Downloads BEIR sets by name and unpacks them into a cache. `beir.py` reads them.

An interrupted download is resumed and retried. Nothing is unpacked but the archive whose hash is listed here.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import re
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

from migrate.errors import DatasetError, RemoteError, UsageError
from migrate.files import BEIR_URL, atomic_folder, cache_folder, output_errors, output_lock, sync_path
from migrate.progress import Progress, no_progress
from migrate.redirects import check_redirect

# Arbitrary: with the waits between them, a server that restarts has a quarter of a minute to come back.
ATTEMPTS = 5

BEIR_MD5 = {
    "arguana": "8ad3e3c2a5867cdced806d6503f29b99",
    "climate-fever": "8b66f0a9126c521bae2bde127b4dc99d",
    "dbpedia-entity": "c2a39eb420a3164af735795df012ac2c",
    "fever": "5a818580227bfb4b35bb6fa46d9b6c03",
    "fiqa": "17918ed23cd04fb15047f73e6c3bd9d9",
    "hotpotqa": "f412724f78b0d91183a0e86805e16114",
    "msmarco": "444067daf65d982533ea17ebd59501e4",
    "nfcorpus": "a89dba18a62ef92f7d323ec890a0d38d",
    "nq": "d4d3d2e48787a744b6f6e691ff534307",
    "quora": "18fb154900ba42a600f84b839c173167",
    "scidocs": "38121350fc3a4d2f48850f6aff52e4a9",
    "scifact": "5f7d1de60b170fc8027bb7898e2efca1",
    "trec-covid": "ce62140cb23feb9becf6270d0d1fe6d1",
    "webis-touche2020": "46f650ba5a527fc69e0a6521c5a23563",
}
"""MD5 of each archive, from the table "Available Datasets" in the README of https://github.com/beir-cellar/beir.

MD5 is what BEIR publishes. Nobody can make another archive with a hash that is given (a second preimage), so one that
has it is BEIR's own. `cqadupstack` is missing because its archive holds twelve collections, each a BEIR folder.
"""


class _SameServer(urllib.request.HTTPRedirectHandler):
    """Follows redirects within a server only: the user names a mirror, another server may not."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        check_redirect(req.full_url, newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _CutError(Exception):
    """The transfer ended early; what has arrived is kept, and the remainder can be requested."""


def download(url: str, partial: Path, *, progress: Progress = no_progress, timeout_s: float = 30.0) -> None:
    """Bring the file `part` to the whole content of `url`; its present content counts as the beginning.

    Where the server ignores Range, the file starts again. `timeout_s` is the longest silence of the server.
    Waits a second, then two, and so on between attempts.

    Raises RemoteError: the server refused, sent us on to another one, or did not deliver in `ATTEMPTS` attempts; `part`
    keeps what has arrived. UsageError: `url` is not http or https. OutputError: the operating system refused to write.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{url!r} is not an http or https address; correct the base URL")
    reason = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            logging.getLogger(__name__).warning("%s: %s; trying again", url, reason)
            time.sleep(2.0 ** (attempt - 1))
        try:
            return _attempt(url, partial, progress, timeout_s)
        except _CutError as error:
            reason = str(error)
    raise RemoteError(f"cannot download {url}: {reason}; {ATTEMPTS} attempts failed, run again to go on")


def _attempt(url: str, partial: Path, progress: Progress, timeout_s: float) -> None:
    received = 0
    if partial.exists():
        received = partial.stat().st_size
    headers = {"User-Agent": "lead-migrate"} | ({"Range": f"bytes={received}-"} if received else {})
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  the scheme is checked in download()
    try:
        with urllib.request.build_opener(_SameServer).open(request, timeout=timeout_s) as response:
            _receive(response, partial, received, progress)
    except urllib.error.HTTPError as error:
        # An HTTPError is the open response, too.
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and received:
            return  # nothing is left to send; the hash will show whether the file is right
        # These may pass. Any other refusal would be the same the next time, and is told at once.
        if error.code not in (408, 425, 429, 500, 502, 503, 504):
            raise RemoteError(f"cannot download {url}: {error.code} {error.reason}; check the address") from error
        raise _CutError(f"{error.code} {error.reason}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _CutError(str(getattr(error, "reason", None) or error or type(error).__name__)) from error


def _receive(response: http.client.HTTPResponse, partial: Path, received: int, progress: Progress) -> None:
    start = 0
    if response.status == http.HTTPStatus.PARTIAL_CONTENT:
        start = received
    if start and not re.match(rf"bytes {start}-", response.headers.get("Content-Range", "")):
        raise RemoteError(
            f"cannot resume {response.url}: the server did not send the bytes from {received} on; try again later"
        )
    length = response.headers.get("Content-Length", "")
    total = None
    if length.isdecimal():
        total = start + int(length)
    with output_errors(partial):
        file = partial.open("ab" if start else "wb", buffering=0)  # or a full disk would show when the file is closed
    with file:
        while chunk := response.read1(1 << 16):  # read() would lose what came before a cut in a chunked response
            start += len(chunk)
            with output_errors(partial):
                while chunk:
                    chunk = chunk[file.write(chunk) :]
            progress("download", start, total)
    if total is not None and start < total:
        raise _CutError(f"{start} of {total} bytes came")


def resolve_beir(name_or_path: str, *, progress: Progress = no_progress) -> Path:
    """Return the BEIR folder of a path, or of the name of a BEIR set as `fetch_beir` does."""
    if Path(name_or_path).is_dir():
        return Path(name_or_path)
    return fetch_beir(name_or_path, cache=cache_folder() / "beir", progress=progress)


def fetch_beir(name: str, *, cache: Path, progress: Progress = no_progress) -> Path:
    """Return the folder `cache/name` with a BEIR set, downloaded and unpacked if it is not there.

    A cut download is kept as `name.zip.part` and resumed by the next run. The folder appears when it is complete.
    `name.zip` is looked for at $LEAD_MIGRATE_BEIR_URL, by default the official server.

    Raises DatasetError: no such set; or `cache/name` is something else. RemoteError: the server refused or did not
    deliver, or what it sent has another hash and was removed. LockedError: another run is fetching the same set.
    OutputError: the operating system refused to write.
    """
    if name not in BEIR_MD5:
        raise DatasetError(f"{name!r} is not a BEIR folder or set; give a folder, or one of {', '.join(BEIR_MD5)}")
    folder = cache / name
    if not folder.exists():
        with output_lock(folder.with_name(f"{name}.zip")):  # the folder's own lock is for unpacking
            if not folder.exists():  # another run may have finished while this one took the lock
                partial = cache / f"{name}.zip.part"
                official = "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets"
                url = os.environ.get(BEIR_URL) or official
                download(f"{url.rstrip('/')}/{name}.zip", partial, progress=progress)
                _check_hash(partial, name)
                _unpack(partial, folder, name)
    if not (folder / "corpus.jsonl").is_file():
        raise DatasetError(f"{folder}: what is in the cache is not a BEIR folder; remove it")
    return folder


def _check_hash(partial: Path, name: str) -> None:
    with output_errors(partial), partial.open("rb") as file:
        # A Python in FIPS mode has no MD5 for security, and this is none: see `BEIR_MD5`.
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if digest != BEIR_MD5[name]:
        partial.unlink()  # going on from these bytes would never end well
        raise RemoteError(
            f"{name}.zip: its MD5 is {digest}, not {BEIR_MD5[name]}; it was removed: "
            "run again, and if that does not help, check the base URL"
        )


def _unpack(partial: Path, folder: Path, name: str) -> None:
    with atomic_folder(folder) as unfinished, zipfile.ZipFile(partial) as archive:
        for member in archive.infolist():
            if member.filename.startswith(f"{name}/") and not member.is_dir():
                member.filename = member.filename.removeprefix(f"{name}/")
                # `extract` itself drops `..` and a leading `/` from names, so that nothing lands outside of the folder.
                sync_path(Path(archive.extract(member, unfinished)))
    partial.unlink()
