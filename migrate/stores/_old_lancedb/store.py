"""A table of LanceDB, in a folder, read as it is.

A table is read at one version, whatever is written meanwhile. All its columns, types and their metadata go into a new
one as Arrow has them, in the order of the rows, with those that have no vector.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UsageError
from migrate.files import cache_folder
from migrate.locations import Address
from migrate.manifest import Manifest
from migrate.reading import MalformedError, as_table, parse_json
from migrate.stores.base import BATCH_SIZE, FROM_THE_START, Resume, Store, StoreInfo, StoreWriter
from migrate.stores.documents.base import LazyIds
from migrate.stores.kept import manifest_of, stamp
from migrate.stores.lancedb.client import OWN, SWITCHED, answers, as_matrix, client, is_lossy, is_vector, tables_in
from migrate.stores.permute import cut, in_order
from migrate.stores.records import Distance, SearchableRecordStore, choose_text, read_metric
from migrate.stores.switching import BESIDE, Exchange
from migrate.vectors import Batch, Document, Vectors

if TYPE_CHECKING:
    from migrate.stores.lancedb.serve import LanceServing

_KEPT_OPTIONS: Final = ("distance", "id", "text", "vector")
_IDS: Final = ("id", "_id", "doc_id", "uuid", "key")
_DISTANCES: Final[Mapping[str, Distance]] = {"l2": "l2", "cosine": "cosine", "dot": "ip", "ip": "ip"}
_AT_ONCE: Final = 4_096
_SAMPLE: Final = 64
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_LARGE: Final = 4
"""A scan of one in so many rows reads the whole table instead of looking them up."""

_BY_NUMBER: Final = "the table has no column of ids: rows are numbered from 0 on; say ?id=COLUMN for one"
_DEFAULT: Final = "no index says how vectors are compared: l2 is LanceDB's way; say ?distance=cosine or dot if not"


class LanceStore(SearchableRecordStore):
    """A table at one version.

    Parameters
    ----------
    location
        What opens it again.
    path
        The folder.
    address
        The table, empty for the only one; which columns are vector, text and id, the distance, the version.
    """

    def __init__(self, location: str, path: Path, address: Address) -> None:
        self.info = StoreInfo(
            location, "lancedb", "", 0, 0, "l2", True, has_texts=False
        )  # for errors, until it is known
        self.path, self.asked_version = path, address.options.get("version")
        self.name = self._choose_table(address.name)
        self.table = self._open()
        with answers(location):
            self.table.checkout(self._asked_number() or self.table.version)
            self.schema = self.table.schema
            self.indices = [(index, self.table.index_stats(index.name)) for index in self.table.list_indices()]
        self.own = self._own_options()
        asked: dict[str, str] = {
            **self.own,
            **{key: value for key, value in address.options.items() if key in _KEPT_OPTIONS},
        }
        self.asked = asked
        self.vector = self._choose_vector(asked.get("vector"))
        self.id_column = self._choose_id(asked.get("id"))
        self.text, why = choose_text(location, self._text_columns(), asked.get("text"))
        self.dim = self.schema.field(self.vector).type.list_size
        columns = f"vector={self.vector}&id={self.id_column}&version={self.asked_version}"
        # of the version that is read: another process may have written a newer one meanwhile
        count = self._open_index(f"{path.absolute()}#{self.name}?{columns}", self._version_of(self.table)).count
        self.index = next((found for found in self.indices if list(found[0].columns) == [self.vector]), None)
        distance, notes = self._distance(asked.get("distance"))
        self.distance = distance
        self.opened_as = self.name
        with answers(location):
            self.without_vector = self.table.count_rows(f"{_quoted(self.vector)} IS NULL")
        first = next(self.batches([self.vector], f"{_quoted(self.vector)} IS NOT NULL", limit=_SAMPLE), None)
        sample = as_matrix(first.column(0), self.dim) if first is not None else np.empty((0, self.dim), np.float32)
        metric, remarks = read_metric(distance, sample)
        self.info = StoreInfo(
            location,
            "lancedb",
            "none" if self.index is None else str(self.index[0].index_type),
            count,
            self.dim,
            metric,
            True,
            self.text is not None,
            self._manifest(),
            (*notes, *remarks, why, *(() if self.id_column else (_BY_NUMBER,)), *self._notes()),
            self._details(),
        )

    def _own_options(self) -> dict[str, Any]:
        """What this tool has noted in the schema; nothing where another has."""
        try:
            return as_table(parse_json((self.schema.metadata or {}).get(OWN, b"{}")))
        except MalformedError:
            return {}

    @property
    def folder(self) -> Path | None:
        """The folder of the tables; of a table that was switched, the one that its version has for itself."""
        return self._beside() if self.info.manifest else None

    def keep_manifest(self, manifest: Manifest) -> Path:
        """Write it into the folder."""
        return stamp(self._beside(), self.name, self.info.location, manifest)

    def exchange(self, new: Store) -> Exchange:
        """See `Switchable`: the new table becomes a version of the old one."""
        from migrate.stores.lancedb.switch import LanceExchange

        if not isinstance(new, LanceStore):
            raise UsageError(f"{new.info.location}: expected a table of LanceDB, found another kind of store")
        return LanceExchange.of(self, new)

    def strangers(self) -> list[str]:
        """Other tables of the folder, and whatever lies beside them."""
        lance_files = {f"{self.name}.lance", *BESIDE}
        return sorted(path.name for path in self.path.iterdir() if path.name not in lance_files)

    def exchanged(self) -> Exchange | None:
        """See `Switchable`."""
        from migrate.stores.lancedb.switch import LanceExchange

        return None if self.asked_version is not None else LanceExchange.at(self)

    def version(self) -> Any:
        """The newest version with its moment."""
        return self._version()

    def _beside(self) -> Path:
        token = (self.schema.metadata or {}).get(SWITCHED)
        if token is None:
            return self.path
        from migrate.stores.lancedb.switch import notes_of

        return notes_of(self.path, self.name) / str(token, "ascii")

    def _manifest(self) -> Manifest | None:
        return manifest_of(self._beside(), self.name)

    def destination(self, location: Path, dim: int, resume: Resume = FROM_THE_START) -> StoreWriter:
        """A folder with a table of the same name, columns and indexes."""
        from migrate.stores.lancedb.output import FolderWriter

        return FolderWriter(self, location, dim, resume, self.name)

    def answering(self) -> Any:
        """See `Named`: the switch that the newest version came by; of a table that was never switched, nothing."""
        from migrate.stores.lancedb.switch import token_of

        return token_of(self.path, self.name)

    def _serve(self) -> LanceServing:
        from migrate.stores.lancedb.serve import LanceServing

        return LanceServing(self)

    def is_possible_id(self, doc_id: str) -> bool:
        """Whether the column of ids can hold it."""
        return _is_text(self.schema.field(self.id_column).type) or _WHOLE.fullmatch(doc_id) is not None

    @property
    def quoted_vector(self) -> str:
        """The column of vectors, as SQL has it."""
        return _quoted(self.vector)

    def batches(
        self, columns: Sequence[str] | None, where: str | None = None, limit: int | None = None, start: int = 0
    ) -> Iterator[Any]:
        """Rows in their order, or those that a condition lets through, as Arrow has them; in bounded memory."""
        with answers(self.info.location):
            query = self.table.search()
            query = query if columns is None else query.select([*columns])
            query = query if where is None else query.where(where)
            query = query if limit is None else query.limit(limit)
            query = query.offset(start) if start else query
            for batch in query.to_batches(_AT_ONCE):
                if batch.num_rows:
                    yield batch

    def numbered(self, columns: Sequence[str] | None = None) -> Iterator[tuple[list[str], Any]]:
        """All rows in their order with their ids."""
        first = 0
        for batch in self.batches(columns):
            yield self._ids_of(batch, range(first, first + batch.num_rows)), batch
            first += batch.num_rows

    def _version(self) -> Any:
        with answers(self.info.location):
            table = self._open() if self.asked_version is None else self.table
        return self._version_of(table)

    def _version_of(self, table: Any) -> Any:
        with answers(self.info.location):
            stamps = {version["version"]: version["timestamp"].isoformat() for version in table.list_versions()}
            return [table.version, stamps.get(table.version)]

    def _read_ids(self) -> Iterable[str]:
        columns = [self.vector, *([self.id_column] if self.id_column else [])]
        for ids, batch in self.numbered(columns):
            has = batch.column(batch.schema.names.index(self.vector)).is_valid().to_pylist()
            yield from (doc_id for doc_id, there in zip(ids, has, strict=True) if there)

    def scan(self, start: int = 0, stop: int | None = None, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
        """The vectors of rows `start` to `stop`; a large part of the table is read as it lies and put in order."""
        stop = self.info.count if stop is None else min(stop, self.info.count)
        is_large = (stop - start) * _LARGE >= self.info.count
        parts = self._streamed(start, stop) if is_large else self._looked_up(start, stop)
        for vectors in cut(parts, self.dim, batch_size):
            yield Batch(LazyIds(len(vectors), partial(self.ids, range(start, start + len(vectors)))), vectors)
            start += len(vectors)

    def get(self, rows: NDArray[np.int64]) -> Batch:
        """The vectors and ids of some rows."""
        rows = np.asarray(rows, np.int64)
        return Batch(self.ids(rows), self._vectors_of(rows))

    def _looked_up(self, start: int, stop: int) -> Iterator[Vectors]:
        for first in range(start, stop, BATCH_SIZE):
            yield self._vectors_of(np.arange(first, min(first + BATCH_SIZE, stop)))

    def _streamed(self, start: int, stop: int) -> Iterator[Vectors]:
        """The vectors of a large part of the rows, in their order, some at a time."""
        order = self._order[start:stop]
        if not self.without_vector and len(order) and np.array_equal(order, np.arange(order[0], order[0] + len(order))):
            for batch in self.batches([self.vector], start=int(order[0]), limit=len(order)):
                yield as_matrix(batch.column(0), self.dim)
            return
        rows = np.argsort(self._order)
        kept = (rows >= start) & (rows < stop)
        yield from in_order(self._arriving(kept), rows[kept] - start, self.dim, cache_folder() / "copies")

    def _arriving(self, kept: NDArray[np.bool_]) -> Iterator[Vectors]:
        """The vectors in the order of the table; `kept` says of each whether it is wanted."""
        first = 0
        for batch in self.batches([self.vector]):
            column = batch.column(0)
            vectors = as_matrix(column.filter(column.is_valid()) if column.null_count else column, self.dim)
            yield vectors[kept[first : first + len(vectors)]]
            first += len(vectors)

    def _vectors_of(self, rows: NDArray[np.int64]) -> Vectors:
        parts = [as_matrix(batch.column(0), self.dim) for batch in self._taken(rows, [self.vector])]
        return np.concatenate([np.empty((0, self.dim), np.float32), *parts])

    def _taken(self, rows: NDArray[np.int64], columns: Sequence[str]) -> Iterator[Any]:
        """Columns of some rows, in their order."""
        import pyarrow as pa

        for first in range(0, len(rows), _AT_ONCE):
            offsets, places = np.unique(self._offsets[rows[first : first + _AT_ONCE]], return_inverse=True)
            with answers(self.info.location):
                table = self.table.take_offsets(offsets.tolist()).select([*columns]).to_arrow()
            if len(table) != len(offsets):
                raise StoreError(
                    f"{self.info.location}: expected {len(offsets)} rows, found {len(table)}; run again on a table at "
                    "rest"
                )
            yield from table.take(pa.array(places)).combine_chunks().to_batches()

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        """Of each row, how many vectors of the table come before its own."""
        return self._index.order(0, self._index.count)

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        """Of each row, how many rows of the table come before it."""
        if not self.without_vector:
            return self._order
        there = [batch.column(0).is_valid().to_numpy(zero_copy_only=False) for batch in self.batches([self.vector])]
        return np.flatnonzero(np.concatenate(there))[self._order]

    def _read_vectors(self, ids: Sequence[str]) -> Batch:
        rows = self._index.rows(ids)
        kept = [doc_id for doc_id, row in zip(ids, rows.tolist(), strict=True) if row >= 0]
        return Batch(kept, self._vectors_of(rows[rows >= 0]))

    def find_documents(self, ids: Sequence[str]) -> dict[str, Document]:
        """As in `RecordStore`: of the newest version, unless the location names one."""
        if self.id_column is None or self.asked_version is not None:
            return super().find_documents(ids)
        with answers(self.info.location):
            self._newest.checkout_latest()
            if self._newest.version == self.table.version:
                return super().find_documents(ids)
        documents = {}
        possible = [doc_id for doc_id in dict.fromkeys(ids) if self.is_possible_id(doc_id)]
        literal = _literal if _is_text(self.schema.field(self.id_column).type) else str
        for first in range(0, len(possible), _AT_ONCE):
            values = ", ".join(map(literal, possible[first : first + _AT_ONCE]))
            search = self._newest.search().where(f"{_quoted(self.id_column)} IN ({values})").select(self._fields)
            with answers(self.info.location):
                rows = search.limit(_AT_ONCE).to_arrow().to_pylist()
            for fields in rows:
                document = self._document(str(fields[self.id_column]), fields)
                documents[document.id] = document
        return documents

    @cached_property
    def _newest(self) -> Any:
        return self._open()

    def _read_documents(self, ids: Sequence[str]) -> Iterable[Document]:
        return self._documents(self._index.rows(ids))

    def _documents(self, rows: range | NDArray[np.int64]) -> Iterator[Document]:
        for first in range(0, len(rows), _AT_ONCE):
            part = np.asarray(rows[first : first + _AT_ONCE], np.int64)
            records = (fields for batch in self._taken(part, self._fields) for fields in batch.to_pylist())
            yield from map(self._document, self.ids(part), records)

    @property
    def _fields(self) -> list[str]:
        return [name for name in self.schema.names if name != self.vector]

    def _document(self, doc_id: str, fields: dict[str, Any]) -> Document:
        text = fields.pop(self.text, None) if self.text else None
        if self.id_column and isinstance(fields.get(self.id_column), str):
            del fields[self.id_column]
        return Document(doc_id, text or "", self._metadata(doc_id, fields) if self.own.get("made") else fields)

    def _metadata(self, doc_id: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Those of a table that this tool has made: JSON in a column."""
        try:
            return dict(json.loads(fields["metadata"]))
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise StoreError(
                f"{self.info.location}: expected JSON as the metadata of {doc_id!r}, found something else; write the "
                "table again"
            ) from error

    def _ids_of(self, batch: Any, rows: range) -> list[str]:
        if self.id_column is None:
            return [str(row) for row in rows]
        values = batch.column(batch.schema.names.index(self.id_column)).to_pylist()
        if None in values:
            raise StoreError(
                f"{self.info.location}: expected an id in each row, found none under {self.id_column}; say ?id=COLUMN "
                "for another"
            )
        return [str(value) for value in values]

    def _choose_table(self, name: str) -> str:
        names = tables_in(self.path) if self.path.is_dir() else []
        if not names:
            raise StoreError(
                f"{self.info.location}: expected a folder with tables of LanceDB, found none; check the path"
            )
        if name in names or (not name and len(names) == 1):
            return name or names[0]
        wanted_table = f"a table {name!r}" if name else "the name of a table after a #"
        raise StoreError(f"{self.info.location}: expected {wanted_table}, found {', '.join(names)}; name one of these")

    def _open(self) -> Any:
        module = client()
        with answers(self.info.location):
            return module.connect(str(self.path)).open_table(self.name)

    def _asked_number(self) -> int | None:
        if self.asked_version is None:
            return None
        try:
            return int(self.asked_version)
        except ValueError as error:
            raise UsageError(
                f"{self.info.location}: expected a number as version, found {self.asked_version!r}"
            ) from error

    def _choose_vector(self, asked: str | None) -> str:
        vectors = [field.name for field in self.schema if is_vector(field.type)]
        if asked is not None and asked in vectors:
            return asked
        if asked is None and len(vectors) == 1:
            return str(vectors[0])
        have = ", ".join(vectors) or "none"
        raise StoreError(
            f"{self.info.location}: expected a column of vectors (fixed_size_list of floats), found {have}; say "
            "#TABLE?vector=COLUMN"
        )

    def _choose_id(self, asked: str | None) -> str | None:
        columns = [field.name for field in self.schema if _is_text(field.type) or _is_whole(field.type)]
        if asked is None:
            return next((name for name in _IDS if name in columns), None)
        if asked not in columns:
            have = ", ".join(columns) or "none"
            raise StoreError(
                f"{self.info.location}: expected a column of ids {asked!r}, found {have}; name one of these"
            )
        return asked

    def _text_columns(self) -> list[str]:
        return [field.name for field in self.schema if _is_text(field.type) and field.name != self.id_column]

    def _distance(self, asked: str | None) -> tuple[Distance, tuple[str, ...]]:
        if asked is not None:
            if asked not in _DISTANCES:
                raise UsageError(f"{self.info.location}: expected distance l2, cosine or dot, found {asked!r}")
            return _DISTANCES[asked], ()
        if self.index is None:
            return "l2", (_DEFAULT,)
        distance = str(self.index[1].distance_type).lower()
        if distance not in _DISTANCES:
            raise StoreError(f"{self.info.location}: vectors are compared by {distance}, which is not supported")
        return _DISTANCES[distance], ()

    def _notes(self) -> Iterator[str]:
        if self.index is not None and is_lossy(self.index[0]):
            yield f"searched by an index {self.index[0].index_type}, which is lossy; those read here are whole"

    def _details(self) -> dict[str, str | int]:
        field = self.schema.field(self.vector)
        facts: dict[str, str | int] = {
            "table": self.name,
            "version": int(self.table.version),
            "vector": self.vector,
            "element": str(field.type.value_type),
            "distance": self.distance,
        }
        facts.update({key: value for key, value in (("text", self.text), ("id", self.id_column)) if value})
        return facts


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_whole(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind))
