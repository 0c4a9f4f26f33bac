"""Databases as stores: each a file with a driver. The rest of the package knows them by the registry alone."""

from typing import Final

from migrate.databases.chroma import ChromaDriver
from migrate.databases.kind import DatabaseKind
from migrate.databases.lancedb import LanceDriver
from migrate.databases.milvus import MilvusDriver
from migrate.databases.pgvector import PgvectorDriver
from migrate.databases.qdrant import QdrantDriver
from migrate.databases.sqlite_table import SqliteDriver
from migrate.databases.sqlite_vec import SqliteVecDriver

KINDS: Final = (
    DatabaseKind(ChromaDriver),
    DatabaseKind(ChromaDriver, "chroma+http"),
    DatabaseKind(ChromaDriver, "chroma+https"),
    DatabaseKind(QdrantDriver),
    DatabaseKind(LanceDriver),
    DatabaseKind(MilvusDriver),
    DatabaseKind(PgvectorDriver),
    DatabaseKind(SqliteVecDriver),
    DatabaseKind(SqliteDriver),
)
"""All of them, in the order in which they are asked whether a path is theirs."""
