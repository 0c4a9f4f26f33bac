"""Outputs made from shards, which appear under their names when they are complete, however often a run is killed.

Beside an output `new` stands `.new.work` while it is being made:

    work.json     what the output is made from; at last, what is known of it once it is complete
    shards/       the finished shards (`migrate.work.shards`): their listing is the journal
    content/      what becomes `new`
    old/          the older output that `--force` replaces, once the new one has its name

The work folder of an output on a server lies beside the local path that it names. Only a run of the same configuration
may go on: the same command with the same options, from the same source.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate import __version__
from migrate.errors import DatasetError, LeadMigrateError, StitchError, StoreError, UsageError, VectorError
from migrate.files import (
    beside,
    canonical_json,
    output_errors,
    output_lock,
    reach,
    refuse_existing,
    refuse_link,
    rename_folder,
    require_room,
    sync_path,
    write_bytes,
)
from migrate.vectors import Progress, no_progress
from migrate.work.runner import LOCAL, RowTask, Runner, ShardWork
from migrate.work.shards import VECTORS, Block, Rows, Shard, ShardFolder, write_values
from migrate.work.writer import OpenWriter, StoreWriter

POINTS: Final = ("begun", "synced", "written", "recorded", "filled", "complete", "aside", "published")
"""Where a run can be ended by `migrate.files.reach`, in order; `aside` only where an older output is replaced."""

Facts = Mapping[str, Any]
_VERSION: Final = 3
_STATE: Final = "work.json"
_VALUES_AT_ONCE: Final = 1 << 20
START_OVER: Final = "to discard the unfinished work and start over, add `restart=True`"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Configuration:
    """What is read (`source`) and how it is worked on (`options`); both of what JSON can hold."""

    command: str
    source: Facts = field(default_factory=dict)
    options: Facts = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return it as the state of unfinished work has it."""
        read_back: dict[str, Any] = json.loads(
            canonical_json({**asdict(self), "options": {**self.options, "tool": __version__}})
        )
        return read_back

    def check(self, begun: Facts, output: object) -> None:
        """Refuse unfinished work of another command, source (StoreError) or options (UsageError)."""
        now = self.as_json()
        if begun["command"] != now["command"]:
            raise UsageError(
                f"{output}: the unfinished work there is of {begun['command']}, not of {now['command']}; {START_OVER}"
            )
        if begun["source"] != now["source"]:
            raise StoreError(
                f"{output}: the unfinished work there was begun with another source, or it changed since; {START_OVER}"
            )
        names = sorted(begun["options"].keys() | now["options"].keys())
        others = [name for name in names if begun["options"].get(name) != now["options"].get(name)]
        if others:
            raise UsageError(
                f"{output}: the unfinished work there was begun with other values of {', '.join(others)}; {START_OVER}"
            )


