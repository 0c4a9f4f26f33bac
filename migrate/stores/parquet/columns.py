"""Columns of vectors that are added to the files of a folder, in place, and dropped from them.

All files are written anew beside the folder, with what else lies in it. Then the two folders trade places in one step,
so that a program that opens the folder finds either all files with the column or all without.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from migrate.digests import hash_file
from migrate.errors import StoreError, UsageError
from migrate.files import (
    already_exists,
    canonical_json,
    exchange_paths,
    hidden_sibling,
    output_errors,
    output_lock,
    read_file,
    real_path,
    refuse_endless_in,
    refuse_existing,
    sync_path,
    write_json,
)
from migrate.locations import options_text
from migrate.manifest import StoreFacts, find_manifest
from migrate.reading import MalformedError, as_table, parse_json
from migrate.stores.added_fields import AddedField, fields_beside, refuse_name, taken
from migrate.stores.base import Store, all_ids
from migrate.stores.export import IDS_NAME, IdIndex
from migrate.stores.file_store import HashFile, hash_files
from migrate.stores.kept import sync_tree
from migrate.stores.outputs import Form, Output
from migrate.stores.parquet.files import FORMAT_VERSION, SHARDS_NAME, read_shards
from migrate.stores.parquet.output import ParquetWriter, leaves
from migrate.stores.parquet.store import OWN, folders_at
from migrate.stores.store_fields import StoreFields
from migrate.stores.switching import BESIDE
from migrate.vectors import Progress
from migrate.work.rows import Rows
from migrate.work.shards import ShardFolder
from migrate.work.writer import StoreWriter, Written

if TYPE_CHECKING:
    from migrate.stores.parquet.kind import LocalParquetStore

_FILES: Final = "files"
"""The folder of the new files, in the work folder."""
_SOURCE: Final = "source.json"
"""The versions of the files that the new ones were made from, in the work folder."""


class ColumnFields(StoreFields):
    """The columns of the files of a store."""

    def __init__(self, store: LocalParquetStore) -> None:
        self._store = store

    def output(self, name: str, progress: Progress) -> Output:
        """Return the place of a new column."""
        return ColumnOutput(self._store, name)

    def names(self) -> list[str]:
        """Return the names of all columns."""
        return list(self._store.table.schemas[0].names)

    def added(self) -> Mapping[str, AddedField]:
        """Return the columns that were added."""
        return self._store.added

    def refuse_drop(self, name: str) -> None:
        """Raise UsageError if the folder cannot be replaced by one without a column."""
        _refuse_drop(self._store)

    def drop(self, name: str) -> None:
        """Drop a column from all files."""
        _refuse_drop(self._store)
        _drop(self._store, name)

    def discard_dropped(self) -> None:
        """Remove what a killed call has left beside the folder: the new files, or the old ones after the exchange."""
        folder = real_path(self._store.files.folder)
        with output_errors(folder), output_lock(folder):
            if os.path.lexists(dropped_folder := hidden_sibling(folder, "dropping")):
                shutil.rmtree(dropped_folder)


class ColumnOutput(Output):
    """A further column of the files of a store."""

    def __init__(self, store: LocalParquetStore, column: str) -> None:
        location = column_location(store, column)
        if not store.files.is_folder:
            raise UsageError(
                f"{store.info.location}: a column is added to a folder, which is replaced as a whole; move the file "
                "into a folder of its own, and name that"
            )
        form = Form(
            name="column",
            open_writer=partial(_open_writer, column),
            facts=partial(_facts, column, store.columns.vector),
        )
        super().__init__(real_path(store.files.folder), location, form)
        self.column = column
        self._store: LocalParquetStore | None = store

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": None}  # a process that makes shards opens its own

    @property
    def store(self) -> LocalParquetStore:
        """The store that is written to, as it was opened."""
        if self._store is None:
            raise ValueError("only the process that began the work publishes it")
        return self._store

    @property
    def display_name(self) -> str:
        """The location."""
        return self.location

    def begun_with(self, command: str) -> Mapping[str, Any] | None:
        """Return the configuration of an earlier run of which only the work folder is left over."""
        state = self.completed(command)
        if state is not None and self.is_published(self.work_path / "content"):
            return state.configuration
        return None

    def require_free(self, *, force: bool) -> None:
        """Make sure of it before anything is spent, also where unfinished work goes on."""
        self._refuse_strangers()
        super().require_free(force=force)

    def _refuse_strangers(self) -> None:
        _refuse_strangers(self.store, self.location, "move the store into a folder of its own")

    def refuse_existing(self, *, force: bool) -> None:
        """Make sure that the folder may be replaced, and that the column is a new one, or one that this tool added."""
        store = self.store
        # For what must never be replaced, whatever is asked: a mount point, or a folder of a switch.
        refuse_existing(self.path, force=True)
        self._refuse_strangers()
        refuse_name(self.location, self.column)
        is_added = self.column in store.added
        if self.column == store.columns.vector or (self.column in store.table.schemas[0].names and not is_added):
            raise taken(self.location, self.column)
        if is_added and not force:
            raise already_exists(self.location)
        # Found out by doing it: nothing else tells whether a file system can, and after the vectors are made it is too
        # late.
        with output_errors(self.path), tempfile.TemporaryDirectory(prefix=".", dir=self.path.parent) as trial:
            folders = Path(trial, "first"), Path(trial, "second")
            for folder in folders:
                folder.mkdir()
            if not exchange_paths(*folders):
                raise self._no_exchange()

    def _no_exchange(self) -> UsageError:
        return UsageError(
            f"{self.location}: the file system cannot exchange two folders in one step; translate to a new store (-o) "
            "instead"
        )

    def is_published(self, content: Path) -> bool:
        """Return whether the folder has the column of this work, or any if `content` is gone."""
        added = folders_at(self.path).added().get(self.column)
        return added is not None and (not content.is_dir() or added.manifest == find_manifest(content, "store"))

    def publish(self, content: Path, *, force: bool) -> None:
        """Complete the new folder, and let it trade places with the old one."""
        store = self.store
        folder = content.parent / _FILES
        with output_errors(self.path):
            made_from = parse_json(read_file(content.parent / _SOURCE))
            # What a program has written since then would go away with the old folder.
            if not store.is_as_opened() or made_from != _versions(store):
                raise StoreError(
                    f"{self.location}: the files changed since the new ones were made from them; to start over, add "
                    "`restart=True`"
                )
            self._refuse_strangers()  # the old folder goes away
            _copy_beside(self.path, folder, BESIDE)
            _note_hashes(self.path, folder)
            folders_at(folder).keep(self.column, content)
            sync_tree(folder)
            if not exchange_paths(folder, self.path):
                raise self._no_exchange()
            sync_path(self.path.parent)


def _open_writer(column: str, source: Store, content: Path, dim: int) -> StoreWriter:
    """Return a writer of files like those of a store, with the vectors in a further column."""
    folder = content.parent / _FILES
    folder.mkdir(exist_ok=True)
    columns_of = cast("LocalParquetStore", source)  # as `field_of` has seen to

    def complete(_rows: Rows, _shards: ShardFolder) -> Written:
        return _complete(columns_of, folder, content)

    return ParquetWriter(source, folder, dim, column=column, complete=complete)


def _facts(column: str, old_column: str, _source: Store, _content: Path, _hash_of: HashFile) -> dict[str, Any]:
    """Return by which name the column is opened."""
    return StoreFacts(index=f"?vector={column}", added_beside=old_column).as_details()


def _complete(source: LocalParquetStore, folder: Path, content: Path) -> Written:
    """Write what goes with files in `folder` that have a column more than those of a store.

    That is their list if there was one, what they are made from, and their ids. The order is that of the ids: programs
    may write the rows of the files in another.
    """
    with output_errors(folder):
        for shard in source.shards:
            _give_like(Path(shard.path), folder / shard.name)
        _give_like(source.files.folder, folder)
        _list_shards(source.files.folder, folder)
        write_json(folder.parent / _SOURCE, _versions(source))
        # By their ids, as what lies beside the column has to be found when rows come, go or change places.
        index = IdIndex.of([list(all_ids(source))], source.info.location)
        index.save(content / IDS_NAME)
    return Written(order=index.order)


def _refuse_drop(store: LocalParquetStore) -> None:
    """Raise UsageError if the folder cannot be replaced by one without some column."""
    if not store.files.is_folder:
        raise UsageError(f"{store.info.location}: a column is dropped from a folder; name that")
    refuse_existing(real_path(store.files.folder), force=True)
    _refuse_strangers(store, store.info.location, "move them away first")


def _drop(store: LocalParquetStore, name: str) -> None:
    """Write the files of a store without a column beside their folder, and let the two trade places."""
    folder = real_path(store.files.folder)
    dropped_folder = hidden_sibling(folder, "dropping")
    with output_errors(folder), output_lock(folder):
        dropped_folder.mkdir()
        try:
            _write_without(store, name, dropped_folder)
            if not store.is_as_opened():
                raise StoreError(
                    f"{store.info.location}: the files changed while they were written without the column; nothing "
                    "was dropped, run again"
                )
            if not exchange_paths(dropped_folder, folder):
                raise UsageError(
                    f"{store.info.location}: the file system cannot exchange two folders in one step; drop the column "
                    "in your own program"
                )
            sync_path(folder.parent)
        finally:  # the new files where something failed, else the old ones
            shutil.rmtree(dropped_folder, ignore_errors=True)


def _write_without(store: LocalParquetStore, name: str, folder: Path) -> None:
    """Write the files of a store without a column of vectors, and copy what lies beside them."""
    import pyarrow.parquet

    is_main = name not in store.added
    vectors = fields_beside(store.added) - {name}
    for shard, schema in zip(store.shards, store.table.schemas, strict=True):
        schema = _without(schema, name)
        encoded = leaves(schema, but=vectors)
        with pyarrow.parquet.ParquetWriter(folder / shard.name, schema, use_dictionary=encoded) as writer:
            for batch in store.table.whole(shard, 8_192):
                columns = [batch.column(column) for column in schema.names]
                writer.write_batch(pyarrow.RecordBatch.from_arrays(columns, schema=schema))
        _give_like(Path(shard.path), folder / shard.name)
    _give_like(store.files.folder, folder)
    # What lies beside the files is of the old column, and says nothing of those that stay without it.
    _copy_beside(store.files.folder, folder, BESIDE[-1:] if is_main else BESIDE)
    if not is_main:
        folders_at(folder).forget(name)
        _note_hashes(store.files.folder, folder)
    if (store.files.folder / SHARDS_NAME).is_file():
        entries = [
            {"name": shard.name, "bytes": (folder / shard.name).stat().st_size, "rows": rows}
            | {"hash": hash_file(folder / shard.name)}
            for shard, rows in zip(store.shards, store.table.file_rows, strict=True)
        ]
        write_json(folder / SHARDS_NAME, {"format_version": FORMAT_VERSION, "shards": entries})
    sync_tree(folder)


def _refuse_strangers(store: LocalParquetStore, location: str, remedy: str) -> None:
    """Raise UsageError if other files lie in the folder of a store."""
    if strangers := [name for name in store.strangers() if not name.startswith(".lead-migrate-")]:
        raise UsageError(
            f"{location}: other files lie in the folder, which is replaced as a whole: {', '.join(strangers[:5])}; "
            f"{remedy}"
        )


def column_location(store: LocalParquetStore, column: str) -> str:
    """Return how a column of the files of a store is opened."""
    return f"parquet:{store.files.path}#{options_text({**store.named_options, 'vector': column})}"


def _give_like(old: Path, new: Path) -> None:
    """Let the same users read and write a file or folder as the one that it takes the place of."""
    status = old.stat()
    for owner in ((-1, status.st_gid), (status.st_uid, -1)):
        with suppress(PermissionError):  # only root may give files away
            os.chown(new, *owner)
    shutil.copymode(old, new)


def _versions(store: LocalParquetStore) -> Any:
    return parse_json(canonical_json([shard.version for shard in store.shards]).encode())


def _copy_beside(old: Path, new: Path, names: tuple[str, ...]) -> None:
    """Put copies of what lies beside the files of a folder into another one, in the place of those that are there."""
    for name in names:
        source = old / name
        copy = new / name
        if copy.is_dir():
            shutil.rmtree(copy)
        copy.unlink(missing_ok=True)
        if source.is_dir():
            refuse_endless_in(source)
            shutil.copytree(source, copy)
        elif source.is_file():
            shutil.copy2(source, copy)


def _note_hashes(old: Path, new: Path) -> None:
    """Put the hashes of the new files into the manifest that lies beside them, if it had those of the old ones."""
    manifest = find_manifest(old, "store")
    if manifest is None:
        recorded = None
    else:
        recorded = manifest.store
    if manifest is None or recorded is None or recorded.index is None or recorded.index_hash is None:
        return
    names = [recorded.index, *(recorded.documents_hashes or {})]
    if all((new / name).is_file() for name in names):
        hashes = hash_files(new, names[0], names[1:])
        replace(manifest, details={**manifest.details, **hashes}).write(new)


def _list_shards(old: Path, new: Path) -> None:
    """Keep the list of files where the old folder has one, with its ids and the norms of the old vectors."""
    if not (old / SHARDS_NAME).is_file():
        (new / SHARDS_NAME).unlink()
        return
    listed, written = (read_shards(read_file(folder / SHARDS_NAME), str(folder / SHARDS_NAME)) for folder in (old, new))
    entries = {entry["name"]: entry for entry in listed}
    changed = [
        {**entries.get(entry["name"], entry), "bytes": entry["bytes"], "hash": entry["hash"]} for entry in written
    ]
    for entry in changed:
        entry.pop("sha256", None)  # of an earlier version, of the older file
    write_json(new / SHARDS_NAME, {"format_version": FORMAT_VERSION, "shards": changed})


def _without(schema: Any, name: str) -> Any:
    """Return a schema without a column, which its note of how the files are opened does not name any more."""
    metadata = dict(schema.metadata or {})
    metadata.pop(b"huggingface", None)
    try:
        options = as_table(parse_json(metadata.get(OWN, b"{}")))
    except MalformedError:
        options = {}
    if options.get("vector") == name:
        metadata[OWN] = canonical_json({key: value for key, value in options.items() if key != "vector"}).encode()
    return schema.remove(schema.get_field_index(name)).with_metadata(metadata or None)
