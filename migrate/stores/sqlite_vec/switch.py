"""Two tables of sqlite-vec that trade names in one transaction, and a record of it in the database.

The new table is brought into the old one's database first, in parts, so that nobody waits long: the tables that hold
its content are copied as they are. The extension cannot rename its tables, so those that hold their content are
renamed, and what SQLite has noted of the two themselves.
What lies beside the database follows the transaction, out of the record: a switch that was killed between is finished
by the next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from migrate.errors import StoreError, UsageError
from migrate.files import atomic_file, output_errors, reach, write_bytes
from migrate.manifest import MANIFEST_NAME
from migrate.stores.sqlite_vec.catalog import INSERTED, connect_to, quoted, sqlite_errors, tables_in
from migrate.stores.sqlite_vec.store import SqliteVecStore
from migrate.stores.switching import (
    ASIDE,
    RECORD_SHAPE,
    ROLLED_BACK,
    SWITCHED,
    Exchange,
    Record,
    moved,
    others,
    read_noted,
    unfinished,
)

if TYPE_CHECKING:
    from apsw import Connection

_NOTES: Final = "lead_migrate_switch"
_RECORD: Final = "record"
_SHAPE: Final = {"tables": tuple[str, str], "record": RECORD_SHAPE, "goal": str, "brought": bool}
_AT_ONCE: Final = 1_000
_CONTENT: Final = r"_(?:info|chunks|rowids|auxiliary|(?:vector_chunks|metadatachunks|metadatatext)\d+)"
_HEAD: Final = re.compile(
    r"(CREATE\s+VIRTUAL\s+TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?)(?:\"(?:[^\"]|\"\")+\"|\[[^]]+\]|`[^`]+`|\S+)(\s+USING\b)",
    re.IGNORECASE,
)


class SqliteVecExchange(Exchange):
    """Two tables of one database.

    Parameters
    ----------
    file, old, new
        The database, and the names of the tables.
    incoming
        The new store, where it is in another database and is still to be brought in.
    beside
        Files to be beside the database before and after, by `old/` or `new/` and their names.
    """

    def __init__(
        self,
        file: Path,
        old: str,
        new: str,
        *,
        incoming: SqliteVecStore | None = None,
        beside: Mapping[str, bytes] | None = None,
    ) -> None:
        self.file, self.old, self.new = file, old, new
        self._incoming, self._beside = incoming, dict(beside or {})

    @classmethod
    def of(cls, old: SqliteVecStore, new: SqliteVecStore) -> SqliteVecExchange:
        """See `Switchable.exchange`."""
        one, other = old.table, new.table
        same = old.file.samefile(new.file)
        if same and one.name == other.name:
            raise UsageError(f"{new.info.location}: this is the old table itself; name the new one")
        columns = [one.key, *one.vectors, *one.columns]
        lacking = [name for name in columns if name not in {other.key, *other.vectors, *other.columns}]
        if lacking or one.key != other.key or old.column != new.column:
            raise UsageError(
                f"{new.info.location}: expected the columns of {one.name}, {', '.join(columns)}, found others; "
                "translate into a copy of the database"
            )
        beside = {f"new/{name}": content for name, content in _files_beside(new).items()}
        if new.info.manifest is not None:
            manifest = replace(new.info.manifest, details={**new.info.manifest.details, "index": old.opened_as})
            text = json.dumps(manifest.as_json(), sort_keys=True, indent=2, ensure_ascii=False)
            beside[f"new/{MANIFEST_NAME}"] = f"{text}\n".encode()
        paths = {name: old.file.with_name(name) for name in (key.partition("/")[2] for key in beside)}
        present = [path for path in paths.values() if path.is_file()]
        if present and old.info.manifest is None:
            raise UsageError(f"{present[0]} is of another store; move the database into a folder of its own")
        manifest_path = [] if old.info.manifest is None else [old.file.with_name(MANIFEST_NAME)]
        for path in {*present, *manifest_path}:
            beside[f"old/{path.relative_to(old.file.parent).as_posix()}"] = path.read_bytes()
        aside = other.name if same else f"{one.name}{ASIDE}"
        return cls(old.file, one.name, aside, incoming=None if same else new, beside=beside)

    @classmethod
    def at(cls, store: SqliteVecStore) -> SqliteVecExchange | None:
        """See `Switchable.exchanged`."""
        made = cls(store.file, store.table.name, "")
        with made._open() as connection:
            noted = made._noted(connection)
        if noted is None:
            return None
        made.new = noted["tables"][1]
        return made

    @classmethod
    def is_under_way(cls, store: SqliteVecStore) -> bool:
        """Whether the tables have traded names, and what lies beside them has not followed yet."""
        made = cls(store.file, store.table.name, "")
        with made._open() as connection:
            noted = made._noted(connection)
            if noted is None or noted["goal"] == ROLLED_BACK:
                return noted is not None
            question = f"SELECT content FROM {_NOTES} WHERE old = ? AND name = ?"  # noqa: S608
            manifests = list(connection.execute(question, (made.old, f"new/{MANIFEST_NAME}")))
        path = store.file.with_name(MANIFEST_NAME)
        there = path.read_bytes() if path.is_file() else None
        return bool(manifests) and there != bytes(manifests[0][0])

    def aside(self, new: str) -> str:
        """The table in the old database."""
        return f"sqlite-vec:{self.file.absolute()}#{self.new}"

    def record(self) -> Record | None:
        """What the database has noted."""
        with self._open() as connection:
            noted = self._noted(connection)
        return None if noted is None else noted["record"]

    def switch(self, record: Record) -> None:
        """Bring the new table in, trade names and note it in one transaction, then what lies beside."""
        with self._open() as connection:
            with _transaction(connection):  # nobody else writes
                noted = self._noted(connection)
                if noted is None:
                    self._refuse_moved(connection)
                    self.check()
                before = _version_of_others(connection)
            if noted is None and self._incoming is not None:
                self._bring_in(connection, self._incoming)
            with _transaction(connection):
                noted = self._noted(connection)
                has_changed = noted is None and _version_of_others(connection) != before
                if has_changed and self._incoming is not None:
                    connection.execute(f"DROP TABLE {quoted(self.new)}")
                elif not has_changed and (noted is None or noted["goal"] == ROLLED_BACK):
                    self._trade(connection)
                    if noted is None:
                        for name, content in self._beside.items():
                            self._note(connection, name, content)
                    self._set_goal(connection, record, SWITCHED, brought=noted or self._incoming is not None)
                    reach("noted")
            if has_changed:
                raise StoreError(
                    f"{self.file}: somebody wrote to the database while the tables were switched; nothing was done: "
                    "sync the new one with the old, audit it, and switch again"
                )
            reach("exchanged")
            self._place(connection, "new/", "old/")

    def rollback(self) -> None:
        """Trade names again, then what lies beside; the table that was brought in is dropped."""
        with self._open() as connection:
            with _transaction(connection):
                noted = self._noted(connection)
                if noted is None:
                    return
                if noted["goal"] != ROLLED_BACK:
                    self._trade(connection)
                    self._set_goal(connection, noted["record"], ROLLED_BACK, brought=noted)
                    reach("noted")
            reach("exchanged")
            self._place(connection, "old/", "new/")
            with _transaction(connection):
                self._remove(connection, drop=noted["brought"])

    def forget(self) -> None:
        """Drop the table that stepped aside, and the record, in one transaction."""
        with self._open() as connection:
            noted = self._noted(connection)
            if noted is None or noted["goal"] != SWITCHED:
                raise unfinished(self.file)
            self._place(connection, "new/", "old/")
            with _transaction(connection):
                self._remove(connection, drop=True)
                reach("noted")
            reach("exchanged")

    @contextmanager
    def _open(self) -> Iterator[Connection]:
        with sqlite_errors(self.file), closing(connect_to(self.file, write=True)) as connection:
            yield connection

    def _bring_in(self, connection: Connection, source: SqliteVecStore) -> None:
        """Copy the new table, in parts; what a killed run has brought is dropped."""
        with _transaction(connection):
            connection.execute(f"DROP TABLE IF EXISTS {quoted(self.new)}")
            connection.execute(_renamed(source.table.definition, self.new))
        with closing(connect_to(source.file)) as incoming:
            content = _content_of(incoming, source.table.name)
            if content == _content_of(connection, self.new):
                self._copy_content(connection, incoming, source.table.name, content)
                return
        self._insert_rows(connection, source)

    def _copy_content(self, connection: Connection, source: Connection, table: str, content: Mapping[str, str]) -> None:
        """Copy the tables that hold the content, all as they are at one moment, with the numbers of their rows."""
        source.execute("BEGIN")
        for ending in content:
            # what is called rowid in most of these is another column: a row's own number has no other name than these
            rows = source.execute(f"SELECT _rowid_, * FROM {quoted(table + ending)}")  # noqa: S608
            into, at_once = quoted(self.new + ending), 4 if "chunks" in ending else _AT_ONCE * 10
            with _transaction(connection):
                connection.execute(f"DELETE FROM {into}")  # noqa: S608
            while part := list(islice(rows, at_once)):
                columns = ", ".join(["_rowid_", *(quoted(name) for name in _columns(connection, self.new + ending))])
                places = ", ".join("?" * len(part[0]))
                with _transaction(connection):
                    connection.executemany(f"INSERT INTO {into} ({columns}) VALUES ({places})", part)  # noqa: S608
                reach("brought")

    def _insert_rows(self, connection: Connection, source: SqliteVecStore) -> None:
        """Copy row by row what another version of the extension has laid out in another way."""
        table = source.table
        others_ = [*table.columns, *(name for name in table.vectors if name != source.column)]
        columns = [table.key, source.column, *others_]
        kinds = [table.vectors[name][0] if name in table.vectors else "" for name in columns]
        places = ", ".join(INSERTED.get(kind, "?") for kind in kinds)
        insert = f"INSERT INTO {quoted(self.new)} ({', '.join(map(quoted, columns))}) VALUES ({places})"  # noqa: S608
        for first in range(0, source.info.count, _AT_ONCE):
            ids = source.ids(range(first, min(first + _AT_ONCE, source.info.count)))
            with _transaction(connection):
                connection.executemany(insert, source._records(ids, columns))
            reach("brought")

    def _refuse_moved(self, connection: Connection) -> None:
        if not list(connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (_NOTES,))):
            return
        question = f"SELECT content FROM {_NOTES} WHERE name = ?"  # noqa: S608
        for (content,) in connection.execute(question, (_RECORD,)):
            tables = read_noted(bytes(content), self.file, _SHAPE)["tables"]
            for name in {self.old, self.new}.intersection(tables):
                raise moved(f"{self.file}#{name}", f"{self.file}#{tables[0]}")

    def _trade(self, connection: Connection) -> None:
        present = tables_in(self.file).keys()
        if not {self.old, self.new} <= present:
            raise others(self.file)
        between = f"{self.old}__switching"
        connection.execute("PRAGMA writable_schema = ON")
        for name, other in ((self.old, between), (self.new, self.old), (between, self.new)):
            _rename(connection, name, other)
        connection.execute("PRAGMA writable_schema = RESET")  # and the schema is read again

    def _place(self, connection: Connection, wanted: str, other: str) -> None:
        """Write the files that belong beside the table that answers now, and remove those of the other one."""
        folder = self.file.parent
        question = f"SELECT name, content FROM {_NOTES} WHERE old = ?"  # noqa: S608
        noted = {str(name): bytes(content) for name, content in connection.execute(question, (self.old,))}
        files = {name.removeprefix(wanted): noted[name] for name in noted if name.startswith(wanted)}
        with output_errors(folder):
            for name, content in files.items():
                (folder / name).parent.mkdir(exist_ok=True, parents=True)
                with atomic_file(folder / name, force=True) as aside:
                    write_bytes(aside, content)
                reach("placed")
            for name in noted:
                if name.startswith(other) and name.removeprefix(other) not in files:
                    (folder / name.removeprefix(other)).unlink(missing_ok=True)

    def _noted(self, connection: Connection) -> dict[str, Any] | None:
        if not list(connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (_NOTES,))):
            return None
        question = f"SELECT content FROM {_NOTES} WHERE old = ? AND name = ?"  # noqa: S608
        rows = list(connection.execute(question, (self.old, _RECORD)))
        return read_noted(bytes(rows[0][0]), self.file, _SHAPE) if rows else None

    def _set_goal(self, connection: Connection, record: Record, goal: str, *, brought: Any) -> None:
        is_brought = brought["brought"] if isinstance(brought, dict) else brought
        noted = {"tables": [self.old, self.new], "record": dict(record), "goal": goal, "brought": is_brought}
        self._note(connection, _RECORD, json.dumps(noted).encode())

    def _note(self, connection: Connection, name: str, content: bytes) -> None:
        # columns of no texts, so that none of them is taken for the texts of a store
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {_NOTES} (old BLOB, name BLOB, content BLOB, UNIQUE(old, name))"
        )
        connection.execute(f"INSERT OR REPLACE INTO {_NOTES} VALUES (?, ?, ?)", (self.old, name, content))  # noqa: S608

    def _remove(self, connection: Connection, *, drop: bool) -> None:
        if drop:
            connection.execute(f"DROP TABLE IF EXISTS {quoted(self.new)}")
        connection.execute(f"DELETE FROM {_NOTES} WHERE old = ?", (self.old,))  # noqa: S608
        if not list(connection.execute(f"SELECT 1 FROM {_NOTES} LIMIT 1")):  # noqa: S608
            connection.execute(f"DROP TABLE {_NOTES}")


@contextmanager
def _transaction(connection: Connection) -> Iterator[None]:
    """A transaction that waits for other writers at its beginning, and not at its end."""
    connection.execute("PRAGMA legacy_alter_table = ON")  # names in triggers and views stay as they are
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _version_of_others(connection: Connection) -> Any:
    """Another number after each commit of another connection."""
    return next(iter(connection.execute("PRAGMA data_version")))


def _renamed(definition: str, name: str) -> str:
    return _HEAD.sub(lambda match: f"{match[1]}{quoted(name)}{match[2]}", definition, count=1)


def _rename(connection: Connection, name: str, other: str) -> None:
    """What the extension would do if it could."""
    for ending in _content_of(connection, name):
        connection.execute(f"ALTER TABLE {quoted(name + ending)} RENAME TO {quoted(other + ending)}")
    (definition,) = next(connection.execute("SELECT sql FROM sqlite_master WHERE name = ? AND type = 'table'", (name,)))
    connection.execute(
        "UPDATE sqlite_master SET name = ?, tbl_name = ?, sql = ? WHERE name = ? AND type = 'table'",
        (other, other, _renamed(str(definition), other), name),
    )


def _content_of(connection: Connection, name: str) -> dict[str, str]:
    """The tables that hold the content of one, by the endings of their names: what is in their definitions."""
    listed = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
    return {
        str(content)[len(name) :]: str(definition).partition("(")[2]
        for content, definition in listed
        if re.fullmatch(re.escape(name) + _CONTENT, str(content))
    }


def _columns(connection: Connection, table: str) -> list[str]:
    return [str(row[1]) for row in connection.execute(f"PRAGMA table_info({quoted(table)})")]


def _files_beside(store: SqliteVecStore) -> dict[str, bytes]:
    """What lies beside a database that this tool has made: manifest, confidence, state of the model."""
    folder = store.folder
    if folder is None:
        return {}
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", store.file.name)))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
