"""Downloads BEIR sets by name, checks them against their hash, and unpacks them into a cache. `beir.py` reads them.

An interrupted download is resumed and retried. An archive is treated as hostile: its sizes and names are checked
before anything is written.
"""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import re
import shutil
import stat
import struct
import time
import unicodedata
import urllib.error
import urllib.request
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from migrate.errors import DatasetError, RemoteError, UsageError
from migrate.files import atomic_folder, cache_folder, output_errors, output_lock
from migrate.redirects import check_redirect
from migrate.vectors import Progress, no_progress

ATTEMPTS = 5
TIMEOUT_S = 30.0
"""Longest silence of the server, not of the whole transfer."""
_CHUNK = 1 << 16
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_log = logging.getLogger(__name__)


MAX_MEMBERS = 10_000
MAX_UNPACKED_BYTES = 64 * 1024**3
"""The largest BEIR set is about 3 GB."""
MAX_RATIO = 200
"""How many times its own size an archive may unpack to; JSON text deflates to between a third and a twentieth."""
LONGEST_NAME = 255
"""Bytes of a name of a file that every file system takes."""
_ENCRYPTED = 0x1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)

OFFICIAL_URL = "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets"
URL_VARIABLE = "LEAD_MIGRATE_BEIR_URL"
"""Environment variable with another base URL: a mirror with the same archives."""

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

MD5 is what BEIR publishes: it guards against cuts and mix-ups, not against forgery. `cqadupstack` is missing
because its archive holds twelve collections, each a separate BEIR folder.
"""


class _SameServer(urllib.request.HTTPRedirectHandler):
    """Follows redirects within a server only: the user names a mirror, another server may not."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        check_redirect(req.full_url, newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_SameServer)


class _CutError(Exception):
    """The transfer ended early; what has arrived is kept, and the remainder can be requested."""


def download(
    url: str, part: Path, *, progress: Progress = no_progress, timeout_s: float = TIMEOUT_S, wait_s: float = 1.0
) -> None:
    """Bring `part` to the whole content of `url`, going on where an earlier run was cut.

    If the server ignores Range, the file starts again. Waits `wait_s`, then twice that, and so on between
    attempts.

    Parameters
    ----------
    part
        The file to write; its present content counts as the beginning.
    progress
        Called with the bytes so far, including those of earlier runs.

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
        raise UsageError(f"{url!r} is not an http or https address; correct the base URL")
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
            return  # nothing is left to send; the hash will show whether the file is right
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
        raise RemoteError(
            f"cannot resume {response.url}: the server did not send the bytes from {there} on; try again later"
        )
    return True


def _receive(response: http.client.HTTPResponse, file: BinaryIO, part: Path, start: int, progress: Progress) -> None:
    length = response.headers.get("Content-Length")
    total = start + int(length) if length and length.isdecimal() else None
    done = start
    while chunk := response.read1(_CHUNK):  # read() would lose what came before a cut in a chunked response
        with output_errors(part):
            file.write(chunk)
            file.flush()  # here, so that a full disk does not look like an interruption when the file is closed
        done += len(chunk)
        progress("download", done, total)
    if total is not None and done < total:
        raise _CutError(f"expected {total} bytes, found {done}")


def unpack_archive(archive: Path, folder: Path, *, root: str) -> None:
    """Unpack the files under `root/` of an archive into an existing, empty folder; `root` itself is left out.

    Everything is checked before the first byte is written: no path leads outside, no member is a link or a
    device, and the declared sizes are bounded. No member can exceed its declared size.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [info for info in opened.infolist() if not info.is_dir()]
            _check_sizes(members, archive)
            targets = _safe_targets(members, archive)
            inside = {parts[1:]: info for parts, info in targets.items() if parts[0] == root and len(parts) > 1}
            if not inside:
                raise DatasetError(f"{archive.name}: has no files under {root}/; download it again")
            for parts, info in inside.items():
                _write_member(opened, info, folder.joinpath(*parts))
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, struct.error) as error:
        raise DatasetError(f"{archive.name}: the zip archive is damaged ({error}); download it again") from error


def _check_sizes(members: list[zipfile.ZipInfo], archive: Path) -> None:
    declared = sum(info.file_size for info in members)
    most = min(MAX_UNPACKED_BYTES, MAX_RATIO * archive.stat().st_size)
    if declared > most:
        raise DatasetError(
            f"{archive.name}: would unpack to {declared} bytes, more than the {most} that are allowed; do not use it"
        )
    if len(members) > MAX_MEMBERS:
        raise DatasetError(
            f"{archive.name}: holds {len(members)} files, more than the {MAX_MEMBERS} that are allowed; do not use it"
        )


def _safe_targets(members: list[zipfile.ZipInfo], archive: Path) -> dict[tuple[str, ...], zipfile.ZipInfo]:
    targets: dict[tuple[str, ...], zipfile.ZipInfo] = {}
    for info in members:
        if targets.setdefault(_safe_parts(info, archive), info) is not info:
            raise DatasetError(f"{archive.name}: holds {info.filename!r} twice; do not use it")
    _check_names(targets, archive)
    return targets