@dataclass(slots=True)
class State:
    """The content of `work.json`.

    `complete` are the facts of an output that lacks nothing but its name, `identity` device and inode of its folder,
    which tell whether it has the name. `steps` are the facts of finished outputs of a command that makes several.
    """

    configuration: Facts
    complete: Facts | None = None
    identity: Sequence[int] | None = None
    steps: dict[str, Facts] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Put it into a work folder, durably and at once."""
        unfinished = folder / ".work.json"
        write_bytes(unfinished, json.dumps({"version": _VERSION, **asdict(self)}, sort_keys=True).encode())
        os.replace(unfinished, folder / _STATE)
        sync_path(folder)

    @classmethod
    def read(cls, folder: Path) -> State | None:
        """Return the state of a work folder; None where it says nothing usable."""
        try:
            facts = json.loads((folder / _STATE).read_bytes())
            if facts.pop("version") == _VERSION:
                return cls(**facts)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        _log.warning("%s: the file is damaged; what is unfinished is begun anew", folder / _STATE)
        return None


class Work:
    """An output in the making; `path` is its work folder, `total` the number of its rows, where that is known."""

    open_writer: OpenWriter

    def __init__(self, output: Path) -> None:
        self.output = output
        self.path = beside(output, "work")
        self.content = self.path / "content"
        self.old = self.path / "old"
        self.shards = ShardFolder(self.path / "shards")
        self.total: int | None = None
        self._writer: StoreWriter | None = None

    @property
    def rows(self) -> int:
        """The number of durable rows."""
        return self.shards.rows

    def writer(self, dim: int) -> StoreWriter:
        """Return the writer of this process, for vectors of a dimension."""
        if self._writer is None:
            self._writer = self.open_writer(dim)
            self._writer.begin()
        return self._writer

    def all_rows(self, dim: int) -> Rows:
        """Return the vectors of all shards; raises a StoreError where some are missing."""
        return self.shards.all_rows(dim, self.total)

    def lacking(self, shards: Iterable[Shard]) -> Iterator[Shard]:
        """Return those of some shards that are not durable now."""
        ranges = self.shards.ranges()
        for shard in shards:
            at = bisect_right(ranges, shard.start, key=lambda known: known[0]) - 1
            if at < 0 or shard.stop > ranges[at][1]:
                yield shard

    def write_values(self, order: NDArray[np.int64] | None) -> dict[str, str]:
        """Write what shards have beside vectors, a `.npy` each in `StoreWriter.order`; return the SHA-256 of each."""
        first = next(iter(self.shards), None)
        names = [] if first is None else [name for name in self.shards.names(first) if name != VECTORS]
        hashes = {}
        for name in names:
            parts: Iterable[NDArray[Any]] = (self.shards.array(shard, name) for shard in self.shards)
            if order is not None:
                values = self.shards.all_values(name)
                parts = (values[order[at : at + _VALUES_AT_ONCE]] for at in range(0, len(order), _VALUES_AT_ONCE))
            file = f"{name}.npy"
            hashes[file] = write_values(self.content / file, parts, self.rows)
        return hashes


def look_at(output: Path) -> State | None:
    """Return the state of an output that an earlier run has not finished, None without one; checks nothing."""
    return State.read(Work(output).path)


def rows_done(output: Path, command: str) -> int:
    """Return how many rows from the first on an earlier run of a command has left as durable."""
    ranges = _durable(output, command)
    return ranges[0][1] if ranges and ranges[0][0] == 0 else 0


def rows_left(output: Path, command: str, count: int) -> NDArray[np.int64]:
    """Return the rows, of `count`, that an earlier run of a command has not left as durable."""
    left = np.ones(count, dtype=bool)
    for start, stop in _durable(output, command):
        left[start:stop] = False
    return np.flatnonzero(left)


def _durable(output: Path, command: str) -> list[tuple[int, int]]:
    state = look_at(output)
    return Work(output).shards.ranges() if state and state.configuration.get("command") == command else []


class Publishing(ABC):
    """A place for a complete output. Its text is its name for a person.

    The work folder lies beside `path`, a local one that there need be nothing at.
    """

    path: Path

    @abstractmethod
    def refuse_existing(self, *, force: bool) -> None:
        """Raise a UsageError where something has the output's name, unless it may be replaced."""

    @abstractmethod
    def is_published(self, content: Path) -> bool:
        """Return whether the output that is complete in `content` has its name; any, where `content` is gone."""

    @abstractmethod
    def publish(self, content: Path, *, force: bool) -> None:
        """Give it its name in one step, whatever was left undone by a call that was killed."""

    @abstractmethod
    def discard(self) -> None:
        """Undo what unfinished work has left outside of its folder."""


@dataclass(frozen=True, slots=True)
class PublishedFolder(Publishing):
    """A folder that `content` is renamed to."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def refuse_existing(self, *, force: bool) -> None:
        """As `migrate.files.refuse_existing`."""
        refuse_existing(self.path, force=force)

    def is_published(self, content: Path) -> bool:
        """Return whether the folder that was complete has the name, or only the work folder is left over."""
        state = State.read(content.parent)
        if state is not None and state.identity is not None and list(state.identity) == _identity(self.path):
            return True
        return not content.is_dir() and self.path.is_dir()

    def publish(self, content: Path, *, force: bool) -> None:
        """Rename."""
        rename_folder(content, self.path, content.parent / "old", force=force)

    def discard(self) -> None:
        """Return an older output that stepped aside, if nothing has taken its place."""
        old = Work(self.path).old
        if os.path.lexists(old) and not os.path.lexists(self.path):
            os.rename(old, self.path)


def _identity(path: Path) -> list[int] | None:
    """Return device and inode of what has a name."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return [status.st_dev, status.st_ino]


def _tidy(work: Work) -> None:
    """Remove the work folder of a published output. Its state goes last: it says that there is nothing left to do."""
    with suppress(OSError):
        for path in work.path.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _STATE:
                path.unlink()
    shutil.rmtree(work.path, ignore_errors=True)


def _discard(work: Work, output: Publishing) -> None:
    """Remove a work folder; an older output that was being replaced goes back to its place first."""
    output.discard()
    if os.path.lexists(work.path):
        shutil.rmtree(work.path)


def _refuse_older(work: Work, output: object) -> None:
    """Make sure that unfinished work is not of a version that kept a journal."""
    if (work.path / "journal.jsonl").exists():
        raise UsageError(
            f"{output}: the unfinished work there is of an earlier version of this tool; finish it with that, or "
            f"{START_OVER}"
        )


