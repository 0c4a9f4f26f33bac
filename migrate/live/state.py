"""The state that searchers, the worker and the monitor of one store share: a SQLite file beside it.

True vectors are not in it: until they are written into the store, they are in the embedding cache.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self, get_args
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.own_database import OwnDatabase
from migrate.files import real_path, state_folder
from migrate.locations import hide_secrets
from migrate.stores.base import Store
from migrate.stores.file_store import as_files
from migrate.stores.registry import path_in
from migrate.stores.updates import UpdatableStore
from migrate.vectors import Vectors

KEPT_QUERIES: Final = 20_000
"""Sampled queries that are kept; older ones make room."""

Counter = Literal[
    "queries",
    "degraded_queries",
    "embedded_by_queries",
    "embedded_by_worker",
    "tokens",
    "usd",
    "embedder_failures",
]
"""A name of what is counted, upwards. A query is degraded if it ranked documents without their true vectors."""

WorkerPhase = Literal["none", "running", "paused", "stopped", "complete", "failed"]

OLD_STORE: Final = "old store"
"""Under this name a searcher notes how the old store compares with the new one."""

STOP: Final = "stop"
"""Under this name a worker is asked to come to an end (`LiveState.note`)."""

_WORKER: Final = "worker"


@dataclass(frozen=True, slots=True, eq=False)
class ServedQuery:
    """A query as it was answered: `vector` (dim,), ids and scores (n,) of the answer, best first.

    `untrue` counts documents of the pool that were ranked without a true vector. `number` grows from query to query; 0
    before it is kept.
    """

    vector: Vectors
    ids: tuple[str, ...]
    scores: NDArray[np.float32]
    untrue: int = 0
    at: float = field(default_factory=time.time)
    number: int = 0


def text_hash(text: str) -> bytes:
    """Return the SHA-256 of a text, by which a true vector is known to be of the text that a document has now."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def state_path(store: Store) -> Path:
    """Return the file of a store's state: in `.NAME.live/` beside a folder or file, in the user's folder for a server.

    Tables of one folder have a folder each in it. It stays with the name of the store when folders are switched.
    """
    files = as_files(store)
    folder = path_in(store.info.location) if files is None else files.index_path.parent
    if folder is None:
        digest = hashlib.sha256(hide_secrets(store.info.location).encode()).hexdigest()[:24]
        return state_folder() / "live" / digest / "state.sqlite"
    folder = real_path(folder)
    if files is not None:
        table = files.added_column or ""
    elif isinstance(store, UpdatableStore):
        table = store.records.collection
    else:
        table = (store.info.opened_as or "").partition("?")[0]
    return folder.with_name(f".{folder.name}.live") / quote(table, safe=" ") / "state.sqlite"


class Demand:
    """The documents that queries ranked without a true vector, and how much they are wanted."""

    creation: ClassVar = (
        "CREATE TABLE demand (id TEXT PRIMARY KEY, wanted REAL NOT NULL, uncertainty REAL NOT NULL) WITHOUT ROWID",
        "CREATE TABLE choosers (query TEXT PRIMARY KEY) WITHOUT ROWID",
    )

    def __init__(self, state: LiveState) -> None:
        self._state = state

    def add(self, documents: Mapping[str, tuple[float, float]], queries: Collection[str] = ()) -> None:
        """Add to the demand: by id, how much more a document is wanted, and its uncertainty, 1 - its confidence.

        That is the sum of 1 / its place over `queries`, given by their digests: what lies high decides more.
        """
        with self._state.transaction():
            self._state.write(
                "INSERT INTO demand VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE "
                "SET wanted = wanted + excluded.wanted, uncertainty = excluded.uncertainty",
                ((doc_id, times, uncertainty) for doc_id, (times, uncertainty) in documents.items()),
            )
            self._state.write("INSERT OR IGNORE INTO choosers VALUES (?)", ((query,) for query in queries))

    def choosers(self) -> frozenset[str]:
        """Return the digests of all queries that wanted documents."""
        return frozenset(query for (query,) in self._state.read("SELECT query FROM choosers"))

    def queue(self, limit: int) -> dict[str, float]:
        """Return the most wanted documents and how much, most urgent first; none that is true or refused."""
        return dict(
            self._state.read(
                "SELECT id, wanted FROM demand WHERE id NOT IN (SELECT id FROM true_documents) "
                "AND id NOT IN (SELECT id FROM refused) ORDER BY wanted * uncertainty DESC, id LIMIT ?",
                limit,
            )
        )


