"""Reads files of Parquet as a store, wherever they are.

Rows are those of the files, in the order of their names. All columns but the vectors go into a new store as Arrow has
them, with types, nulls, order and the schema's metadata, file by file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.digests import BLAKE3
from migrate.errors import OutputError, StoreError, UsageError
from migrate.files import cache_folder, real_path, sha256_json, write_json
from migrate.locations import place_of
from migrate.manifest import find_manifest
from migrate.reading import MalformedError, as_table, parse_json, read_table
from migrate.stores.added_fields import FIELDS, AddedField, FieldFolders
from migrate.stores.base import BATCH_SIZE, Snapshot, Store, StoreInfo, hash_texts, sampled_snapshot
from migrate.stores.binary_reader import read_errors
from migrate.stores.documents.arrow import (
    arrow_errors,
    plain_lists,
    row_without_vector,
    rows_in_order,
    vectors_of_lists,
)
from migrate.stores.documents.base import LazyIds, repeated
from migrate.stores.documents.columns import columns_of_store, list_type, to_document
from migrate.stores.file_store import own_manifest
from migrate.stores.parquet.files import LocalFiles, RemoteFiles, find_files
from migrate.stores.parquet.table import ParquetTable
from migrate.stores.records import Distance, read_metric
from migrate.vectors import Batch, Document, Vectors

OWN: Final = b"lead-migrate"
"""The entry of a schema's metadata with the options that a file was read, or written, with."""

OPTIONS: Final = ("distance", "id", "metadata", "text", "vector")
_PART_BYTES: Final = 16 << 20
"""Vectors that are read at a time, in memory."""
# FAT notes a time to two seconds; no file system in use is coarser.
_TICK_NS: Final = 2_000_000_000
"""Within so long a file may be written to twice and show one time only."""


def folders_at(folder: Path) -> FieldFolders:
    """Return what lies beside the columns that were added to the files of a folder."""
    return FieldFolders(folder / FIELDS / "parquet")


