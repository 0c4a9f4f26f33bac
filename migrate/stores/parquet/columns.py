"""Which columns of a Parquet file are ids, vectors, texts and metadata, and what document a row is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from migrate.errors import StoreError
from migrate.reading import MalformedError, as_table, parse_json
from migrate.stores.records import choose_text
from migrate.vectors import Document

OWN: Final = b"lead-migrate"
"""Of the schema's metadata: the options that a file was read, or written, with."""

OPTIONS: Final = ("distance", "id", "metadata", "text", "vector")
_VECTORS: Final = ("vector", "vectors", "embedding", "embeddings", "values")
_IDS: Final = ("id", "_id", "doc_id")
_METADATA: Final = "metadata"
_FLOATS: Final = {"halffloat": "float16", "float": "float32", "double": "float64"}


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns by what they are; `id`, `text` and `metadata` may be lacking. `others` are metadata by their names.

    `element` is the type of the vectors' numbers; `notes` say what was chosen, and why.
    """

    vector: str
    element: str
    id: str | None
    text: str | None
    metadata: str | None
    others: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def documents(self) -> list[str]:
        """The columns that a document is made of."""
        return [name for name in (self.id, self.text, self.metadata, *self.others) if name is not None]

    @property
    def chosen(self) -> dict[str, str]:
        """As the details of a store name them."""
        names = ("vector", "id", "text", "metadata")
        return {name: value for name, value in asdict(self).items() if name in names and value is not None}


def choose_columns(location: str, schema: Any, asked: Mapping[str, str]) -> Columns:
    """Tell the columns apart by what is asked for, by their types, and by usual names.

    Raises
    ------
    StoreError
        One that is asked for is not there, or there is more than one choice.
    """
    import pyarrow as pa

    names = list(schema.names)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise StoreError(f"{location}: expected columns with different names, found {twice!r} twice; rename one")
    types = {name: schema.field(name).type for name in names}
    vectors = [name for name in names if _is_vector(pa, types[name])]
    vector = _choose_vector(location, vectors, asked.get("vector"))
    texts = [name for name in names if _is_text(pa, types[name])]
    doc_id, why_id = _choose_id(location, pa, types, asked.get("id"))
    metadata = _choose_metadata(location, pa, types, asked.get("metadata"))
    text, why_text = choose_text(
        location, [name for name in texts if name not in (doc_id, metadata)], asked.get("text")
    )
    extra_columns = tuple(name for name in names if name not in (vector, doc_id, text, metadata))
    notes = [why_id, why_text] if why_id else [why_text]
    element = _FLOATS[str(types[vector].value_type)]
    if element != "float32":
        notes.append(f"the vectors are {element}, read as float32")
    notes.extend(
        f"column {name} also holds vectors; a new store has them as they are"
        for name in extra_columns
        if name in vectors
    )
    return Columns(vector, element, doc_id, text, metadata, extra_columns, tuple(notes))


def own_options(schema: Any) -> dict[str, str]:
    """The options that a file itself names."""
    try:
        noted = as_table(parse_json((schema.metadata or {}).get(OWN, b"{}")))
    except MalformedError:
        return {}
    return {key: noted[key] for key in OPTIONS if isinstance(noted.get(key), str)}


def to_document(location: str, row: int, fields: dict[str, Any], columns: Columns) -> Document:
    """The document of a row, whose values are `fields`.

    Raises
    ------
    StoreError
        Its metadata is no object, or has a name that a column has, too.
    """
    doc_id = str(row if columns.id is None else fields[columns.id])
    text = fields.get(columns.text) if columns.text else None
    # a number would not come back as one out of an id, which is a text
    kept = [columns.id] if columns.id is not None and not isinstance(fields[columns.id], str) else []
    metadata = {name: fields[name] for name in (*kept, *columns.others)}
    inner = fields.get(columns.metadata) if columns.metadata else None
    for key, value in _pairs(location, doc_id, columns.metadata, inner):
        if key in metadata:
            raise StoreError(
                f"{location}: document {doc_id!r} has {key!r} twice, in column {columns.metadata} and beside it; "
                "rename one, or say #?metadata= to take that column as it is"
            )
        metadata[key] = value
    return Document(doc_id, text or "", metadata)


def _pairs(location: str, doc_id: str, column: str | None, value: Any) -> list[tuple[str, Any]]:
    if value is None:
        return []
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    if isinstance(value, list) and all(isinstance(pair, tuple) for pair in value):  # a map, as Arrow gives it
        return value
    if not isinstance(value, dict):
        raise StoreError(
            f"{location}: expected a JSON object in column {column} of document {doc_id!r}, found another text; say "
            "#?metadata= to take that column as it is"
        )
    return list(value.items())


def _choose_vector(location: str, columns: list[str], asked: str | None) -> str:
    have = ", ".join(columns) or "none"
    if asked is not None:
        if asked not in columns:
            raise StoreError(
                f"{location}: expected a column of vectors {asked!r} (lists of floats), found {have}; name one of these"
            )
        return asked
    usual = [name for name in _VECTORS if name in columns]
    choice = columns if len(columns) == 1 else usual
    if len(choice) != 1:
        raise StoreError(
            f"{location}: expected one column of vectors (lists of floats), found {have}; say #?vector=COLUMN"
        )
    return choice[0]


def _choose_id(location: str, pa: Any, types: Mapping[str, Any], asked: str | None) -> tuple[str | None, str]:
    name = asked or next((name for name in _IDS if name in types), None)
    if name is None:
        return None, "the file has no column of ids: rows are numbered from 0 on; say #?id=COLUMN for one"
    if name not in types:
        raise StoreError(f"{location}: expected a column of ids {name!r}, found {', '.join(types)}; name one of these")
    if not _is_text(pa, types[name]) and not pa.types.is_integer(types[name]):
        raise StoreError(
            f"{location}: expected ids that are texts or integers in column {name}, found {types[name]}; say "
            "#?id=COLUMN for another"
        )
    return name, ""


def _choose_metadata(location: str, pa: Any, types: Mapping[str, Any], asked: str | None) -> str | None:
    """A column that holds all the metadata; an empty name asks for none."""
    if asked == "":
        return None
    name = asked or _METADATA
    kind = types.get(name)
    is_one = kind is not None and (
        pa.types.is_struct(kind) or (pa.types.is_map(kind) and _is_text(pa, kind.key_type)) or _is_text(pa, kind)
    )
    if asked is not None and not is_one:
        raise StoreError(
            f"{location}: expected a column of metadata {name!r} (struct, map or JSON), found "
            f"{'none' if kind is None else kind}; name another"
        )
    return name if is_one else None


def _is_vector(pa: Any, kind: Any) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(is_list and str(kind.value_type) in _FLOATS)


def _is_text(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view")
