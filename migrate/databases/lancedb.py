"""Tables of LanceDB in a folder: `lancedb:PATH#TABLE`.

A table is read at one version, whatever is written meanwhile. All its columns, types and their metadata go into a new
one as Arrow has them, in the order of the rows, with those that have no vector.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from migrate.databases.driver import (
    DatabaseRows,
    DatabaseSearch,
    Driver,
    Page,
    check_count,
    described,
    is_lossy,
    require_folder,
    sync_folder,
)
from migrate.databases.located import DatabaseTraits
from migrate.errors import LeadMigrateError, StoreError, UsageError
from migrate.files import refuse_endless_in
from migrate.reading import MalformedError, as_table, parse_json
from migrate.stores.added_fields import FIELDS, AddedField, FieldFolders, VectorFields, fields_beside, main_fields
from migrate.stores.base import KindSupport, SearchSetting, StoreInfo
from migrate.stores.documents.names import IDS, KEYS, first_of
from migrate.stores.kept import sync_tree
from migrate.stores.records import Distance, as_document, choose, choose_text, import_client, metadata_as_json
from migrate.stores.serving import Hits, as_hits
from migrate.vectors import Document, Vectors

_OWN: Final = b"lead-migrate"
"""In the metadata of a schema: options that the table is opened with, and `made` if it was made of documents."""
_SCATTERED: Final = 3_000
"""Vectors that were replaced one by one, at least, before the small files that they leave are merged."""
_SCATTERED_SHARE: Final = 0.02
"""The share of the rows that these are, at least: a merge reads and writes every file that it joins."""
_SAMPLE: Final = 64
"""Vectors that are looked at for their length."""
_NEWEST_FOR: Final = timedelta(seconds=1)
"""How long a table may miss what another program has committed; sooner, each search would list the folder."""
_KEEP_VERSIONS: Final = timedelta(days=36_500)
"""A merge deletes versions older than this, and by itself those of a week; a reader may have any of them open."""
_NPROBES: Final = 20
"""Partitions that LanceDB looks into where a search names no number."""
_MOST_NPROBES: Final = 1_024
_MOST_REFINED: Final = 64
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")
"""A whole number that surely fits 64 bits: a greater one would make LanceDB refuse the whole condition."""


class LanceDriver(Driver):
    """Tables in a folder."""

    traits = DatabaseTraits(
        kind="lancedb",
        support=KindSupport(
            "LanceDB",
            ("lancedb:FOLDER#TABLE",),
            "lancedb",
            "all columns with types and nulls, order, schema metadata, float16 to float64, rows without a vector",
            "older versions, the schema's embedding function; the number of partitions of an index",
        ),
        collection="table",
        name_rule=("[a-zA-Z0-9._-]+", "of a-z, A-Z, 0-9, '.', '_' and '-'"),
        options=("distance", "id", "text", "vector", "version"),
        has_servers=False,
    )

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Return whether a table is in a folder."""
        return bool(_tables_in(path))

    def names(self) -> list[str]:
        """Return the tables of the folder."""
        return _tables_in(self.folder)

    def files(self) -> Collection[str]:
        """Return the folder of the table."""
        return (f"{self.name}.lance",)

    def identity(self, name: str) -> Any:
        """Return the number of the table's folder: tables are dropped, and folders trade places."""
        with suppress(OSError):
            return (self.folder / f"{name}.lance").stat().st_ino
        return None

    def open_table(self, **options: Any) -> Any:
        """Open the table, at its newest version."""
        return _connect(self.folder, **options).open_table(self.name)

    def open(self) -> LanceRows:
        """Open the newest version of the table, or the one that is asked for."""
        require_folder(self)
        self.name = self.choose_name(self.names())
        return LanceRows(self)

    def write_new(self, name: str, dim: int, source: StoreInfo, pages: Iterator[Page]) -> Iterable[str]:
        """Write a table of documents."""
        schema = _schema_of_documents(dim, source.metric)
        self._write_table(name, schema, (_rows_of_documents(page, schema) for page in pages))
        return []

    def write_copy(self, name: str, dim: int, old: LanceRows, pages: Iterator[Page]) -> Iterable[str]:
        """Write a table of one version with the columns and indexes of another."""
        options = dict(old.options)
        if len(old.columns.vectors) > 1:
            options["vector"] = old.vector
        schema, remarks = old.columns.with_dim(old.vector, dim, options)
        batches = (_copied_rows(old, page, schema) for page in pages)
        table = self._write_table(name, schema, batches)
        for index, statistics in old.indices:
            new_dim = dim if index.columns[0] == old.vector else None
            remarks += _index_again(table, index, statistics, new_dim)
        sync_folder(self)
        return remarks

    def _write_table(self, name: str, schema: Any, batches: Iterator[Any]) -> Any:
        """Make a table anew, of batches of rows; return it."""
        import pyarrow as pa

        written = 0
        failures = []

        def counted() -> Iterator[Any]:
            nonlocal written
            try:
                for batch in batches:
                    written += batch.num_rows
                    yield batch
            except LeadMigrateError as error:
                # LanceDB passes on the words alone, and not which error it was
                failures.append(error)
                raise

        reader = pa.RecordBatchReader.from_batches(schema, counted())
        try:
            # by itself, the client refuses rows without a vector, which it calls bad
            table = _connect(self.folder).create_table(name, reader, mode="overwrite", on_bad_vectors="null")
        except Exception:
            if failures:
                raise failures[0] from None
            raise
        check_count(self.location, written, table.count_rows())
        sync_folder(self)
        return table