@dataclass(slots=True)
class Steps:
    """The outputs of one command in a folder; `force` is also for those that the command has made itself."""

    folder: Path
    restart: bool
    force: bool
    state: State

    def known(self, name: str) -> Facts | None:
        """Return what is known of an output that an earlier run has made; None where it is still to be made."""
        return self.state.steps.get(name) if (self.folder / name).exists() else None

    def note(self, name: str, facts: Facts | None = None) -> None:
        """Note that an output is complete."""
        self.state.steps[name] = facts or {}
        with output_errors(self.folder):
            self.state.write(Work(self.folder).path)


@contextmanager
def open_steps(
    folder: Path,
    names: Sequence[str],
    configuration: Configuration,
    *,
    kept: Mapping[str, Facts] | None = None,
    force: bool,
    restart: bool,
) -> Iterator[Steps]:
    """Hold `folder`, and know what an earlier run of the same command has left in it.

    `kept` are outputs of a finished run, with what is known of them: they are complete, and may be replaced. Refuses
    `names` that are there and were not made by an earlier run of the same configuration.
    """
    with output_errors(folder), output_lock(folder):
        work = Work(folder)
        refuse_link(work.path)
        if not restart:
            _refuse_older(work, folder)
        state, kept = State.read(work.path), dict(kept or {})
        # Where a state is, nothing was in the way when it was begun: what is there now was made under it.
        ours = state is not None
        for name in () if ours else names:
            refuse_existing(folder / name, force=force or name in kept)
        if state is None or restart or not state.steps:
            _discard(work, PublishedFolder(folder))
            work.path.mkdir()
            state = State(configuration.as_json(), steps=kept.copy())
            state.write(work.path)
        else:
            configuration.check(state.configuration, folder)
        try:
            yield Steps(folder, restart, force or ours or bool(kept), state)
        except BaseException:
            if state.steps.keys() <= kept.keys():  # a finished run stays one
                _discard(work, PublishedFolder(folder))
            raise
        _discard(work, PublishedFolder(folder))


class StoreJob(ABC):
    """The rows of a store that one command writes; see `write_store`.

    `stage` names it in reports of progress. With `waits`, a shard is durable before the next is begun, as what it cost
    is lost otherwise. Rows `in_order` come from a stream: what an earlier run has finished after a gap is made again.
    """

    stage: str
    waits: bool = False
    in_order: bool = False

    @property
    def total(self) -> int | None:
        """The number of rows; None where only the end will tell."""
        return None

    @property
    def dim(self) -> int | None:
        """Dimension of the vectors; None where only the first of them will tell."""
        return None

    @property
    def spreads(self) -> bool:
        """Whether making rows is so slow that starting processes is worth it."""
        return False

    @abstractmethod
    def configuration(self) -> Configuration:
        """What the store is made from; asked for when the output is free and locked."""

    @abstractmethod
    def writer(self, work: Work, dim: int) -> StoreWriter:
        """The writer of the store in a folder that may hold some of it already."""

    def begin(self, work: Work) -> None:
        """Prepare to make what is left; an error here leaves the unfinished work as it is."""

    @abstractmethod
    def shards(self, work: Work) -> Iterable[Shard]:
        """The shards, in order; those that are finished may be left out."""

    @abstractmethod
    def blocks(self, shard: Shard) -> Iterator[Block]:
        """The rows of a shard, some at a time, made in this process."""

    def task(self) -> RowTask | None:
        """The same for other processes; None where only this one can."""
        return None

    @abstractmethod
    def finish(self, work: Work, writer: StoreWriter) -> Facts:
        """Complete the store once every shard is there, and return facts that JSON can hold."""


def write_store(
    output: Path | Publishing,
    job: StoreJob,
    *,
    runner: Runner = LOCAL,
    force: bool = False,
    restart: bool = False,
    progress: Progress = no_progress,
) -> Facts:
    """Write a store from shards: those that an earlier run has finished stay, and `runner` makes the others.

    The store appears under its name when it is complete; only then does `force` replace what has the name. What is
    durable stays for the next run, which `restart` lets begin anew; one with other options (UsageError) or another
    source (StoreError) is refused. `progress` is called with the stage, how many rows are done, and how many there are.
    """
    target: Publishing = PublishedFolder(output) if isinstance(output, Path) else output
    with output_errors(target.path), output_lock(target.path):
        work = Work(target.path)
        refuse_link(work.path)
        if restart or not work.path.is_dir():
            _discard(work, target)
            target.refuse_existing(force=force)
        _refuse_older(work, target)
        configuration = job.configuration()
        state = _take_up(work, target, configuration, force=force)
        try:
            if state.complete is None:
                _fill(work, target, state, job, runner, progress)
            if not target.is_published(work.content):
                target.publish(work.content, force=force)
                reach("published")
        except KeyboardInterrupt as error:
            of = "" if work.total is None else f" of {work.total:,}"
            error.add_note(f"continue with the same command: {work.rows:,}{of} rows are done")
            raise
        _tidy(work)
        return state.complete or {}


