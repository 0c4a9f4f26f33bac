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
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from migrate.command_notes import running
from migrate.errors import DatasetError, LeadMigrateError, StitchError, StoreError, UsageError, VectorError
from migrate.files import (
    hidden_sibling,
    output_errors,
    output_lock,
    read_file,
    refuse_existing,
    refuse_link,
    refuse_unwritable,
    remove_last,
    rename_folder,
    sync_path,
    write_bytes,
)
from migrate.locations import path_remedy
from migrate.progress import Progress, no_progress, note_progress
from migrate.work.jobs import START_OVER, Configuration, StoreJob, Work
from migrate.work.processes import make_shards
from migrate.work.shards import ShardFolder
from migrate.work.writer import Facts

_VERSION: Final = 4
_STATE: Final = "work.json"
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class RunState:
    """The content of `work.json` beside an output.

    `complete` are the facts of an output that lacks nothing but its name, `identity` device and inode of its folder,
    which tell whether it has the name. `steps` are the facts of finished outputs of a command that makes several in the
    folder `output`.
    """

    output: Path
    configuration: Facts
    complete: Facts | None = None
    identity: Sequence[int] | None = None
    steps: dict[str, Facts] = field(default_factory=dict)

    def write(self) -> None:
        """Put it into the work folder of the output, durably and at once."""
        folder = hidden_sibling(self.output, "work")
        content = asdict(self)
        unfinished = folder / ".work.json"
        del content["output"]
        write_bytes(unfinished, json.dumps({"version": _VERSION, **content}, sort_keys=True).encode())
        # In one step: with half a state, all that an earlier run has made and paid for would be made again.
        os.replace(unfinished, folder / _STATE)
        sync_path(folder)

    @classmethod
    def read(cls, output: Path) -> RunState | None:
        """Return the state of an output that an earlier run has not finished; None where there is nothing usable."""
        path = hidden_sibling(output, "work") / _STATE
        try:
            content = json.loads(read_file(path))
            if content.pop("version") == _VERSION:
                return cls(output, **content)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        _log.warning("%s: the file is damaged; the unfinished work starts again", path)
        return None

    def finished(self, name: str) -> Facts | None:
        """Return what is known of a finished output of several; None where it is still to be made."""
        if not (self.output / name).exists():
            return None
        return self.steps.get(name)

    def note(self, name: str, details: Facts | None = None) -> None:
        """Note that an output of several is complete."""
        self.steps[name] = details or {}
        with output_errors(self.output):
            self.write()


def why_missing(path: Path) -> str:
    """Return why nothing is at the path of a store, and what to do: one that is being made is not there yet."""
    work = hidden_sibling(path, "work")
    command = None
    if work.is_dir() and (state := RunState.read(path)) is not None:
        command = state.configuration.get("command")
    if command is None:
        return f"no such file or folder; {path_remedy(str(path))}"
    return f"`{command}` makes it, or broke off: the same command continues; to give it up, remove {work}"


def rows_done(output: Path, command: str) -> int:
    """Return how many rows from the first on an earlier run of a command has left as durable."""
    shards = _durable(output, command)
    if shards is None:
        return 0
    return shards.rows_before_gap


def rows_left(output: Path, command: str, count: int) -> NDArray[np.int64]:
    """Return the rows, of `count`, that an earlier run of a command has not left as durable."""
    is_left = np.ones(count, dtype=bool)
    for shard in _durable(output, command) or ():
        is_left[shard.start : shard.stop] = False
    return np.flatnonzero(is_left)


def _durable(output: Path, command: str) -> ShardFolder | None:
    """Return the shards that an earlier run of a command has left; None where there was none."""
    state = RunState.read(output)
    if state is None or state.configuration.get("command") != command:
        return None
    return ShardFolder(hidden_sibling(output, "work") / "shards")


