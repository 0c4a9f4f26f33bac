"""A table of sqlite-vec, a virtual table `vec0` in a SQLite database, read as it is.

Ids are the primary key of the table, or its rowids. Texts are those of a column of the table, or of an ordinary table
beside it whose key is the same, `?text=TABLE.COLUMN`; the other columns of both are metadata. A copy is a copy of the
whole database in which this one table is made again, so that everything beside it goes through.
"""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, get_args

import numpy as np
from numpy.typing import NDArray

from migrate.errors import StoreError, UnsupportedStoreError, UsageError
from migrate.files import atomic_file, cache_folder, write_json
from migrate.locations import Address, options_text
from migrate.manifest import MANIFEST_NAME, Manifest, find_manifest
from migrate.stores.base import BATCH_SIZE, NO_TEXTS, Store, StoreInfo, StoreWriter
from migrate.stores.binary_reader import read_errors
from migrate.stores.documents.base import LazyIds
from migrate.stores.permute import cut, in_order
from migrate.stores.records import TEXT_NAMES, Distance, SearchableRecordStore, check_options, choose_text, read_metric
from migrate.stores.sqlite_vec.catalog import (
    AT_ONCE,
    METADATA,
    NAME,
    VectorTable,
    connect_to,
    quoted,
    sqlite_errors,
    tables_in,
)
from migrate.stores.switching import ASIDE, BESIDE, Exchange
from migrate.vectors import Batch, Document, Vectors

if TYPE_CHECKING:
    from apsw import Connection

    from migrate.stores.sqlite_vec.serve import SqliteVecServing

_FLOATS: Final = ("float", "f32")
_ELEMENTS: Final = {"float": "<f4", "f32": "<f4", "int8": "i1", "i8": "i1", "bit": "u1"}
_OPTIONS: Final = ("column", "distance", "text")
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_SAMPLED: Final = 32
_LARGE: Final = 4
"""A scan of one in so many rows reads the whole table instead of looking them up."""


