"""LanceDB's client, and its tables in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from migrate.errors import LeadMigrateError, StoreError
from migrate.files import disk_errors
from migrate.stores.records import import_client

OPTIONS: Final = ("distance", "id", "text", "vector", "version")
"""Of a location."""
OWN: Final = b"lead-migrate"
"""In the metadata of a schema: what this tool keeps there."""
SWITCHED: Final = b"lead-migrate-switched"
"""Of a version that came by a switch: the token of what belongs to it."""
_LOSSY: Final = ("Pq", "Sq", "Rq")


def client() -> Any:
    """The client's module."""
    for name in ("LANCE_LOG", "LANCEDB_LOG"):  # a warning that a new table is new would stand between our lines
        os.environ.setdefault(name, "error")
    return import_client("lancedb", "lancedb")


@contextmanager
def answers(location: str) -> Iterator[None]:
    """Turn whatever the client raises into one line."""
    try:
        with disk_errors(Path(location)):
            yield
    except (LeadMigrateError, GeneratorExit):
        raise
    except Exception as error:
        if isinstance(error.__cause__, LeadMigrateError):
            raise error.__cause__ from None
        message = " ".join(str(error).split())[:300] or type(error).__name__
        raise StoreError(f"{location}: LanceDB says: {message}; see to that, and run again") from error


def tables_in(path: Path) -> list[str]:
    """The tables of a folder, by name."""
    return sorted(table.stem for table in path.glob("*.lance") if (table / "_versions").is_dir())


def is_lossy(index: Any) -> bool:
    """Whether an index searches codes in the place of vectors."""
    return any(part in str(index.index_type) for part in _LOSSY)


def is_vector(kind: Any) -> bool:
    """Whether an Arrow type is one of vectors of floats."""
    import pyarrow as pa

    return bool(pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type))


def as_matrix(column: Any, dim: int) -> Any:
    """A column without nulls as rows of float32."""
    values = column.flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values, np.float32).reshape(-1, dim)


def as_column(pa: Any, vectors: Any, kind: Any, there: Any) -> Any:
    """Vectors, (n, dim), as an Arrow column; null where one is not `there`, (n,)."""
    values = pa.array(vectors.astype(kind.value_type.to_pandas_dtype()).reshape(-1), kind.value_type)
    mask = None if there.all() else pa.array(~there)
    return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=mask)
