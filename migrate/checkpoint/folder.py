"""A folder that is made in parts and appears under its name when it is complete, however often the making breaks off.

Beside an output `new` stands `.new.work` while it is being made:

    journal.jsonl   the configuration, the parts that are durable, and at last that everything is
    content/        what becomes `new`
    scratch/        what is needed only until then
    old/            the older output that `--force` replaces, once the new one has its name

An output that goes elsewhere, to the server of a database, is a `Place` of its own: its work folder lies beside the
local path that the place names, and `publish` gives it its name.

A run that finds this folder checks the finished shards against their checksums and makes the others. Only a run of the
same configuration may go on: the same command with the same options, from the same source.

`make_folder` makes one output; `write_store`, which is all that commands call, makes it from shards. `open_steps` keeps
track of several outputs of one command.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from migrate import __version__
from migrate.checkpoint.journal import (
    VERSION,
    FileDigest,
    Journal,
    PartRecorder,
    Parts,
    Record,
    reach,
    read_journal,
    sound_parts,
)
from migrate.errors import DatasetError, LeadMigrateError, StitchError, StoreError, UsageError, VectorError
from migrate.files import (
    canonical_json,
    exchange_paths,
    output_errors,
    output_lock,
    refuse_existing,
    refuse_link,
    sync_folder,
)
from migrate.runners import LocalRunner, Runner, Shard, ShardTask
from migrate.vectors import Progress, no_progress

Facts = Mapping[str, Any]


@dataclass(slots=True)
class Work:
    """An output in the making.

    Parameters
    ----------
    path
        The work folder.
    parts
        The shards that are durable; everything else in `content` is to be made again.
    total
        How many rows there will be, where that is known.
    digest
        Of the file that the shards are in.
    disputed
        Set when the source proves to be another than that of `parts`: keeping them or not is the user's choice.
    """

    path: Path
    parts: Parts = field(init=False)
    total: int | None = None
    digest: FileDigest = field(default_factory=FileDigest)
    disputed: bool = False

    def __post_init__(self) -> None:
        self.parts = Parts(self.journal.path)

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
        return self.parts.rows

    @property
    def finished(self) -> tuple[tuple[int, int], ...] | None:
        """The ranges of rows that are durable; None where there are none."""
        return self.parts.ranges or None

    def lacking(self, shards: Iterable[Shard]) -> Iterator[Shard]:
        """Those of some shards that are not durable now."""
        ranges = self.parts.ranges
        starts = [start for start, _ in ranges]
        for shard in shards:
            at = bisect_right(starts, shard.start) - 1
            if at < 0 or shard.stop > ranges[at][1]:
                yield shard

    def recorder(self) -> PartRecorder:
        """What records further shards."""
        return PartRecorder(self.journal, self.path, self.parts, self.digest)

    def hint(self) -> str:
        """How to go on after an interruption."""
        of = f"{self.rows:,}" if self.total is None else f"{self.rows:,} of {self.total:,}"
        return f"continue with the same command: {of} rows are done"


def look_at(output: Path) -> Record | None:
    """What an earlier run has noted of an output that it has not finished; None where there is nothing to go on from.

    Nothing is checked or changed: a run that goes on looks closer.
    """
    return read_journal(_work_of(output).journal.path, quiet=True)


def rows_done(output: Path, command: str) -> int:
    """How many rows from the first on an earlier run of a command has noted as durable."""
    record = look_at(output)
    if record is None or record.configuration.get("command") != command:
        return 0
    return record.parts.without_gaps().rows


def rows_left(output: Path, command: str, count: int) -> NDArray[np.int64]:
    """The rows, of `count`, that an earlier run of a command has not noted as durable."""
    left = np.ones(count, dtype=bool)
    record = look_at(output)
    if record is not None and record.configuration.get("command") == command:
        for start, stop in record.parts.ranges:
            left[start:stop] = False
    return np.flatnonzero(left)


class Place(Protocol):
    """Where a complete output goes. Its text is its name for a person; `path` is what the work folder lies beside."""

    @property
    def path(self) -> Path:
        """A local path; there need be nothing at it."""

    def refuse_existing(self, *, force: bool) -> None:
        """Raise a UsageError where something has the output's name, unless it may be replaced."""

    def is_published(self, content: Path) -> bool:
        """Whether the output that is complete in `content` has its name; any, where `content` is gone already."""

    def publish(self, content: Path, *, force: bool) -> None:
        """Give it its name in one step, whatever was left undone by a call that was killed."""

    def discard(self) -> None:
        """Undo what unfinished work has left outside of its folder."""


