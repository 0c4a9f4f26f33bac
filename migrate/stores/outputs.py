"""Places for new stores: a folder, or a table or collection of a server; see `registry.output_of`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from migrate.digests import hash_file
from migrate.files import state_folder
from migrate.stores.base import Store
from migrate.stores.file_store import HashFile, hash_written
from migrate.work.outputs import OutputFolder
from migrate.work.writer import StoreWriter


class Output(OutputFolder):
    """A folder for a new store of the source's own kind, which `location` opens once it is there."""

    remarks: tuple[str, ...] = ()
    """Notes of what was found when it was published."""

    def __init__(self, path: Path, location: str | None = None) -> None:
        super().__init__(path)
        self.location = str(path) if location is None else location

    @property
    def display_name(self) -> Path | str:
        """The path of a folder, else the location, for a person."""
        return self.path

    @property
    def work_options(self) -> dict[str, str]:
        """Options that a run that is continued has in common with the one that was begun, beside the folder."""
        return {} if type(self) is Output else {"output": f"{type(self).__name__} {self.location}"}

    def caution(self, dim: int) -> str | None:
        """Return what programs must do before the output, with vectors of `dim`, is there; None if nothing."""
        return None

    def begun_with(self, command: str) -> Mapping[str, Any] | None:
        """Return the configuration of an earlier run that may be completed whatever has become of its source."""
        return None

    def sibling(self, ending: str) -> Path:
        """Return a path for what belongs to the store and is no part of it."""
        return self.path.with_name(f"{self.path.name}.{ending}")

    def __str__(self) -> str:
        return self.location

    def writer(self, source: Store, content: Path, dim: int) -> StoreWriter:
        """Return a writer of the documents of `source` with vectors of dimension `dim`.

        Every process that makes shards has one.
        """
        return source.destination(content, dim)

    def store_facts(self, source: Store, content: Path, hash_of: HashFile = hash_file) -> Mapping[str, Any]:
        """Return the facts of the files in `content` for the manifest."""
        return hash_written(source, content, hash_of)


class ServerOutput(Output):
    """A table or a collection of a server.

    What is written goes to a name that nobody uses; `publish` makes it the final one, in one step. The files in
    `content` (manifest, confidence, state of the model) go with it. `location` has no password; local files are called
    after `name`.
    """

    def __init__(self, location: str, name: str) -> None:
        self.location = location
        self.name = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:60]
        self.digest = hashlib.sha256(location.encode()).hexdigest()[:12]
        self.path = state_folder() / "outputs" / f"{self.name}-{self.digest}"

    @property
    def display_name(self) -> str:
        """The location."""
        return self.location

    def sibling(self, ending: str) -> Path:
        """Return a path in the current folder."""
        return Path(f"{self.name}.{ending}")
