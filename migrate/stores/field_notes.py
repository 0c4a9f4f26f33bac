"""Notes of the fields of vectors that were added beside others, in a folder with what else belongs to each field."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote

from migrate.errors import UsageError
from migrate.files import atomic_file, atomic_folder, output_errors, write_bytes
from migrate.manifest import Manifest
from migrate.stores.kept import sync_tree
from migrate.stores.switching import read_noted

FIELD_NOTE: Final = "field.json"
"""The file beside an added field with its `FieldNote`."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_NOTE_SHAPE: Final = {"old_field": str, "token": str, "complete": bool, "switch": Any}


@dataclass(frozen=True, slots=True)
class FieldNote:
    """The note of a field of vectors that this tool has added to the records of a collection.

    `old_field` is the one that it was added beside, `token` that of the work which wrote it. It is `complete` once
    every vector and what belongs to the field is there; `switch` is the record of a switch to it.
    """

    old_field: str
    token: str
    complete: bool = False
    switch: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, content: bytes | Path, location: object) -> FieldNote:
        """Read a note; raises InputError where it is none."""
        return cls(**read_noted(content, location, _NOTE_SHAPE))

    def as_bytes(self) -> bytes:
        """Return it as JSON."""
        return json.dumps(asdict(self), sort_keys=True).encode()


class FieldNotes:
    """The folder of what lies beside the fields that were added to the records of one collection."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> dict[str, FieldNote]:
        """Return all notes by the names of their fields."""
        files = {path.parent.name: path for path in self.folder.glob(f"*/{FIELD_NOTE}")}
        return {unquote(name): FieldNote.read(path, path) for name, path in sorted(files.items())}

    def write(self, name: str, note: FieldNote) -> None:
        """Write the note of a field, at once and durably."""
        path = self.folder_of(name) / FIELD_NOTE
        with output_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path, force=True) as temporary:
                write_bytes(temporary, note.as_bytes())

    def keep(self, name: str, note: FieldNote, content: Path) -> None:
        """Put the files in `content` beside a field, in the place of those before, and note it, in one step."""
        root = self.folder_of(name)
        with output_errors(root):
            root.mkdir(parents=True, exist_ok=True)
            with atomic_folder(root / note.token, force=True) as folder:
                shutil.copytree(content, folder, dirs_exist_ok=True)
                sync_tree(folder)
            self.write(name, note)
            for other in root.iterdir():
                if other.is_dir() and other.name != note.token:
                    shutil.rmtree(other, ignore_errors=True)

    def forget(self, name: str) -> None:
        """Remove what lies beside a field that is gone; its note first."""
        folder = self.folder_of(name)
        with output_errors(folder):
            (folder / FIELD_NOTE).unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)

    def folder_of(self, name: str) -> Path:
        """Return the folder with what lies beside a field."""
        return self.folder / quote(name, safe="")


def main_fields(names: Iterable[str], notes: Mapping[str, FieldNote]) -> list[str]:
    """Return the fields of vectors that may be meant where none is named: not those that stand beside another."""
    present = list(names)
    return [name for name in present if name not in notes or notes[name].old_field not in present]


def fields_beside(notes: Mapping[str, FieldNote]) -> set[str]:
    """Return the fields with other vectors of the same documents, which are no metadata."""
    return {*notes, *(note.old_field for note in notes.values())}


def refuse_name(location: str, field: str) -> None:
    """Raise UsageError if a field cannot be called like this."""
    if not _NAME.fullmatch(field):
        raise UsageError(
            f"{location}: {field!r} is no name for a field; begin with a letter, and use letters, digits, _ and -"
        )


def refuse_taken(location: str, field: str, note: FieldNote | None, *, is_there: bool) -> None:
    """Raise UsageError if a field is somebody else's, without a note, or answers since a switch."""
    if note is None and is_there:
        raise UsageError(
            f"{location}: there is a {field!r} already, which was not made by this tool; choose another name"
        )
    if note is not None and note.switch is not None:
        raise UsageError(f"{location}: this was switched to; run `rollback` or `forget` first, or choose another name")


class FieldPlace(Protocol):
    """A field of vectors among others of the same records, of which one may be switched to and another be dropped."""

    @property
    def location(self) -> str:
        """The location that opens the field."""

    @property
    def dim(self) -> int:
        """The dimension of the vectors, once it is open."""

    @property
    def vector(self) -> str:
        """The name of the field, once it is open."""

    def open(self) -> None:
        """Read what there is."""

    def errors(self) -> AbstractContextManager[None]:
        """Turn what the system or the server refuses into one line."""

    def manifest(self) -> Manifest | None:
        """Return the manifest of the field."""

    def of_field(self, field: str) -> FieldPlace:
        """Return another field of the same records, not opened yet."""

    def field_names(self) -> Collection[str]:
        """Return the names of all fields that there are."""

    def field_notes(self) -> dict[str, FieldNote]:
        """Return the notes of the fields that were added."""

    def note_field(self, name: str, note: FieldNote) -> None:
        """Write the note of a field, at once and durably."""

    def refuse_drop(self, name: str) -> None:
        """Raise UsageError if a field cannot be dropped."""

    def drop_field(self, name: str) -> None:
        """Remove a field from all records, with what lies beside it; safe to repeat."""
