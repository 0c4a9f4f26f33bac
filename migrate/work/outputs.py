"""Outputs that are made from shards and appear under their names when they are complete, however often a run is killed.

Beside an output `new` stands `.new.work` while it is being made:

    work.json     what the output is made from; at last, what is known of it once it is complete
    shards/       the finished shards (`migrate.work.shards`): their listing is the journal
    content/      what becomes `new`
    old/          the older output that `--force` replaces, once the new one has its name

An output that goes elsewhere, to the server of a database, has its work folder beside the local path that it names, and
`publish` gives it its name. Only a run of the same configuration may go on: the same command with the same options,
from the same source. `write_store` is all that commands call; `open_steps` keeps track of several outputs of one
command.
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
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from migrate import __version__
from migrate.errors import DatasetError, LeadMigrateError, StitchError, StoreError, UsageError, VectorError
from migrate.files import (
    canonical_json,
    exchange_paths,
    output_errors,
    output_lock,
    reach,
    refuse_existing,
    refuse_link,
    require_room,
    sync_folder,
    write_bytes,
)
from migrate.vectors import Progress, no_progress
from migrate.work.runner import LOCAL, OpenWriter, RowTask, Runner, ShardWork
from migrate.work.shards import VECTORS, Block, Rows, Shard, ShardFolder, write_values
from migrate.work.writer import ShardMaker, StoreWriter

POINTS: Final = ("begun", "synced", "written", "recorded", "filled", "complete", "aside", "published")
"""Where a run can be ended by `migrate.files.reach`, in order; `aside` only where an older output is replaced."""

Facts = Mapping[str, Any]
_VERSION: Final = 3
_STATE: Final = "work.json"
_OLDER: Final = "journal.jsonl"
_VALUES_AT_ONCE: Final = 1 << 20
_START_OVER: Final = "to discard the unfinished work and start over, add `restart=True`"
_WRONG_DATA: Final = (StoreError, VectorError, DatasetError, StitchError)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Configuration:
    """What is read (`source`) and how it is worked on (`options`); both of what JSON can hold."""

    command: str
    source: Facts = field(default_factory=dict)
    options: Facts = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As the state of unfinished work has it."""
        facts = {**asdict(self), "options": {**self.options, "tool": __version__}}
        read_back: dict[str, Any] = json.loads(canonical_json(facts))
        return read_back

    def check(self, begun: Facts, output: object) -> None:
        """Make sure that unfinished work was begun with the same configuration.

        Raises
        ------
        StoreError
            The source is another, or has changed since.
        UsageError
            The command or its options are others.
        """
        now = self.as_json()
        if begun["command"] != now["command"]:
            raise UsageError(
                f"{output}: the unfinished work there is of {begun['command']}, not of {now['command']}; {_START_OVER}"
            )
        if begun["source"] != now["source"]:
            raise StoreError(
                f"{output}: the unfinished work there was begun with another source, or it changed since; {_START_OVER}"
            )
        names = sorted(begun["options"].keys() | now["options"].keys())
        others = [name for name in names if begun["options"].get(name) != now["options"].get(name)]
        if others:
            raise UsageError(
                f"{output}: the unfinished work there was begun with other values of {', '.join(others)}; {_START_OVER}"
            )


def source_changed(what: str) -> StoreError:
    """The error of a source that is not what the unfinished work was begun with, to be raised."""
    return StoreError(f"{what}: changed since the unfinished work was begun; {_START_OVER}")