class OutputFolder:
    """A folder that appears when it is complete; another place for an output overrides what differs.

    Its text is its name for a person. The work folder lies beside `path`, a local one that there need be nothing at.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    @property
    def work_path(self) -> Path:
        """The folder in which it is made."""
        return hidden_sibling(self.path, "work")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold its lock, and tell of what the system refuses."""
        with output_errors(self.path), output_lock(self.path):
            refuse_link(self.work_path)
            yield

    def refuse_existing(self, *, force: bool) -> None:
        """Raise a UsageError where something has the output's name, unless it may be replaced."""
        refuse_existing(self.path, force=force)

    def require_free(self, *, force: bool) -> None:
        """Make sure, before anything is counted or spent, that the output may be written, as `refuse_existing`.

        Where unfinished work is beside it, what has the name may have come of that: `write_store` tells.
        """
        refuse_unwritable(self.path)
        if not self.work_path.is_dir():
            self.refuse_existing(force=force)

    def is_published(self, content: Path) -> bool:
        """Return whether the output that is complete in `content` has its name; any, where `content` is gone."""
        state = RunState.read(self.path)
        if state is not None and state.identity is not None and list(state.identity) == _identity(self.path):
            return True
        return not content.is_dir() and self.path.is_dir()

    def publish(self, content: Path, *, force: bool) -> None:
        """Give it its name in one step, whatever was left undone by a call that was killed."""
        rename_folder(content, self.path, content.parent / "old", force=force)

    def note_made(self) -> None:
        """Let the request that runs note that it has made this."""
        request = running()
        if request is not None:
            request.has_made(str(self))

    def completed(self, command: str) -> RunState | None:
        """Return the state of an earlier run of a command that has made all; None where there is none."""
        state = RunState.read(self.path)
        is_made = state is not None and state.complete is not None and state.configuration.get("command") == command
        if not is_made:
            return None
        return state

    def discard(self) -> None:
        """Undo what unfinished work has left outside of its folder, as an older output that stepped aside."""
        old = self.work_path / "old"
        if os.path.lexists(old) and not os.path.lexists(self.path):
            os.rename(old, self.path)

    def clear(self) -> None:
        """Remove the work folder; an older output that was being replaced goes back to its place first."""
        self.discard()
        if os.path.lexists(self.work_path):
            shutil.rmtree(self.work_path)

    def refuse_older(self) -> None:
        """Make sure that unfinished work is not of a version that kept a journal."""
        if (self.work_path / "journal.jsonl").exists():
            raise UsageError(
                f"{self}: the unfinished work there is of an earlier version of this tool; finish it with that, or "
                f"{START_OVER}"
            )


