"""What searchers, the worker and the monitor of one store share: a SQLite file beside it.

It knows which documents are wanted, which have true vectors in the store, some of the queries that were served, and
counters. True vectors are not in it: until they are written into the store, they are in the embedding cache.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self, get_args
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.base import UNKNOWN_QUERY
from migrate.errors import InputError, LockedError, OutputError
from migrate.files import make_private, output_errors, real_path, state_folder
from migrate.locations import hide_secrets
from migrate.stores.base import Store
from migrate.stores.file_store import as_files
from migrate.stores.registry import path_in
from migrate.vectors import Vectors

APPLICATION_ID: Final = 0x4C4D4C56
"""Marks the file as the live state of a store (SQLite's `application_id`)."""

FORMAT_VERSION: Final = 1
STATE_NAME: Final = "state.sqlite"

KEPT_QUERIES: Final = 20_000
"""Sampled queries that are kept; older ones make room."""

Counter = Literal[
    "queries",
    "degraded_queries",
    "query_seconds",
    "embedded_by_queries",
    "embedded_by_worker",
    "found_in_cache",
    "written_back",
    "tokens",
    "usd",
    "embedder_failures",
    "embedder_timeouts",
    "refused_documents",
    "refits",
]
"""What is counted, always upwards. A query is degraded if documents it found were ranked without a true vector."""

WorkerPhase = Literal["none", "running", "paused", "stopped", "complete", "failed"]

_BUSY_S: Final = 5.0
_TABLES: Final = """
CREATE TABLE demand (id TEXT PRIMARY KEY, wanted REAL NOT NULL, uncertainty REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE true_documents (id TEXT PRIMARY KEY, text_sha256 BLOB NOT NULL, change INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX true_by_change ON true_documents (change);
CREATE TABLE refused (id TEXT PRIMARY KEY, text_sha256 BLOB NOT NULL, reason TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE queries (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, key TEXT, vector BLOB NOT NULL,
    ids TEXT NOT NULL, scores BLOB NOT NULL, untrue INTEGER NOT NULL, generation TEXT);
CREATE TABLE counters (name TEXT PRIMARY KEY, total REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE history (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, facts TEXT NOT NULL);
CREATE TABLE choosers (query TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE facts (name TEXT PRIMARY KEY, fact TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True, eq=False)
class ServedQuery:
    """A query as it was answered: `vector` (dim,), ids and scores (n,) of the answer, best first.

    `key` is a digest of its text (`query_digest`), None where only a vector was given. `untrue` counts the documents
    of the pool that were ranked without a true vector, `generation` is the one that answered. `number` grows from query
    to query; 0 before it is kept.
    """

    vector: Vectors
    ids: tuple[str, ...]
    scores: NDArray[np.float32]
    untrue: int = 0
    key: str | None = None
    generation: str | None = None
    at: float = field(default_factory=time.time)
    number: int = 0


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What the worker says of itself. `generation` is the one it last wrote to; `verdict` is as JSON holds it."""

    phase: WorkerPhase = "none"
    pid: int | None = None
    generation: str | None = None
    spent_usd: float = 0.0
    verdict: Mapping[str, Any] | None = None
    message: str = ""
    updated: float = 0.0


def text_hash(text: str) -> bytes:
    """SHA-256 of a text, by which a true vector is known to be of the text that a document has now."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def state_path(store: Store) -> Path:
    """Where the state of a store lies: `.NAME.live/` beside a folder or file, in the user's state folder for a server.

    Tables and collections of one folder or file have a folder each in it. It stays with the name of the store when
    folders are switched.
    """
    files = as_files(store)
    place = path_in(store.info.location) if files is None else files.folder
    if place is None:
        digest = hashlib.sha256(hide_secrets(store.info.location).encode()).hexdigest()[:24]
        return state_folder() / "live" / digest / STATE_NAME
    place = real_path(place)
    table = "" if files is not None or store.opened_as is None else store.opened_as.partition("?")[0].rpartition("#")[2]
    return place.with_name(f".{place.name}.live") / quote(table, safe=" ") / STATE_NAME


class LiveState:
    """The open file, for all threads of a process; other processes open their own. A context manager.

    Every method is one transaction, durable against the end of the process, and waits at most seconds for others.

    Parameters
    ----------
    path
        See `state_path`. Made where there is none, for this user alone.

    Raises
    ------
    InputError
        The file is damaged, or something else.
    LockedError
        Another process does not let go of it; also of every method.
    OutputError
        The system refuses to write; also of every method.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        with output_errors(path):
            make_private(path)
        with self._translated():
            self._database = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            with self._translated():
                self._prepare()
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    # The store and its generations.

    def adopt(self, model: str, generation: str, *, forget_true: bool) -> bool:
        """Note the model (`Embedder.cache_scope("document")`) and the generation that is served now.

        With another model, all that is known of documents and queries is forgotten; with another generation and
        `forget_true`, which documents have true vectors in the store. Returns whether anything changed.
        """
        with self._transaction():
            before, old = self._fact("model"), self._fact("generation")
            if (before, old) == (model, generation):
                return False
            if before is not None and before != model:
                for table in ("demand", "true_documents", "refused", "queries", "choosers"):
                    self._database.execute(f"DELETE FROM {table}")  # noqa: S608
            elif old is not None and old != generation and forget_true:
                self._database.execute("DELETE FROM true_documents")
            self._set_fact("model", model)
            self._set_fact("generation", generation)
            return True

    @property
    def generation(self) -> str | None:
        """The generation that was last adopted or published."""
        with self._reading():
            generation: str | None = self._fact("generation")
            return generation

    # Demand.

    def want(self, documents: Mapping[str, tuple[float, float]], queries: Collection[str] = ()) -> None:
        """Add to the demand: by id, how much more a document is wanted, and its uncertainty, 1 - its confidence.

        That is the sum, over `queries`, given by their digests, of 1 / the place at which the store found it: what lies
        high decides more of an answer (`benchmarks/demand.py`).
        """
        rows = [(doc_id, times, uncertainty) for doc_id, (times, uncertainty) in documents.items()]
        with self._transaction():
            self._database.executemany(
                "INSERT INTO demand VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE "
                "SET wanted = wanted + excluded.wanted, uncertainty = excluded.uncertainty",
                rows,
            )
            self._database.executemany("INSERT OR IGNORE INTO choosers VALUES (?)", [(query,) for query in queries])

    def choosers(self) -> frozenset[str]:
        """Return the digests of all queries that wanted documents."""
        with self._reading():
            return frozenset(query for (query,) in self._database.execute("SELECT query FROM choosers"))

    def queue(self, limit: int) -> dict[str, float]:
        """How much the most wanted documents are wanted, most urgent first; none that is true or refused."""
        with self._reading():
            return dict(
                self._database.execute(
                    "SELECT id, wanted FROM demand WHERE id NOT IN (SELECT id FROM true_documents) "
                    "AND id NOT IN (SELECT id FROM refused) ORDER BY wanted * uncertainty DESC, id LIMIT ?",
                    (limit,),
                )
            )

    # Documents with true vectors in the store.

    def mark_true(self, text_hashes: Mapping[str, bytes], *, generation: str | None = None) -> None:
        """Note that the store has the true vectors of these documents: by id, `text_hash` of the embedded text.

        `generation` is the one that was published with them, if it is another: searchers then keep all marks.
        """
        with self._transaction():
            change = self._next_change()
            self._database.executemany(
                "INSERT OR REPLACE INTO true_documents VALUES (?, ?, ?)",
                [(doc_id, digest, change) for doc_id, digest in text_hashes.items()],
            )
            if generation is not None:
                self._set_fact("generation", generation)

    def unmark(self, ids: Collection[str]) -> None:
        """Forget that the store has their true vectors: their texts are others now, or they are gone."""
        with self._transaction():
            self._database.executemany("DELETE FROM true_documents WHERE id = ?", [(doc_id,) for doc_id in ids])
            self._next_change()

    def true_documents(self) -> dict[str, bytes]:
        """The hash of the embedded text of each document that is true in the store."""
        with self._reading():
            return dict(self._database.execute("SELECT id, text_sha256 FROM true_documents"))

    @property
    def true_version(self) -> int:
        """A number that is another after each `mark_true` and `unmark`."""
        with self._reading():
            return int(self._fact("change") or 0)

    @property
    def true_count(self) -> int:
        """How many documents are true in the store."""
        with self._reading():
            return int(self._database.execute("SELECT count(*) FROM true_documents").fetchone()[0])

    def refuse(self, documents: Mapping[str, tuple[bytes, str]]) -> None:
        """Note that the model takes no vector of these texts, by id: their `text_hash`, and why."""
        rows = [(doc_id, digest, reason) for doc_id, (digest, reason) in documents.items()]
        with self._transaction():
            self._database.executemany("INSERT OR REPLACE INTO refused VALUES (?, ?, ?)", rows)

    def accept(self, ids: Collection[str]) -> None:
        """Forget that some documents were refused: their texts are others now."""
        with self._transaction():
            self._database.executemany("DELETE FROM refused WHERE id = ?", [(doc_id,) for doc_id in ids])

    def refused(self) -> dict[str, tuple[bytes, str]]:
        """What `refuse` has noted."""
        with self._reading():
            rows = self._database.execute("SELECT id, text_sha256, reason FROM refused")
            return {doc_id: (digest, reason) for doc_id, digest, reason in rows}

    # Queries for the monitor.

    def keep_queries(self, queries: Sequence[ServedQuery]) -> None:
        """Keep a sample of the queries; which ones must not depend on their answers."""
        rows = [
            (
                query.at,
                query.key,
                query.vector.astype("<f4").tobytes(),
                json.dumps(query.ids),
                query.scores.astype("<f4").tobytes(),
                query.untrue,
                query.generation,
            )
            for query in queries
        ]
        with self._transaction():
            self._database.executemany(
                "INSERT INTO queries (at, key, vector, ids, scores, untrue, generation) VALUES (?, ?, ?, ?, ?, ?, ?)",
                rows,
            )
            self._database.execute(
                "DELETE FROM queries WHERE number <= (SELECT max(number) FROM queries) - ?", (KEPT_QUERIES,)
            )

    def kept_queries(self, after: int = 0, *, limit: int = 1_000) -> list[ServedQuery]:
        """Sampled queries with a `number` above `after`, in the order in which they came."""
        with self._reading():
            rows = self._database.execute(
                "SELECT number, at, key, vector, ids, scores, untrue, generation FROM queries WHERE number > ? "
                "ORDER BY number LIMIT ?",
                (after, limit),
            ).fetchall()
        return [
            ServedQuery(
                np.frombuffer(vector, "<f4").astype(np.float32),
                tuple(json.loads(ids)),
                np.frombuffer(scores, "<f4").astype(np.float32),
                untrue,
                key,
                generation,
                at,
                number,
            )
            for number, at, key, vector, ids, scores, untrue, generation in rows
        ]

    # Counters and facts.

    def count(self, counts: Mapping[Counter, float]) -> None:
        """Add to counters; nothing is ever taken off."""
        rows = [(name, float(more)) for name, more in counts.items() if more > 0]
        with self._transaction():
            self._database.executemany(
                "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET total = total + excluded.total",
                rows,
            )

    def counters(self) -> dict[Counter, float]:
        """All counters; 0 where nothing was counted."""
        with self._reading():
            totals = dict(self._database.execute("SELECT name, total FROM counters"))
        return {name: totals.get(name, 0.0) for name in get_args(Counter)}

    def note_history(self, facts: Mapping[str, Any]) -> None:
        """Keep what a chart over time shows, with the time of now."""
        with self._transaction():
            self._database.execute(
                "INSERT INTO history (at, facts) VALUES (?, ?)", (time.time(), json.dumps(dict(facts)))
            )

    def history(self) -> list[tuple[float, dict[str, Any]]]:
        """What was noted, and when, in order."""
        with self._reading():
            rows = self._database.execute("SELECT at, facts FROM history ORDER BY number").fetchall()
        return [(at, json.loads(facts)) for at, facts in rows]

    def worker(self) -> WorkerFacts:
        """What the worker last said of itself."""
        with self._reading():
            return WorkerFacts(**(self._fact("worker") or {}))

    def set_worker(self, facts: WorkerFacts) -> None:
        """Say it; `updated` becomes now."""
        with self._transaction():
            self._set_fact("worker", {**asdict(facts), "updated": time.time()})

    def ask_to_stop(self, *, stop: bool = True) -> None:
        """Ask the worker to come to an end; `stop=False` takes it back, as a worker does when it starts."""
        with self._transaction():
            self._set_fact("stop", stop)

    @property
    def stop_asked(self) -> bool:
        """Whether the worker is to come to an end."""
        with self._reading():
            return bool(self._fact("stop"))

    def note(self, name: str, fact: Any) -> None:
        """Keep a fact of the worker's or the monitor's own under a name, as JSON holds it."""
        with self._transaction():
            self._set_fact(f"own {name}", fact)

    def noted(self, name: str) -> Any:
        """The fact of that name; None where there is none."""
        with self._reading():
            return self._fact(f"own {name}")

    def _fact(self, name: str) -> Any:
        row = self._database.execute("SELECT fact FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def _set_fact(self, name: str, fact: Any) -> None:
        self._database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(fact)))

    def _next_change(self) -> int:
        change = int(self._fact("change") or 0) + 1
        self._set_fact("change", change)
        return change

    def _prepare(self) -> None:
        """Recognise the file, or make it one; two processes may come upon a new one at once."""
        deadline = time.monotonic() + _BUSY_S
        while self._pragma("journal_mode") != "wal":  # switching fails at once while another has the file open
            try:
                self._database.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        self._database.execute("PRAGMA synchronous = NORMAL")
        with self._transaction():
            if self._pragma("application_id") == APPLICATION_ID:
                if (version := self._pragma("user_version")) != FORMAT_VERSION:
                    raise InputError(
                        f"{self.path}: expected a live state of version {FORMAT_VERSION}, found {version}; remove it: "
                        "true vectors are kept elsewhere"
                    )
                # A file of an earlier version lacks this table: nobody knows who chose what it wants.
                if not self._database.execute("SELECT 1 FROM sqlite_master WHERE name = 'choosers'").fetchone():
                    self._database.execute("CREATE TABLE choosers (query TEXT PRIMARY KEY) WITHOUT ROWID")
                    self._database.execute(
                        "INSERT INTO choosers SELECT ? WHERE EXISTS (SELECT 1 FROM demand)", (UNKNOWN_QUERY,)
                    )
                return
            if self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise InputError(f"{self.path}: this is the database of another application; move it away")
            for statement in filter(str.strip, _TABLES.split(";")):
                self._database.execute(statement)
            self._database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._database.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def _pragma(self, name: str) -> Any:
        return self._database.execute(f"PRAGMA {name}").fetchone()[0]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One view of the file; waits for nobody."""
        with self._transaction("DEFERRED"):
            yield

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Make one transaction of all that is written in the context."""
        with self._transaction():
            yield

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[None]:
        with self._lock, self._translated():
            if self._database.in_transaction:  # it is part of another one
                yield
                return
            self._database.execute(f"BEGIN {kind}")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
                raise InputError(
                    f"{self.path}: the live state is damaged ({error}); remove it: true vectors are kept elsewhere"
                ) from error
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise LockedError(f"another process holds {self.path}; see what it does, and try again") from error
            raise OutputError(f"cannot write {self.path}: {error}; free some space or check the permissions") from error
