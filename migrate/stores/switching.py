"""Switching: a new store comes to answer under the name of an old one, in one step, and back.

A `SwitchableStore` gives an `Exchange`, after which the two stores have traded names. Nothing is copied
back, so undoing it is as quick. `Folders` are those of all kinds that have a folder to themselves; the names of a
server are traded by the driver of the database.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from migrate.command_notes import running
from migrate.errors import InputError, LeadMigrateError, UsageError
from migrate.files import (
    OWN_FOLDER,
    SWITCH_MARK,
    atomic_file,
    exchange_paths,
    mounts_in,
    output_errors,
    output_lock,
    read_file,
    real_path,
    remove_last,
    switched_folder,
    sync_path,
    write_bytes,
    write_json,
)
from migrate.locations import Address
from migrate.manifest import MANIFEST_NAME
from migrate.reading import MalformedError, expect, parse_json, read_small
from migrate.stores.added_fields import FIELDS
from migrate.stores.base import Store
from migrate.stores.confidence import CONFIDENCE_NAME
from migrate.stores.old_checksums import SOURCES_NAME

SWITCHED: Final = "switched"
ROLLED_BACK: Final = "rolled back"
FORGOTTEN: Final = "forgotten"
OWN_FILES: Final = (MANIFEST_NAME, CONFIDENCE_NAME, SOURCES_NAME, "embedder.json", "embedder.safetensors")
"""Files beside a store: its manifest, confidence, checksums of the old vectors, and the state of the model."""

BESIDE: Final = (*OWN_FILES, OWN_FOLDER, FIELDS)
"""Those, the folder that they may lie in, and the added fields."""

ASIDE: Final = "__lead_migrate_aside"
"""The end of a name that a table or collection has while it is beside the one that answers."""


Record = Mapping[str, Any]
"""The record of a switch, as JSON holds it: `old` and `new` locations, models, whether it was proven."""

RECORD_SHAPE: Final = {
    "old": str,
    "new": str,
    "aside": str,
    "model": str | None,
    "old_model": str | None,
    "proven": bool,
}
"""The types of its fields, for `read_noted`."""

_FOLDERS_SHAPE: Final = {"paths": tuple[str, str], "old": str, "new": str, "record": RECORD_SHAPE, "goal": str}


class Places(ABC):
    """The places where stores answer, whose names can be traded: collections of a server, or two folders."""

    @abstractmethod
    def errors(self) -> AbstractContextManager[None]:
        """Turn what the system or the server refuses into one line."""

    @abstractmethod
    def alone(self, names: Collection[str]) -> AbstractContextManager[None]:
        """Keep others from writing to some places meanwhile, as far as the kind can."""

    @abstractmethod
    def location_of(self, name: str) -> str:
        """Return the location of a name."""

    @abstractmethod
    def identity(self, name: str) -> Any:
        """Return what a name leads to, as a JSON value; changes after a switch. None if it leads nowhere."""

    @abstractmethod
    def switch_record(self, name: str) -> Mapping[str, Any] | None:
        """Return what `note` has recorded of the switch of an old name."""

    @abstractmethod
    def switched_with(self, name: str) -> str | None:
        """Return the old name of the recorded switch that a name is part of; None if there is none."""

    @abstractmethod
    def note(self, name: str, record: Mapping[str, Any] | None) -> None:
        """Record the switch of an old name; None removes the record."""

    @abstractmethod
    def swap(self, targets: Mapping[str, Any]) -> None:
        """Let each name lead to what has this identity; raises InputError if these are gone. Safe to repeat."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Delete what a name leads to."""