def _identity(path: Path) -> list[int] | None:
    """Return device and inode of what has a name."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return [status.st_dev, status.st_ino]


def _tidy_shards(path: Path) -> None:
    """Empty the work folder of a published output but for its state, which says that there is nothing left to do."""
    with suppress(OSError):
        for entry in path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != _STATE:
                entry.unlink()


def _tidy(path: Path) -> None:
    """Remove the work folder of a published output, its state last."""
    _tidy_shards(path)
    shutil.rmtree(path, ignore_errors=True)


def _forget(output: OutputFolder, published: RunState) -> None:
    """Remove the work folder of a published output, unless another run has begun there since."""
    with suppress(LeadMigrateError, OSError), output_lock(output.path):
        state = RunState.read(output.path)
        if state is not None and state.complete is not None and state.configuration == published.configuration:
            _tidy(output.work_path)


def refuse_existing_steps(folder: Path, names: Sequence[str], *, kept: Collection[str], force: bool) -> None:
    """Make sure that none of several outputs exists in `folder`, but for those that are `kept`.

    Where unfinished work is, nothing was in the way when it was begun: what is there now was made under it.
    """
    if RunState.read(folder) is None:
        for name in names:
            refuse_existing(folder / name, force=force or name in kept)


@contextmanager
def open_steps(
    folder: Path,
    names: Sequence[str],
    configuration: Configuration,
    *,
    kept_details: Mapping[str, Facts] | None = None,
    force: bool,
    restart: bool,
) -> Iterator[tuple[RunState, bool]]:
    """Hold `folder`; yield what an earlier run of the same command has left in it, and if that may be replaced.

    `kept_details` are outputs of a finished run, with what is known of them: complete, and replaceable. Refuses
    `names` that are there and were not made by an earlier run of the same configuration.
    """
    output = OutputFolder(folder)
    kept_details = dict(kept_details or {})
    with output.held():
        if not restart:
            output.refuse_older()
        state = RunState.read(folder)
        ours = state is not None
        refuse_existing_steps(folder, names, kept=kept_details, force=force)
        if state is None or restart or not state.steps:
            output.clear()
            output.work_path.mkdir()
            state = RunState(folder, configuration.as_json(), steps=kept_details.copy())
            state.write()
        else:
            configuration.check(state.configuration, folder)
        try:
            yield state, force or ours or bool(kept_details)
        except BaseException:
            if state.steps.keys() <= kept_details.keys():  # a finished run stays one
                output.clear()
            raise
        output.clear()


GOES_ON: Final = "continue with the same command: "
"""Beginning of the note of an interruption, before what is done."""


def write_store(
    output: Path | OutputFolder,
    job: StoreJob,
    *,
    processes: int | None = None,
    force: bool = False,
    restart: bool = False,
    progress: Progress = no_progress,
) -> Facts:
    """Write a store from shards: those that an earlier run has finished stay, and the others are made.

    Where they are slow, up to `processes` processes make them; None for one a core.

    The store appears under its name when it is complete; only then does `force` replace what has the name. What is
    durable stays for the next run, which `restart` lets begin anew; one with other options (UsageError) or another
    source (StoreError) is refused. `progress` is called with the stage, how many rows are done, and how many there are.
    """
    target: OutputFolder = OutputFolder(output) if isinstance(output, Path) else output
    with target.held():
        if restart or not target.work_path.is_dir():
            target.clear()
            target.refuse_existing(force=force)
        target.refuse_older()
        work = Work(target.path, job)
        state = _take_up(work, target, force=force)
        try:
            if state.complete is None:
                _fill(work, target, state, processes, progress)
            if not target.is_published(work.content):
                target.publish(work.content, force=force)
            job.note_published()
        except KeyboardInterrupt as error:
            done = f"{work.rows:,}"
            if job.total is not None:
                done += f" of {job.total:,}"
            error.add_note(f"{GOES_ON}{done} rows are done")
            raise
        _tidy_shards(work.path)
    target.note_made()
    remove_last(partial(_forget, target, state))
    return state.complete or {}


def settle(output: Path | OutputFolder, command: str, *, force: bool) -> bool:
    """Publish what an earlier run of a command has completed, and tidy up; returns whether there was anything."""
    target: OutputFolder = OutputFolder(output) if isinstance(output, Path) else output
    content = target.work_path / "content"
    if not target.work_path.is_dir():
        return False
    with target.held():
        if target.completed(command) is None:
            return False
        if not target.is_published(content):
            if not content.is_dir():
                return False
            target.publish(content, force=force)
        _tidy(target.work_path)
    return True


def _take_up(work: Work, output: OutputFolder, *, force: bool) -> RunState:
    """Return the state of an earlier run that goes on here, or a new one."""
    configuration = work.job.configuration()
    state = RunState.read(work.output)
    if state is not None and state.complete is not None and output.is_published(work.content):
        if state.configuration == configuration.as_json():  # only the work folder is left over
            return state
        state = None
    elif state is not None and state.complete is not None and not work.content.is_dir():
        state = None  # what was published is gone since
    output.refuse_existing(force=force)
    # Nothing finished is nothing to go on from: then other options or another source are no reason to refuse.
    if state is not None and (len(work.shards) or state.complete is not None):
        configuration.check(state.configuration, output)
        return state
    output.clear()
    # Those that it had listed went with the folder.
    work.shards = ShardFolder(work.shards.path)
    for folder in (work.path, work.content, work.shards.path):
        folder.mkdir()
    state = RunState(work.output, configuration.as_json())
    state.write()
    # The name of the work folder, too: a power cut would lose with it all that is durable inside.
    sync_path(work.path.parent)
    return state


def _fill(work: Work, output: OutputFolder, state: RunState, processes: int | None, progress: Progress) -> None:
    """Make the shards that are left, and complete the store in the work folder."""
    job = work.job
    begun = False
    try:
        _check_shards(work, output)
        job.begin(work)
        begun = True
        lacking = work.lacking(job.shards(work))
        rows = work.rows
        progress(job.stage, rows, job.total)
        with closing(make_shards(work, lacking, processes)) as results:
            for shard in results:
                rows += len(shard)
                progress(job.stage, rows, job.total)
        note_progress("finish the store", 0, None)
        details = job.finish(work, work.writer(_dim(work)))
        # First the files, then the note that all is there: a power cut must not leave the note alone.
        for path in (*sorted(work.content.iterdir()), work.content):
            sync_path(path)
        state.complete = details
        state.identity = _identity(work.content)
        state.write()
    except BaseException as error:
        # Rows of a source that cannot be used, or no rows at all, are nothing to go on from.
        is_wrong_data = isinstance(error, (StoreError, VectorError, DatasetError, StitchError))
        if not len(work.shards) or (begun and is_wrong_data):
            with suppress(LeadMigrateError):
                output.discard()
            shutil.rmtree(work.path, ignore_errors=True)
        raise


def _dim(work: Work) -> int:
    """Return the dimension that the job knows, or that of the shards that are there."""
    first = next(iter(work.shards), None)
    dim = work.job.dim if work.job.dim is not None or first is None else work.shards.details(first)["dim"]
    if dim is None:
        raise DatasetError("there are no documents to embed; is the corpus empty?")
    return int(dim)


def _check_shards(work: Work, output: OutputFolder) -> None:
    """Keep only shards that are as they were written; of a stream, only those before the first gap."""
    if not len(work.shards):
        return
    writer = work.writer(_dim(work))
    damaged = 0
    for shard in list(work.shards):
        is_sound = work.shards.is_sound(shard)
        put = work.shards.details(shard).get("put") if is_sound else None
        if not is_sound or (put is not None and not writer.is_sound(shard, put)):
            work.shards.remove(shard)
            damaged += len(shard)
    if damaged:
        _log.warning("%s: %d rows are damaged and are made again", output, damaged)
    stop = work.shards.rows_before_gap
    for shard in list(work.shards):
        if work.job.in_order and shard.start >= stop:
            work.shards.remove(shard)
