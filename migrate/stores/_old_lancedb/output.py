"""Writes new folders of LanceDB, and makes indexes as another table has them."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from migrate.errors import StoreError
from migrate.files import output_errors
from migrate.stores.base import Resume, Store
from migrate.stores.kept import sync_tree
from migrate.stores.lancedb.client import OWN, SWITCHED, answers, as_column, as_matrix, client, is_lossy, is_vector
from migrate.stores.lancedb.store import LanceStore
from migrate.stores.records import WaitingWriter, metadata_as_json

_FUNCTIONS: Final = b"embedding_functions"


class FolderWriter(WaitingWriter):
    """A folder with one table."""

    def __init__(self, source: Store, folder: Path, dim: int, resume: Resume, name: str) -> None:
        super().__init__(source, folder, dim, resume)
        self._name = name

    def load(self) -> None:
        """Write the table anew."""
        import pyarrow as pa

        module = client()
        source = self.source if isinstance(self.source, LanceStore) else None
        schema = self._same(pa, source) if source else self._new(pa)
        parts = self._copied(pa, source, schema) if source else self._made(pa, schema)
        where = str(self.folder)
        with output_errors(self.folder), answers(where):
            database = module.connect(where)
            reader = pa.RecordBatchReader.from_batches(schema, parts)
            table = database.create_table(self._name, reader, mode="overwrite", on_bad_vectors="null")
            if source is not None:
                self._index(table, source)
            written, expected = table.count_rows(), source.table.count_rows() if source else self.source.info.count
        if written != expected:
            raise StoreError(f"{where}: expected {expected} rows once written, found {written}; run again")
        sync_tree(self.folder)

    def _same(self, pa: Any, source: LanceStore) -> Any:
        """The schema of `source` with vectors of the new dimension."""
        old = source.schema.field(source.vector)
        if pa.types.is_float16(old.type.value_type):
            self.remarks += (f"the vectors are rounded to half precision, as column {source.vector} has it",)
        kind = pa.list_(old.type.value_type, self.rows.dim)
        at = source.schema.get_field_index(source.vector)
        schema = source.schema.set(at, pa.field(old.name, kind, old.nullable, old.metadata))
        metadata = dict(source.schema.metadata or {})
        if metadata.pop(_FUNCTIONS, None) is not None:
            self.remarks += (
                "the embedding function that the old table names is not in the new one, as it belongs to the old "
                "model; give the table that of the new model, or queries as vectors",
            )
        metadata.pop(SWITCHED, None)
        if source.asked:
            metadata[OWN] = json.dumps(source.asked, sort_keys=True).encode()
        return schema.with_metadata(metadata or None)

    def _new(self, pa: Any) -> Any:
        fields = [
            ("id", pa.string()),
            ("text", pa.string()),
            ("metadata", pa.string()),
            ("vector", pa.list_(pa.float32(), self.rows.dim)),
        ]
        options = {"id": "id", "text": "text", "vector": "vector", "distance": self.source.info.metric}
        return pa.schema(fields, metadata={OWN: json.dumps({**options, "made": True}, sort_keys=True).encode()})

    def _copied(self, pa: Any, source: LanceStore, schema: Any) -> Iterator[Any]:
        """The rows of `source` in their order; those that have no vector stay without."""
        at = schema.get_field_index(source.vector)
        kind = schema.field(at).type
        rows, first = np.argsort(source._order), 0
        for batch in source.batches(None):
            there = batch.column(at).is_valid().to_numpy(zero_copy_only=False)
            vectors = np.zeros((len(there), self.rows.dim), np.float32)
            vectors[there] = self.vectors_at(rows[first : first + there.sum()])
            first += there.sum()
            column = as_column(pa, vectors, kind, there)
            columns = [column if place == at else batch.column(place) for place in range(batch.num_columns)]
            _refuse_nan(source, batch, at)
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _made(self, pa: Any, schema: Any) -> Iterator[Any]:
        kind = schema.field("vector").type
        for documents, vectors in self.records():
            columns = [
                pa.array([document.id for document in documents], pa.string()),
                pa.array([document.text for document in documents], pa.string()),
                pa.array([metadata_as_json(document) for document in documents], pa.string()),
                as_column(pa, vectors, kind, np.ones(len(vectors), np.bool_)),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _index(self, table: Any, source: LanceStore) -> None:
        """Make the indexes of `source` anew."""
        for index, facts in source.indices:
            try:
                make_index(table, index, facts, self.rows.dim if index.columns[0] == source.vector else None)
            except Exception as error:
                message = " ".join(str(error).split())[:200]
                self.remarks += (f"the index {index.name} ({index.index_type}) could not be made again: {message}",)
                continue
            if is_lossy(index):
                self.remarks += (
                    f"the index {index.name} ({index.index_type}) is made anew, and is lossy: hold its recall against "
                    "exact search",
                )


def make_index(table: Any, index: Any, facts: Any, dim: int | None) -> None:
    """Make an index as another table has it, of vectors of dimension `dim` now; None where it is what it was."""
    from lancedb import index as kinds

    (column, *more) = index.columns
    kind = getattr(kinds, str(index.index_type), None)
    if kind is None or more:
        raise ValueError("of a kind that is not made here")
    table.create_index(column, config=kind(**_settings(kind, index, facts, dim)), name=index.name)


def _settings(kind: Callable[..., Any], index: Any, facts: Any, dim: int | None) -> dict[str, Any]:
    """What an index was made with, as far as LanceDB tells it, and as it fits vectors of the new dimension."""
    details = _flat(index.index_details or {})
    parameters = inspect.signature(kind).parameters
    settings = {key: value for key, value in details.items() if key in parameters and value is not None}
    if facts.distance_type is not None and "distance_type" in parameters:
        settings["distance_type"] = str(facts.distance_type).lower()
    if dim is not None and dim % int(settings.get("num_sub_vectors", 1)):
        del settings["num_sub_vectors"]
    return {key: int(value) if isinstance(value, str) and value.isdigit() else value for key, value in settings.items()}


def _flat(details: Mapping[str, Any]) -> dict[str, Any]:
    """All settings at any depth; those of HNSW under the names that its configuration has."""
    names = {"max_connections": "m", "construction_ef": "ef_construction", "target_num_partitions": "num_partitions"}
    settings: dict[str, Any] = {}
    for key, value in details.items():
        if isinstance(value, Mapping):
            settings.update(_flat(value))
        else:
            name = key.rpartition(".")[2]
            settings[names.get(name, name)] = value
    return settings


def _refuse_nan(source: LanceStore, batch: Any, but: int) -> None:
    """The client makes vectors with NaN in them null: other vectors than those read must have none."""
    for place, field in enumerate(batch.schema):
        if place != but and is_vector(field.type) and np.isnan(as_matrix(batch.column(place), 1)).any():
            raise StoreError(
                f"{source.info.location}: expected numbers in the vectors of column {field.name}, found NaN, which a "
                "new table would not keep; replace them by null, or drop the column"
            )