class LanceColumns:
    """The columns of a table by what they can hold, and the schema of another table like it."""

    def __init__(self, location: str, schema: Any) -> None:
        from pyarrow import types

        self._location = location
        self.schema = schema
        self.vectors: list[str] = []
        self.texts: list[str] = []
        self._whole_numbers: list[str] = []
        for field in schema:
            if types.is_fixed_size_list(field.type) and types.is_floating(field.type.value_type):
                self.vectors.append(field.name)
            elif types.is_string(field.type) or types.is_large_string(field.type):
                self.texts.append(field.name)
            elif types.is_integer(field.type):
                self._whole_numbers.append(field.name)

    def stored_options(self) -> dict[str, Any]:
        """Return the options that the schema names."""
        content = (self.schema.metadata or {}).get(_OWN, b"{}")
        # another program may have written something else there
        with suppress(MalformedError):
            return dict(as_table(parse_json(content)))
        return {}

    def choose_vector(self, requested: str | None, added: Mapping[str, AddedField]) -> str:
        """Return the column of vectors that is asked for, or the only one that was not `added` beside another."""
        names = self.vectors
        if requested not in names:
            names = main_fields(names, added)
        remedy = "say #TABLE?vector=COLUMN, of a fixed_size_list of floats"
        return choose(self._location, "vector", names, requested, remedy)

    def choose_id(self, requested: str | None) -> str | None:
        """Return the column of ids that is asked for, or one with a usual name; None if there is none."""
        columns = [name for name in self.schema.names if name in self.texts + self._whole_numbers]
        if requested is None:
            return first_of((*IDS, *KEYS), columns)
        return choose(self._location, "column of ids", columns, requested, "say ?id=COLUMN for one")

    def with_dim(self, vector: str, dim: int, options: Mapping[str, Any]) -> tuple[Any, list[str]]:
        """Return the schema with vectors of another dimension, which names some options, and remarks."""
        import pyarrow as pa

        remarks = []
        old = self.schema.field(vector)
        if pa.types.is_float16(old.type.value_type):
            remarks.append(f"the vectors are rounded to half precision, as column {vector} has it")
        kind = pa.list_(old.type.value_type, dim)
        field = pa.field(old.name, kind, old.nullable, old.metadata)
        schema = self.schema.set(self.schema.get_field_index(vector), field)
        metadata = dict(self.schema.metadata or {})
        # the client would embed texts with the old model, and add them to vectors of the new one
        if metadata.pop(b"embedding_functions", None) is not None:
            remarks.append(
                "the embedding function that the old table names is not in the new one, as it belongs to the old "
                "model; give the table that of the new model, or queries as vectors"
            )
        if options:
            metadata[_OWN] = json.dumps(options, sort_keys=True).encode()
        return schema.with_metadata(metadata or None), remarks