class Exchange:
    """Two stores of one kind that trade names: the old one then answers under the name of the new one.

    What it does is done again without harm: a step that was killed is finished or undone by the next. `check` raises
    where the stores are no longer what they were; a switch that nothing is noted of calls it when it has kept others
    out, as far as the kind can, and then `prepare`, which changes what the new store says of its model.

    Parameters
    ----------
    places
        The driver of the old store, or of any location on its server; or two folders.
    old, new
        The names.
    """

    def __init__(self, backend: Places, old: str, new: str) -> None:
        self.places = backend
        self.old = old
        self.new = new
        self.check: Callable[[], None] = lambda: None
        self.prepare: Callable[[], None] = lambda: None

    @classmethod
    def at(cls, backend: Places, name: str) -> Exchange | None:
        """Return the exchange that is recorded of an old name."""
        with backend.errors():
            record = backend.switch_record(name)
        if record is None:
            return None
        return cls(backend, *record["aliases"])

    def record(self) -> Record | None:
        """Return the record of the last switch, finished or not; None if nothing was switched."""
        with self.places.errors():
            record = self.places.switch_record(self.old)
        return None if record is None else record["record"]

    def switch(self, record: Record) -> None:
        """Let the new store answer under the old name; `record` is kept until it is undone or forgotten."""
        backend = self.places
        with self._alone():
            recorded = backend.switch_record(self.old)
            if recorded is not None and self._is_back(recorded):
                backend.note(self.old, None)
                recorded = None
            if recorded is None:
                for name in (self.old, self.new):
                    # Each of the two is the only copy of what it has, and a second switch would lose the way back of
                    # the first.
                    if (old := backend.switched_with(name)) is not None:
                        raise moved(backend.location_of(name), old)
                self.check()
                self.prepare()
                identities = {"old": backend.identity(self.old), "new": backend.identity(self.new)}
                recorded = {"aliases": [self.old, self.new], **identities}
            if recorded.get("goal") == FORGOTTEN:
                raise UsageError(f"{self.old}: the old store is only partly deleted; run `forget` again")
            # Before the names are traded: a run killed in between is finished by the next one, which finds the goal.
            backend.note(self.old, {**recorded, "record": dict(record), "goal": SWITCHED})
            backend.swap({self.old: recorded["new"], self.new: recorded["old"]})

    def rollback(self) -> None:
        """Let the old store answer under its name again, and the new one under its own."""
        backend = self.places
        with self._alone():
            record = backend.switch_record(self.old)
            if record is None:
                return
            if record.get("goal") == FORGOTTEN:
                raise UsageError(f"{self.old}: the old store is deleted, at least in part; run `forget` again")
            if not self._is_back(record):
                backend.note(self.old, {**record, "goal": ROLLED_BACK})
                backend.swap({self.old: record["old"], self.new: record["new"]})
        self._end(ROLLED_BACK)

    def forget(self) -> None:
        """Delete the old store, which stepped aside, and the record, and nothing else."""
        backend = self.places
        with self._alone():
            record = backend.switch_record(self.old)
            if record is None:
                return
            goal = record.get("goal", SWITCHED)
            replaced = backend.identity(self.new)
            if goal != FORGOTTEN:
                if goal != SWITCHED or backend.identity(self.old) != record["new"]:
                    raise UsageError(
                        f"{self.old}: the switch is incomplete: run `switch` or `rollback` to finish it, then `forget`"
                    )
                # What somebody has put there since is not the store that was switched, and is not deleted.
                if replaced not in (None, record["old"]):
                    raise not_switched(backend.location_of(self.old))
                backend.note(self.old, {**record, "goal": FORGOTTEN})
            if replaced == record["old"]:
                backend.drop(self.new)
        self._end(FORGOTTEN)

    def _end(self, goal: str) -> None:
        """Remove the record when the command has ended: by it, and by a note then, a killed one knows what is done."""
        request = running()
        if request is not None:
            for name in (self.old, self.new):
                request.has_made(self.places.location_of(name))
        remove_last(partial(self._remove_record, goal))
        if request is not None and goal == ROLLED_BACK:
            remove_last(request.forget)  # nothing is left to roll back

    def _is_back(self, record: Record) -> bool:
        """Return whether a rollback was killed while it removed its record: the old store has no token any more."""
        return record.get("goal") == ROLLED_BACK and self.places.identity(self.old) == ""

    def _remove_record(self, goal: str) -> None:
        """Remove the record of a switch that was undone or forgotten, unless there is another by now."""
        with self._alone():
            record = self.places.switch_record(self.old)
            if record is not None and record.get("goal") == goal:
                self.places.note(self.old, None)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self.places.errors(), self.places.alone((self.old, self.new)):
            yield


class SwitchableStore(Store):
    """A store whose place another one of its kind can take."""

    @abstractmethod
    def exchange(self, new: Store) -> Exchange:
        """Return how this store and another one of its kind trade names; nothing is changed yet.

        Raises a UsageError where they cannot, because of what is named.
        """

    @abstractmethod
    def strangers(self) -> list[str]:
        """Return the names in the store's folder that are no part of it: a new folder in its place would lack them."""

    def successor(self, ending: str) -> str | None:
        """Return a location for a new store like this one, named with `ending`; None for a folder of any name."""
        return None


def strangers_beside(store: Store) -> list[str]:
    """Return what would be lacking if a new folder came to the place of a store's; nothing where none can."""
    if not isinstance(store, SwitchableStore):
        return []
    return store.strangers()


