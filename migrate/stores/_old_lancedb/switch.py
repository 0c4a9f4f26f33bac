"""A table of LanceDB that becomes another one, as a new version of itself; the old one is the version before.

A commit of LanceDB is one step, and whoever reads goes on with the version that was opened: nothing fails, and nothing
is of both. Going back makes the version before the newest one again, without a copy.
"""

from __future__ import annotations

import datetime
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from migrate.errors import InputError, StoreError, UsageError
from migrate.files import atomic_file, output_errors, output_lock, reach, sync_folder, write_json
from migrate.stores.lancedb.client import SWITCHED, answers
from migrate.stores.lancedb.kind import LanceKind
from migrate.stores.lancedb.output import make_index
from migrate.stores.lancedb.store import LanceStore
from migrate.stores.switching import (
    FORGOTTEN,
    RECORD_SHAPE,
    ROLLED_BACK,
    Exchange,
    Record,
    keep_beside,
    others,
    read_notes,
    unfinished,
)
from migrate.stores.switching import SWITCHED as DONE

_TAG: Final = "lead-migrate-aside"
_JOURNAL: Final = "switch.json"
_SHAPE: Final = {
    "record": RECORD_SHAPE,
    "token": str,
    "former": str | None,
    "before": int,
    "incoming": Any,
    "indexes": list[str],
    "goal": str,
}


class LanceExchange(Exchange):
    """The versions of a table before and after.

    Parameters
    ----------
    path, table
        The folder, and the name of the table.
    incoming
        The new store, where its table is still to be brought in.
    """

    def __init__(self, path: Path, table: str, incoming: LanceStore | None = None) -> None:
        self.path, self.table, self._incoming = path.absolute(), table, incoming
        self.location = f"lancedb:{path.absolute()}#{table}"
        self._folder = path.absolute() / f"{table}.lance"
        self._journal = notes_of(path.absolute(), table) / _JOURNAL

    @classmethod
    def of(cls, old: LanceStore, new: LanceStore) -> LanceExchange:
        """The exchange with a table that has all columns and rows of the old one.

        Raises
        ------
        UsageError
            It has not, or one of the two is a certain version.
        """
        there = new.info.location
        if old.asked_version is not None or new.asked_version is not None:
            raise UsageError(f"{old.info.location}: a version cannot be switched; name the tables without")
        if old.path.samefile(new.path) and old.name == new.name:
            raise UsageError(f"{there}: this is the old table itself; name the new one")
        lacking = [name for name in old.schema.names if name not in new.schema.names]
        if lacking or (old.vector, old.id_column) != (new.vector, new.id_column):
            named = ", ".join(lacking or [old.vector, old.id_column or "no ids"])
            raise UsageError(f"{there}: expected the columns of {old.name}, found others than {named}; translate again")
        counts = [store.info.count + store.without_vector for store in (old, new)]
        if counts[0] != counts[1]:
            raise UsageError(
                f"{there}: expected as many rows as in {old.name}, {counts[0]:,}, found {counts[1]:,}; those without a "
                "vector would be lost"
            )
        return cls(old.path, old.name, new)

    @classmethod
    def at(cls, store: LanceStore) -> LanceExchange | None:
        """See `Switchable.exchanged`."""
        made = cls(store.path, store.name)
        return None if made._noted() is None else made

    def aside(self, new: str) -> str:
        """The version before."""
        return f"{self.location}?version={self._open().version}"

    def record(self) -> Record | None:
        """What is noted in the folder of the table."""
        noted = self._noted()
        return None if noted is None else noted["record"]

    def switch(self, record: Record) -> None:
        """Write the new table as a version of the old one, then its indexes."""
        with self._alone():
            table, noted = self._open(), self._noted()
            if noted is not None and noted["goal"] == FORGOTTEN:
                raise InputError(f"{self.location}: the old store is deleted, or half so; run forget again")
            if noted is not None and noted["goal"] == ROLLED_BACK:  # a rollback was killed
                is_restored = _token(table) != noted["token"]
                noted = {**noted, "goal": DONE, "before": noted["restored"] if is_restored else noted["before"]}
                self._note(noted)
            incoming = self._incoming or _opened(record["new"])
            if noted is None:
                self.check()
                noted = self._begin(table, incoming, record)
            if _token(table) != noted["token"]:
                if table.version != noted["before"] or incoming.version() != noted["incoming"]:
                    raise InputError(
                        f"{self.location}: one of the two tables changed since the switch that was killed; run "
                        "rollback, then switch again"
                    )
                table = self._write(incoming, noted["token"])
                if table.version != noted["before"] + 1:
                    table.restore(table.version - 1)
                    self._drop_notes(table, noted["token"])
                    raise StoreError(
                        f"{self.location}: somebody wrote to the table while it was switched; nothing was done: sync "
                        "the new one with the old, audit it, and switch again"
                    )
                reach("exchanged")
            there = {index.name for index in table.list_indices()}
            for index, facts in incoming.indices:
                if index.name not in there:
                    make_index(table, index, facts, None)
                    reach("indexed")

    def rollback(self) -> None:
        """Make the version before the newest again."""
        with self._alone():
            noted = self._noted()
            if noted is None:
                return
            if noted["goal"] == FORGOTTEN:
                raise UsageError(f"{self.location}: the old store is deleted, or half so; run forget again")
            table = self._open()
            if _token(table) == noted["token"]:
                self._note({**noted, "goal": ROLLED_BACK, "restored": table.version + 1})
                table.restore(noted["before"])
                reach("exchanged")
            elif _token(table) is not None and _token(table) != noted["former"]:
                raise others(self._journal)
            self._drop_notes(table, noted["token"])

    def forget(self) -> None:
        """Delete the versions up to the old one."""
        with self._alone():
            noted, table = self._noted(), self._open()
            there = {index.name for index in table.list_indices()}
            if noted is None or _token(table) != noted["token"] or not there.issuperset(noted["indexes"]):
                raise unfinished(self.location)
            tags = table.tags.list()
            kept = [name for name, tag in tags.items() if tag["version"] <= noted["before"] and name != _TAG]
            if kept:
                raise UsageError(f"{self.location}: tags keep the old table: {', '.join(kept)}; delete them first")
            self._note({**noted, "goal": FORGOTTEN})
            self._untag(table)
            reach("set aside")
            _delete_versions(table, noted["before"])
            self._end()
            reach("exchanged")

    def _begin(self, table: Any, incoming: LanceStore, record: Record) -> dict[str, Any]:
        noted = {
            "record": dict(record),
            "token": uuid4().hex,
            "former": _token(table),
            "before": table.version,
            "incoming": incoming.version(),
            "indexes": [index.name for index, _ in incoming.indices],
            "goal": DONE,
        }
        self._clear(keep=noted["former"])
        keep_beside(incoming, self._journal.with_name(noted["token"]), self.table)
        self._untag(table)
        table.tags.create(_TAG, table.version)
        self._note(noted)
        return noted

    def _write(self, incoming: LanceStore, token: str) -> Any:
        """All rows of the new table in their order, in one commit."""
        import lancedb
        import pyarrow as pa

        schema = incoming.schema.with_metadata({**(incoming.schema.metadata or {}), SWITCHED: token.encode()})
        parts = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in incoming.batches(None))
        reader = pa.RecordBatchReader.from_batches(schema, parts)
        database = lancedb.connect(str(self.path))
        return database.create_table(self.table, reader, mode="overwrite", on_bad_vectors="null")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with output_lock(self._folder), output_errors(self._folder), answers(self.location):
            yield

    def _open(self) -> Any:
        import lancedb

        with answers(self.location):
            return lancedb.connect(str(self.path)).open_table(self.table)

    def _noted(self) -> dict[str, Any] | None:
        try:
            return read_notes(self._journal, _SHAPE)
        except FileNotFoundError:
            return None

    def _note(self, noted: Mapping[str, Any]) -> None:
        with atomic_file(self._journal, force=True) as aside:
            write_json(aside, dict(noted))
        reach("noted")

    def _clear(self, *, keep: str | None) -> None:
        """Remove what killed runs have left."""
        folder = self._journal.parent
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.is_dir() and path.name != keep:
                shutil.rmtree(path)

    def _drop_notes(self, table: Any, token: str) -> None:
        self._untag(table)
        shutil.rmtree(self._journal.with_name(token), ignore_errors=True)
        self._end()

    def _untag(self, table: Any) -> None:
        if _TAG in table.tags.list():
            table.tags.delete(_TAG)

    def _end(self) -> None:
        self._journal.unlink(missing_ok=True)
        sync_folder(self._journal.parent)