class DocumentMarks:
    """The documents that have true vectors, and those that the model takes no vector of."""

    creation: ClassVar = (
        "CREATE TABLE true_documents (id TEXT PRIMARY KEY, text_sha256 BLOB NOT NULL, change INTEGER NOT "
        "NULL) WITHOUT ROWID",
        "CREATE INDEX true_by_change ON true_documents (change)",
        "CREATE TABLE refused (id TEXT PRIMARY KEY, text_sha256 BLOB NOT NULL, reason TEXT NOT NULL) WITHOUT ROWID",
    )

    def __init__(self, state: LiveState) -> None:
        self._state = state

    def mark_true(self, text_hashes: Mapping[str, bytes]) -> None:
        """Note that searchers have the true vectors of these documents: by id, `text_hash` of the embedded text.

        Those of a database are in the store, those of files in the cache.
        """
        with self._state.transaction():
            change = self.version + 1
            self._state.note("change", change)
            rows = ((doc_id, digest, change) for doc_id, digest in text_hashes.items())
            self._state.write("INSERT OR REPLACE INTO true_documents VALUES (?, ?, ?)", rows)

    def settle(self, text_hashes: Mapping[str, bytes], untrue: Collection[str]) -> None:
        """Mark these documents, and no others, as true; those that are `untrue` were not refused with this text."""
        with self._state.transaction():
            marked = self.true()
            stale = ((doc_id,) for doc_id, digest in marked.items() if text_hashes.get(doc_id) != digest)
            self._state.write("DELETE FROM true_documents WHERE id = ?", stale)
            self._state.write("DELETE FROM refused WHERE id = ?", ((doc_id,) for doc_id in untrue))
            self.mark_true({doc_id: digest for doc_id, digest in text_hashes.items() if marked.get(doc_id) != digest})

    def true(self) -> dict[str, bytes]:
        """Return the hash of the embedded text of each document that `mark_true` has noted."""
        return dict(self._state.read("SELECT id, text_sha256 FROM true_documents"))

    @property
    def version(self) -> int:
        """A number that is another after each `mark_true` and `settle`."""
        return int(self._state.value("change") or 0)

    def refuse(self, documents: Mapping[str, tuple[bytes, str]]) -> None:
        """Note that the model takes no vector of these texts, by id: their `text_hash`, and why."""
        rows = ((doc_id, digest, reason) for doc_id, (digest, reason) in documents.items())
        self._state.write("INSERT OR REPLACE INTO refused VALUES (?, ?, ?)", rows)

    def refused(self) -> dict[str, tuple[bytes, str]]:
        """Return what `refuse` has noted."""
        rows = self._state.read("SELECT id, text_sha256, reason FROM refused")
        return {doc_id: (digest, reason) for doc_id, digest, reason in rows}


class SampledQueries:
    """The latest `KEPT_QUERIES` of a sample of the queries, for the monitor to judge."""

    creation: ClassVar = (
        "CREATE TABLE queries (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, vector BLOB NOT NULL, "
        "ids TEXT NOT NULL, scores BLOB NOT NULL, untrue INTEGER NOT NULL)",
    )

    def __init__(self, state: LiveState) -> None:
        self._state = state

    def add(self, queries: Sequence[ServedQuery]) -> None:
        """Keep these queries; which ones must not depend on their answers."""
        rows = (
            (
                query.vector.astype("<f4").tobytes(),
                json.dumps(query.ids),
                query.scores.astype("<f4").tobytes(),
                query.untrue,
                query.at,
            )
            for query in queries
        )
        with self._state.transaction():
            self._state.write("INSERT INTO queries (vector, ids, scores, untrue, at) VALUES (?, ?, ?, ?, ?)", rows)
            oldest = "(SELECT max(number) FROM queries) - ?"
            self._state.write(f"DELETE FROM queries WHERE number <= {oldest}", [(KEPT_QUERIES,)])  # noqa: S608

    def after(self, number: int, *, limit: int = 1_000) -> list[ServedQuery]:
        """Return queries with a higher `number`, in the order in which they came."""
        rows = self._state.read(
            "SELECT vector, ids, scores, untrue, at, number FROM queries WHERE number > ? ORDER BY number LIMIT ?",
            number,
            limit,
        )
        return [
            ServedQuery(
                np.frombuffer(vector, "<f4").astype(np.float32),
                tuple(json.loads(ids)),
                np.frombuffer(scores, "<f4").astype(np.float32),
                *columns,
            )
            for vector, ids, scores, *columns in rows
        ]

    def newest(self) -> int:
        """Return the number of the query that was kept last; 0 where there is none."""
        ((number,),) = self._state.read("SELECT max(number) FROM queries")
        return number or 0


