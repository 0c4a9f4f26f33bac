"""The fields of vectors that `translate --into` has added to records: the manifest of each, and what a driver does.

A field has a folder with its manifest and what else lies beside a store. From before its first vector is written until
the last is there, the folder holds the manifest alone, under another name.
"""

from __future__ import annotations

import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from migrate.errors import StoreError, UsageError
from migrate.files import atomic_folder, output_errors, write_json
from migrate.manifest import MANIFEST_NAME, Manifest, find_manifest
from migrate.removed import removal
from migrate.stores.base import Store
from migrate.stores.kept import sync_tree
from migrate.vectors import Vectors

FIELDS: Final = ".lead-migrate-fields"
"""The folder of what lies beside the added fields, in that of the store."""
UNFINISHED: Final = "unfinished.json"
"""The name of the manifest of a field while its vectors are being written."""
REMOVED_NOTE: Final = "field.json"
"""The file that earlier versions kept beside a field."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
"""Names that begin with _ are those of LanceDB's own columns: a table with a second `_rowid` cannot be read."""


@dataclass(frozen=True, slots=True)
class AddedField:
    """A field that was added: its manifest, and whether all of its vectors are there."""

    manifest: Manifest
    is_complete: bool

    @property
    def beside(self) -> str:
        """The field of the vectors that its own were made from."""
        return self.manifest.store.added_beside or ""


class FieldFolders:
    """The folders of the fields that were added to the records of one collection."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def added(self) -> dict[str, AddedField]:
        """Return all added fields by their names."""
        added = {}
        # A killed run leaves its unfinished folder here, hidden: it is of no field.
        for folder in sorted(self.folder.glob("[!.]*")):
            name = unquote(folder.name)
            if (folder / REMOVED_NOTE).is_file():
                raise note_was_removed(str(folder), name)
            complete = find_manifest(folder, "store")
            manifest = complete or find_manifest(folder, "store", name=UNFINISHED)
            if manifest is not None:
                added[name] = AddedField(manifest, is_complete=complete is not None)
        return added

    def begin(self, name: str, manifest: Manifest) -> None:
        """Note that a field is being written; nothing that lay beside it is left."""
        with self._replaced(name) as folder:
            write_json(folder / UNFINISHED, manifest.as_json())

    def keep(self, name: str, content: Path) -> None:
        """Put the files in `content` beside a field, whose vectors are all there."""
        with self._replaced(name) as folder:
            shutil.copytree(content, folder, dirs_exist_ok=True)

    def forget(self, name: str) -> None:
        """Remove what lies beside a field that is gone."""
        folder = self.folder_of(name)
        with output_errors(folder):
            # First: a kill while the rest is deleted must not leave a folder that vouches for a field which is gone.
            (folder / MANIFEST_NAME).unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)

    def folder_of(self, name: str) -> Path:
        """Return the folder with what lies beside a field."""
        return self.folder / quote(name, safe="")

    @contextmanager
    def _replaced(self, name: str) -> Iterator[Path]:
        """Yield an empty folder that takes the place of a field's in one step, durably."""
        place = self.folder_of(name)
        with output_errors(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            with atomic_folder(place, force=True) as folder:
                yield folder
                sync_tree(folder)


class VectorFields(ABC):
    """The fields of vectors of one collection, of a driver whose database can add a vector to its records."""

    @property
    def rounding(self) -> float:
        """The most that a number which is read back may differ from `as_kept`."""
        return 0.0

    @abstractmethod
    def names(self) -> Collection[str]:
        """Return the names that a new field must not have."""

    @abstractmethod
    def write(self, name: str, dim: int, batches: Iterator[tuple[list[str], Vectors]]) -> Iterable[str]:
        """Add a field unless it is there, write vectors of records by their ids, and index it as the old one is.

        Each batch, of at most `Driver.at_once` records, is durable before the next is asked for; ids that are gone are
        left out. No other field is touched. What a killed call has done stays, and is no obstacle to the next one.
        Returns remarks.
        """

    @abstractmethod
    def drop(self, name: str) -> None:
        """Remove a field from all records, with its indexes and what lies beside it; safe to repeat."""

    @abstractmethod
    def added(self) -> Mapping[str, AddedField]:
        """Return the fields that this tool has added, by their names."""

    @abstractmethod
    def begin(self, name: str, manifest: Manifest) -> None:
        """Note that a field is being written."""

    @abstractmethod
    def keep(self, name: str, content: Path) -> None:
        """Put the files in `content` beside a field, whose vectors are all there."""

    def folder_of(self, name: str) -> Path | None:
        """Return the folder with what lies beside an added field; None where that is in the database."""
        return None

    def refuse(self, name: str, dim: int | None) -> None:
        """Raise UsageError if no field of this name, for vectors of `dim` where that is known, can be added."""

    def refuse_drop(self, name: str) -> None:
        """Raise UsageError if a field cannot be dropped."""

    def caution(self, dim: int) -> str | None:
        """Return what programs must do before a field for vectors of `dim` is added; None if nothing."""
        return None

    def as_kept(self, vectors: Vectors) -> Vectors:
        """Return vectors as they are read back once they are written, up to `rounding`."""
        return vectors


def main_fields(names: Iterable[str], added: Collection[str]) -> list[str]:
    """Return the fields of vectors that may be meant where none is named: those that nobody added, if there are any."""
    present = list(names)
    # Once the old field was dropped, none but added ones are left, and these are meant.
    return [name for name in present if name not in added] or present


def fields_beside(added: Mapping[str, AddedField]) -> set[str]:
    """Return the fields with other vectors of the same documents, which are no metadata."""
    return {*added, *(field.beside for field in added.values())}


def refuse_name(location: str, field: str) -> None:
    """Raise UsageError if a field cannot be called like this."""
    if not _NAME.fullmatch(field):
        raise UsageError(
            f"{location}: {field!r} is no name for a field; begin with a letter, and use letters, digits, _ and -"
        )


def taken(location: str, field: str) -> UsageError:
    """Return the error of a field that is there, and was not added by this tool."""
    return UsageError(f"{location}: there is a {field!r} already, which was not made by this tool; choose another name")


def are_of_same_records(store: Store, other: Store) -> bool:
    """Return whether two stores are of different vectors of the same records."""
    first = store.info
    second = other.info
    return first.records is not None and first.records == second.records and first.vector != second.vector


def field_is_asked(old: str, new: str, field: str) -> UsageError:
    """Return the error of a switch to a field of the same records."""
    return UsageError(
        f"{new}: this is a field of the records of {old}, and nothing is to be switched: let your programs ask "
        f"{field!r}; `forget` drops the field that they ask no more"
    )


def field_is_translated(old: str, new: str) -> UsageError:
    """Return the error of a sync of a field of the same records."""
    return UsageError(
        f"{new}: this is a field of the records of {old}; to bring it up to date, run `translate --into` again, with "
        "--force and --any-store"
    )


def note_was_removed(location: str, field: str) -> StoreError:
    """Return the error of a field with a note of an earlier version."""
    return StoreError(f"{location}: {removal(f'the note {REMOVED_NOTE} of the field {field!r}')}")
