"""A folder that is made in parts and appears under its name when it is complete, however often the making breaks off.

Beside an output `new` stands `.new.work` while it is being made:

    journal.jsonl   the configuration, the parts that are durable, and at last that everything is
    content/        what becomes `new`
    scratch/        what is needed only until then
    old/            the older output that `--force` replaces, for the moment between two renames

A run that finds this folder checks the parts against their checksums and goes on after the last sound one.

Where an output stands while it is made, what is done of it, and how that is cleared away.

What an output is made from, as a journal remembers it: only a run of the same configuration may continue it.

Several outputs in one folder, made one after the other by one command: which of them are done already.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from migrate import __version__
from migrate.checkpoint.journal import VERSION, Journal, Part, PartRecorder, Record, reach, read_journal, sound_parts
from migrate.errors import DatasetError, StitchError, StoreError, UsageError, VectorError
from migrate.files import canonical_json, output_errors, output_lock, refuse_existing, refuse_link, sync_folder

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


_ANEW: Final = "to discard the unfinished work and begin anew, add --restart"


@dataclass(frozen=True, slots=True)
class Configuration:
    """What is read (`source`) and how it is worked on (`options`); both of what JSON can hold."""

    command: str
    source: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As it stands in a journal."""
        facts = {
            "command": self.command,
            "source": self.source,
            "options": {**self.options, "tool": __version__, "journal": VERSION},
        }
        read_back: dict[str, Any] = json.loads(canonical_json(facts))
        return read_back

    def check(self, found: Mapping[str, Any], output: Path) -> None:
        """Make sure that a journal is of the same configuration.

        Raises
        ------
        StoreError
            The source is another, or has changed since.
        UsageError
            The command or its options are others.
        """
        expected = self.as_json()
        if found["command"] != expected["command"]:
            raise UsageError(
                f"{output}: expected unfinished work of {expected['command']}, found some of {found['command']}; "
                f"{_ANEW}"
            )
        if found["source"] != expected["source"]:
            raise StoreError(
                f"{output}: expected the source that the unfinished work was begun with, found another or a changed "
                f"one; {_ANEW}"
            )
        names = sorted(found["options"].keys() | expected["options"].keys())
        others = [name for name in names if found["options"].get(name) != expected["options"].get(name)]
        if others:
            raise UsageError(
                f"{output}: expected the options that the unfinished work was begun with, found other values of "
                f"{', '.join(others)}; {_ANEW}"
            )


def source_changed(what: str) -> StoreError:
    """The error of a source that is not what the unfinished work was begun with, to be raised."""
    return StoreError(f"{what}: changed since the unfinished work was begun; {_ANEW}")


@dataclass(slots=True)
class Steps:
    """The outputs of one command in one folder.

    Attributes
    ----------
    folder
        Where they are.
    restart
        Whether what they left unfinished is to be discarded.
    force
        Whether an output that is there may be replaced: by the user's will, or because this command made it.
    done
        What was noted of each output that is complete.
    """

    folder: Path
    journal: Journal
    restart: bool
    force: bool
    done: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def known(self, name: str) -> Mapping[str, Any] | None:
        """What was noted of an output that an earlier run has made; None where it is still to be made."""
        return self.done.get(name) if (self.folder / name).exists() else None

    def note(self, name: str, facts: Mapping[str, Any] | None = None) -> None:
        """Note that an output is complete."""
        with output_errors(self.folder):
            self.journal.add_step(name, facts or {})
        self.done[name] = facts or {}


@contextmanager
def open_steps(
    folder: Path, names: Sequence[str], configuration: Configuration, *, force: bool, restart: bool
) -> Iterator[Steps]:
    """Hold `folder`, and know what an earlier run of the same command has left in it.

    Raises
    ------
    UsageError
        One of `names` is there and was not made by an earlier run of the same command; or that had other options.
    StoreError
        An earlier run was begun with another source.
    LockedError, OutputError
        Another run holds the folder, or it cannot be written to.
    """
    with output_errors(folder), output_lock(folder):
        work = Work(folder.with_name(f".{folder.name}.work"))
        refuse_link(work.path)
        record = read_journal(work.journal.path)
        # Where a journal is, nothing was in the way when it was begun: what is there now was made under it.
        ours = record is not None
        if not ours:
            for name in names:
                refuse_existing(folder / name, force=force)
        if record is None or restart or not record.steps:
            discard(work, folder)
            work.path.mkdir()
            work.journal.begin(configuration.as_json())
            record = None
        else:
            configuration.check(record.configuration, folder)
            work.journal.cut(record.size)
        steps = Steps(folder, work.journal, restart, force or ours, record.steps if record else {})
        try:
            yield steps
        except BaseException:
            if not steps.done:
                discard(work, folder)
            raise
        discard(work, folder)