def settle(output: Path | Publishing, command: str, *, force: bool) -> bool:
    """Publish what an earlier run of a command has completed, and tidy up; returns whether there was anything."""
    target: Publishing = PublishedFolder(output) if isinstance(output, Path) else output
    work = Work(target.path)
    if not work.path.is_dir():
        return False
    with output_errors(target.path), output_lock(target.path):
        refuse_link(work.path)
        state = State.read(work.path)
        if state is None or state.complete is None or state.configuration.get("command") != command:
            return False
        if not target.is_published(work.content):
            if not work.content.is_dir():
                return False
            target.publish(work.content, force=force)
        _tidy(work)
    return True


def _take_up(work: Work, output: Publishing, configuration: Configuration, *, force: bool) -> State:
    """Return the state of an earlier run that goes on here, or a new one."""
    state = State.read(work.path)
    if state is not None and state.complete is not None and output.is_published(work.content):
        if state.configuration == configuration.as_json():  # only the work folder is left over
            return state
        state = None
    elif state is not None and state.complete is not None and not work.content.is_dir():
        state = None  # what was published is gone since
    output.refuse_existing(force=force)
    if state is not None and (len(work.shards) or state.complete is not None):
        configuration.check(state.configuration, output)
        return state
    _discard(work, output)
    work.shards = ShardFolder(work.shards.path)
    for folder in (work.path, work.content, work.shards.path):
        folder.mkdir()
    state = State(configuration.as_json())
    state.write(work.path)
    sync_path(work.path.parent)
    reach("begun")
    return state


def _fill(work: Work, output: Publishing, state: State, job: StoreJob, runner: Runner, progress: Progress) -> None:
    """Make the shards that are left, and complete the store in the work folder."""

    def open_writer(dim: int) -> StoreWriter:
        writer = job.writer(work, dim)
        if work.total is not None and not writer.is_shared:
            require_room(work.output, (work.total - work.rows) * dim * 4)
        return writer

    work.total, work.open_writer = job.total, open_writer
    begun = False
    try:
        _check_shards(work, job, output)
        job.begin(work)
        begun = True
        shards = ShardWork(job.blocks, work.writer, job.task, work.path, work.shards, job.waits, job.spreads)
        lacking, rows = work.lacking(job.shards(work)), work.rows
        progress(job.stage, rows, job.total)
        with closing(runner.run(shards, lacking)) as results:
            for shard in results:
                reach("recorded")
                rows += len(shard)
                progress(job.stage, rows, job.total)
        facts = job.finish(work, work.writer(_dim(work, job)))
        reach("filled")
        for path in (*sorted(work.content.iterdir()), work.content):
            sync_path(path)
        state.complete, state.identity = facts, _identity(work.content)
        state.write(work.path)
        reach("complete")
    except BaseException as error:
        # Rows of a source that cannot be used, or no rows at all, are nothing to go on from.
        is_wrong_data = isinstance(error, (StoreError, VectorError, DatasetError, StitchError))
        if not len(work.shards) or (begun and is_wrong_data):
            with suppress(LeadMigrateError):
                output.discard()
            shutil.rmtree(work.path, ignore_errors=True)
        raise


def _dim(work: Work, job: StoreJob) -> int:
    """Return the dimension that the job knows, or that of the shards that are there."""
    first = next(iter(work.shards), None)
    dim = job.dim if job.dim is not None or first is None else work.shards.facts(first)["dim"]
    if dim is None:
        raise DatasetError("there are no documents to embed; is the corpus empty?")
    return int(dim)


def _check_shards(work: Work, job: StoreJob, output: object) -> None:
    """Keep only shards that are as they were written; of a stream, only those before the first gap."""
    if not len(work.shards):
        return
    writer, damaged = work.writer(_dim(work, job)), 0
    for shard in list(work.shards):
        is_sound = work.shards.is_sound(shard)
        put = work.shards.facts(shard).get("put") if is_sound else None
        if not is_sound or (put is not None and not writer.is_sound(shard, put)):
            work.shards.remove(shard)
            damaged += len(shard)
    if damaged:
        _log.warning("%s: %d rows are damaged and are made again", output, damaged)
    ranges = work.shards.ranges()
    stop = ranges[0][1] if ranges and ranges[0][0] == 0 else 0
    for shard in list(work.shards):
        if job.in_order and shard.start >= stop:
            work.shards.remove(shard)
