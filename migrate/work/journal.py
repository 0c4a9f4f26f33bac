"""What a run has done so far, one JSON line a step, so that the next run knows where to go on.

The first line holds the configuration, then comes one line for each part, and one when everything is in place. Every
line carries its own checksum. Whatever follows the first line that is torn or damaged does not count.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from migrate.files import sync_folder
from migrate.work.failpoints import reach

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
