"""What a run has done so far, one JSON line a step, so that the next run knows what is left.

The first line holds the configuration, then comes one line for each finished shard, in the order in which they were
finished, and one when everything is in place. Every line carries its own checksum. Whatever follows the first line that
is torn or damaged does not count.

Shards are made durable by a thread that waits for the disk and takes checksums while the next shard is made.

For tests, LEAD_MIGRATE_FAILPOINT=name:n ends the process as `kill -9` would when it comes to the point `name` for the
n-th time.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, overload

import numpy as np

from migrate.errors import OutputError
from migrate.files import VARIABLE as VARIABLE
from migrate.files import reach as reach
from migrate.files import sha256_file, sync_folder
from migrate.runners import Shard, ShardResult

POINTS: Final = ("begun", "synced", "torn", "recorded", "filled", "complete", "aside", "published")
"""In the order in which a run comes to them; `aside` only where an older output is replaced."""

VERSION: Final = 2
_CHECK: Final = "crc32"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Part:
    """A shard that is on disk: rows `start` to `stop`, bytes `begin` to `end` of `file`, a path in the work folder.

    `facts` are what its maker noted of it.
    """

    start: int
    stop: int
    file: str
    begin: int
    end: int
    crc32: int
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shard(self) -> Shard:
        """Its rows."""
        return Shard(self.start, self.stop)


class Parts(Sequence[Part]):
    """Shards that are on disk, in the order in which they were finished.

    In memory are the rows of each, and where its line begins in the journal at `path`: 24 bytes a shard, however much
    was noted of it. The rest is read again when it is asked for.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._starts, self._stops, self._lines = array("q"), array("q"), array("q")

    def add(self, part: Part, line: int) -> None:
        """Take note of a shard whose line begins at that byte."""
        self.add_rows(part.start, part.stop, line)

    def add_rows(self, start: int, stop: int, line: int) -> None:
        """As `add`, with only what is kept in memory."""
        self._starts.append(start)
        self._stops.append(stop)
        self._lines.append(line)

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> Part: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Part]: ...
    def __getitem__(self, index: int | slice) -> Part | Sequence[Part]:
        if isinstance(index, slice):
            return self.take(range(len(self))[index])
        with self._path.open("rb") as file:
            return _part_at(file, self._lines[index])

    def __iter__(self) -> Iterator[Part]:
        """Each part, from the journal as it is now, even if another takes its place meanwhile."""
        file = self._path.open("rb") if self._lines else io.BytesIO()
        return _parts_at(file, self._lines)

    @property
    def rows(self) -> int:
        """How many rows they have."""
        return sum(self._stops) - sum(self._starts)

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Their rows, (start, stop), in order; those that touch made one."""
        merged: list[tuple[int, int]] = []
        for start, stop in (self._rows(index) for index in self._in_order()):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
            else:
                merged.append((start, stop))
        return tuple(merged)

    def without_gaps(self) -> Parts:
        """The parts in order, from row 0 on up to the first gap."""
        kept: list[int] = []
        for index in self._in_order():
            if self._starts[index] != (self._stops[kept[-1]] if kept else 0):
                break
            kept.append(index)
        return self.take(kept)

    def newest(self) -> Parts:
        """Without those that were made again since."""
        starts = np.array(self._starts)
        if np.unique(starts).size == len(starts):
            return self
        last = {self._rows(index): index for index in range(len(self))}  # where the first of them was, as a dict does
        return self.take(last.values())

    def take(self, indices: Iterable[int]) -> Parts:
        """Some of them."""
        taken = Parts(self._path)
        for index in indices:
            taken.add_rows(*self._rows(index), self._lines[index])
        return taken

    def _rows(self, index: int) -> tuple[int, int]:
        return self._starts[index], self._stops[index]

    def _in_order(self) -> Iterator[int]:
        return iter(np.argsort(np.array(self._starts, np.int64), kind="stable").tolist())


def _parts_at(file: BinaryIO, lines: Iterable[int]) -> Iterator[Part]:
    with file:
        for line in lines:
            yield _part_at(file, line)


def _part_at(file: BinaryIO, line: int) -> Part:
    file.seek(line)
    step = _unsealed(file.readline().removesuffix(b"\n"))
    if step is None or "part" not in step:
        raise OutputError(f"{file.name}: the journal was changed while it was read; run the same command again")
    return Part(**step["part"])


@dataclass(slots=True)
class Record:
    """A journal as it was read: `size` bytes of it are sound.

    `complete` are the facts of a finished output; `steps` those of the outputs of a command that makes several.
    """

    configuration: Mapping[str, Any]
    parts: Parts
    complete: Mapping[str, Any] | None = None
    steps: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    size: int = 0


class Journal:
    """Appends lines to a journal, each of them durable before the call returns."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, configuration: Mapping[str, Any]) -> None:
        """Start a journal; its name is durable as well."""
        self.path.unlink(missing_ok=True)
        self._append({"version": VERSION, "configuration": configuration})
        sync_folder(self.path.parent)

    def cut(self, size: int) -> None:
        """Keep the first `size` bytes."""
        os.truncate(self.path, size)

    def add_part(self, part: Part) -> int:
        """Note that a shard is on disk, and return where its line begins."""
        return self._append({"part": asdict(part)})

    def add_complete(self, facts: Mapping[str, Any]) -> None:
        """Note that the output lacks nothing but its name."""
        self._append({"complete": facts})

    def add_step(self, name: str, facts: Mapping[str, Any]) -> None:
        """Note that one of several outputs is complete."""
        self._append({"step": name, "facts": facts})

    def _append(self, step: Mapping[str, Any]) -> int:
        line = _sealed(step)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            begin = os.lseek(descriptor, 0, os.SEEK_END)
            # In two halves for the sake of the failpoint: a line can tear anywhere.
            _write_all(descriptor, line[: len(line) // 2])
            reach("torn")
            _write_all(descriptor, line[len(line) // 2 :])
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        return begin


def read_journal(path: Path, *, quiet: bool = False) -> Record | None:
    """What a journal says, or None where it says nothing usable; what is damaged is told in the log, if not `quiet`."""
    record: Record | None = None
    position = 0
    try:
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):  # torn
                    break
                step = _unsealed(line[:-1])
                if step is None or (record is None and step.get("version") != VERSION):
                    if not quiet:
                        _log.warning("%s: the journal is damaged; what follows the damage is done again", path)
                    break
                record = _take(record, step, path, position)
                position += len(line)
                record.size = position
    except FileNotFoundError:
        return None
    if record is not None:
        record.parts = record.parts.newest()
    return record


def _take(record: Record | None, step: dict[str, Any], path: Path, line: int) -> Record:
    if record is None:
        return Record(step["configuration"], Parts(path))
    if "part" in step:
        record.parts.add(Part(**step["part"]), line)
    elif "step" in step:
        record.steps[step["step"]] = step["facts"]
    else:
        record.complete = step["complete"]
    return record


def _sealed(step: Mapping[str, Any]) -> bytes:
    return _as_line({**step, _CHECK: zlib.crc32(_as_line(step))}) + b"\n"


def _as_line(step: Mapping[str, Any]) -> bytes:
    """In ASCII: ids may hold what UTF-8 cannot."""
    return json.dumps(step, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _unsealed(line: bytes) -> dict[str, Any] | None:
    try:
        step = json.loads(line)
        check = step.pop(_CHECK)
        return step if check == zlib.crc32(_as_line(step)) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


_CHUNK: Final = 1 << 20


class PartRecorder:
    """Records shards as they are finished, in any order; a context manager.

    One is recorded while the next is made; a third waits, so that a run that breaks off loses two at most.

    Parameters
    ----------
    journal
        Where shards are noted.
    folder
        The work folder, which the files are in.
    parts
        Those that are there already; new ones are added as they become durable.
    digest
        Of the file that the shards are in; read on as they come.
    """

    def __init__(self, journal: Journal, folder: Path, parts: Parts, digest: FileDigest) -> None:
        self._journal = journal
        self._folder = folder
        self._parts = parts
        self._digest = digest
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

    def record(self, result: ShardResult) -> None:
        """Record a shard whose bytes are written.

        Raises
        ------
        OSError
            The disk refused this shard or the one before.
        """
        self.wait()
        self._pending = self._thread.submit(self._write, result)

    def wait(self) -> None:
        """Come back when everything recorded so far is durable."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _write(self, result: ShardResult) -> None:
        descriptor = os.open(result.path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
            reach("synced")
            crc32 = checksum(descriptor, result.begin, result.end, self._digest.reader(result.path, result.begin))
        finally:
            os.close(descriptor)
        file = str(result.path.relative_to(self._folder))
        shard = result.shard
        part = Part(shard.start, shard.stop, file, result.begin, result.end, crc32, dict(result.facts))
        self._parts.add(part, self._journal.add_part(part))
        reach("recorded")


class FileDigest:
    """SHA-256 of a file that is written from its beginning on, taken while its bytes are still in memory.

    Shards that come out of order are left to the end, which reads them again.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._head = b""
        self._end = 0
        self._sha256 = hashlib.sha256()

    def reader(self, path: Path, begin: int) -> Callable[[bytes], None] | None:
        """What wants the bytes from `begin` on, None where they do not come next."""
        if self._path is None:
            with path.open("rb") as file:
                self._head = file.read(begin)
            self._path, self._end = path, len(self._head)
            self._sha256.update(self._head)
        return self._read if (self._path, self._end) == (path, begin) else None

    def _read(self, content: bytes) -> None:
        self._sha256.update(content)
        self._end += len(content)

    def of(self, path: Path) -> str:
        """The digest of a complete file, of which only what was not read yet is read."""
        if path != self._path:
            return sha256_file(path)
        with path.open("rb") as file:
            if file.read(len(self._head)) != self._head:  # it was completed at the end
                return sha256_file(path)
            file.seek(self._end)
            sha256 = self._sha256.copy()
            while content := file.read(_CHUNK):
                sha256.update(content)
        return sha256.hexdigest()


def checksum(descriptor: int, begin: int, end: int, also: Callable[[bytes], None] | None = None) -> int:
    """CRC-32 of some bytes of an open file, of fewer if it ends before; `also` gets them too."""
    crc32 = 0
    while begin < end and (chunk := os.pread(descriptor, min(_CHUNK, end - begin), begin)):
        crc32 = zlib.crc32(chunk, crc32)
        begin += len(chunk)
        if also is not None:
            also(chunk)
    return crc32


def sound_parts(folder: Path, parts: Parts, digest: FileDigest | None = None) -> Parts:
    """The parts whose bytes are still those that were recorded; `digest` reads what of them comes in order."""
    return parts.take(index for index, part in enumerate(parts) if _is_sound(folder / part.file, part, digest))


def _is_sound(path: Path, part: Part, digest: FileDigest | None) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        if os.fstat(descriptor).st_size < part.end or checksum(descriptor, part.begin, part.end) != part.crc32:
            return False
        if digest is not None and (read := digest.reader(path, part.begin)) is not None:
            checksum(descriptor, part.begin, part.end, read)
        return True
    finally:
        os.close(descriptor)
