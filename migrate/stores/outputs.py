"""Places for new stores: a folder, or a table or collection of a server; see `registry.output_of`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from migrate.digests import hash_file
from migrate.files import state_folder
from migrate.stores.base import Store
from migrate.stores.file_store import HashFile, hash_written
from migrate.work.outputs import OutputFolder
from migrate.work.writer import StoreWriter


@dataclass(frozen=True, slots=True)
class Form:
    """Form in which a new store is written.

    Attributes
    ----------
    name
        What was asked for, such as the kind of the store; None for a store like the source.
    open_writer
        Returns a writer of the documents of a store into a folder, with vectors of a dimension. Processes that make
        shards have one each, so that this is picklable.
    facts
        Returns the facts of the files in a folder for the manifest, by the hash of a file.
    options
        What else a run that is continued has in common with the one that was begun.
    """

    name: str | None
    open_writer: Callable[[Store, Path, int], StoreWriter]
    facts: Callable[[Store, Path, HashFile], Mapping[str, Any]]
    options: Mapping[str, str] = field(default_factory=dict)


def _copy_writer(source: Store, folder: Path, dim: int) -> StoreWriter:
    return source.destination(folder, dim)


LIKE_SOURCE: Final = Form(None, _copy_writer, hash_written)
"""The form of the store that is read."""


class Output(OutputFolder):
    """A place for a new store in some form, which `location` opens once it is there.

    It is a folder. Another place overrides what differs, and has a `name`, which local files are called after. There,
    what is written goes to a name that nobody uses, and `publish` makes it the final one, in one step; the files in
    `content` (manifest, confidence, state of the model) go with it.
    """

    remarks: tuple[str, ...] = ()
    """Notes of what was found when it was published."""

    def __init__(
        self, path: Path, location: str | None = None, form: Form = LIKE_SOURCE, *, name: str | None = None
    ) -> None:
        super().__init__(path)
        # a location is printed and noted in manifests: it comes here without its password
        if location is None:
            self.location = str(path)
        else:
            self.location = location
        self.form = form
        self.name = name

    @property
    def is_folder(self) -> bool:
        """True if the store is the folder `path`."""
        return self.name is None

    @property
    def display_name(self) -> Path | str:
        """The path of a folder, else the location, for a person."""
        if self.is_folder:
            return self.path
        return self.location

    @property
    def work_options(self) -> dict[str, str]:
        """Options that a run that is continued has in common with the one that was begun, beside the folder."""
        if self.form.name is None:
            named_output = {}
        else:
            named_output = {"output": f"{self.form.name} {self.location}"}
        return {**named_output, **self.form.options}

    def caution(self, dim: int) -> str | None:
        """Return what programs must do before the output, with vectors of `dim`, is there; None if nothing."""
        return None

    def begun_with(self, command: str) -> Mapping[str, Any] | None:
        """Return the configuration of an earlier run that may be completed whatever has become of its source."""
        return None

    def sibling(self, ending: str) -> Path:
        """Return a path for what belongs to the store and is no part of it: in the current folder for a server."""
        if self.is_folder:
            return self.path.with_name(f"{self.path.name}.{ending}")
        return Path(f"{self.name}.{ending}")

    def __str__(self) -> str:
        return self.location

    def writer(self, source: Store, content: Path, dim: int) -> StoreWriter:
        """Return a writer of the documents of `source` with vectors of dimension `dim`."""
        return self.form.open_writer(source, content, dim)

    def store_facts(self, source: Store, content: Path, hash_of: HashFile = hash_file) -> Mapping[str, Any]:
        """Return the facts of the files in `content` for the manifest."""
        return self.form.facts(source, content, hash_of)


def file_name(name: str) -> str:
    """Return a name for files that go with a table or a collection."""
    # File systems take 255 bytes; what is put before and behind the name has to fit, too.
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:60]


def state_path(name: str, identity: str) -> Path:
    """Return the path on this machine of an output that is elsewhere: lock and work folder lie beside it."""
    # The name is cut and cleaned, so two places may share it: the digest is what tells them apart.
    digest = hashlib.sha256(identity.encode()).hexdigest()[:12]
    return state_folder() / "outputs" / f"{name}-{digest}"