_REPLACED: Final = ".lead-migrate-replaced"
"""The mark of a folder that another is taking the place of."""


@dataclass(frozen=True, slots=True)
class FolderPlace:
    """A folder that `content` is renamed to."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def refuse_existing(self, *, force: bool) -> None:
        """As `migrate.files.refuse_existing`."""
        refuse_existing(self.path, force=force)

    def is_published(self, content: Path) -> bool:
        """Whether only the work folder is left over."""
        return not content.is_dir() and self.path.is_dir()

    def publish(self, content: Path, *, force: bool) -> None:
        """Rename; POSIX renames only over an empty folder, so what is there trades places, or steps aside first."""
        work = Work(content.parent)
        try:
            if (content / _REPLACED).exists():  # they have traded places, and the run was killed
                os.rename(content, work.old)
            elif force and self._trade_places(content):
                reach("aside")
                os.rename(content, work.old)
            else:
                if force and os.path.lexists(self.path):
                    os.rename(self.path, work.old)
                    reach("aside")
                os.rename(content, self.path)
            sync_folder(self.path.parent)
        except BaseException:
            # What is not known to be durable does not stand under its name; the next run goes on from here.
            with suppress(OSError):
                if (content / _REPLACED).exists():
                    exchange_paths(content, self.path)
                elif not content.is_dir():
                    os.rename(self.path, content)
            with suppress(OSError):
                put_back(work, self.path)
            raise

    def _trade_places(self, content: Path) -> bool:
        """Let two folders trade places in one step, so that readers always find one; False where that cannot be.

        The older one is marked, so that a run that goes on knows which is which.
        """
        if self.path.is_symlink() or not self.path.is_dir():
            return False
        mark = self.path / _REPLACED
        try:
            mark.touch()
        except OSError:
            return False
        reach("marked")
        try:
            if exchange_paths(content, self.path):
                return True
        except OSError:
            pass
        mark.unlink(missing_ok=True)
        return False

    def discard(self) -> None:
        """Return an older output that stepped aside."""
        put_back(_work_of(self.path), self.path)


def _work_of(output: Path) -> Work:
    return Work(output.with_name(f".{output.name}.work"))


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


def discard(work: Work, place: Place) -> None:
    """Remove a work folder; an older output that was being replaced goes back to its place first."""
    place.discard()
    if os.path.lexists(work.path):
        shutil.rmtree(work.path)


_START_OVER: Final = "to discard the unfinished work and start over, add `restart=True`"


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

    def check(self, found: Mapping[str, Any], output: object) -> None:
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
                f"{_START_OVER}"
            )
        if found["source"] != expected["source"]:
            raise StoreError(
                f"{output}: expected the source that the unfinished work was begun with, found another or a changed "
                f"one; {_START_OVER}"
            )
        names = sorted(found["options"].keys() | expected["options"].keys())
        others = [name for name in names if found["options"].get(name) != expected["options"].get(name)]
        if others:
            raise UsageError(
                f"{output}: expected the options that the unfinished work was begun with, found other values of "
                f"{', '.join(others)}; {_START_OVER}"
            )


def source_changed(what: str) -> StoreError:
    """The error of a source that is not what the unfinished work was begun with, to be raised."""
    return StoreError(f"{what}: changed since the unfinished work was begun; {_START_OVER}")


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
    folder: Path,
    names: Sequence[str],
    configuration: Configuration,
    *,
    kept: Mapping[str, Mapping[str, Any]] | None = None,
    force: bool,
    restart: bool,
) -> Iterator[Steps]:
    """Hold `folder`, and know what an earlier run of the same command has left in it.

    `kept` are outputs of a finished run, with what is known of them: they are complete, and may be replaced.

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
        work = _work_of(folder)
        refuse_link(work.path)
        record = read_journal(work.journal.path)
        # Where a journal is, nothing was in the way when it was begun: what is there now was made under it.
        ours, kept = record is not None, dict(kept or {})
        if not ours:
            for name in names:
                refuse_existing(folder / name, force=force or name in kept)
        if record is None or restart or not record.steps:
            discard(work, FolderPlace(folder))
            work.path.mkdir()
            work.journal.begin(configuration.as_json())
            record = None
            for name, facts in kept.items():
                work.journal.add_step(name, facts)
        else:
            configuration.check(record.configuration, folder)
            work.journal.cut(record.size)
        done = dict(record.steps if record else kept)
        steps = Steps(folder, work.journal, restart, force or ours or bool(kept), done)
        try:
            yield steps
        except BaseException:
            if steps.done.keys() <= kept.keys():  # a finished run stays one
                discard(work, FolderPlace(folder))
            raise
        discard(work, FolderPlace(folder))


