"""What a run has done so far, one JSON line a step, so that the next run knows where to go on.

The first line holds the configuration, then comes one line for each part, and one when everything is in place. Every
line carries its own checksum. Whatever follows the first line that is torn or damaged does not count.

Places at which tests let a process die, as `kill -9` would. Does nothing unless the environment asks for it.

LEAD_MIGRATE_FAILPOINT=name:n ends the process with exit code 137 when it comes to the point `name` for the n-th time.

Makes parts durable beside the work: waits for the disk and takes checksums in a thread of its own.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol

from migrate.files import sync_folder

VARIABLE: Final = "LEAD_MIGRATE_FAILPOINT"
POINTS: Final = ("begun", "synced", "torn", "recorded", "filled", "complete", "aside", "published")
"""In the order in which a run comes to them; `aside` only where an older output is replaced."""

_visits: Counter[str] = Counter()


def reach(name: str) -> None:
    """Die here if the environment says so."""
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return
    _visits[name] += 1
    if wanted == f"{name}:{_visits[name]}":
        os._exit(137)


VERSION: Final = 1
_CHECK: Final = "crc32"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that are on disk: bytes `begin` to `end` of `file`, a path inside the work folder.

    `rows` counts the rows up to and including this part; `facts` are what the maker needs to go on after it.
    """

    rows: int
    file: str
    begin: int
    end: int
    crc32: int
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Record:
    """A journal as it was read: `size` bytes of it are sound.

    `complete` are the facts of a finished output; `steps` those of the outputs of a command that makes several.
    """

    configuration: Mapping[str, Any]
    parts: list[Part] = field(default_factory=list)
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

    def add_part(self, part: Part) -> None:
        """Note that a part is on disk."""
        self._append({"part": asdict(part)})

    def add_complete(self, facts: Mapping[str, Any]) -> None:
        """Note that the output lacks nothing but its name."""
        self._append({"complete": facts})

    def add_step(self, name: str, facts: Mapping[str, Any]) -> None:
        """Note that one of several outputs is complete."""
        self._append({"step": name, "facts": facts})

    def _append(self, step: Mapping[str, Any]) -> None:
        line = _sealed(step)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            # In two halves for the sake of the failpoint: a line can tear anywhere.
            _write_all(descriptor, line[: len(line) // 2])
            reach("torn")
            _write_all(descriptor, line[len(line) // 2 :])
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)


def read_journal(path: Path, *, quiet: bool = False) -> Record | None:
    """What a journal says, or None where it says nothing usable; what is damaged is told in the log, if not `quiet`."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    record: Record | None = None
    position = 0
    for line in content.split(b"\n")[:-1]:
        step = _unsealed(line)
        if step is None or (record is None and step.get("version") != VERSION):
            if not quiet:
                _log.warning("%s: the journal is damaged; what follows the damage is done again", path)
            break
        position += len(line) + 1
        record = _take(record, step)
        record.size = position
    return record


def _take(record: Record | None, step: dict[str, Any]) -> Record:
    if record is None:
        return Record(step["configuration"])
    if "part" in step:
        record.parts.append(Part(**step["part"]))
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