class LiveState(OwnDatabase):
    """The open file: counters, facts by name, and the tables of `demand`, `documents` and `queries`.

    Every method is one transaction, durable against the end of the process.
    """

    title = "live state"
    remedy = "remove it: true vectors are kept elsewhere"
    application_id = 0x4C4D4C56
    version = 2
    creation = (
        *Demand.creation,
        *DocumentMarks.creation,
        *SampledQueries.creation,
        "CREATE TABLE counters (name TEXT PRIMARY KEY, total REAL NOT NULL) WITHOUT ROWID",
        "CREATE TABLE facts (name TEXT PRIMARY KEY, fact TEXT NOT NULL) WITHOUT ROWID",
    )
    busy_s = 5.0

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.demand = Demand(self)
        self.documents = DocumentMarks(self)
        self.queries = SampledQueries(self)
        self.open()

    def prepare(self) -> None:
        """Recognise the file, or make it one, with a write-ahead log: reading waits for nobody."""
        self._version()  # the log of a file of something else stays as it is
        deadline = time.monotonic() + self.busy_s
        while self.pragma("journal_mode") != "wal":
            # Switching fails at once, whatever the timeout of the connection, while another has the file open
            try:
                self._database.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        # With a log this survives the end of the process; only a power cut may lose the last transactions
        self._database.execute("PRAGMA synchronous = NORMAL")
        super().prepare()

    def adopt(self, model: str, generation: str) -> None:
        """Note the model (`Embedder.cache_scope("document")`) and the generation that is served now.

        With another generation, it is forgotten which documents have true vectors; with another model, all that is
        known of documents and queries.
        """
        with self.transaction():
            forgotten: Sequence[str] = ()
            if self.value("generation") not in (None, generation):
                forgotten = ("true_documents",)
            if self.value("model") not in (None, model):
                forgotten = ("demand", "true_documents", "refused", "queries", "choosers")
            for table in forgotten:
                self._database.execute(f"DELETE FROM {table}")  # noqa: S608
            self.note("model", model)
            self.note("generation", generation)

    def count(self, counts: Mapping[Counter, float]) -> None:
        """Add to counters; nothing is ever taken off."""
        self.write(
            "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET total = total + excluded.total",
            ((name, float(more)) for name, more in counts.items() if more > 0),
        )

    def counters(self) -> dict[Counter, float]:
        """Return all counters; 0 where nothing was counted."""
        totals = dict(self.read("SELECT name, total FROM counters"))
        return {name: totals.get(name, 0.0) for name in get_args(Counter)}

    def note(self, name: str, value: Any) -> None:
        """Keep a fact under a name, as JSON holds it."""
        self.write("INSERT OR REPLACE INTO facts VALUES (?, ?)", [(name, json.dumps(value))])

    def value(self, name: str) -> Any:
        """Return the fact of that name; None where there is none."""
        rows = self.read("SELECT fact FROM facts WHERE name = ?", name)
        if rows:
            return json.loads(rows[0][0])
        return None

    def read(self, query: str, *values: object) -> list[Any]:
        """Return the rows of a query, of one view of the file; waits for nobody."""
        with self.transaction("DEFERRED"):
            return self._database.execute(query, values).fetchall()

    def write(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Execute a statement once for each row."""
        with self.transaction():
            self._database.executemany(statement, rows)


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """A worker's own account."""

    phase: WorkerPhase = "none"
    pid: int | None = None
    message: str = ""

    def keep(self, state: LiveState) -> None:
        """Keep it in the state of the store."""
        state.note(_WORKER, asdict(self))

    @classmethod
    def kept_in(cls, state: LiveState) -> Self:
        """Return what the worker last said of itself."""
        return cls(**(state.value(_WORKER) or {}))
