"""Places for copies of joined stores: a folder of a database, or collections on a server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

import numpy as np

from migrate.errors import UsageError
from migrate.files import copy_file, output_errors, read_file, sha256_file, write_json
from migrate.locations import Address, options_text
from migrate.manifest import MANIFEST_NAME, StoreFacts, read_manifest
from migrate.stores.base import Store
from migrate.stores.confidence import CONFIDENCE_NAME
from migrate.stores.database import DatabaseFolder, DatabaseKind, DatabaseServer, DatabaseStore
from migrate.stores.driver import Driver
from migrate.stores.file_store import Sha256
from migrate.stores.joined.store import JoinedStore
from migrate.stores.joined.writer import JoinedWriter
from migrate.stores.kept import sync_tree, token_in
from migrate.stores.outputs import Output, ServerOutput
from migrate.work.rows import Rows
from migrate.work.shards import ShardFolder
from migrate.work.writer import StoreWriter

_PARTS: Final = "parts.json"
"""The list of the collections in a work folder, with the rows of each."""


class JoinedFolder(Output):
    """A new folder of a database with a collection for each of the source."""

    def __init__(self, driver: type[Driver], location: str, address: Address) -> None:
        super().__init__(Path(address.place))
        self.location, self._driver = location, driver

    def writer(self, source: Store, content: Path, dim: int) -> StoreWriter:
        """Return a writer of all collections."""
        if not isinstance(source, JoinedStore):
            raise UsageError(f"{self.location}: {source.info.location} is one store; name the new one after the #")
        return JoinedWriter(source, content, dim, partial(self._open, source, dim), in_one_folder=True)

    def _open(self, source: JoinedStore, dim: int, name: str, folder: Path) -> StoreWriter:
        output = DatabaseFolder(self._driver, self.location, Address(str(folder), source.copied_name(name)))
        return output.writer(source.members[name], folder, dim)

    def store_facts(self, source: Store, content: Path, sha256: Sha256 = sha256_file) -> Mapping[str, Any]:
        """Return the pattern, with the options that the source is opened with where it is of the same database."""
        is_like = isinstance(source, JoinedStore) and any(
            isinstance(store, DatabaseStore) and type(store.driver) is self._driver for store in source.members.values()
        )
        pattern, mark, options = (source.opened_as or "*").partition("?")
        index = f"{pattern}{mark}{options}" if is_like else pattern
        return StoreFacts(index=index).as_details()


class JoinedServer(ServerOutput):
    """New tables or collections of a server, one for each of the source: a `*` in the name is what it is there.

    Each is published as one alone is, with its part of what lies beside all of them. Where a run was killed meanwhile,
    the next one publishes the others.
    """

    def __init__(self, driver: type[Driver], location: str, address: Address) -> None:
        super().__init__(location, address.name)
        self._class, self._address = driver, address

    def output_of(self, name: str) -> DatabaseServer:
        """Return the place of one of them."""
        options = {key: value for key, value in self._address.options.items() if key in self._class.options}
        location = f"{self.location.rpartition('#')[0]}#{name}{options_text(options)}"
        return DatabaseServer(self._class, location, replace(self._address, name=name))

    def name_of(self, source: JoinedStore, name: str) -> str:
        """Return the new name of a collection of the source."""
        meant = source.pattern.meant(name)
        if source.pattern.text.count("*") > 1:
            return self._address.name.replace("*", meant)
        return self._class.fill_in(self._address.name, meant)

    def _outputs(self, content: Path) -> dict[Path, DatabaseServer]:
        """Return the places of all that a complete work folder has, by their folders in it."""
        listed = [content / entry["folder"] for entry in _read_parts(content)]
        return {folder: self.output_of(unquote(folder.name)) for folder in listed}

    def _existing_names(self) -> list[str]:
        """Return the names on the server that such outputs have."""
        driver = self._class(self.location, self._address)
        with driver.errors():
            return list(driver.expand())

    def writer(self, source: Store, content: Path, dim: int) -> StoreWriter:
        """Return a writer of all of them."""
        if not isinstance(source, JoinedStore):
            raise UsageError(f"{self.location}: {source.info.location} is one store; name the new one after the #")
        for name, store in source.members.items():  # what cannot be written is refused before anything is made
            self.output_of(self.name_of(source, name)).writer(store, content, dim)
        return _ServerWriter(self, source, content, dim)

    def store_facts(self, source: Store, content: Path, sha256: Sha256 = sha256_file) -> Mapping[str, Any]:
        """Return the pattern; what each is opened with stands in its own manifest."""
        return StoreFacts(index=self._address.name).as_details()

    def refuse_existing(self, *, force: bool) -> None:
        """Make sure that no name is taken, but by what this run has published."""
        content = self.work_path / "content"
        published = {output.location for folder, output in self._outputs(content).items()
                     if token_in(folder) and output.is_published(folder)}  # fmt: skip
        for output in map(self.output_of, self._existing_names()):
            if output.location not in published:
                output.refuse_existing(force=force)

    def is_published(self, content: Path) -> bool:
        """Return whether all of them have their names."""
        outputs = self._outputs(content)
        if not content.is_dir():
            outputs = {content / name: self.output_of(name) for name in self._existing_names()}
        return bool(outputs) and all(output.is_published(folder) for folder, output in outputs.items())

    def publish(self, content: Path, *, force: bool) -> None:
        """Give each its name, with its part of what lies beside all; those of the same old store that it lacks go."""
        if force:
            for output in self._obsolete(content):
                output.drop()
        for entry in _read_parts(content):
            folder = content / entry["folder"]
            output = self.output_of(unquote(folder.name))
            if not output.is_published(folder):
                _write_beside(content, folder, entry)
                output.publish(folder, force=force)

    def _obsolete(self, content: Path) -> list[DatabaseServer]:
        """Return those that were made together with others that are replaced, and are not in the work folder."""
        outputs = self._outputs(content)
        replaced = [output.made_of() for folder, output in outputs.items() if not output.is_published(folder)]
        written = {output.location for output in outputs.values()}
        others = [output for output in map(self.output_of, self._existing_names()) if output.location not in written]
        return [output for output in others if (made_of := output.made_of()) is not None and made_of in replaced]

    def discard(self) -> None:
        """Drop what killed runs left."""
        for output in self._outputs(self.work_path / "content").values():
            output.discard()


class _ServerWriter(JoinedWriter):
    """Writes the collections under names that nobody uses, and lists them with their rows."""

    def __init__(self, output: JoinedServer, source: JoinedStore, content: Path, dim: int) -> None:
        self._output = output
        super().__init__(source, content, dim, self._open_writer, in_one_folder=False)

    def _open_writer(self, name: str, folder: Path) -> StoreWriter:
        output = self._output.output_of(self._output.name_of(self.source, name))
        return output.writer(self.source.members[name], folder, self.dim)

    def folder_of(self, name: str) -> Path:
        """Return a folder that is called as the new collection."""
        return self.folder / quote(self._output.name_of(self.source, name), safe=" ")

    def finish(self, rows: Rows, shards: ShardFolder) -> None:
        """Write all, and the list."""
        super().finish(rows, shards)
        entries = []
        for name, own_rows in self.source.collections().items():
            folder, store = self.folder_of(name), self.source.members[name]
            details = self._output.output_of(self._output.name_of(self.source, name)).store_facts(store, folder)
            start = int(own_rows[0]) if len(own_rows) else 0
            entries.append({"folder": folder.name, "start": start, "count": len(own_rows), "facts": dict(details)})
        write_json(self.folder / _PARTS, {"parts": entries})


def _read_parts(content: Path) -> list[dict[str, Any]]:
    """Return the list of the collections in a complete work folder; none of one that is not complete."""
    path = content / _PARTS
    return list(json.loads(read_file(path))["parts"]) if path.is_file() else []


def _write_beside(content: Path, folder: Path, entry: Mapping[str, Any]) -> None:
    """Write the part of one collection of what lies beside all of them: numbers, state of the model, manifest."""
    manifest, rows = read_manifest(content, "store"), slice(entry["start"], entry["start"] + entry["count"])
    hashes, counts = {}, {"documents": entry["count"]}
    with output_errors(folder):
        for path in content.iterdir():
            if path.suffix == ".npy":
                values = np.load(path, allow_pickle=False)[rows]
                np.save(folder / path.name, values, allow_pickle=False)
                hashes[path.name] = sha256_file(folder / path.name)
                if path.name == CONFIDENCE_NAME:
                    counts["true vectors"] = int(np.count_nonzero(values == 1))
            elif path.is_file() and path.name not in (_PARTS, MANIFEST_NAME):
                copy_file(path, folder / path.name)
        details = {**entry["facts"], **StoreFacts(beside_sha256=hashes or None).as_details()}
        replace(manifest, counts=counts, details={**manifest.details, **details}).write(folder)
        sync_tree(folder)


def output_of_pattern(kind: DatabaseKind, location: str) -> Output | None:
    """Return where the collections of a source are written, by a location with a `*` for their names; None without."""
    address = kind.address_of(location)
    if "*" not in address.name:
        return None
    if "://" in address.place:
        opens, named = kind.checked_output(location)
        return JoinedServer(kind.driver, opens, named)
    if address.name != "*" or address.options:
        raise UsageError(
            f"{kind.name}:{location}: new {kind.driver.collection}s have the names of the old ones, in a new folder; "
            f"write {kind.name}:FOLDER#*"
        )
    return JoinedFolder(kind.driver, f"{kind.name}:{location}", address)