class LanceVersion:
    """A table at one version, by the numbers of its rows. `handle` is LanceDB's own object for it."""

    at_once = 4_096
    """Rows that are read at a time."""

    def __init__(self, handle: Any, vector: str) -> None:
        self.handle = handle
        self._vector = vector
        self.without_vector = handle.count_rows(f"{_quoted(vector)} IS NULL")
        self._is_legacy: bool | None = None
        self._rows_with_vector: NDArray[np.int64] | None = None
        self._numbered: dict[str, int] | None = None

    def batches(self, columns: Sequence[str] | None, condition: str | None = None) -> Any:
        """Yield rows in their order, as Arrow has them, in bounded memory; None is all columns."""
        query = self.handle.search()
        if columns is not None:
            query = query.select([*columns])
        if condition is not None:
            query = query.where(condition)
        yield from (batch for batch in query.to_batches(self.at_once) if batch.num_rows)

    def with_vector(self) -> NDArray[np.int64]:
        """Return the numbers of the rows with a vector."""
        if self._rows_with_vector is None:
            self._rows_with_vector = self._find_vectors()
        return self._rows_with_vector

    def numbered(self) -> dict[str, int]:
        """Return the rows with a vector by their numbers in words, which are ids where no column has any."""
        if self._numbered is None:
            self._numbered = {str(row): row for row in self.with_vector().tolist()}
        return self._numbered

    def _find_vectors(self) -> NDArray[np.int64]:
        if not self.without_vector:
            return np.arange(self.handle.count_rows())
        columns = (batch.column(0) for batch in self.batches([self._vector]))
        return np.flatnonzero(np.concatenate([column.is_valid().to_numpy(zero_copy_only=False) for column in columns]))

    def take(self, rows: NDArray[np.int64], columns: list[str]) -> Any:
        """Return columns of some rows by their numbers."""
        offsets, positions = np.unique(rows, return_inverse=True)
        if len(offsets) and self.is_legacy():
            return self._scan_for(offsets, columns).take(positions)
        return self.handle.take_offsets(offsets.tolist()).select(columns).to_arrow().take(positions)

    def _scan_for(self, offsets: NDArray[np.int64], columns: list[str]) -> Any:
        """Return columns of rows at different positions, which ascend, from all rows between the first and the last."""
        import pyarrow as pa

        start = int(offsets[0])
        count = int(offsets[-1]) + 1 - start
        window = self.handle.search().select(columns).offset(start).limit(count)
        chosen = []
        for batch in window.to_batches(self.at_once):
            first, last = np.searchsorted(offsets, [start, start + batch.num_rows])
            if first < last:
                chosen.append(batch.take(pa.array(offsets[first:last] - start)))
            start += batch.num_rows
        return pa.Table.from_batches(chosen)

    def is_legacy(self) -> bool:
        """Return whether the files are of the format before 2.0, of which the client takes no rows by position."""
        if self._is_legacy is None:
            self._is_legacy = self.handle.count_rows() > 0 and not self._takes_offsets()
        return self._is_legacy

    def _takes_offsets(self) -> bool:
        # nothing in the client names the format of the files
        try:
            self.handle.take_offsets([0]).select([self._vector]).to_arrow()
        except Exception as error:
            if "v1 files" not in str(error):
                raise
            return False
        return True


