"""Folders as Chroma before 1.0 left them, made of one that the installed client wrote.

The schema of each version is what its migrations made of nothing; a database has the text of all migrations in it.
"""

import json
import shutil
import sqlite3
from contextlib import closing

MIGRATIONS = {
    "0.4.3": {"embeddings_queue": 1, "sysdb": 3, "metadb": 3},
    "0.4.24": {"embeddings_queue": 1, "sysdb": 4, "metadb": 3},
    "0.6.3": {"embeddings_queue": 2, "sysdb": 9, "metadb": 4},
}
"""The last migration of each kind that a version knew; those of 0.5.23 are those of 0.6.3."""

TABLES = (
    "tenants",
    "databases",
    "collections",
    "collection_metadata",
    "segments",
    "embeddings",
    "embedding_metadata",
    "max_seq_id",
    "embeddings_queue",
)
SETTINGS_OF_06 = {"hnsw_configuration": {"space": "l2", "M": 16}, "_type": "CollectionConfigurationInternal"}


def as_left_by(version, folder):
    """Let the folder be as a version left it; it has to be closed."""
    path, earlier = folder / "chroma.sqlite3", folder / "earlier.sqlite3"
    with closing(sqlite3.connect(path)) as new, closing(sqlite3.connect(earlier)) as old:
        _migrate(new, old, MIGRATIONS[version])
        for table in TABLES:
            _copy(new, old, table)
        columns = _columns(old, "segment_metadata")
        settings = "SELECT s.id, m.key, m.str_value, m.int_value FROM collection_metadata m JOIN segments s ON "
        settings += "s.collection = m.collection_id WHERE s.scope = 'VECTOR' AND m.key LIKE 'hnsw:%'"
        rows = new.execute(settings).fetchall()
        old.executemany(f"INSERT INTO segment_metadata ({', '.join(columns[:4])}) VALUES (?, ?, ?, ?)", rows)
        for table in ("embeddings", "max_seq_id"):
            for key, number in old.execute(f"SELECT rowid, seq_id FROM {table}").fetchall():
                blob = int(number).to_bytes(8, "big")
                old.execute(f"UPDATE {table} SET seq_id = ? WHERE rowid = ?", (blob, key))
        if "config_json_str" in _columns(old, "collections"):
            old.execute("UPDATE collections SET config_json_str = ?", (json.dumps(SETTINGS_OF_06),))
        for table in ("collections", "segments"):
            if "topic" in _columns(old, table):
                key = "id" if table == "collections" else "collection"
                old.execute(f"UPDATE {table} SET topic = 'persistent://default/default/' || {key}")
        old.commit()
    shutil.move(earlier, path)
    for journal in folder.glob("chroma.sqlite3-*"):
        journal.unlink()


def _migrate(new, old, last):
    """Make the tables of a version, by the migrations in the order in which it does them."""
    old.execute(new.execute("SELECT sql FROM sqlite_master WHERE name = 'migrations'").fetchone()[0])
    for kind, count in last.items():
        question = "SELECT * FROM migrations WHERE dir = ? AND version <= ? ORDER BY version"
        for row in new.execute(question, (kind, count)).fetchall():
            old.executescript(row[3])
            old.execute("INSERT INTO migrations VALUES (?, ?, ?, ?, ?)", row)
    for table in ("tenants", "databases"):
        if _columns(old, table):
            old.execute(f"DELETE FROM {table}")


def _copy(new, old, table):
    """Copy the rows of a table; columns that the earlier one lacks are left out, as are lists."""
    columns = [name for name in _columns(old, table) if name in _columns(new, table)]
    if columns:
        rows = new.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
        if table in ("collections", "segments") and "topic" in _columns(old, table):
            columns, rows = [*columns, "topic"], [(*row, "") for row in rows]
        places = ", ".join("?" for _ in columns)
        old.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})", rows)


def _columns(database, table):
    return [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]