_WRONG_DATA: Final = (StoreError, VectorError, DatasetError, StitchError)
_log = logging.getLogger(__name__)


def make_folder(
    output: Path,
    configure: Callable[[], Configuration],
    fill: Callable[[Work], Facts],
    *,
    force: bool = False,
    restart: bool = False,
) -> Facts:
    """Make the folder `output`, or go on making it, and return what `fill` says of it.

    Parameters
    ----------
    configure
        Says what the output is made from. Called when the output is free and locked.
    fill
        Fills `Work.content`, going on after `Work.parts`, and returns facts that JSON can hold. It is a function of
        these alone. Not called where an earlier run got as far as the last rename.
    force
        Replace what is at `output`, once the new folder is complete.
    restart
        Discard what an earlier run left unfinished.

    Raises
    ------
    UsageError
        `output` exists and `force` is not given; or unfinished work was begun with other options.
    StoreError
        Unfinished work was begun with another source.
    LockedError
        Another run holds the output.
    OutputError
        The operating system refused. What is durable is kept for the next run.
    """
    with output_errors(output), output_lock(output):
        work = Work(output.with_name(f".{output.name}.work"))
        refuse_link(work.path)
        if restart or not work.path.is_dir():
            discard(work, output)
            refuse_existing(output, force=force)
        configuration = configure()
        record = _take_up(work, output, configuration, force=force)
        try:
            facts = _fill(work, fill) if record.complete is None else record.complete
            if work.content.is_dir():
                _publish(work, output, force=force)
        except KeyboardInterrupt as error:
            error.add_note(work.hint())
            raise
        tidy(work)
        return facts


def _take_up(work: Work, output: Path, configuration: Configuration, *, force: bool) -> Record:
    """The record of an earlier run that goes on here, or a new one."""
    record = read_journal(work.journal.path)
    if record is not None and record.complete is not None and not work.content.is_dir():
        # The last rename was done, and only the work folder is left over.
        if output.is_dir() and record.configuration == configuration.as_json():
            return record
        record = None
    refuse_existing(output, force=force)
    if record is None or not (record.parts or record.complete is not None):
        return _begin(work, output, configuration)
    configuration.check(record.configuration, output)
    work.parts = record.parts
    if record.complete is None:
        work.journal.cut(record.size)
        work.parts = sound_parts(work.path, record.parts)
        if len(work.parts) < len(record.parts):
            _log.warning("%s: %d rows are damaged and are made again", output, record.parts[-1].rows - work.rows)
            return _begin_after(work, configuration)
    return record


def _begin(work: Work, output: Path, configuration: Configuration) -> Record:
    discard(work, output)
    for folder in (work.path, work.content, work.scratch):
        folder.mkdir()
    work.journal.begin(configuration.as_json())
    sync_folder(work.path.parent)
    reach("begun")
    return Record(configuration.as_json())


def _begin_after(work: Work, configuration: Configuration) -> Record:
    """Write the journal anew, without the parts that are not sound."""
    journal = work.journal
    journal.begin(configuration.as_json())
    for part in work.parts:
        journal.add_part(part)
    return Record(configuration.as_json(), work.parts)


def _fill(work: Work, fill: Callable[[Work], Facts]) -> Facts:
    try:
        facts = fill(work)
        reach("filled")
        _sync_files(work.content)
        work.journal.add_complete(facts)
        reach("complete")
    except BaseException as error:
        # Rows of a source that cannot be used, or no rows at all, are nothing to go on from.
        if not work.disputed and (isinstance(error, _WRONG_DATA) or not work.parts):
            shutil.rmtree(work.path, ignore_errors=True)
        raise
    return facts


def _sync_files(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    sync_folder(folder)


def _publish(work: Work, output: Path, *, force: bool) -> None:
    """Rename to `output`; POSIX renames only over an empty folder, so what is there steps aside first."""
    try:
        if force and os.path.lexists(output):
            os.rename(output, work.old)
            reach("aside")
        os.rename(work.content, output)
        sync_folder(output.parent)
        reach("published")
    except BaseException:
        # What is not known to be durable does not stand under its name; the next run goes on from here.
        with suppress(OSError):
            if not work.content.is_dir():
                os.rename(output, work.content)
        with suppress(OSError):
            put_back(work, output)
        raise
