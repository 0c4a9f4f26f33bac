"""Makes parts durable beside the work: waits for the disk and takes checksums in a thread of its own."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol

from migrate.work.failpoints import reach
from migrate.work.journal import Journal, Part

_CHUNK: Final = 1 << 20


class GrowingRows(Protocol):
    """A file that rows are appended to: `rows` of them so far, which end at byte `size` and began at `head_size`."""

    path: Path
    rows: int
    size: int
    head_size: int


class PartRecorder:
    """Records parts of one file, in order; a context manager.

    One part is recorded while the next is made; a third waits, so that a run that breaks off loses two parts at most.

    Parameters
    ----------
    journal
        Where parts are noted.
    folder
        The work folder, which the files are in.
    parts
        Those that are there already; new ones are added as they become durable.
    """

    def __init__(self, journal: Journal, folder: Path, parts: list[Part]) -> None:
        self._journal = journal
        self._folder = folder
        self._parts = parts
        self._end = parts[-1].end if parts else None
        self._rows = parts[-1].rows if parts else 0
        self._thread = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None

    def __enter__(self) -> PartRecorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        if error is None:
            self.wait()

    def record(self, file: GrowingRows, facts: Mapping[str, Any]) -> None:
        """Record what was appended since the last part; nothing if that is nothing.

        Raises
        ------
        OSError
            The disk refused this part or the one before.
        """
        self.wait()
        if file.rows == self._rows:
            return
        begin = file.head_size if self._end is None else self._end
        self._rows, self._end = file.rows, file.size
        self._pending = self._thread.submit(self._write, file.path, file.rows, begin, file.size, dict(facts))

    def wait(self) -> None:
        """Come back when everything recorded so far is durable."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _write(self, path: Path, rows: int, begin: int, end: int, facts: dict[str, Any]) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            reach("synced")
            crc32 = checksum(descriptor, begin, end)
        finally:
            os.close(descriptor)
        part = Part(rows, str(path.relative_to(self._folder)), begin, end, crc32, facts)
        self._journal.add_part(part)
        self._parts.append(part)
        reach("recorded")


def checksum(descriptor: int, begin: int, end: int) -> int:
    """CRC-32 of some bytes of an open file; of fewer if it ends before."""
    crc32 = 0
    while begin < end and (chunk := os.pread(descriptor, min(_CHUNK, end - begin), begin)):
        crc32 = zlib.crc32(chunk, crc32)
        begin += len(chunk)
    return crc32


def sound_parts(folder: Path, parts: list[Part]) -> list[Part]:
    """The parts up to the first whose bytes are not, or no longer, those that were recorded."""
    for number, part in enumerate(parts):
        if not _is_sound(folder / part.file, part):
            return parts[:number]
    return parts


def _is_sound(path: Path, part: Part) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return os.fstat(descriptor).st_size >= part.end and checksum(descriptor, part.begin, part.end) == part.crc32
    finally:
        os.close(descriptor)