_WRONG_DATA: Final = (StoreError, VectorError, DatasetError, StitchError)
_log = logging.getLogger(__name__)


def make_folder(
    output: Path | Place,
    configure: Callable[[], Configuration],
    fill: Callable[[Work], Facts],
    *,
    force: bool = False,
    restart: bool = False,
) -> Facts:
    """Make the folder `output`, or go on making it, and return what `fill` says of it.

    Parameters
    ----------
    output
        The folder, or another place.
    configure
        Says what the output is made from. Called when the output is free and locked.
    fill
        Fills `Work.content` with what `Work.parts` lacks, and returns facts that JSON can hold. It is a function of
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
    place: Place = FolderPlace(output) if isinstance(output, Path) else output
    with output_errors(place.path), output_lock(place.path):
        work = _work_of(place.path)
        refuse_link(work.path)
        if restart or not work.path.is_dir():
            discard(work, place)
            place.refuse_existing(force=force)
        configuration = configure()
        record = _take_up(work, place, configuration, force=force)
        try:
            facts = _fill(work, place, fill) if record.complete is None else record.complete
            if not place.is_published(work.content):
                place.publish(work.content, force=force)
                reach("published")
        except KeyboardInterrupt as error:
            error.add_note(work.hint())
            raise
        tidy(work)
        return facts


def settle(output: Path | Place, command: str, *, force: bool) -> bool:
    """Publish what an earlier run of a command has completed, and tidy up after it; whether there was anything.

    Raises as `make_folder`.
    """
    place: Place = FolderPlace(output) if isinstance(output, Path) else output
    work = _work_of(place.path)
    if not work.path.is_dir():
        return False
    with output_errors(place.path), output_lock(place.path):
        refuse_link(work.path)
        record = read_journal(work.journal.path, quiet=True)
        if record is None or record.complete is None or record.configuration.get("command") != command:
            return False
        if not place.is_published(work.content):
            if not work.content.is_dir():
                return False
            place.publish(work.content, force=force)
        tidy(work)
    return True


class StoreJob(ABC):
    """What one command writes a store from; see `write_store`.

    `stage` is what progress is reported as. `waits` says whether a shard must be durable before the next is begun, as
    what it cost is lost otherwise. `in_order` says that rows come from a stream: what an earlier run has finished after
    a gap is made again.
    """

    stage: str
    waits: bool = False
    in_order: bool = False

    @property
    def total(self) -> int | None:
        """The number of rows; None where only the end will tell."""
        return None

    @abstractmethod
    def configuration(self) -> Configuration:
        """What the store is made from; asked for when the output is free and locked."""

    @abstractmethod
    def shards(self) -> Iterable[Shard]:
        """The shards, in order, after `task` was asked for; those that are finished may be left out."""

    @abstractmethod
    def task(self, work: Work) -> ShardTask:
        """What is to be done with each shard, in a folder that may hold some of them already."""

    @abstractmethod
    def finish(self, work: Work) -> Facts:
        """Complete the store once every shard is there, and return facts that JSON can hold."""


LOCAL: Final = LocalRunner()


def write_store(
    output: Path | Place,
    job: StoreJob,
    *,
    runner: Runner = LOCAL,
    force: bool = False,
    restart: bool = False,
    progress: Progress = no_progress,
) -> Facts:
    """Write a store from shards: those that an earlier run has finished stay, and `runner` does the others.

    The store appears under its name when it is complete. Raises as `make_folder`.
    """

    def fill(work: Work) -> Facts:
        work.total = job.total
        if job.in_order:
            work.parts = work.parts.without_gaps()
        task = job.task(work)
        rows = work.rows
        results = runner.run(task, work.lacking(job.shards()))
        with work.recorder() as recorder, closing(results):
            progress(job.stage, rows, job.total)
            for result in results:
                recorder.record(result)
                if job.waits:
                    recorder.wait()
                rows += len(result.shard)
                progress(job.stage, rows, job.total)
        return job.finish(work)

    return make_folder(output, job.configuration, fill, force=force, restart=restart)


def _take_up(work: Work, output: Place, configuration: Configuration, *, force: bool) -> Record:
    """The record of an earlier run that goes on here, or a new one."""
    record = read_journal(work.journal.path)
    if record is not None and record.complete is not None and output.is_published(work.content):
        # Only the work folder is left over.
        if record.configuration == configuration.as_json():
            return record
        record = None
    elif record is not None and record.complete is not None and not work.content.is_dir():
        record = None  # what was published is gone since
    output.refuse_existing(force=force)
    if record is None or not (record.parts or record.complete is not None):
        return _begin(work, output, configuration)
    configuration.check(record.configuration, output)
    work.parts = record.parts
    if record.complete is None:
        work.journal.cut(record.size)
        work.parts = sound_parts(work.path, record.parts, work.digest)
        if len(work.parts) < len(record.parts):
            damaged = record.parts.rows - work.rows
            _log.warning("%s: %d rows are damaged and are made again", output, damaged)
            return _begin_after(work, configuration)
    return record


def _begin(work: Work, output: Place, configuration: Configuration) -> Record:
    discard(work, output)
    for folder in (work.path, work.content, work.scratch):
        folder.mkdir()
    work.journal.begin(configuration.as_json())
    sync_folder(work.path.parent)
    reach("begun")
    return Record(configuration.as_json(), work.parts)


def _begin_after(work: Work, configuration: Configuration) -> Record:
    """Write a new journal, without the shards that are not sound."""
    sound, journal = iter(work.parts), work.journal
    journal.begin(configuration.as_json())
    work.parts = Parts(journal.path)
    for part in sound:
        work.parts.add(part, journal.add_part(part))
    return Record(configuration.as_json(), work.parts)


def _fill(work: Work, place: Place, fill: Callable[[Work], Facts]) -> Facts:
    try:
        facts = fill(work)
        reach("filled")
        _sync_files(work.content)
        work.journal.add_complete(facts)
        reach("complete")
    except BaseException as error:
        # Rows of a source that cannot be used, or no rows at all, are nothing to go on from.
        if not work.disputed and (isinstance(error, _WRONG_DATA) or not work.parts):
            with suppress(LeadMigrateError):
                place.discard()
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
