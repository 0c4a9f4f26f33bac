"""Reads files of Parquet as a store, wherever they are.

Rows are those of the files, in the order of their names. All columns but the vectors go into a new store as Arrow has
them, with types, nulls, order and the schema's metadata, file by file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from itertools import chain, groupby
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
from migrate.stores.base import BATCH_SIZE, Snapshot, Store, StoreInfo, hash_texts
from migrate.stores.binary_reader import read_errors
from migrate.stores.documents.arrow import (
    arrow_errors,
    plain_lists,
    row_without_vector,
    rows_in_order,
    take_ascending,
    vectors_of_lists,
)
from migrate.stores.documents.base import LazyIds, repeated
from migrate.stores.documents.columns import columns_of_store, list_type, to_document
from migrate.stores.file_store import own_manifest
from migrate.stores.parquet.files import LocalFiles, ParquetFile, RemoteFiles, find_files
from migrate.stores.records import Distance, read_metric
from migrate.vectors import Batch, Document, Vectors

OWN: Final = b"lead-migrate"
"""The entry of a schema's metadata with the options that a file was read, or written, with."""

OPTIONS: Final = ("distance", "id", "metadata", "text", "vector")
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
        opened_ns = time.time_ns()
        self.shards = find_files(files)
        self._changes: list[os.stat_result] = []
        if isinstance(files, LocalFiles):
            with read_errors(files.path):
                # who changes content and sets the time back leaves another time of change
                self._changes = [Path(file.path).stat() for file in self.shards]
        settled_ns = opened_ns - _TICK_NS
        self._is_settled = all(max(it.st_mtime_ns, it.st_ctime_ns) < settled_ns for it in self._changes)
        self._snapshot: Snapshot | None = None
        self._cursors: dict[str, tuple[int, list[tuple[int, Any]], Iterator[tuple[int, Any]]]] = {}
        self._read_footers()
        try:
            own_options = as_table(parse_json((self.schemas[0].metadata or {}).get(OWN, b"{}")))
        except MalformedError:
            own_options = {}
        self.options = {
            **{key: own_options[key] for key in OPTIONS if isinstance(own_options.get(key), str)},
            **options,
        }
        self.columns = columns_of_store(self.schemas[0], files.location, self.options, self.added)
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
            manifest = None if self.folder is None else find_manifest(self.folder, "store")
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
                "row groups": len(self._groups),
                **({} if distance is None else {"distance": distance}),
                **{name: column for name, column in chosen.items() if column is not None},
            },
        )

    @cached_property
    def added(self) -> dict[str, AddedField]:
        """The columns that were added beside others, and are there."""
        if not isinstance(self.files, LocalFiles):
            return {}
        added = folders_at(self.files.folder).added()
        return {name: field for name, field in added.items() if name in self.schemas[0].names}

    @property
    def column_folder(self) -> Path | None:
        """The folder with what lies beside the column of vectors, if it is one that was added."""
        is_added = self.columns.vector in self.added
        if not is_added or not isinstance(self.files, LocalFiles) or not self.files.is_folder:
            return None  # what lies there is of all files of the folder
        return folders_at(self.files.folder).folder_of(self.columns.vector)

    def scan(self, start: int = 0, stop: int | None = None, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
        """Yield the vectors of rows `start` to `stop` with their ids."""
        stop = self.count if stop is None else min(stop, self.count)
        stream = RowStream(self._vectors(start, stop), self.dim)
        for first in range(start, stop, batch_size):
            rows = range(first, min(first + batch_size, stop))
            yield Batch(LazyIds(len(rows), partial(self.ids, rows)), stream.take(len(rows)))

    def get(self, rows: NDArray[np.int64]) -> Batch:
        """Return the vectors and ids of some rows."""
        rows = self._checked(rows)
        vectors, column = np.empty((rows.size, self.dim), np.float32), self.columns.vector
        order = np.argsort(rows, kind="stable")
        for start, batch in self._take(rows[order], [column], self._part_rows):
            selected = order[start : start + batch.num_rows]
            vectors[selected] = self._matrix(batch.column(column), rows[selected])
        return Batch(self.ids(rows), vectors)

    def documents(self, rows: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Return the documents of some rows, or of all."""
        if not self.info.has_texts:
            raise StoreError(f"{self.files.location}: no column holds the texts; say #?text=COLUMN, if one does")
        rows = np.arange(self.count) if rows is None else self._checked(rows)
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
            slices = self._slices(column, rows.start, rows.stop, BATCH_SIZE)
            return [str(value) for _, batch in slices for value in batch.column(column).to_pylist()]
        return [str(fields[column]) for fields in rows_in_order(rows, partial(self._records, [column]))]

    def numbers(self, column: str) -> Vectors:
        """Return a column of numbers, (count,), float32; an empty cell is NaN. A StoreError where there is none."""
        import pyarrow as pa

        field = self.schemas[0].field(column) if column in self.schemas[0].names else None
        if field is None or not (pa.types.is_floating(field.type) or pa.types.is_integer(field.type)):
            raise StoreError(f"{self.files.location}: no column {column!r} holds numbers; write the files with one")
        values = np.empty(self.count, np.float32)
        for first, batch in self._slices(column, 0, self.count, BATCH_SIZE):
            values[first : first + batch.num_rows] = batch.column(column).to_numpy(zero_copy_only=False)
        return values

    def whole(self, shard: ParquetFile, rows: int, *, but: str | None = None) -> Iterator[Any]:
        """Yield all columns of a file, some rows at a time; one may be left out if there are others."""
        with self._opened(shard) as parquet:
            names = [name for name in parquet.schema_arrow.names if name != but] or None
            for batch in parquet.iter_batches(rows, columns=names):
                batch.validate(full=True)
                yield batch

    def _versions(self) -> tuple[Any, ...]:
        return tuple(shard.version for shard in self.shards)

    def is_as_opened(self) -> bool:
        """Return whether its files are those that were opened."""
        try:
            return tuple(shard.version for shard in find_files(self.files)) == self._versions()
        except (StoreError, OutputError):
            return False

    def snapshot(self) -> Snapshot:
        """Return the snapshot of these very files: a machine reads them for it once, as that takes long."""
        if not self.is_as_opened():
            raise StoreError(
                f"{self.files.location}: the store changed while it was read; nothing was written, run again"
            )
        if self._snapshot is None:
            recorded = self._recorded() or {}
            texts = _noted_as(BLAKE3)
            if recorded.keys() >= {"rows_sha256", texts}:
                hashes = recorded["rows_sha256"], recorded[texts]
                self._snapshot = Snapshot(self.count, self.dim, self.info.metric, *hashes, self._versions())
            else:
                self._snapshot = snapshot = super().snapshot()
                self._note({"rows_sha256": snapshot.rows_sha256, texts: snapshot.texts_hash})
        return self._snapshot

    def _recorded(self) -> dict[str, Any] | None:
        """Return the hashes that were noted of these very files; None where not even their ids were read."""
        try:
            return read_table(self._note_path)
        except (OSError, MalformedError):
            return None

    def _note(self, hashes: Mapping[str, str | None]) -> None:
        """Note hashes of the files in the user's cache folder."""
        if self._is_settled:
            with suppress(OSError):  # without a cache they are read again the next time
                self._note_path.parent.mkdir(parents=True, exist_ok=True)
                write_json(self._note_path, {**(self._recorded() or {}), **hashes})

    @property
    def _note_path(self) -> Path:
        location = place_of(self.files.location)
        columns = [self.columns.vector, self.columns.id, self.columns.text]
        location_text = location if isinstance(location, str) else str(real_path(location))
        changes = [(it.st_ino, it.st_ctime_ns) for it in self._changes]
        key = [location_text, columns, self._versions(), changes]
        return cache_folder() / "snapshots" / f"{sha256_json(key)}.json"

    def texts_hash(self, function: str = BLAKE3) -> str:
        """Hash ids and texts as `Store` does, without reading what else there is; or return what was noted of them."""
        recorded = (self._recorded() or {}).get(_noted_as(function))
        return self._hash_texts(function) if recorded is None else str(recorded)

    def _hash_texts(self, function: str) -> str:
        columns = self.columns
        names = [name for name in (columns.id, columns.text) if name is not None]

        def texts() -> Iterator[tuple[str, str]]:
            for first, batch in self._parts(range(len(self._groups)), names, BATCH_SIZE):
                rows = range(first, first + batch.num_rows)
                ids = rows if columns.id is None else batch.column(columns.id).to_pylist()
                texts = batch.column(columns.text).to_pylist()
                yield from ((str(doc_id), text or "") for doc_id, text in zip(ids, texts, strict=True))

        return hash_texts(texts(), function)

    @property
    def _part_rows(self) -> int:
        return max((16 << 20) // (4 * self.dim), 1)

    def _read_footers(self) -> None:
        """Read columns and row groups: `_groups` are number of file and group, `_starts` their first rows.

        `group_rows` are the rows of each group, by file.
        """
        self.schemas: list[Any] = []
        self.group_rows: list[list[int]] = []
        self.file_rows: list[int] = []
        self._groups: list[tuple[int, int]] = []
        sizes: list[int] = []
        for number, shard in enumerate(self.shards):
            with self._opened(shard) as parquet:
                group_rows = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
                schema = parquet.schema_arrow
            self.schemas.append(schema)
            self.group_rows.append(group_rows)
            if not schema.equals(self.schemas[0]):
                first, current = ({field.name: str(field) for field in fields} for fields in (self.schemas[0], schema))
                differ = [name for name in {**first, **current} if first.get(name) != current.get(name)]
                which = f"{differ[0]} ({current.get(differ[0], 'lacking')})" if differ else "another order of columns"
                raise StoreError(
                    f"{self.files.location}: {shard.name} has other columns than {self.shards[0].name}: {which}; write "
                    "them with one schema"
                )
            self._groups += [(number, group) for group in range(len(group_rows))]
            self.file_rows.append(sum(group_rows))
            sizes += group_rows
        self._starts = np.cumsum([0, *sizes])
        self.count = int(self._starts[-1])

    def _read_first(self) -> Any:
        """Return the vectors of the first rows as Arrow has them, None where there are none; note the dimension."""
        import pyarrow as pa

        column, rows = self.columns.vector, np.arange(min(64, self.count))
        kind = list_type(self.schemas[0].field(column).type)
        first = next((plain_lists(batch.column(column)) for _, batch in self._take(rows, [column], 64)), None)
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
        if column is None or self._recorded() is not None:
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
        self._note({})

    def _stream_ids(self, name: str) -> Iterator[str]:
        for first, batch in self._parts(range(len(self._groups)), [name], BATCH_SIZE):
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
        for first, batch in self._slices(column, start, stop, self._part_rows):
            yield self._matrix(batch.column(column), range(first, first + batch.num_rows))

    def _records(self, columns: list[str], rows: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
        """Yield the rows, which ascend, as values of Python."""
        with arrow_errors(self.files.location):
            for _, batch in self._take(rows, columns, 1_024):
                yield from batch.to_pylist()

    def _take(self, rows: NDArray[np.int64], columns: list[str], at_once: int) -> Iterator[tuple[int, Any]]:
        """Yield the rows, which ascend, in batches, each with the place of its first among `rows`."""
        groups = np.unique(np.searchsorted(self._starts, rows, side="right") - 1)
        return take_ascending(self.files.location, self._parts(groups.tolist(), columns, at_once), rows)

    def _slices(self, column: str, start: int, stop: int, at_once: int) -> Iterator[tuple[int, Any]]:
        """Yield rows `start` to `stop` of a column, part by part, each with its first row."""
        if start >= stop:
            return
        row, pending, batches = self._cursors.pop(column, (-1, [], iter(())))
        if row != start:
            group = int(np.searchsorted(self._starts, start, side="right")) - 1
            pending, batches = [], self._parts(range(group, len(self._groups)), [column], at_once)
        for first, batch in chain(pending, batches):
            low, high = max(start - first, 0), min(stop - first, batch.num_rows)
            if first + high == stop:
                # the next call goes on where this one ends: a row group can only be read from its beginning
                self._cursors[column] = stop, [(stop, batch.slice(high))], batches
            if high > low:
                yield first + low, batch.slice(low, high - low)
            if first + high == stop:
                return

    def _parts(self, groups: Iterable[int], columns: list[str], at_once: int) -> Iterator[tuple[int, Any]]:
        """Yield columns of some row groups, in bounded parts, each with its first row."""
        for number, groups_of_file in groupby(groups, key=lambda group: self._groups[group][0]):
            with self._opened(self.shards[number]) as parquet:
                for group in groups_of_file:
                    first = int(self._starts[group])
                    for batch in parquet.iter_batches(at_once, [self._groups[group][1]], columns=columns):
                        batch.validate(full=True)
                        yield first, batch
                        first += batch.num_rows
                    if first != self._starts[group + 1]:
                        raise ValueError("a row group has fewer rows than it announces")

    def _matrix(self, column: Any, rows: range | NDArray[np.int64]) -> Vectors:
        """Return vectors as float32; `rows` are their numbers, for errors."""
        column = plain_lists(column)
        row = row_without_vector(column, self.dim)
        if row is not None:
            raise self._bad_row(int(rows[row]), f"of {self.dim} numbers")
        return vectors_of_lists(column, self.dim)

    def _bad_row(self, row: int, length: str) -> StoreError:
        is_added = self.columns.vector in self.added
        remedy = "`translate --into` it again, with --force" if is_added else "remove the row"
        return StoreError(
            f"{self.files.location}: row {row} has no vector {length} in column {self.columns.vector}; {remedy}"
        )

    @contextmanager
    def _opened(self, shard: ParquetFile) -> Iterator[Any]:
        """Open a file; what pyarrow raises inside is a StoreError that names it."""
        import pyarrow.parquet

        location = f"{self.files.location}/{shard.name}" if self.files.is_folder else self.files.location
        with self.files.opened(shard) as file, arrow_errors(location):
            # read as a stream: a row group may be larger than the memory
            yield pyarrow.parquet.ParquetFile(file, buffer_size=1 << 20, pre_buffer=False)


class RowStream:
    """Rows that come in batches of one size and are taken in others."""

    def __init__(self, batches: Iterable[Vectors], dim: int) -> None:
        self._batches = iter(batches)
        self._rest = np.empty((0, dim), np.float32)

    def take(self, count: int) -> Vectors:
        """Return the next rows, (count, dim)."""
        chunks = [self._rest[:count]] if len(self._rest) else []
        missing, self._rest = count - sum(map(len, chunks)), self._rest[count:]
        while missing:
            batch = next(self._batches)
            chunks.append(batch[:missing])
            self._rest, missing = batch[missing:], missing - len(chunks[-1])
        return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def _noted_as(function: str) -> str:
    return f"texts_{function}"
