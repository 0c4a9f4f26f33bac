"""A folder that is made in parts and appears under its name when it is complete, however often the making breaks off.

Beside an output `new` stands `.new.work` while it is being made:

    journal.jsonl   the configuration, the parts that are durable, and at last that everything is
    content/        what becomes `new`
    scratch/        what is needed only until then
    old/            the older output that `--force` replaces, for the moment between two renames

A run that finds this folder checks the parts against their checksums and goes on after the last sound one.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from migrate.errors import DatasetError, StitchError, StoreError, VectorError
from migrate.files import output_errors, output_lock, refuse_existing, refuse_link, sync_folder
from migrate.work.configuration import Configuration
from migrate.work.failpoints import reach
from migrate.work.journal import Record, read_journal
from migrate.work.parts import sound_parts
from migrate.work.place import Facts, Work, discard, put_back, tidy

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