class SqliteVecStore(SearchableRecordStore):
    """A table of vectors in a database.

    Parameters
    ----------
    location
        As it was given, without the kind.
    file
        The database.
    address
        The location, taken apart.
    """

    def __init__(self, location: str, file: Path, address: Address) -> None:
        check_options(location, address.options, _OPTIONS)
        self.file = file
        address = _as_noted(file, address)
        self.table = table = _table(location, file, address.name)
        self.column = _vector_column(location, table, address.options.get("column"))
        self._where = f"{file}#{table.name}"
        self.opened_as = f"{self._name}{options_text(address.options)}"
        with sqlite_errors(self._where):
            self.connection = connect_to(file)
            weakref.finalize(self, self.connection.close)
            self.begins = self.beginning(self.connection)
            self.text, self.beside, text_note = self._find_text(location, address.options.get("text"))
            self._open_index(f"{file.absolute()}#{table.name}")
            dim = table.vectors[self.column][1]
            distance = address.options.get("distance") or table.distances[self.column]
            if distance not in get_args(Distance):
                raise UnsupportedStoreError(
                    f"{location}: expected a distance of l2 or cosine, found {distance}; say ?distance=l2 to take that"
                )
            sample = self._decode(self._ask(f"SELECT {quoted(self.column)} FROM {self._from} LIMIT {_SAMPLED}"), dim)  # noqa: S608
            metric, odd = read_metric(cast("Distance", distance), sample)
            manifest = self._manifest()
            other_vectors = [name for name in table.vectors if name != self.column]
            self.info = StoreInfo(
                location=location,
                kind=NAME,
                index_type=f"vec0 float[{dim}]",
                count=self._index.count,
                dim=dim,
                metric=metric,
                exact=True,
                has_texts=self.text is not None,
                manifest=manifest,
                notes=(f"the ids are those of column {table.key}", text_note, *odd),
                details={
                    "database": file.name,
                    "table": table.name,
                    "column": self.column,
                    "distance": distance,
                    **({"other_vectors": ", ".join(other_vectors)} if other_vectors else {}),
                },
            )

    @cached_property
    def folder(self) -> Path | None:
        """The folder of the database, where the manifest in it is of this table."""
        return None if self._manifest() is None else self.file.parent

    def keep_manifest(self, manifest: Manifest) -> Path:
        """Write it beside the database."""
        path = self.file.with_name(MANIFEST_NAME)
        if path.exists() and self._manifest() is None:
            raise UsageError(f"{path} is of another store; move the database into a folder of its own")
        noted = replace(manifest, details={**manifest.details, "index": self.opened_as})
        with atomic_file(path, force=True) as aside:
            write_json(aside, noted.as_json())
        return path

    def destination(self, location: Path, dim: int) -> StoreWriter:
        """A writer of a copy of the database."""
        from migrate.stores.sqlite_vec.output import CopyWriter

        return CopyWriter(self, location, dim)

    def exchange(self, new: Store) -> Exchange:
        """See `Switchable`: the new table is brought into the database, and the two trade names."""
        from migrate.stores.sqlite_vec.switch import SqliteVecExchange

        if not isinstance(new, SqliteVecStore):
            raise UsageError(f"{new.info.location}: expected a table of sqlite-vec, found another kind of store")
        return SqliteVecExchange.of(self, new)

    def strangers(self) -> list[str]:
        """What lies beside the database."""
        database_files = {
            self.file.name,
            *(f"{self.file.name}-{ending}" for ending in ("wal", "shm", "journal")),
            *BESIDE,
        }
        return sorted(path.name for path in self.file.parent.iterdir() if path.name not in database_files)

    def exchanged(self) -> Exchange | None:
        """See `Switchable`."""
        from migrate.stores.sqlite_vec.switch import SqliteVecExchange

        return SqliteVecExchange.at(self)

    def answering(self) -> Any:
        """See `Named`: where in the file the rows of the table begin."""
        from migrate.stores.sqlite_vec.switch import SqliteVecExchange

        if SqliteVecExchange.is_under_way(self):
            return None
        with sqlite_errors(self._where), closing(connect_to(self.file)) as connection:
            return self.beginning(connection)

    def beginning(self, connection: Connection) -> list[list[Any]]:
        """Where the rows of what has the name of the table begin."""
        question = "SELECT name, rootpage FROM sqlite_master WHERE name IN (?1 || '_rowids', ?1 || '_chunks')"
        return sorted(list(row) for row in connection.execute(question, (self.table.name,)))

    def _serve(self) -> SqliteVecServing:
        from migrate.stores.sqlite_vec.serve import SqliteVecServing

        return SqliteVecServing(self)

    @property
    def _name(self) -> str:
        return f"{self.file.name}#{self.table.name}"

    @property
    def _from(self) -> str:
        return quoted(self.table.name)

    def _manifest(self) -> Manifest | None:
        manifest = find_manifest(self.file.parent, "store")
        is_own = manifest is not None and (manifest.store.index or self._name).partition("?")[0] == self._name
        return manifest if is_own else None

    def _find_text(self, location: str, asked: str | None) -> tuple[str | None, str | None, str]:
        """The column of texts, the table beside that has it, and why."""
        columns = [name for name, kind in self.table.columns.items() if kind == "text" and name != METADATA]
        tables = self._tables_beside()
        if asked is not None and "." in asked:
            table, _, column = asked.partition(".")
            if column not in tables.get(table, ()):
                have = ", ".join(f"{name}.{text}" for name, texts in tables.items() for text in texts) or "none"
                raise StoreError(f"{location}: expected a column of texts {asked!r}, found {have}; name one of these")
            return column, table, f"the texts are those of {asked}, as the location says"
        if asked is None and not columns:
            usual = [(name, text) for name, texts in tables.items() for text in texts if text in TEXT_NAMES]
            if len(usual) == 1:
                table, column = usual[0]
                return column, table, f"the texts are those of {table}.{column}, by its name; say ?text=TABLE.COLUMN"
            could = ", ".join(f"{name}.{text}" for name, texts in tables.items() for text in texts)
            return None, None, f"{NO_TEXTS}it could be {could or 'no column'}; say ?text=TABLE.COLUMN for one"
        chosen, reason = choose_text(location, columns, asked)
        return chosen, None, reason

    def _tables_beside(self) -> dict[str, list[str]]:
        """Ordinary tables that have the key of the vectors, and their columns that may hold texts."""
        listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'create virtual%'"
        shadows = ("sqlite_", *(f"{name}_" for name in tables_in(self.file)))
        tables = {}
        for (name,) in self._ask(listed):
            if not name.startswith(shadows):
                columns = self._ask(f"PRAGMA table_info({quoted(name)})")
                texts = [column[1] for column in columns if re.match(r"(?i)$|text|varchar|char|clob", column[2])]
                tables[name] = [text for text in texts if text != self._key_of(name)]
        return tables

    def _key_of(self, table: str) -> str:
        """The column of an ordinary table that the key of the vectors is found in."""
        keys = [column[1] for column in self._ask(f"PRAGMA table_info({quoted(table)})") if column[5]]
        return keys[0] if len(keys) == 1 else "rowid"

    def _version(self) -> list[Any]:
        """Size and time of the database, and of what was written to it last."""
        files = [self.file, self.file.with_name(f"{self.file.name}-wal")]
        with read_errors(self.file):
            stats = [file.stat() for file in files if file.exists()]
        return [[status.st_size, status.st_mtime_ns, status.st_ino] for status in stats if status.st_size]

    def scan(self, start: int = 0, stop: int | None = None, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
        """The vectors of rows `start` to `stop`; a large part of the table is read as it lies and put in order."""
        stop = self.info.count if stop is None else min(stop, self.info.count)
        is_large = (stop - start) * _LARGE >= self.info.count
        rows = self.rows_as_read() if is_large and start < stop else None
        if rows is None:
            yield from super().scan(start, stop, batch_size=batch_size)
            return
        kept = (rows >= start) & (rows < stop)
        arrivals, places = self._arriving(kept), rows[kept] - start
        is_sorted = np.array_equal(places, np.arange(len(places)))
        parts = arrivals if is_sorted else in_order(arrivals, places, self.info.dim, cache_folder() / "copies")
        for vectors in cut(parts, self.info.dim, batch_size):
            yield Batch(LazyIds(len(vectors), partial(self.ids, range(start, start + len(vectors)))), vectors)
            start += len(vectors)

    def _arriving(self, kept: NDArray[np.bool_]) -> Iterator[Vectors]:
        """The vectors in the order of the table; `kept` says of each whether it is wanted."""
        with sqlite_errors(self._where):
            rows = self.connection.execute(f"SELECT {quoted(self.column)} FROM {self._from}")  # noqa: S608
            for first in range(0, len(kept), AT_ONCE):
                there = kept[first : first + AT_ONCE]
                vectors = self._decode(islice(rows, AT_ONCE), self.info.dim)
                if len(vectors) != len(there):
                    raise StoreError(
                        f"{self._where}: the table changed while it was read; run again on a store at rest"
                    )
                yield vectors if there.all() else vectors[there]

    def _read_ids(self) -> Iterator[str]:
        with sqlite_errors(self._where):
            for (key,) in self.connection.execute(f"SELECT {quoted(self.table.key)} FROM {self._from}"):  # noqa: S608
                yield str(key)

    def _read_vectors(self, ids: Sequence[str]) -> Batch:
        rows = self._records(ids, [self.table.key, self.column])
        return Batch([str(row[0]) for row in rows], self._decode((row[1:] for row in rows), self.info.dim))

    def _read_documents(self, ids: Sequence[str]) -> Iterator[Document]:
        table = self.table
        names = [*table.columns, *(name for name in table.vectors if name != self.column)]
        rows = self._records(ids, [table.key, *names])
        facts_beside = {} if self.beside is None else self._beside(ids)
        for key, *values in rows:
            facts = {name: self._plain(name, value) for name, value in zip(names, values, strict=True)}
            facts.update(facts_beside.get(str(key), {}))
            text = facts.pop(self.text, None) if self.text is not None else None
            if not isinstance(text, str | None):
                raise StoreError(
                    f"{self._where}: expected a text in {self.text} of {str(key)!r}, found {type(text).__name__}; name "
                    "another column with ?text=, or correct it"
                )
            yield Document(str(key), text or "", _with_metadata(facts))

    def _beside(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        table, key = str(self.beside), self._key_of(str(self.beside))
        question = (
            f"SELECT CAST(b.{quoted(key)} AS TEXT), b.* FROM json_each(?) j CROSS JOIN {quoted(table)} b "  # noqa: S608
            f"WHERE b.{quoted(key)} = j.value"
        )
        with sqlite_errors(self._where):
            cursor = self.connection.execute(question, (self._keys(ids),))
            rows = cursor.fetchall()
            names = [column[1] for column in self._ask(f"PRAGMA table_info({quoted(table)})")]
        return {
            str(row[0]): {name: value for name, value in zip(names, row[1:], strict=True) if name != key}
            for row in rows
        }

    def _records(self, ids: Sequence[str], columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Columns of some records, the key first; joined so that each is looked up, where IN would scan the table."""
        keys = self.keys(ids)
        # the place in the list instead of the key, which the table would look up once more
        names = ", ".join(["j.key", *(f"v.{quoted(name)}" for name in columns[1:])])
        question = (
            f"SELECT {names} FROM json_each(?) j CROSS JOIN {self._from} v WHERE v.{quoted(self.table.key)} = j.value"  # noqa: S608
        )
        with sqlite_errors(self._where):
            rows = self.connection.execute(question, (json.dumps(keys, ensure_ascii=False),))
            return [(keys[place], *values) for place, *values in rows]

    def _keys(self, ids: Sequence[str]) -> str:
        return json.dumps(self.keys(ids), ensure_ascii=False)

    def keys(self, ids: Sequence[str]) -> list[str] | list[int]:
        """The keys that the table has of some ids; of what is no key of it, none."""
        if self.table.key != "rowid" and not self._has_number_key:
            return list(ids)
        return [int(doc_id) for doc_id in ids if _WHOLE.fullmatch(doc_id)]

    @cached_property
    def _has_number_key(self) -> bool:
        return (
            re.search(rf"\b{re.escape(self.table.key)}\s+integer\b", self.table.definition, re.IGNORECASE) is not None
        )

    def _plain(self, name: str, value: Any) -> Any:
        """A value as metadata hold it: numbers of a vector as a list."""
        if name in self.table.vectors:
            return self._numbers(value, _ELEMENTS[self.table.vectors[name][0]]).tolist()
        return value

    def _numbers(self, content: Any, element: str) -> NDArray[Any]:
        if not isinstance(content, bytes) or len(content) % np.dtype(element).itemsize:
            raise StoreError(f"{self._where}: expected vectors, found other values; the database is damaged")
        return np.frombuffer(content, element)

    def _ask(self, question: str) -> list[tuple[Any, ...]]:
        return list(self.connection.execute(question))

    def _decode(self, rows: Iterable[tuple[bytes, ...]], dim: int) -> Vectors:
        contents = [row[0] for row in rows]
        odd = [one for one in contents if not isinstance(one, bytes) or len(one) != dim * 4]
        if odd:
            found = f"one of {len(odd[0]):,}" if isinstance(odd[0], bytes) else type(odd[0]).__name__
            raise StoreError(
                f"{self._where}: expected vectors of {dim * 4:,} bytes, found {found}; the database is damaged, copy "
                "it again"
            )
        return np.frombuffer(b"".join(contents), "<f4").astype(np.float32).reshape(-1, dim)


def _as_noted(file: Path, address: Address) -> Address:
    """The address, completed by what a manifest beside the database notes of the table that it is of."""
    manifest = find_manifest(file.parent, "store")
    noted = Address.parse((manifest.store.index or "") if manifest is not None else "")
    if noted.place != file.name or address.name not in ("", noted.name):
        return address
    return Address(address.place, noted.name, {**noted.options, **address.options})


def _table(location: str, file: Path, name: str) -> VectorTable:
    tables = tables_in(file)
    if name in tables:
        return tables[name]
    tables = {label: table for label, table in tables.items() if not label.endswith(ASIDE)}
    if not name and len(tables) == 1:
        return next(iter(tables.values()))
    words = repr(name) if name else "no name"
    raise StoreError(
        f"{location}: expected the name of a table of vectors after a #, found {words}; there are {', '.join(tables)}"
    )


def _vector_column(location: str, table: VectorTable, asked: str | None) -> str:
    floats = [name for name, (kind, _) in table.vectors.items() if kind in _FLOATS]
    if asked in floats:
        return str(asked)
    if asked is None and len(floats) == 1:
        return floats[0]
    have = ", ".join(f"{name} {kind}[{dim}]" for name, (kind, dim) in table.vectors.items())
    error = StoreError if floats else UnsupportedStoreError
    raise error(f"{location}: expected one column of floats, found {have}; name one with ?column=NAME")


def _with_metadata(facts: dict[str, Any]) -> dict[str, Any]:
    """Columns as metadata, and in the place of a column `metadata` of JSON its fields."""
    try:
        inner = json.loads(facts[METADATA])
    except (KeyError, TypeError, ValueError, RecursionError):
        return facts
    outer = {name: value for name, value in facts.items() if name != METADATA}
    if not isinstance(inner, dict) or inner.keys() & outer.keys():
        return facts
    return {**inner, **outer}
