"""A SQLite file of this program's own, as caches of vectors and states of live stores are."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, Self

from migrate.errors import InputError, LockedError, OutputError
from migrate.files import make_private, output_errors, refuse_endless_database


class OwnDatabase:
    """An open file, for all threads of a process; other processes open their own, and take turns. A context manager.

    A file that is not there yet is made, with its folder, for this user alone. Everything it raises is a line:
    `InputError` where the file is damaged or something else, `LockedError` where another process holds it for longer
    than `busy_s`, `OutputError` where the system refuses to write. Subclasses say what it is called, what is to be done
    where it cannot be used, and by which statements a file is made, or one of the version before is brought up to date.
    """

    title: ClassVar[str]
    remedy: ClassVar[str]
    application_id: ClassVar[int]
    version: ClassVar[int]
    creation: ClassVar[Sequence[str]]
    upgrade: ClassVar[Sequence[str]] = ()
    busy_s: ClassVar[float] = 60.0

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Open the file, or make it."""
        # SQLite would wait at a pipe for ever
        refuse_endless_database(self.path)
        with output_errors(self.path):
            # A vector says much of its text: before SQLite makes the file for everyone to read
            make_private(self.path)
        with self.errors():
            # All threads use it, one at a time; transactions are begun here, not by Python before each write
            self._database = sqlite3.connect(
                self.path, timeout=self.busy_s, isolation_level=None, check_same_thread=False
            )
        try:
            with self.errors():
                self.prepare()
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def prepare(self) -> None:
        """Recognise the file, or make it one: two processes may come upon a new one at once, so look again locked."""
        with self.transaction("DEFERRED"):
            if self._version() == self.version:
                return
        with self.transaction():
            if (version := self._version()) == self.version:
                return
            for statement in self.upgrade if version else self.creation:
                self._database.execute(statement)
            self._database.execute(f"PRAGMA application_id = {self.application_id}")
            self._database.execute(f"PRAGMA user_version = {self.version}")

    def _version(self) -> int:
        """Return the version of the file, 0 of an empty one."""
        if self.pragma("application_id") == self.application_id:
            version = int(self.pragma("user_version"))
            if version != self.version and not (self.upgrade and version == self.version - 1):
                raise InputError(
                    f"{self.path}: the {self.title} is of version {version}, where this release reads {self.version}; "
                    f"{self.remedy}"
                )
            return version
        if self._database.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise InputError(f"{self.path}: this is the database of another application; move it, or name another path")
        return 0

    def pragma(self, name: str) -> Any:
        """Return the value of a pragma."""
        return self._database.execute(f"PRAGMA {name}").fetchone()[0]

    def transaction(self, kind: Literal["IMMEDIATE", "DEFERRED"] = "IMMEDIATE") -> AbstractContextManager[None]:
        """Make one transaction of all that is written, or read, in the context."""
        return _Transaction(self, kind)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Tell of what SQLite refuses in the context in a line."""
        try:
            yield
        except sqlite3.Error as error:
            # Extended codes have the reason in the bits above
            code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
                raise self.damaged(str(error)) from error
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise LockedError(
                    f"another run is using the {self.title} {self.path}; wait for it, and run again"
                ) from error
            raise OutputError(
                f"cannot write the {self.title} {self.path}: {error}; free some space, or check the permissions"
            ) from error

    def damaged(self, fault: str) -> InputError:
        """Return the error for a file that is not as it was written."""
        return InputError(f"{self.path}: the {self.title} is damaged ({fault}); {self.remedy}")


class _Transaction:
    """A transaction, or a part of the one that is open already.

    No generator: Ctrl-C between its `yield` and the block would leave the transaction open, and what is in flight then
    is still to be written.
    """

    def __init__(self, owner: OwnDatabase, kind: str) -> None:
        self._owner = owner
        self._kind = kind

    def __enter__(self) -> None:
        owner = self._owner
        owner._lock.acquire()
        self._is_part = True  # until it is known: nothing to roll back
        try:
            with owner.errors():
                self._is_part = owner._database.in_transaction
                if not self._is_part:
                    owner._database.execute(f"BEGIN {self._kind}")
        except BaseException:
            self._end()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._owner.errors():
                if isinstance(error, sqlite3.Error):
                    raise error
                if error is None and not self._is_part:
                    self._owner._database.commit()
        finally:
            self._end()

    def _end(self) -> None:
        """Roll back what is not committed, and let go of the database."""
        try:
            if not self._is_part:
                with suppress(sqlite3.Error):  # it may be closed, or gone
                    self._owner._database.rollback()
        finally:
            self._owner._lock.release()
