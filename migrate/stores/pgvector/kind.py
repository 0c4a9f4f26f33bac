"""Tables with a column of pgvector, as the registry knows them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from migrate.stores.base import KindSupport
from migrate.stores.pgvector.catalog import NAME

if TYPE_CHECKING:
    from migrate.stores.outputs import Output
    from migrate.stores.pgvector.store import PgvectorStore


class PgvectorKind:
    """`pgvector:postgresql://USER@HOST/DB#SCHEMA.TABLE.COLUMN`."""

    name = NAME
    support = KindSupport(
        "PostgreSQL with pgvector",
        ("pgvector:postgresql://HOST/DB#TABLE",),
        "pgvector",
        "all columns, keys, checks, indexes with parameters, row security, grants, `halfvec`, rows without a vector",
        "triggers are not copied; `sparsevec` and `bit` are not translated; a copy stays in its database",
    )

    def recognises(self, path: Path) -> bool:
        """A table lies in no path."""
        return False

    def open(self, location: str) -> PgvectorStore:
        """Open a table; raises as `PgvectorStore`."""
        from migrate.stores.pgvector.store import PgvectorStore

        return PgvectorStore(location)

    def output(self, location: str) -> Output:
        """A new table.

        Raises
        ------
        UsageError
            No table is named, or an option means nothing.
        """
        from migrate.stores.pgvector.output import PgvectorOutput

        return PgvectorOutput(location)
