"""Tables of LanceDB."""

from contextlib import nullcontext

import lancedb
import numpy as np
import pyarrow as pa
from kind_base import NO_DIM, Collections, name_of, place_of, rows_of, with_distance
from kind_parquet import arrow_facts, columns_of, schema_of


class Lance(Collections):
    """A table with a column for each key of the metadata."""

    scheme = "lancedb"

    def opened(self, location):
        return nullcontext(lancedb.connect(place_of(location)))

    def make(self, folder, records, metric="l2", name="docs"):
        return with_distance(super().make(folder, records, metric, name), metric)

    def create(self, client, name, records, metric):
        schema = None
        if not records:
            schema = pa.schema({"id": pa.string(), "text": pa.string(), "vector": pa.list_(pa.float32(), NO_DIM)})
        client.create_table(name, self.rows(records.values()) or None, schema=schema, mode="overwrite")

    def put(self, client, name, records, names, gone=()):
        table = client.open_table(name)
        if old := ", ".join("'" + one.replace("'", "''") + "'" for one in [*gone, *names]):
            table.delete(f"id in ({old})")
        if names:
            table.add(self.rows(records[one] for one in names))

    def rows(self, pairs):
        return [{"id": d.id, "text": d.text, "vector": vector, **d.metadata} for d, vector in pairs]

    def read(self, location):
        table = lancedb.connect(place_of(location)).open_table(name_of(location))
        facts = arrow_facts(table.schema)
        facts["indices"] = {index.name: f"{index.index_type} {index.columns}" for index in table.list_indices()}
        return rows_of(row for batch in table.search().to_batches() for row in batch.to_pylist()), facts


class TypedLance(Lance):
    """Columns of many types, and rows without a vector."""

    def __init__(self, dtype=np.float32):
        self.dtype = dtype

    def make(self, folder, records, metric="l2"):
        return f"{super().make(folder, records)}?vector=vector&text=text"

    def create(self, client, name, records, metric):
        rows = self.rows(records.values())
        empty = [{**rows.slice(0, 1).to_pylist()[0], "id": f"no vector {row}", "vector": None} for row in range(3)]
        rows = pa.concat_tables([rows, pa.Table.from_pylist(empty, schema=rows.schema)])
        client.create_table(name, rows, on_bad_vectors="null").create_scalar_index("page")

    def rows(self, pairs):
        rows = [columns_of(document, vector.astype(self.dtype)) for document, vector in pairs]
        vectors = pa.list_(pa.from_numpy_dtype(self.dtype), len(rows[0]["vector"]))
        return pa.Table.from_pylist(rows, schema=schema_of(vectors))
