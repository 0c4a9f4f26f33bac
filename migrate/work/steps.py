"""Several outputs in one folder, made one after the other by one command: which of them are done already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from migrate.files import output_errors, output_lock, refuse_existing, refuse_link
from migrate.work.configuration import Configuration
from migrate.work.journal import Journal, read_journal
from migrate.work.place import Work, discard


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