def successor_of(store: Store, ending: str) -> str | None:
    """Return a location on the server of a store for a new one like it; None of any other store."""
    if not isinstance(store, SwitchableStore):
        return None
    return store.successor(ending)


def why_no_switch(old: Store, new: Store) -> str | None:
    """Return what keeps a store from taking the place of another, as `exchange` says it; None if nothing does."""
    if old.info.kind != new.info.kind or not isinstance(old, SwitchableStore):
        return "the two are of kinds that do not trade names"
    try:
        old.exchange(new)
    except LeadMigrateError as error:
        return str(error)
    return None


def refuse_nested(old: Path, new: Path) -> None:
    """Make sure that two folders can trade places: neither is the other, nor inside it.

    Raises UsageError: one is.
    """
    old_folder = real_path(old)
    new_folder = real_path(new)
    remedy = "move each into a folder of its own, neither inside the other"
    if old_folder == new_folder:
        raise UsageError(f"both stores lie in {old_folder}, and a switch lets their folders trade places; {remedy}")
    for inner, outer in ((new_folder, old_folder), (old_folder, new_folder)):
        if outer in inner.parents:
            raise UsageError(
                f"the folders of the two stores trade places in a switch, and {inner} lies inside {outer}; {remedy}"
            )


def moved(location: object, old: object) -> UsageError:
    """Return the error of a store that is part of a switch already."""
    word = shlex.quote(str(old))
    return UsageError(f"{location}: this is part of a switch of {old}; run `rollback {word}` or `forget {word}` first")


def not_switched(location: object) -> InputError:
    """Return the error of stores that are not those that were switched."""
    return InputError(
        f"{location}: other stores have come to the places of the two that were switched; put them back, or remove "
        "what is noted of the switch"
    )


