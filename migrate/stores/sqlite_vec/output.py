"""Writes tables of sqlite-vec: a copy of a database in which one is made again, or a new database."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from migrate.errors import StoreError, UsageError
from migrate.files import sha256_file
from migrate.locations import Address
from migrate.manifest import StoreFacts
from migrate.stores.base import Store, StoreWriter
from migrate.stores.file_store import Sha256
from migrate.stores.kept import sync_tree
from migrate.stores.outputs import FolderOutput
from migrate.stores.records import WaitingWriter, check_options
from migrate.stores.sqlite_vec.catalog import AT_ONCE, INSERTED, METADATA, NAME, connect_to, quoted, sqlite_errors
from migrate.stores.sqlite_vec.store import SqliteVecStore
from migrate.vectors import Document, Vectors

if TYPE_CHECKING:
    from apsw import Connection

FILE_NAME: Final = "store.db"
TABLE_NAME: Final = "docs"


class SqliteVecOutput(FolderOutput):
    """A folder with a database, for documents of any kind: `FOLDER#TABLE`."""

    def __init__(self, address: Address) -> None:
        super().__init__(Path(address.place))
        check_options(f"{NAME}:{address.place}", address.options, ())
        self.table = address.name or TABLE_NAME
        if not re.fullmatch(r"[A-Za-z_]\w*", self.table):
            raise UsageError(
                f"{NAME}:{address.place}#{self.table}: expected a table of letters and digits; name another"
            )

    def writer(self, source: Store, content: Path, dim: int) -> StoreWriter:
        """A copy of the source's database, or a new one."""
        if not isinstance(source, SqliteVecStore):
            return _NewWriter(self.table, source, content, dim)
        if self.table not in (TABLE_NAME, source.table.name):
            raise UsageError(f"{self.path}: the table of a copy is called {source.table.name}, as in the source")
        return source.destination(content, dim)

    def facts(self, source: Store, content: Path, sha256: Sha256 = sha256_file) -> Mapping[str, Any]:
        """The table, and how a copy is opened; a database that is in use has no hash."""
        is_copy = isinstance(source, SqliteVecStore)
        return StoreFacts(index=source.opened_as if is_copy else f"{FILE_NAME}#{self.table}").as_details()


class _DatabaseWriter(WaitingWriter):
    """A database that is made at once, in the place of whatever a killed run has left."""

    def _empty(self, name: str) -> Path:
        path = self.folder / name
        for ending in ("", "-journal", "-wal", "-shm"):
            path.with_name(f"{name}{ending}").unlink(missing_ok=True)
        return path


class CopyWriter(_DatabaseWriter):
    """A copy of the whole database, with the one table made again."""

    source: SqliteVecStore

    def load(self) -> None:
        """Copy the database page by page, then fill the table."""
        source, table = self.source, self.source.table
        path = self._empty(source.file.name)
        other_columns = [*table.columns, *(name for name in table.vectors if name != source.column)]
        kinds = [table.vectors[name][0] if name in table.vectors else "" for name in other_columns]
        columns = ", ".join(quoted(name) for name in (table.key, source.column, *other_columns))
        places = ", ".join(["?", "?", *(INSERTED.get(kind, "?") for kind in kinds)])
        insert = f"INSERT INTO {quoted(table.name)} ({columns}) VALUES ({places})"  # noqa: S608
        with sqlite_errors(path), closing(connect_to(path, write=True)) as copy:
            with copy.backup("main", source.connection, "main") as backup:
                backup.step()
            with _unfinished(copy):
                copy.execute(f"DROP TABLE {quoted(table.name)}")
                copy.execute(table.with_dimension(source.column, self.rows.dim))
                copy.executemany(insert, self._rows(other_columns))
        sync_tree(self.folder)

    def _rows(self, other_columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """The records of the source with new vectors: in the order of the table, unless it was written to since."""
        source, rows = self.source, self.source.rows_as_read()
        columns = [source.table.key, *other_columns]
        if rows is None:
            for batch in self.batches():
                records_by_id = {str(record[0]): record for record in source._records(batch.ids, columns)}
                source._refuse_gone(batch.ids, records_by_id)
                for doc_id, vector in zip(batch.ids, batch.vectors, strict=True):
                    yield records_by_id[doc_id][0], vector.astype("<f4").tobytes(), *records_by_id[doc_id][1:]
            return
        names = ", ".join(map(quoted, columns))
        records = source.connection.execute(f"SELECT {names} FROM {source._from}")  # noqa: S608
        for first in range(0, len(rows), AT_ONCE):
            part = self.vectors_at(rows[first : first + AT_ONCE]).astype("<f4", copy=False)
            for vector, (key, *values) in zip(part, islice(records, len(part)), strict=True):
                yield key, vector.tobytes(), *values


@contextmanager
def _unfinished(connection: Connection) -> Iterator[None]:
    """One transaction of a database that nobody has yet: what fails is made anew, so that nothing need be undone."""
    ((mode,),) = connection.execute("PRAGMA journal_mode").fetchall()
    if mode != "wal":  # which the database itself notes, as the program has chosen that uses it
        connection.execute("PRAGMA journal_mode = OFF").fetchall()
    connection.execute("PRAGMA synchronous = OFF")
    with connection:
        yield


class _NewWriter(_DatabaseWriter):
    """A database with one table of documents."""

    def __init__(self, table: str, source: Store, folder: Path, dim: int) -> None:
        super().__init__(source, folder, dim)
        self._table = table

    def load(self) -> None:
        """Make the table."""
        path, table = self._empty(FILE_NAME), quoted(self._table)
        metric = self.source.info.metric
        if metric == "ip" and self.source.info.details.get("distance") != "cosine":
            self.remarks = (
                *self.remarks,
                "sqlite-vec has no inner product: the new table compares by cosine, which ranks unit vectors alike",
            )
        distance = {"l2": "L2", "ip": "cosine"}[metric]
        columns = f"id text primary key, embedding float[{self.rows.dim}] distance_metric={distance}, +content text"
        with sqlite_errors(path), closing(connect_to(path, write=True)) as connection, _unfinished(connection):
            connection.execute(f"CREATE VIRTUAL TABLE {table} USING vec0({columns}, +{METADATA} text)")
            insert = f"INSERT INTO {table} (id, embedding, content, {METADATA}) VALUES (?, ?, ?, ?)"  # noqa: S608
            for documents, vectors in self.records():
                connection.executemany(insert, map(self._row, documents, vectors))
        sync_tree(self.folder)

    def _row(self, document: Document, vector: Vectors) -> tuple[Any, ...]:
        try:
            metadata = json.dumps(dict(document.metadata), ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise StoreError(
                f"document {document.id!r}: expected metadata that JSON can hold, found other ({error})"
            ) from error
        text = document.text if self.source.info.has_texts else None
        return document.id, vector.astype("<f4").tobytes(), text, metadata