def _opened(location: str) -> LanceStore:
    """The table at a location with its kind."""
    store = LanceKind().open(location.removeprefix("lancedb:"))
    assert isinstance(store, LanceStore)  # noqa: S101 - the kind opens no other
    return store


def notes_of(path: Path, table: str) -> Path:
    """Where this tool keeps what belongs to versions of a table; LanceDB passes over it."""
    return path / f"{table}.lance" / "_lead_migrate"


def token_of(path: Path, table: str) -> str:
    """The token of the switch that the newest version of a table came by; empty without, or where none is noted."""
    exchange = LanceExchange(path, table)
    return (_token(exchange._open()) or "") if exchange._noted() is not None else ""


def _token(table: Any) -> str | None:
    token = (table.schema.metadata or {}).get(SWITCHED)
    return None if token is None else token.decode()


def _delete_versions(table: Any, last: int) -> None:
    """Delete the versions up to one; LanceDB is told the moment between that and the next."""
    moments = {found["version"]: found["timestamp"] for found in table.list_versions()}
    after = min((moment for version, moment in moments.items() if version > last), default=None)
    if after is None or all(version > last for version in moments):
        return
    newest = max(moment for version, moment in moments.items() if version <= last)
    age = datetime.datetime.now(newest.tzinfo) - newest - (after - newest) / 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table.optimize(cleanup_older_than=age)