class Folders(Places):
    """Two folders, old and new, that trade places; links are followed.

    Linux does that in one step. Elsewhere there are renames, of which any can be the last before a kill: the folders
    are known by a token in each, which the journal beside the old one has noted.
    """

    def __init__(self, old: Path, new: Path) -> None:
        self.old = real_path(old)
        self.new = real_path(new)
        self._journal = _journal(self.old)
        self._spare = self.old.with_name(f".{self.old.name}.switching")
        self._gone = self.new.with_name(f".{self.new.name}.forgotten")

    @classmethod
    def exchange(cls, old: Path, new: Path, *, excluded: Collection[str] = ()) -> Exchange:
        """Return the exchange of two folders; the new one must have all of the old one but its `own` and `BESIDE`."""
        folders = cls(old, new)
        refuse_nested(folders.old, folders.new)
        missing = sorted(_missing(folders.old, folders.new, {*excluded, *BESIDE, SWITCH_MARK}))
        if missing:
            raise UsageError(
                f"{old}: beside the store there is {', '.join(missing[:5])}, which {new} lacks; copy it there, or give "
                "the store a folder of its own"
            )
        for folder in (folders.old, folders.new):
            if folder in mounts_in(folder):
                raise UsageError(f"{folder}: a mount point cannot be renamed; move the store into a folder inside it")
        with output_errors(folders.old):
            apart = folders.old.parent.stat().st_dev != folders.new.parent.stat().st_dev
        if apart:
            raise UsageError(f"{new}: this is on another file system than {old}; move it there")
        return Exchange(folders, str(folders.old), str(folders.new))

    @classmethod
    def exchange_at(cls, location: str) -> Exchange | None:
        """Return the exchange with a journal beside the folder that a location is of, or once was."""
        scheme = re.fullmatch(r"[a-z][a-z0-9+._-]*:(.*)", location, re.DOTALL)
        rests = [location, *([scheme[1], Address.parse(scheme[1]).place] if scheme else [])]
        for path in map(Path, filter(None, rests)):
            # a file of the folder is the store too, even while there is no folder between two renames
            is_in_folder = path.is_file() or not path.parent.exists()
            for folder in [path, *([path.parent] if is_in_folder else [])]:
                real_folder = real_path(folder)
                if real_folder.name and _journal(real_folder).is_file():
                    record = read_noted(_journal(real_folder), _journal(real_folder), _FOLDERS_SHAPE)
                    return Exchange(cls(real_folder, Path(record["paths"][1])), str(real_folder), record["paths"][1])
        return None

    def errors(self) -> AbstractContextManager[None]:
        """Turn what the system refuses into one line."""
        return output_errors(self.old)

    @contextmanager
    def alone(self, names: Collection[str]) -> Iterator[None]:
        """Keep out whoever writes one of the two, such as a sync: it would put its store in the place of the other."""
        with output_lock(self.old), output_lock(self.new):
            yield

    def location_of(self, name: str) -> str:
        """Return the folder."""
        return name

    def switched_with(self, name: str) -> str | None:
        """Return the old folder of the recorded switch that a folder is part of."""
        return switched_folder(Path(name))

    def switch_record(self, name: str) -> dict[str, Any] | None:
        """Return what the journal has."""
        if not self._journal.is_file():
            return None
        record = read_noted(self._journal, self._journal, _FOLDERS_SHAPE)
        return {**record, "aliases": record["paths"]}

    def note(self, name: str, record: Mapping[str, Any] | None) -> None:
        """Write the journal, if both folders are there; None removes it, with all that it is of."""
        if record is None:
            self._remove_journal()
            return
        if record["goal"] != FORGOTTEN:
            # One of them is at the spare place where a run was killed between two renames.
            tokens = {_token(path) for path in (self.old, self.new, self._spare)}
            if not {record["old"], record["new"]} <= tokens:
                raise not_switched(self._journal)
        state = {key: value for key, value in record.items() if key != "aliases"}
        with atomic_file(self._journal, force=True) as temporary:
            write_json(temporary, {**state, "paths": list(record["aliases"])})

    def _remove_journal(self) -> None:
        self._delete_gone()
        # the journal last: by it the same command knows that it was killed meanwhile
        for folder in (self.old, self.new):
            (folder / SWITCH_MARK).unlink(missing_ok=True)
        self._journal.unlink(missing_ok=True)
        sync_path(self._journal.parent)

    def _delete_gone(self) -> None:
        """Delete the folder that was taken out of the way."""
        record = self.switch_record("")
        # a killed run may have deleted the token
        if record is not None and _token(self._gone) in (record["old"], ""):
            shutil.rmtree(self._gone)

    def identity(self, name: str) -> str | None:
        """Return the token of a folder, by which it is known wherever it is moved: numbers of files are given again."""
        folder = Path(name)
        if not self._journal.is_file():
            token = uuid4().hex
            write_bytes(folder / SWITCH_MARK, f"{token}\n{self.old}\n{self._journal}".encode())
        return _token(folder)

    def swap(self, targets: Mapping[str, str]) -> None:
        """Bring the folder of each token to its name."""
        first, second = targets.values()
        # Without an exchange in one step three renames do it, and one more look finds them done. More means that
        # somebody else moves the folders.
        for _ in range(5):
            old = _token(self.old)
            new = _token(self.new)
            if (old, new) == (first, second):
                break
            if (old, new) == (second, first):
                if not exchange_paths(self.old, self.new):
                    os.rename(self.old, self._spare)
            else:
                self._bring(first, self.old) or self._bring(second, self.new)
        else:
            raise not_switched(self._journal)
        for folder in {self.old.parent, self.new.parent}:
            sync_path(folder)

    def _bring(self, targets: str, free: Path) -> bool:
        """Rename the folder that is wanted to a path where nothing is; whether that was to be done."""
        if os.path.lexists(free):
            return False
        path_now = next((path for path in (self.old, self.new, self._spare) if _token(path) == targets), None)
        if path_now is None:
            raise not_switched(self._journal)
        os.rename(path_now, free)
        return True

    def drop(self, name: str) -> None:
        """Delete a folder, which is taken out of the way first."""
        # First a name that opens no store: half of one, left by a kill, must not be found under its own.
        os.rename(name, self._gone)
        self._delete_gone()


def _journal(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.switch.json")


def read_noted(content: bytes | str | Path, location: object, shape: Mapping[str, Any]) -> dict[str, Any]:
    """Read the notes of a switch, JSON of a `shape`, see `migrate.reading.expect`; of a file, or those at a place."""
    try:
        return expect(parse_json(read_small(content) if isinstance(content, Path) else content), shape)
    except MalformedError as error:
        raise InputError(f"{location}: no switch has noted this ({error}); see what wrote it") from error


def _token(folder: Path) -> str | None:
    """Return the token of the folder at a path; empty for one without, None if nothing is there."""
    try:
        return read_file(folder / SWITCH_MARK).decode().partition("\n")[0]
    except OSError:
        if os.path.lexists(folder):
            return ""
        return None


def _missing(old: Path, new: Path, excluded: Collection[str]) -> Iterator[str]:
    """Yield the paths within the old folder that have no counterpart in the new one."""
    for path in old.rglob("*"):
        name = path.relative_to(old)
        if name.parts[0] not in excluded and not path.is_dir() and not (new / name).exists():
            yield name.as_posix()