@dataclass(slots=True)
class State:
    """What `work.json` holds.

    `complete` are the facts of an output that lacks nothing but its name; `identity` is that of its folder, which tells
    whether it has the name. `steps` are the facts of finished outputs of a command that makes several.
    """

    configuration: Facts
    complete: Facts | None = None
    identity: Sequence[int] | None = None
    steps: dict[str, Facts] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Put it into a work folder, durably and at once."""
        unfinished = folder / f".{_STATE}"
        write_bytes(unfinished, json.dumps({"version": _VERSION, **asdict(self)}, sort_keys=True).encode())
        os.replace(unfinished, folder / _STATE)
        sync_folder(folder)

    @classmethod
    def read(cls, folder: Path) -> State | None:
        """The state of a work folder; None where it says nothing usable."""
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
        self.path = output.with_name(f".{output.name}.work")
        self.content = self.path / "content"
        self.old = self.path / "old"
        self.shards = ShardFolder(self.path / "shards")
        self.total: int | None = None
        self._writer: StoreWriter | None = None

    @property
    def rows(self) -> int:
        """How many rows are durable."""
        return self.shards.rows

    def writer(self, dim: int) -> StoreWriter:
        """The writer of this process, for vectors of a dimension."""
        if self._writer is None:
            self._writer = self.open_writer(dim)
            self._writer.begin()
        return self._writer

    def all_rows(self, dim: int) -> Rows:
        """The vectors of all shards; raises a StoreError where some are missing."""
        return self.shards.all_rows(dim, self.total)

    def lacking(self, shards: Iterable[Shard]) -> Iterator[Shard]:
        """Those of some shards that are not durable now."""
        ranges = _ranges(self.shards)
        starts = [start for start, _ in ranges]
        for shard in shards:
            at = bisect_right(starts, shard.start) - 1
            if at < 0 or shard.stop > ranges[at][1]:
                yield shard

    def write_values(self, order: NDArray[np.int64] | None) -> dict[str, str]:
        """Put what shards have beside vectors into the output, a `.npy` each; the SHA-256 of each file.

        They are put in the order of the new store's rows, see `StoreWriter.order`.
        """
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

    def hint(self) -> str:
        """How to go on after an interruption."""
        of = f"{self.rows:,}" if self.total is None else f"{self.rows:,} of {self.total:,}"
        return f"continue with the same command: {of} rows are done"


def _ranges(shards: Iterable[Shard]) -> list[tuple[int, int]]:
    """The rows of shards, which are in order; those that touch made one."""
    merged: list[tuple[int, int]] = []
    for shard in shards:
        if merged and shard.start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(shard.stop, merged[-1][1]))
        else:
            merged.append((shard.start, shard.stop))
    return merged


def look_at(output: Path) -> State | None:
    """The state of an output that an earlier run has not finished; None where there is nothing to go on from.

    Nothing is checked or changed: a run that goes on looks closer.
    """
    return State.read(Work(output).path)


def rows_done(output: Path, command: str) -> int:
    """How many rows from the first on an earlier run of a command has left as durable."""
    ranges = _finished(output, command)
    return ranges[0][1] if ranges and ranges[0][0] == 0 else 0


def rows_left(output: Path, command: str, count: int) -> NDArray[np.int64]:
    """The rows, of `count`, that an earlier run of a command has not left as durable."""
    left = np.ones(count, dtype=bool)
    for start, stop in _finished(output, command):
        left[start:stop] = False
    return np.flatnonzero(left)


def _finished(output: Path, command: str) -> list[tuple[int, int]]:
    state = look_at(output)
    if state is None or state.configuration.get("command") != command:
        return []
    return _ranges(Work(output).shards)


class Publishing(Protocol):
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


@dataclass(frozen=True, slots=True)
class PublishedFolder:
    """A folder that `content` is renamed to."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    def refuse_existing(self, *, force: bool) -> None:
        """As `migrate.files.refuse_existing`."""
        refuse_existing(self.path, force=force)

    def is_published(self, content: Path) -> bool:
        """Whether the folder that was complete has the name, or only the work folder is left over."""
        state = State.read(content.parent)
        if state is not None and state.identity is not None and list(state.identity) == _identity(self.path):
            return True
        return not content.is_dir() and self.path.is_dir()

    def publish(self, content: Path, *, force: bool) -> None:
        """Rename. An older output trades places with the new one in one step, where the system has it."""
        old = content.parent / "old"
        try:
            if force and os.path.lexists(self.path):
                if _exchange(content, self.path):
                    reach("aside")
                    os.rename(content, old)
                else:
                    os.rename(self.path, old)
                    reach("aside")
                    os.rename(content, self.path)
            else:
                os.rename(content, self.path)
            sync_folder(self.path.parent)
        except BaseException:
            # What is not known to be durable does not stand under its name; the next run goes on from here.
            with suppress(OSError):
                if self.is_published(content):
                    if os.path.lexists(content):
                        exchange_paths(content, self.path)
                    else:
                        os.rename(self.path, content)
            with suppress(OSError):
                _put_back(old, self.path)
            raise

    def discard(self) -> None:
        """Return an older output that stepped aside."""
        _put_back(Work(self.path).old, self.path)


def _exchange(content: Path, path: Path) -> bool:
    with suppress(OSError):
        return exchange_paths(content, path)
    return False