def _check_names(targets: dict[tuple[str, ...], zipfile.ZipInfo], archive: Path) -> None:
    """Make sure that no file is also a folder, nor takes the place of another where a disk ignores case."""
    places: dict[tuple[str, ...], tuple[str, ...]] = {}
    folders: dict[tuple[str, ...], tuple[str, ...]] = {}
    for parts in targets:
        place = tuple(unicodedata.normalize("NFC", part).casefold() for part in parts)
        if (earlier := places.setdefault(place, parts)) != parts:
            raise _clash(archive, earlier, parts)
        for depth in range(1, len(parts)):
            folders.setdefault(place[:depth], parts)
    for place in places.keys() & folders.keys():
        raise _clash(archive, places[place], folders[place])


def _clash(archive: Path, first: tuple[str, ...], second: tuple[str, ...]) -> DatasetError:
    names = f"{'/'.join(first)!r} and {'/'.join(second)!r}"
    return DatasetError(f"{archive.name}: the names {names} clash; do not use it")


def _safe_parts(info: zipfile.ZipInfo, archive: Path) -> tuple[str, ...]:
    """The parts of a member's path, none of which leads upwards or elsewhere."""
    path = PurePosixPath(info.filename)
    mode = info.external_attr >> 16
    too_long = any(len(os.fsencode(part)) > LONGEST_NAME for part in path.parts)
    if too_long:
        raise DatasetError(
            f"{archive.name}: the name {info.filename[:40]!r}... is longer than {LONGEST_NAME} bytes; do not use it"
        )
    odd = path.is_absolute() or not path.parts or ".." in path.parts or any(mark in info.filename for mark in "\\:\0")
    if (
        odd
        or (stat.S_IFMT(mode) not in (0, stat.S_IFREG))
        or info.flag_bits & _ENCRYPTED
        or info.compress_type not in _METHODS
    ):
        raise DatasetError(
            f"{archive.name}: {info.filename!r} is not a plain, unencrypted file within the archive; do not use it"
        )
    return path.parts


def _write_member(opened: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with opened.open(info) as read, target.open("wb") as write:
        shutil.copyfileobj(read, write, 1 << 20)
        write.flush()
        os.fsync(write.fileno())


def resolve_beir(
    name_or_path: str, *, cache: Path | None = None, base_url: str | None = None, progress: Progress = no_progress
) -> Path:
    """The BEIR folder of a path or of the name of a BEIR set, which is downloaded if it is not in the cache.

    Raises
    ------
    DatasetError
        It is neither; or see `fetch_beir`.
    RemoteError, OutputError, LockedError
        See `fetch_beir`.
    """
    if Path(name_or_path).is_dir():
        return Path(name_or_path)
    if name_or_path not in BEIR_MD5:
        raise DatasetError(f"expected a BEIR folder or one of {', '.join(BEIR_MD5)}, found {name_or_path!r}")
    return fetch_beir(name_or_path, cache=cache or cache_folder() / "beir", base_url=base_url, progress=progress)


def fetch_beir(
    name: str, *, cache: Path, base_url: str | None = None, progress: Progress = no_progress, wait_s: float = 1.0
) -> Path:
    """The folder `cache/name` with a BEIR set, downloaded and unpacked if it is not there.

    A cut download is kept as `name.zip.part` and resumed by the next run. The folder appears when it is complete.

    Parameters
    ----------
    name
        A key of `BEIR_MD5`.
    base_url
        Where `name.zip` is; by default $LEAD_MIGRATE_BEIR_URL, or the official server.
    progress
        Called with bytes while downloading.
    wait_s
        Seconds before the second attempt; doubles with every further one.

    Raises
    ------
    DatasetError
        No such set; the archive is damaged or hostile; or `cache/name` is something else.
    RemoteError
        The server refused or did not deliver, or what it sent has another hash and was removed.
    LockedError
        Another run is fetching the same set.
    OutputError
        The operating system refused to write.
    """
    if name not in BEIR_MD5:
        raise DatasetError(f"expected one of {', '.join(BEIR_MD5)}, found {name!r}")
    folder = cache / name
    if not folder.exists():
        with output_lock(folder.with_name(f"{name}.zip")):  # the folder's own lock is for unpacking
            if not folder.exists():  # another run may have finished while this one took the lock
                _fetch(name, folder, base_url or os.environ.get(URL_VARIABLE) or OFFICIAL_URL, progress, wait_s)
    if not (folder / "corpus.jsonl").is_file():
        raise DatasetError(f"{folder}: what is in the cache is not a BEIR folder; remove it")
    return folder


def _fetch(name: str, folder: Path, base_url: str, progress: Progress, wait_s: float) -> None:
    part = folder.parent / f"{name}.zip.part"
    download(f"{base_url.rstrip('/')}/{name}.zip", part, progress=progress, wait_s=wait_s)
    try:
        _check_hash(part, name)
        _unpack(part, folder, name)
    except (RemoteError, DatasetError):
        part.unlink()  # going on from these bytes would never end well
        raise
    part.unlink()


def _check_hash(part: Path, name: str) -> None:
    with output_errors(part), part.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if digest != BEIR_MD5[name]:
        raise RemoteError(
            f"{name}.zip: expected MD5 {BEIR_MD5[name]}, found {digest}; it was removed: "
            "run again, and if that does not help, check the base URL"
        )


def _unpack(part: Path, folder: Path, name: str) -> None:
    with atomic_folder(folder) as aside:
        unpack_archive(part, aside, root=name)
        if not (aside / "corpus.jsonl").is_file():
            raise DatasetError(f"{name}.zip: {name}/corpus.jsonl is missing in it; download it again")