class ParquetStore(Store):
    """Files of rows, wherever they are: `location` opens them again, `options` name columns and the distance.

    Raises a StoreError where a file is malformed or unlike the others, a column is not there or not the only choice, or
    two ids are the same.
    """

    def __init__(self, location: str, files: LocalFiles | RemoteFiles, options: Mapping[str, str]) -> None:
        self.files = files
        # Before the files are looked at: one that is written to meanwhile is not at rest.
        opened_ns = time.time_ns()
        self.shards = find_files(files)
        changes: list[os.stat_result] = []
        if isinstance(files, LocalFiles):
            with read_errors(files.path):
                # who changes content and sets the time back leaves another time of change
                changes = [Path(file.path).stat() for file in self.shards]
        self._snapshots: dict[str, Snapshot] = {}
        self.table = ParquetTable(files, self.shards)
        self.count = self.table.count
        schema = self.table.schemas[0]
        self.added = _added_columns(files, schema.names)
        try:
            own_options = as_table(parse_json((schema.metadata or {}).get(OWN, b"{}")))
        except MalformedError:
            own_options = {}
        self.options = {
            **{key: own_options[key] for key in OPTIONS if isinstance(own_options.get(key), str)},
            **options,
        }
        self.columns = columns_of_store(schema, files.location, self.options, self.added)
        settled_ns = opened_ns - _TICK_NS
        is_settled = all(max(it.st_mtime_ns, it.st_ctime_ns) < settled_ns for it in changes)
        self._note = HashNote(self._note_path(changes), is_settled=is_settled)
        first_rows = self._read_first()
        self._check_ids()
        distance = self.options.get("distance")
        distances: dict[str, Distance] = {"l2": "l2", "cosine": "cosine", "dot": "ip", "ip": "ip"}
        if distance is not None and distance not in distances:
            raise UsageError(f"{files.location}: unknown distance {distance!r}; say l2, cosine or dot")
        vectors = np.empty((0, self.dim), np.float32)
        if first_rows is not None:
            vectors = self._matrix(first_rows, range(len(first_rows)))
        metric, remarks = read_metric(None if distance is None else distances[distance], vectors)
        notes = (*remarks, *self.columns.notes)
        if self.column_folder is not None:
            manifest = find_manifest(self.column_folder, "store")
        elif isinstance(files, LocalFiles):
            manifest, foreign = own_manifest(Path(self.shards[0].path))
            notes = (*notes, *foreign)
        else:
            if self.folder is None:
                manifest = None
            else:
                manifest = find_manifest(self.folder, "store")
        chosen = {name: getattr(self.columns, name) for name in ("vector", "id", "text", "metadata")}
        self.info = StoreInfo(
            location=location,
            kind="parquet",
            index_type=f"column of {self.columns.element}",
            count=self.count,
            dim=self.dim,
            metric=metric,
            exact=True,
            has_texts=self.columns.text is not None,
            manifest=manifest,
            notes=notes,
            details={
                "files": len(self.shards),
                "bytes": sum(file.size for file in self.shards),
                "row groups": sum(map(len, self.table.group_rows)),
                **({} if distance is None else {"distance": distance}),
                **{name: column for name, column in chosen.items() if column is not None},
            },
        )

    @property
    def column_folder(self) -> Path | None:
        """The folder with what lies beside the column of vectors, if it is one that was added."""
        is_added = self.columns.vector in self.added
        if not is_added or not isinstance(self.files, LocalFiles) or not self.files.is_folder:
            return None  # what lies there is of all files of the folder
        return folders_at(self.files.folder).folder_of(self.columns.vector)

    def scan(self, start: int = 0, stop: int | None = None, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
        """Yield the vectors of rows `start` to `stop` with their ids."""
        if stop is None:
            stop = self.count
        else:
            stop = min(stop, self.count)
        stream = RowStream(self._vectors(start, stop), self.dim)
        for first in range(start, stop, batch_size):
            rows = range(first, min(first + batch_size, stop))
            yield Batch(LazyIds(len(rows), partial(self.ids, rows)), stream.take(len(rows)))

    def get(self, rows: NDArray[np.int64]) -> Batch:
        """Return the vectors and ids of some rows."""
        rows = self._checked(rows)
        vectors = np.empty((rows.size, self.dim), np.float32)
        column = self.columns.vector
        order = np.argsort(rows, kind="stable")
        for start, batch in self.table.take(rows[order], [column], self._part_rows):
            selected = order[start : start + batch.num_rows]
            vectors[selected] = self._matrix(batch.column(column), rows[selected])
        return Batch(self.ids(rows), vectors)

    def documents(self, rows: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Return the documents of some rows, or of all."""
        if not self.info.has_texts:
            raise StoreError(f"{self.files.location}: no column holds the texts; say #?text=COLUMN, if one does")
        if rows is None:
            rows = np.arange(self.count)
        else:
            rows = self._checked(rows)
        documents = rows_in_order(rows, partial(self._records, self.columns.documents))
        return (
            to_document(self.files.location, row, fields, self.columns)
            for row, fields in zip(rows.tolist(), documents, strict=True)
        )

    def ids(self, rows: range | NDArray[np.int64]) -> list[str]:
        """Return the ids of some rows."""
        column = self.columns.id
        if column is None:
            return [str(row) for row in (rows if isinstance(rows, range) else rows.tolist())]
        if isinstance(rows, range):
            slices = self.table.slices(column, rows.start, rows.stop, BATCH_SIZE)
            return [str(value) for _, batch in slices for value in batch.column(column).to_pylist()]
        return [str(fields[column]) for fields in rows_in_order(rows, partial(self._records, [column]))]

    def state(self) -> tuple[Any, ...]:
        """Return the versions of its files, as they were when it was opened."""
        return tuple(shard.version for shard in self.shards)

    def is_as_opened(self) -> bool:
        """Return whether its files are those that were opened."""
        try:
            return tuple(shard.version for shard in find_files(self.files)) == self.state()
        except (StoreError, OutputError):
            return False

    def snapshot(self, function: str = BLAKE3) -> Snapshot:
        """Return the snapshot of these very files: a machine reads them for it once, as that takes long."""
        if not self.is_as_opened():
            raise StoreError(
                f"{self.files.location}: the store changed while it was read; nothing was written, run again"
            )
        if function in self._snapshots:
            return self._snapshots[function]
        recorded = self._note.read() or {}
        texts = f"texts_{function}"
        if recorded.keys() >= {"rows_sha256", texts}:
            hashes = recorded["rows_sha256"], recorded[texts]
            snapshot = Snapshot(self.count, self.dim, self.info.metric, *hashes, self.state())
        else:
            if not self.info.has_texts:
                texts_hash = None
            else:
                texts_hash = self._hash_texts(function)
            snapshot = sampled_snapshot(self, texts_hash, self.state())
            self._note.write({"rows_sha256": snapshot.rows_sha256, texts: snapshot.texts_hash})
        self._snapshots[function] = snapshot
        return snapshot

    def _note_path(self, changes: Sequence[os.stat_result]) -> Path:
        """Return the file of the hashes of these very files."""
        location = place_of(self.files.location)
        columns = [self.columns.vector, self.columns.id, self.columns.text]
        if isinstance(location, str):
            location_text = location
        else:
            location_text = str(real_path(location))
        key = [location_text, columns, self.state(), [(it.st_ino, it.st_ctime_ns) for it in changes]]
        return cache_folder() / "snapshots" / f"{sha256_json(key)}.json"

    def _hash_texts(self, function: str) -> str:
        """Hash ids and texts as `documents_hash` does, without reading what else there is."""
        columns = self.columns
        names = [name for name in (columns.id, columns.text) if name is not None]

        def texts() -> Iterator[tuple[str, str]]:
            for first, batch in self.table.parts(names, BATCH_SIZE):
                rows = range(first, first + batch.num_rows)
                if columns.id is None:
                    ids = rows
                else:
                    ids = batch.column(columns.id).to_pylist()
                texts = batch.column(columns.text).to_pylist()
                yield from ((str(doc_id), text or "") for doc_id, text in zip(ids, texts, strict=True))

        return hash_texts(texts(), function)

    @property
    def _part_rows(self) -> int:
        row_bytes = 4 * self.dim
        return max(_PART_BYTES // row_bytes, 1)

    def _read_first(self) -> Any:
        """Return the vectors of the first rows as Arrow has them, None where there are none; note the dimension."""
        import pyarrow as pa

        column = self.columns.vector
        rows = np.arange(min(64, self.count))
        kind = list_type(self.table.schemas[0].field(column).type)
        first = next((plain_lists(batch.column(column)) for _, batch in self.table.take(rows, [column], 64)), None)
        if pa.types.is_fixed_size_list(kind):
            self.dim = int(kind.list_size)
        elif first is None:
            raise StoreError(
                f"{self.files.location}: column {column} has no rows, so no dimension; write the documents again"
            )
        elif not first[0].is_valid or not len(first[0]):
            raise self._bad_row(0, "of numbers")
        else:
            self.dim = len(first[0])
        return first

    def _check_ids(self) -> None:
        """Refuse an id that two rows share; ids are read for it when the files are first opened as they are."""
        column = self.columns.id
        if column is None or self._note.read() is not None:
            return
        # Eight bytes a row: the ids themselves may not fit into memory. Equal hashes are only a suspicion.
        suspects = {*repeated(np.fromiter(map(hash, self._stream_ids(column)), np.int64, self.count)).tolist()}
        ids: set[str] = set()
        for doc_id in self._stream_ids(column) if suspects else ():
            if doc_id in ids:
                raise StoreError(
                    f"{self.files.location}: duplicate id {doc_id!r} in column {column}; remove one of the rows, or "
                    "say #?id=COLUMN for another column"
                )
            if hash(doc_id) in suspects:
                ids.add(doc_id)
        # Nothing but that the ids were read: hashes come when somebody asks for them.
        self._note.write({})

    def _stream_ids(self, name: str) -> Iterator[str]:
        for first, batch in self.table.parts([name], BATCH_SIZE):
            column = batch.column(name)
            if column.null_count:
                row = first + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
                raise StoreError(
                    f"{self.files.location}: row {row} has no id in column {name}; say #?id=COLUMN for another"
                )
            yield from map(str, column.to_pylist())

    def _checked(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        rows = np.asarray(rows, np.int64)
        if rows.size and not 0 <= rows.min() <= rows.max() < self.count:
            raise IndexError(f"rows {rows.min()} to {rows.max()} asked for, 0 to {self.count - 1} are there")
        return rows

    def _vectors(self, start: int, stop: int) -> Iterator[Vectors]:
        column = self.columns.vector
        for first, batch in self.table.slices(column, start, stop, self._part_rows):
            yield self._matrix(batch.column(column), range(first, first + batch.num_rows))

    def _records(self, columns: list[str], rows: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        """Yield the rows, which ascend, as values of Python."""
        with arrow_errors(self.files.location):
            for _, batch in self.table.take(rows, columns, 1_024):
                yield from batch.to_pylist()

    def _matrix(self, column: Any, rows: range | NDArray[np.int64]) -> Vectors:
        """Return vectors as float32; `rows` are their numbers, for errors."""
        column = plain_lists(column)
        row = row_without_vector(column, self.dim)
        if row is not None:
            raise self._bad_row(int(rows[row]), f"of {self.dim} numbers")
        return vectors_of_lists(column, self.dim)

    def _bad_row(self, row: int, length: str) -> StoreError:
        is_added = self.columns.vector in self.added
        remedy = "remove the row"
        if is_added:
            remedy = "`translate --into` it again, with --force"
        return StoreError(
            f"{self.files.location}: row {row} has no vector {length} in column {self.columns.vector}; {remedy}"
        )


class HashNote:
    """Hashes of the files of a store, noted in the user's cache folder once these are at rest."""

    def __init__(self, path: Path, *, is_settled: bool) -> None:
        self._path = path
        self._is_settled = is_settled

    def read(self) -> dict[str, Any] | None:
        """Return the hashes that were noted of these very files; None where not even their ids were read."""
        try:
            return read_table(self._path)
        except (OSError, MalformedError):
            return None

    def write(self, hashes: Mapping[str, str | None]) -> None:
        """Note further hashes of the files."""
        if self._is_settled:
            with suppress(OSError):  # without a cache they are read again the next time
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_json(self._path, {**(self.read() or {}), **hashes})


def _added_columns(files: LocalFiles | RemoteFiles, names: Sequence[str]) -> dict[str, AddedField]:
    """Return the columns that were added beside others, and are there."""
    if not isinstance(files, LocalFiles):
        return {}
    return {name: field for name, field in folders_at(files.folder).added().items() if name in names}


class RowStream:
    """Rows that come in batches of one size and are taken in others."""

    def __init__(self, batches: Iterable[Vectors], dim: int) -> None:
        self._batches = iter(batches)
        self._rest = np.empty((0, dim), np.float32)

    def take(self, count: int) -> Vectors:
        """Return the next rows, (count, dim)."""
        if len(self._rest):
            chunks = [self._rest[:count]]
        else:
            chunks = []
        missing = count - sum(map(len, chunks))
        self._rest = self._rest[count:]
        while missing:
            batch = next(self._batches)
            chunks.append(batch[:missing])
            self._rest = batch[missing:]
            missing = missing - len(chunks[-1])
        if len(chunks) == 1:
            return chunks[0]
        return np.concatenate(chunks)