def _identity(path: Path) -> list[int] | None:
    """Device and inode of what has a name."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return [status.st_dev, status.st_ino]


def _put_back(old: Path, output: Path) -> None:
    """Return an older output that stepped aside, if nothing has taken its place."""
    if os.path.lexists(old) and not os.path.lexists(output):
        os.rename(old, output)


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
    if (work.path / _OLDER).exists():
        raise UsageError(
            f"{output}: the unfinished work there is of an earlier version of this tool; finish it with that, or "
            f"{_START_OVER}"
        )


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
    """

    folder: Path
    restart: bool
    force: bool
    state: State

    def known(self, name: str) -> Facts | None:
        """What is known of an output that an earlier run has made; None where it is still to be made."""
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
        work = Work(folder)
        refuse_link(work.path)
        if not restart:
            _refuse_older(work, folder)
        state, kept = State.read(work.path), dict(kept or {})
        # Where a state is, nothing was in the way when it was begun: what is there now was made under it.
        ours = state is not None
        if not ours:
            for name in names:
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
    """What one command writes a store from; see `write_store`.

    Attributes
    ----------
    stage
        What progress is reported as.
    waits
        Whether a shard must be durable before the next is begun, as what it cost is lost otherwise.
    in_order
        Whether rows come from a stream: what an earlier run has finished after a gap is made again.
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

    The store appears under its name when it is complete.

    Parameters
    ----------
    output
        The folder, or another place.
    job
        What is written.
    runner
        Who makes the shards.
    force
        Replace what is at `output`, once the new store is complete.
    restart
        Discard what an earlier run left unfinished.
    progress
        Called with the job's stage, how many rows are done, and how many there are.

    Raises
    ------
    UsageError
        `output` exists and `force` is not given; or unfinished work was begun with other options.
    StoreError
        Unfinished work was begun with another source.
    LockedError
        Another run holds the output.
    OutputError
        The operating system refused. What is durable stays for the next run.
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
            error.add_note(work.hint())
            raise
        _tidy(work)
        return state.complete or {}


def settle(output: Path | Publishing, command: str, *, force: bool) -> bool:
    """Publish what an earlier run of a command has completed, and tidy up after it; whether there was anything.

    Raises as `write_store`.
    """
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
    """The state of an earlier run that goes on here, or a new one."""
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
    sync_folder(work.path.parent)
    reach("begun")
    return state


def _fill(work: Work, output: Publishing, state: State, job: StoreJob, runner: Runner, progress: Progress) -> None:
    """Make the shards that are left, and complete the store in the work folder."""
    work.total, work.open_writer = job.total, lambda dim: _open_writer(work, job, dim)
    begun = False
    try:
        _check_shards(work, job, output)
        job.begin(work)
        begun = True
        _make_shards(work, job, runner, progress)
        facts = job.finish(work, work.writer(_dim(work, job)))
        reach("filled")
        _sync_files(work.content)
        state.complete, state.identity = facts, _identity(work.content)
        state.write(work.path)
        reach("complete")
    except BaseException as error:
        # Rows of a source that cannot be used, or no rows at all, are nothing to go on from.
        if not len(work.shards) or (begun and isinstance(error, _WRONG_DATA)):
            with suppress(LeadMigrateError):
                output.discard()
            shutil.rmtree(work.path, ignore_errors=True)
        raise


def _open_writer(work: Work, job: StoreJob, dim: int) -> StoreWriter:
    writer = job.writer(work, dim)
    if work.total is not None and not writer.is_shared:
        require_room(work.output, (work.total - work.rows) * dim * 4)
    return writer


def _dim(work: Work, job: StoreJob) -> int:
    """The dimension that the job knows, or that of the shards that are there."""
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
    stop = _ranges(work.shards)[0][1] if len(work.shards) and next(iter(work.shards)).start == 0 else 0
    for shard in list(work.shards):
        if job.in_order and shard.start >= stop:
            work.shards.remove(shard)


def _make_shards(work: Work, job: StoreJob, runner: Runner, progress: Progress) -> None:
    maker = ShardMaker(job.blocks, work.writer, work.shards)
    shards = job.shards(work)
    spread = ShardWork(maker, job.task, work.path, work.shards, job.waits, job.spreads)
    rows = work.rows
    progress(job.stage, rows, job.total)
    with closing(runner.run(spread, work.lacking(shards))) as results:
        for shard in results:
            reach("recorded")
            rows += len(shard)
            progress(job.stage, rows, job.total)


def _sync_files(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    sync_folder(folder)
