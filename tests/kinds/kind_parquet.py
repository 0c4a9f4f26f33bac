"""Files of Parquet; and columns of many types, which tables of LanceDB have too."""

import datetime
import decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
from kind_base import Kind, place_of, rows_of
from pyarrow import parquet


class Parquet(Kind):
    """Files of Parquet, three of them or, once something has changed, two."""

    files_made = 3

    def make(self, folder, records, metric="l2"):
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*.parquet"):
            path.unlink()
        table = self.table(list(records.values()))
        for number in range(self.files_made):
            start, stop = (at * len(table) // self.files_made for at in (number, number + 1))
            own = table.slice(start, stop - start)
            parquet.write_table(own, folder / f"part-{number}.parquet", row_group_size=37)
        return f"parquet:{folder}#?distance={metric}"

    def table(self, pairs):
        return pa.Table.from_pylist(
            [{"id": d.id, "text": d.text, "embedding": vector.tolist(), **d.metadata} for d, vector in pairs]
        )

    def change(self, location, before, after):
        self.files_made = 2
        super().change(location, before, after)

    def place(self, folder):
        return f"parquet:{folder}"

    def read(self, location):
        place = Path(place_of(location))
        found, facts = [], {}
        for path in [place] if place.is_file() else sorted(place.glob("*.parquet")):
            table = parquet.read_table(path)
            groups = parquet.ParquetFile(path).metadata
            facts[path.name] = {**arrow_facts(table.schema), "rows": table.num_rows}
            facts[path.name]["compression"] = groups.row_group(0).column(0).compression
            found += rows_of(table.to_pylist(), "embedding" if "embedding" in table.column_names else "vector")
        return found, facts


class TypedParquet(Parquet):
    """The same with columns of many types."""

    def make(self, folder, records, metric="l2"):
        return f"{super().make(folder, records, metric)}&vector=vector&text=text"

    def table(self, pairs):
        return pa.Table.from_pylist([columns_of(*pair) for pair in pairs], schema=schema_of(pa.list_(pa.float32())))


class ParquetFile(TypedParquet):
    """One file, with vectors of half precision."""

    def make(self, folder, records):
        halves = [columns_of(d, vector.astype(np.float16)) for d, vector in records.values()]
        (dim,) = {len(row["vector"]) for row in halves}
        schema = schema_of(pa.list_(pa.float16(), dim)).remove(11)
        path = folder.with_suffix(".parquet")
        parquet.write_table(pa.Table.from_pylist(halves, schema=schema), path)
        return str(path)

    def place(self, folder):
        return str(folder)


def columns_of(document, vector):
    """Columns of many types, nulls among them."""
    row = document.metadata["page"]
    moment = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=row)
    return {
        "id": document.id,
        "text": document.text,
        "page": None if row % 17 == 0 else row,
        "source": document.metadata.get("source"),
        "small": row % 256,
        "score": document.metadata["score"],
        "price": decimal.Decimal(row) / 4,
        "made": None if row % 7 == 0 else moment,
        "raw": bytes([row % 256, 0]),
        "nested": (None, {"a": None, "b": []}, {"a": row, "b": ["", None]})[row % 3],
        "flag": (None, True, False)[row % 3],
        "half": vector[:8].astype(np.float16),
        "key \u00fc": row * 2**40,
        "vector": vector,
    }


def schema_of(vector):
    """Their types, with that of the vectors."""
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            ("text", pa.string()),
            ("page", pa.int64()),
            ("source", pa.string()),
            ("small", pa.uint8()),
            ("score", pa.float64()),
            ("price", pa.decimal128(20, 4)),
            ("made", pa.timestamp("us", "UTC")),
            ("raw", pa.binary()),
            ("nested", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
            ("flag", pa.bool_()),
            ("half", pa.list_(pa.float16(), 8)),
            ("key \u00fc", pa.int64()),
            pa.field("vector", vector, metadata={"why": "\u00fc"}),
        ],
        metadata={"owner": "\u00fc"},
    )


def arrow_facts(schema):
    """Types, nullability and metadata, without the note of ours."""
    return {
        "columns": {
            one.name: f"{one.type}{'' if one.nullable else ', not null'}{one.metadata or ''}" for one in schema
        },
        "metadata": {k.decode(): v.decode() for k, v in (schema.metadata or {}).items() if k != b"lead-migrate"},
    }
