"""Where an output stands while it is made, what is done of it, and how that is cleared away."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from migrate.work.journal import Journal, Part, Record, read_journal
from migrate.work.parts import PartRecorder

Facts = Mapping[str, Any]


@dataclass(slots=True)
class Work:
    """An output in the making.

    Parameters
    ----------
    path
        The work folder.
    parts
        Those that are durable; their files are to be continued, everything else in `content` is to be made again.
    total
        How many rows there will be, where that is known.
    disputed
        Set when the source proves to be another than that of `parts`: keeping them or not is the user's choice.
    """

    path: Path
    parts: list[Part] = field(default_factory=list)
    total: int | None = None
    disputed: bool = False

    @property
    def content(self) -> Path:
        """The folder to fill."""
        return self.path / "content"

    @property
    def scratch(self) -> Path:
        """A folder for what is not part of the output."""
        return self.path / "scratch"

    @property
    def old(self) -> Path:
        """Where an older output waits while it is replaced."""
        return self.path / "old"

    @property
    def journal(self) -> Journal:
        """The journal."""
        return Journal(self.path / "journal.jsonl")

    @property
    def rows(self) -> int:
        """How many rows are durable."""
        return self.parts[-1].rows if self.parts else 0

    @property
    def facts(self) -> Facts:
        """What was noted with the last part."""
        return self.parts[-1].facts if self.parts else {}

    def recorder(self) -> PartRecorder:
        """What records further parts."""
        return PartRecorder(self.journal, self.path, self.parts)

    def hint(self) -> str:
        """How to go on after an interruption."""
        of = f"{self.rows:,}" if self.total is None else f"{self.rows:,} of {self.total:,}"
        return f"continue with the same command: {of} rows are done"


def look_at(output: Path) -> Record | None:
    """What an earlier run has noted of an output that it has not finished; None where there is nothing to go on from.

    Nothing is checked or changed: a run that goes on looks closer.
    """
    return read_journal(Work(output.with_name(f".{output.name}.work")).journal.path, quiet=True)


def rows_done(output: Path, command: str) -> int:
    """How many rows of an output an earlier run of a command has noted as durable."""
    record = look_at(output)
    if record is None or record.configuration.get("command") != command or not record.parts:
        return 0
    return record.parts[-1].rows


def tidy(work: Work) -> None:
    """Remove the work folder of a published output. The journal goes last: it says that there is nothing left to do."""
    for folder in (work.scratch, work.old):
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        work.old.unlink(missing_ok=True)
    shutil.rmtree(work.path, ignore_errors=True)


def put_back(work: Work, output: Path) -> None:
    """Return an older output that stepped aside, if nothing has taken its place."""
    if os.path.lexists(work.old) and not os.path.lexists(output):
        os.rename(work.old, output)


def discard(work: Work, output: Path) -> None:
    """Remove a work folder; an older output that was being replaced goes back to its place first."""
    put_back(work, output)
    if os.path.lexists(work.path):
        shutil.rmtree(work.path)
