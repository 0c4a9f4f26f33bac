"""Unpacking a zip archive that may be hostile. Where it came from is not known here."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import unicodedata
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from migrate.errors import DatasetError

MAX_MEMBERS = 10_000
MAX_UNPACKED_BYTES = 64 * 1024**3
"""The largest BEIR set is about 3 GB."""
MAX_RATIO = 200
"""How many times its own size an archive may unpack to; JSON text deflates to between a third and a twentieth."""
LONGEST_NAME = 255
"""Bytes of a name of a file that every file system takes."""
_ENCRYPTED = 0x1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def unpack_archive(archive: Path, folder: Path, *, root: str) -> None:
    """Unpack the files under `root/` of an archive into an existing, empty folder; `root` itself is left out.

    Everything is checked before the first byte is written: no path leads outside, no member is a link or a
    device, and the declared sizes are bounded. No member can exceed its declared size.

    Raises
    ------
    DatasetError
        The archive is damaged, hostile, or has no files under `root/`.
    OSError
        The operating system refused to write.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [info for info in opened.infolist() if not info.is_dir()]
            _check_sizes(members, archive)
            targets = _safe_targets(members, archive)
            wanted = {parts[1:]: info for parts, info in targets.items() if parts[0] == root and len(parts) > 1}
            if not wanted:
                raise DatasetError(f"{archive.name}: expected files under {root}/, found none; get it anew")
            for parts, info in wanted.items():
                _unpack(opened, info, folder.joinpath(*parts))
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, struct.error) as error:
        raise DatasetError(f"{archive.name}: expected a sound zip archive, found: {error}; get it anew") from error


def _check_sizes(members: list[zipfile.ZipInfo], archive: Path) -> None:
    declared = sum(info.file_size for info in members)
    most = min(MAX_UNPACKED_BYTES, MAX_RATIO * archive.stat().st_size)
    if declared > most:
        raise DatasetError(f"{archive.name}: expected at most {most} bytes unpacked, found {declared}; do not use it")
    if len(members) > MAX_MEMBERS:
        raise DatasetError(f"{archive.name}: expected at most {MAX_MEMBERS} files, found {len(members)}; do not use it")


def _safe_targets(members: list[zipfile.ZipInfo], archive: Path) -> dict[tuple[str, ...], zipfile.ZipInfo]:
    targets: dict[tuple[str, ...], zipfile.ZipInfo] = {}
    for info in members:
        if targets.setdefault(_safe_parts(info, archive), info) is not info:
            raise DatasetError(f"{archive.name}: expected each file once, found {info.filename!r} twice; do not use it")
    _check_names(targets, archive)
    return targets


def _check_names(targets: dict[tuple[str, ...], zipfile.ZipInfo], archive: Path) -> None:
    """Make sure that no file is also a folder, nor takes the place of another where a disk ignores case."""
    places: dict[tuple[str, ...], tuple[str, ...]] = {}
    folders: dict[tuple[str, ...], tuple[str, ...]] = {}
    for parts in targets:
        place = tuple(unicodedata.normalize("NFC", part).casefold() for part in parts)
        if (other := places.setdefault(place, parts)) != parts:
            raise _clash(archive, other, parts)
        for depth in range(1, len(parts)):
            folders.setdefault(place[:depth], parts)
    for place in places.keys() & folders.keys():
        raise _clash(archive, places[place], folders[place])


def _clash(archive: Path, first: tuple[str, ...], second: tuple[str, ...]) -> DatasetError:
    names = f"{'/'.join(first)!r} and {'/'.join(second)!r}"
    return DatasetError(f"{archive.name}: expected a place for each file, found {names}; do not use it")


def _safe_parts(info: zipfile.ZipInfo, archive: Path) -> tuple[str, ...]:
    """The parts of a member's path, none of which leads upwards or elsewhere."""
    path = PurePosixPath(info.filename)
    mode = info.external_attr >> 16
    too_long = any(len(os.fsencode(part)) > LONGEST_NAME for part in path.parts)
    if too_long:
        raise DatasetError(
            f"{archive.name}: expected names of up to {LONGEST_NAME} bytes, found {info.filename[:40]!r}...; do not "
            "use it"
        )
    odd = path.is_absolute() or not path.parts or ".." in path.parts or any(mark in info.filename for mark in "\\:\0")
    if (
        odd
        or (stat.S_IFMT(mode) not in (0, stat.S_IFREG))
        or info.flag_bits & _ENCRYPTED
        or info.compress_type not in _METHODS
    ):
        raise DatasetError(f"{archive.name}: expected plain files, found {info.filename!r}; do not use it")
    return path.parts


def _unpack(opened: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with opened.open(info) as read, target.open("wb") as write:
        shutil.copyfileobj(read, write, 1 << 20)
        write.flush()
        os.fsync(write.fileno())