class LanceRows(DatabaseRows):
    """The rows of a table at one version, by their ids."""

    driver: LanceDriver
    at_once = LanceVersion.at_once

    def __init__(self, driver: LanceDriver) -> None:
        super().__init__(driver)
        requested = dict(driver.address.options)
        version = requested.pop("version", None)
        if version is not None and not version.isdecimal():
            raise UsageError(
                f"{self.location}: the version {version!r} is not a number; say ?version=3, or leave it out"
            )
        self.asked_version = None if version is None else int(version)
        refuse_endless_in(driver.folder / f"{self.name}.lance")
        handle = driver.open_table()
        # held at its version, or ids and vectors would be of different ones while another program writes
        handle.checkout(self.asked_version or handle.version)
        self.columns = LanceColumns(self.location, handle.schema)
        self.schema = self.columns.schema
        self.options = {**self.columns.stored_options(), **requested}
        # the schema may name a column that was dropped since
        if "vector" not in requested and self.options.get("vector") not in self.columns.vectors:
            self.options.pop("vector", None)
        self.vector = self.columns.choose_vector(self.options.get("vector"), self.fields.added())
        self.dim = self.schema.field(self.vector).type.list_size
        self.id_column = self.columns.choose_id(self.options.get("id"))
        self._has_text_ids = self.id_column in self.columns.texts
        self.has_vector = f"{_quoted(self.vector)} IS NOT NULL"
        self.indices = [(index, handle.index_stats(index.name)) for index in handle.list_indices()]
        of_vectors = (pair for pair in self.indices if list(pair[0].columns) == [self.vector])
        self.index = next(of_vectors, None)
        """The index of the vectors and its statistics."""
        self.table = LanceVersion(handle, self.vector)
        self.without_vector = self.table.without_vector
        self._is_held = self.id_column is None or self.asked_version is not None
        self.newest = handle
        """The newest version, whatever is written; one that was asked for, or has no ids, as it is."""
        if not self._is_held:
            self.newest = driver.open_table(read_consistency_interval=_NEWEST_FOR)
        self._scattered = 0

    def describe(self) -> StoreInfo:
        """Describe the version."""
        handle = self.table.handle
        texts = [name for name in self.columns.texts if name != self.id_column]
        self.text, why = choose_text(self.location, texts, self.options.get("text"))
        self.distance, notes = self._distance(self.options.get("distance"))
        sample = handle.search().where(self.has_vector).select([self.vector]).limit(_SAMPLE).to_arrow().column(0)
        notes += (why,)
        if self.id_column is None:
            notes += ("the table has no column of ids: rows are numbered from 0 on; say ?id=COLUMN for one",)
        details: dict[str, str | int | None] = {
            "table": self.name,
            "version": int(handle.version),
            "vector": self.vector,
            "element": str(self.schema.field(self.vector).type.value_type),
            "distance": self.distance,
            "text": self.text,
            "id": self.id_column,
        }
        kind = "none"
        if self.index is not None:
            kind = str(self.index[0].index_type)
        count = handle.count_rows() - self.without_vector
        vectors = _as_matrix(sample.combine_chunks(), self.dim)
        return described(self, kind, count, vectors, details=details, notes=notes)

    @property
    def key(self) -> str:
        """Folder, table, and the columns of vectors and ids."""
        return f"{self.driver.folder.absolute()}#{self.name}?vector={self.vector}&id={self.id_column}"

    def version(self, *, of_pages: bool = False) -> Any:
        """Return the newest version with its moment; of a version that was asked for, and of `pages`, that one."""
        is_held = of_pages or self.asked_version is not None
        handle = self.table.handle if is_held else self.driver.open_table()
        # numbers come again where a table was dropped and made anew
        moments = {version["version"]: version["timestamp"].isoformat() for version in handle.list_versions()}
        return [handle.version, moments.get(handle.version)]

    def pages(self, *, vectors: bool = True, records: bool = False) -> Iterator[Page]:
        """Read rows in their order; `raw` is an Arrow batch, with the rows that have no vector among the others."""
        if not vectors and not records and self.id_column is not None:
            yield from self._pages_of_ids(self.id_column)
            return
        columns = None
        if not records:
            columns = [name for name in (self.vector, self.id_column) if name is not None]
        first = 0
        for batch in self.table.batches(columns):
            ids = self._ids_of(batch, range(first, first + batch.num_rows))
            first += batch.num_rows
            column = batch.column(batch.schema.get_field_index(self.vector))
            if column.null_count:
                valid = column.is_valid()
                ids = [ids[row] for row in np.flatnonzero(valid)]
                column = column.filter(valid)
            yield Page(ids, _as_matrix(column, self.dim) if vectors else (), batch if records else None)

    def _pages_of_ids(self, id_column: str) -> Iterator[Page]:
        # a condition would read the vectors, which are most of a table
        condition = self.has_vector if self.without_vector else None
        for batch in self.table.batches([id_column], condition):
            yield Page(self._ids_of(batch, range(0)), ())

    def _ids_of(self, batch: Any, rows: range) -> list[str]:
        """Return the ids of a batch: those of the column, or the numbers of the `rows` where there is none."""
        if self.id_column is None:
            return [str(row) for row in rows]
        column = batch.column(batch.schema.get_field_index(self.id_column))
        if column.null_count:
            raise StoreError(f"{self.location}: a row has no id in column {self.id_column}; say ?id=COLUMN for another")
        # by numpy, as Arrow makes an object of its own of each value on the way to a list
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        if self._has_text_ids:
            return values
        return [str(value) for value in values]

    def documents(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Iterator[Document]:
        """Return all columns but the vector."""
        added = fields_beside(self.fields.added())
        fields = [name for name in self.schema.names if name != self.vector and name not in added]
        records, rows = self._take(ids, at, fields)
        return map(self._document, records, rows.to_pylist())

    def vectors(self, ids: Sequence[str], at: NDArray[np.int64] | None = None) -> Page:
        """Return vectors as float32."""
        records, rows = self._take(ids, at, [self.vector])
        return Page(records, _as_matrix(rows.column(0).combine_chunks(), self.dim))

    def _take(self, ids: Sequence[str], at: NDArray[np.int64] | None, columns: list[str]) -> tuple[Sequence[str], Any]:
        """Return columns of some rows with their ids: at positions, or in the newest version if it may be read."""
        if at is None and self.id_column is not None:
            return self._look_up(self.possible(ids), columns, self.id_column)
        if at is None:
            row_of = self.table.numbered()
            ids = [doc_id for doc_id in ids if doc_id in row_of]
            return ids, self.table.take(np.array([row_of[doc_id] for doc_id in ids], np.int64), columns)
        return ids, self.table.take(self.table.with_vector()[at], columns)

    def _look_up(self, ids: Sequence[str], columns: list[str], id_column: str) -> tuple[Sequence[str], Any]:
        if not self._is_held:
            self.newest.checkout_latest()
        # a condition takes no parameters, so the values are a part of it
        values = ids
        if self._has_text_ids:
            values = ["'" + doc_id.replace("'", "''") + "'" for doc_id in ids]
        condition = "false"
        if ids:
            condition = f"{_quoted(id_column)} IN ({', '.join(values)}) AND {self.has_vector}"
        columns = list(dict.fromkeys([*columns, id_column]))
        # a search without a limit gives ten rows
        rows = self.newest.search().where(condition).select(columns).limit(self.at_once).to_arrow()
        return self._ids_of(rows, range(0)), rows

    def possible(self, ids: Iterable[str]) -> list[str]:
        """Return those ids that the column can hold."""
        return [doc_id for doc_id in ids if self._has_text_ids or _NUMBER.fullmatch(doc_id)]

    def _document(self, doc_id: str, fields: dict[str, Any]) -> Document:
        if not self.options.get("made"):
            return as_document(self.location, doc_id, fields, self.id_column, self.text)
        # a table that this tool made of documents has their metadata as JSON in a column
        try:
            return Document(doc_id, fields[self.text or "text"] or "", dict(json.loads(fields["metadata"])))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise StoreError(
                f"{self.location}: the metadata of {doc_id!r} is not a JSON object; write the table again"
            ) from error

    def _distance(self, requested: str | None) -> tuple[Distance, tuple[str, ...]]:
        """Return how vectors are compared, l2, ip or cosine, with notes."""
        word = requested
        if not word and self.index is not None:
            word = str(self.index[1].distance_type).lower()
        if word is None:
            note = "no index says how vectors are compared: l2 is LanceDB's way; say ?distance=cosine or dot if not"
            return "l2", (note,)
        distances: dict[str, Distance] = {"l2": "l2", "cosine": "cosine", "dot": "ip", "ip": "ip"}
        distance = distances.get(word)
        if distance is None:
            error = StoreError if requested is None else UsageError
            raise error(f"{self.location}: vectors are not compared by {word!r} here; say ?distance=l2, cosine or dot")
        return distance, ()

    def update(self, new: Mapping[str, Vectors]) -> int:
        """Replace vectors, all in one version. LanceDB moves the rows to the end of the table."""
        import pyarrow as pa

        if self._is_held:
            reason = "a table without a column of ids" if self.id_column is None else "an older version"
            raise StoreError(f"{self.location}: vectors cannot be put into {reason}; open the table by its ids")
        ids = self.possible(new)
        if not ids:
            return 0
        key = self.schema.field(self.id_column).type
        kind = self.schema.field(self.vector).type
        vectors = _as_column(np.stack([new[doc_id] for doc_id in ids]), kind)
        # numbers of float32 may be infinite in half precision
        beyond = np.flatnonzero(~np.isfinite(_as_matrix(vectors, self.dim)).all(axis=1))
        if len(beyond):
            numbers = f"{kind.value_type} does not hold numbers as large as those for document {ids[beyond[0]]!r}"
            raise StoreError(f"{self.location}: {numbers}; nothing was written")
        rows = pa.table({self.id_column: pa.array(ids).cast(key), self.vector: vectors})
        self.newest.checkout_latest()
        merge = self.newest.merge_insert(self.id_column)
        merge = merge.when_matched_update_all(where=f"target.{self.has_vector}")
        count = int(merge.execute(rows).num_updated_rows)
        self._merge_files(count)
        return count

    def _merge_files(self, count: int) -> None:
        """Merge the small files of updates once a share of the table lies in them: each is one more to search."""
        self._scattered += count
        if self._scattered < max(_SCATTERED_SHARE * self.newest.count_rows(), _SCATTERED):
            return
        self._scattered = 0
        # another program may commit meanwhile; then it is done the next time
        with suppress(Exception):
            self.newest.optimize(cleanup_older_than=_KEEP_VERSIONS)

    @property
    def search(self) -> LanceSearch:
        """The search of the table."""
        return LanceSearch(self)

    @property
    def fields(self) -> LanceFields:
        """The columns."""
        return LanceFields(self)


class LanceSearch(DatabaseSearch):
    """The search of a table."""

    rows: LanceRows

    def search(self, queries: Vectors, k: int, where: Any) -> list[Hits]:
        """DatabaseSearch; `where` is a condition in SQL."""
        if where is not None and not isinstance(where, str):
            raise UsageError(
                f'{self.rows.location}: the filter is no SQL, such as "page < 3", but {type(where).__name__}'
            )
        searches = [self._by(query) for query in queries]
        # scores are then those of whole vectors, and no longer of codes
        if self._is_lossy:
            searches = [search.refine_factor(1) for search in searches]
        if where is not None:
            searches = [search.where(where, prefilter=True) for search in searches]
        return [self._nearest(search, k) for search in searches]

    @property
    def _is_lossy(self) -> bool:
        return self.rows.index is not None and is_lossy(str(self.rows.index[0].index_type))

    @property
    def setting(self) -> SearchSetting | None:
        """The factor by which more candidates are compared by whole vectors, or the partitions to look into."""
        if self._is_lossy:
            return SearchSetting("refine_factor", 0, _MOST_REFINED, "query.refine_factor({})")
        if self.rows.index is None:
            return None
        return SearchSetting("nprobes", _NPROBES, _MOST_NPROBES, "query.nprobes({})")

    def search_index(self, queries: Vectors, k: int, effort: int | None) -> list[Hits]:
        """DatabaseSearch, with another value of the setting where one is given."""
        searches = [self._by(query) for query in queries]
        setting = self.setting
        if setting is not None and effort is not None:
            searches = [getattr(search, setting.name)(effort) for search in searches]
        return [self._nearest(search, k) for search in searches]

    def _by(self, query: Vectors) -> Any:
        search = self.rows.newest.search(query, vector_column_name=self.rows.vector, query_type="vector")
        names = {"l2": "l2", "cosine": "cosine", "ip": "dot"}
        return search.distance_type(names[str(self.rows.distance)])

    def _nearest(self, search: Any, k: int) -> Hits:
        # without a column of ids, the ids are the numbers of the rows
        ids = self.rows.id_column or "_rowoffset"
        rows = search.select(["_distance", ids]).limit(k).to_arrow()
        scores = rows["_distance"].to_numpy().astype(np.float64)
        # what LanceDB calls a distance is one less the cosine, and one less the inner product; l2 comes squared
        if self.rows.distance != "l2":
            scores = 1 - scores
        return as_hits([*map(str, rows[ids].to_pylist())], scores)


class LanceFields(FieldFolders, VectorFields):
    """The columns of a table."""

    def __init__(self, rows: LanceRows) -> None:
        self._rows = rows
        super().__init__(rows.driver.folder / FIELDS / quote(rows.name, safe=""))

    def names(self) -> Collection[str]:
        """Return the columns."""
        return {*self._rows.schema.names}

    def refuse(self, name: str, dim: int | None) -> None:
        """Refuse a table whose rows are known by their numbers alone, an older version, and legacy files."""
        rows = self._rows
        reason = None
        if rows.asked_version is not None:
            reason = "is an older version"
        if rows.id_column is None:
            reason = "has no column of ids"
        if reason is not None:
            raise UsageError(f"{rows.location}: the table {reason}, so that no column is added to it; translate to a "
                             "new store (-o) instead")  # fmt: skip
        if rows.table.is_legacy():
            reason = "the table is in files of the format before 2.0, and LanceDB adds no column to those"
            raise UsageError(f"{rows.location}: {reason}; translate to a new store (-o) instead")

    def caution(self, dim: int) -> str | None:
        """Tell of programs that name no column: LanceDB chooses one by the length of a query."""
        rows = self._rows
        if dim != rows.dim:
            return None
        return (
            f"programs that search {rows.name} must name the column {rows.vector!r} from now on, as LanceDB does "
            f"not choose between two of {dim} dimensions"
        )

    def _type(self, dim: int) -> Any:
        """Return the type of a column of vectors like the one that is read."""
        import pyarrow as pa

        return pa.list_(self._rows.schema.field(self._rows.vector).type.value_type, dim)

    def as_kept(self, vectors: Vectors) -> Vectors:
        """Return vectors in the precision of the columns."""
        dim = vectors.shape[1]
        return _as_matrix(_as_column(vectors, self._type(dim)), dim)

    def write(self, name: str, dim: int, batches: Iterator[tuple[list[str], Vectors]]) -> Iterable[str]:
        """Add a column, and fill it a batch a version; LanceDB moves the rows to the end of the table."""
        import pyarrow as pa

        rows = self._rows
        table = rows.driver.open_table()
        key = rows.schema.field(rows.id_column).type
        if name not in table.schema.names:
            table.add_columns(pa.field(name, self._type(dim)))
        for ids, vectors in batches:
            new = pa.table({rows.id_column: pa.array(ids).cast(key), name: _as_column(vectors, self._type(dim))})
            merge = table.merge_insert(rows.id_column).when_matched_update_all(where=f"target.{rows.has_vector}")
            merge.execute(new)
        # each batch was a version with small files; another program may commit meanwhile, and these are no harm
        with suppress(Exception):
            table.optimize(cleanup_older_than=_KEEP_VERSIONS)
        remarks: list[str] = []
        if rows.index is not None and [name] not in [list(index.columns) for index in table.list_indices()]:
            remarks = _index_again(table, *rows.index, dim, column=name)
        sync_tree(rows.driver.folder)
        return remarks

    def drop(self, name: str) -> None:
        """Drop a column with its indexes."""
        table = self._rows.driver.open_table()
        if name in table.schema.names:
            for index in table.list_indices():
                if list(index.columns) == [name]:
                    table.drop_index(index.name)
            table.drop_columns([name])
            sync_tree(self._rows.driver.folder)
        self.forget(name)


def _connect(folder: Path, **options: Any) -> Any:
    # a warning that a new table is new would stand between our lines
    for name in ("LANCE_LOG", "LANCEDB_LOG"):
        os.environ.setdefault(name, "error")
    return import_client("lancedb", "lancedb").connect(str(folder), **options)


def _tables_in(path: Path) -> list[str]:
    return sorted(table.stem for table in path.glob("*.lance") if (table / "_versions").is_dir())


def _schema_of_documents(dim: int, metric: str) -> Any:
    import pyarrow as pa

    names = [(name, pa.string()) for name in ("id", "text", "metadata")]
    options = {"id": "id", "text": "text", "vector": "vector", "distance": metric, "made": True}
    metadata = {_OWN: json.dumps(options, sort_keys=True).encode()}
    return pa.schema([*names, ("vector", pa.list_(pa.float32(), dim))], metadata=metadata)


def _rows_of_documents(page: Page, schema: Any) -> Any:
    import pyarrow as pa

    rows = [(document.id, document.text, metadata_as_json(document)) for document in page.documents]
    vectors = _as_column(page.vectors, schema.field("vector").type)
    return pa.RecordBatch.from_arrays([*map(pa.array, zip(*rows, strict=True)), vectors], schema=schema)


def _copied_rows(old: LanceRows, page: Page, schema: Any) -> Any:
    """Return the rows of a page of another table with new vectors; those without one stay without."""
    import pyarrow as pa

    columns = dict(zip(schema.names, page.raw.columns, strict=True))
    for name in old.columns.vectors:
        # the client would make vectors with NaN in them null
        if name != old.vector and np.isnan(_as_matrix(columns[name], 1)).any():
            raise StoreError(
                f"{old.location}: there are vectors of column {name} with NaN, which a new table would not keep; "
                "replace them by null, or drop the column"
            )
    present = columns[old.vector].is_valid().to_numpy(zero_copy_only=False)
    vectors = np.zeros((len(present), page.vectors.shape[1]), np.float32)
    vectors[present] = page.vectors
    columns[old.vector] = _as_column(vectors, schema.field(old.vector).type, pa.array(~present))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def _index_again(table: Any, index: Any, statistics: Any, dim: int | None, *, column: str | None = None) -> list[str]:
    """Make an index as another table, or another `column`, has it; `dim` is of the vectors, if it is on these.

    Returns remarks.
    """
    from lancedb import index as kinds

    own_column, *more = index.columns
    label = f"the index {index.name} ({index.index_type})"
    name = index.name
    if column is not None:
        name = f"{index.name}_{column}"
    kind = getattr(kinds, str(index.index_type), None)
    if kind is None or more:
        return [f"{label} could not be made again: of a kind that is not made here"]
    try:
        config = kind(**_index_settings(kind, index, statistics, dim))
        table.create_index(column or own_column, config=config, name=name)
    except Exception as error:
        return [f"{label} could not be made again: {' '.join(str(error).split())[:200]}"]
    if is_lossy(str(index.index_type)):
        return [f"{label} was rebuilt and is lossy: check its recall against exact search"]
    return []


def _index_settings(kind: Callable[..., Any], index: Any, statistics: Any, dim: int | None) -> dict[str, Any]:
    """Return the settings of an index, as far as LanceDB tells them, and as they fit vectors of the new dimension."""
    # LanceDB tells settings by other names than those by which they are given
    names = {"max_connections": "m", "construction_ef": "ef_construction", "target_num_partitions": "num_partitions"}
    stored = {names.get(name, name): value for name, value in _settings_in(index.index_details or {})}
    parameters = inspect.signature(kind).parameters
    settings = {key: value for key, value in stored.items() if key in parameters and value is not None}
    if statistics.distance_type is not None and "distance_type" in parameters:
        settings["distance_type"] = str(statistics.distance_type).lower()
    # codes divide a vector into equal parts; without the setting LanceDB chooses a number that does
    if dim is not None and dim % int(settings.get("num_sub_vectors", 1)):
        del settings["num_sub_vectors"]
    # numbers of 64 bits are told as texts
    return {key: _as_number(value) for key, value in settings.items()}


def _as_number(value: Any) -> Any:
    if isinstance(value, str) and value.isdigit():
        return int(value)
    return value


def _settings_in(details: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield names and values at any depth."""
    for name, value in details.items():
        if isinstance(value, Mapping):
            yield from _settings_in(value)
        else:
            yield name.rpartition(".")[2], value


def _quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def _as_matrix(column: Any, dim: int) -> Vectors:
    """Return a column without nulls as rows of float32."""
    values = column.flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values, np.float32).reshape(-1, dim)


def _as_column(vectors: Vectors, kind: Any, is_null: Any = None) -> Any:
    """Return vectors, (n, dim), as an Arrow column."""
    import pyarrow as pa

    with np.errstate(over="ignore"):
        values = pa.array(vectors.astype(kind.value_type.to_pandas_dtype()).reshape(-1), kind.value_type)
    return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=is_null)
