"""Chooses the columns of an Arrow schema for ids, texts, metadata and vectors, by their types and usual names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from migrate.errors import StoreError
from migrate.stores.added_fields import AddedField, fields_beside, main_fields
from migrate.stores.documents.names import IDS, LABEL, METADATA, VECTORS, first_of, is_id_name
from migrate.stores.records import choose, choose_text
from migrate.vectors import Document


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns by meaning; those without a value are lacking.

    `vector` and `element`, the type of its numbers, are of a store in the file itself; `label` is of a file beside an
    index. `metadata` holds all metadata of a row, `others` are metadata by their own names. `vectors` are columns of
    further vectors, and `notes` say why a column was chosen.
    """

    id: str | None
    text: str | None
    others: tuple[str, ...]
    vectors: tuple[str, ...]
    notes: tuple[str, ...] = ()
    label: str | None = None
    metadata: str | None = None
    vector: str = ""
    element: str = ""

    @property
    def documents(self) -> list[str]:
        """Columns that make a document."""
        return [name for name in (self.id, self.text, self.metadata, *self.others) if name is not None]


def columns_beside_index(schema: Any, location: Any, named: Mapping[str, str] = MappingProxyType({})) -> Columns:
    """Choose the columns of documents beside an index; `named` has those that the user names for `id` and `text`.

    Columns of vectors or bytes are no metadata: they belong to the index, or are no JSON.
    """
    types = _types(schema, location)
    doc_id = _choose_id(location, types, named.get("id"))
    strings = [name for name in types if _is_text(types[name])]
    # As the only column of texts left, one of ids would be taken for the documents.
    texts = [name for name in strings if name == named.get("text") or not (name == doc_id or is_id_name(name))]
    text, _ = choose_text(location, texts, named.get("text"))
    label = LABEL if str(types.get(LABEL)).startswith(("int", "uint")) else None
    vectors = tuple(name for name, kind in types.items() if re.search("list.*(float|double)", str(kind)))
    left_out = {doc_id, text, label, *vectors, *(name for name, kind in types.items() if "binary" in str(kind))}
    return Columns(doc_id, text, tuple(name for name in types if name not in left_out), vectors, label=label)


def columns_of_store(
    schema: Any, location: str, named: Mapping[str, str], added: Mapping[str, AddedField] = MappingProxyType({})
) -> Columns:
    """Choose the columns of a store; `named` has those for `vector`, `id`, `text` and `metadata`.

    Those that were `added` are not chosen while the column that they stand beside is there, and are no metadata.

    Raises a StoreError where one that is named is not there, or there is more than one choice.
    """
    types = _types(schema, location)
    lists = {name: kind for name, kind in types.items() if re.match("(fixed_size_|large_)?list<", str(kind))}
    elements = {"halffloat": "float16", "float": "float32", "double": "float64"}
    vectors = [name for name, kind in lists.items() if str(kind.value_type) in elements]
    vector = _choose_vector(location, vectors, main_fields(vectors, added), named.get("vector"))
    doc_id = _choose_id(location, types, named.get("id"))
    metadata = _choose_metadata(location, types, named.get("metadata"))
    texts = [name for name in types if _is_text(types[name]) and name not in (doc_id, metadata)]
    text, why_text = choose_text(location, texts, named.get("text"))
    numbered = "the file has no column of ids: rows are numbered from 0 on; say #?id=COLUMN for one"
    if doc_id:
        notes = [why_text]
    else:
        notes = [numbered, why_text]
    element = elements[str(types[vector].value_type)]
    if element != "float32":
        notes.append(f"the vectors are {element}, read as float32")
    beside = fields_beside(added)
    more = tuple(name for name in vectors if name not in (vector, doc_id, text, metadata, *beside))
    notes += [f"column {name} also holds vectors; a new store has them as they are" for name in more]
    remaining = tuple(name for name in types if name not in (vector, doc_id, text, metadata, *beside))
    return Columns(doc_id, text, remaining, more, tuple(notes), metadata=metadata, vector=vector, element=element)


def to_document(location: str, row: int, fields: Mapping[str, Any], columns: Columns) -> Document:
    """Return the document of a row of a store, whose values are `fields`.

    Raises a StoreError where its metadata is no object, or has a name that a column has, too.
    """
    key = columns.id
    doc_id = str(row if key is None else fields[key])
    # an id is a text: a number would not come back as one out of it
    if key is None or isinstance(fields[key], str):
        excluded = []
    else:
        excluded = [key]
    metadata = {name: fields[name] for name in (*excluded, *columns.others)}
    for name, value in _pairs(location, doc_id, columns.metadata, fields):
        if name in metadata:
            raise StoreError(
                f"{location}: document {doc_id!r} has {name!r} twice, in column {columns.metadata} and beside it; "
                "rename one, or say #?metadata= to take that column as it is"
            )
        metadata[name] = value
    return Document(doc_id, (fields[columns.text] if columns.text else None) or "", metadata)


def _pairs(location: str, doc_id: str, column: str | None, fields: Mapping[str, Any]) -> list[tuple[str, Any]]:
    if column is None:
        value = None
    else:
        value = fields[column]
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = ""
    # a map, as Arrow gives it
    if isinstance(value, list) and all(isinstance(pair, tuple) for pair in value):
        return value
    if not isinstance(value, dict | None):
        raise StoreError(
            f"{location}: column {column} of document {doc_id!r} is not a JSON object; say #?metadata= to take it as "
            "it is"
        )
    return [*(value or {}).items()]


def _types(schema: Any, location: Any) -> dict[str, Any]:
    names = list(schema.names)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise StoreError(f"{location}: two columns have the name {twice!r}; rename one")
    return {name: list_type(schema.field(name).type) for name in names}


def list_type(kind: Any) -> Any:
    """Return the type of the lists that a type of tensors is stored as, any other as it is."""
    storage = getattr(kind, "storage_type", kind)
    if "list<" in str(storage):
        return storage
    return kind


def _choose_id(location: Any, types: Mapping[str, Any], named: str | None) -> str | None:
    if named:
        choose(location, "column of ids", list(types), named, "name one of these")
    name = named or first_of(IDS, types)
    if name is not None and not _is_text(types[name]) and not str(types[name]).startswith(("int", "uint")):
        raise StoreError(
            f"{location}: column {name} is of {types[name]}, and ids are texts or integers; convert it, or say "
            "?id=COLUMN for another"
        )
    return name


def _choose_vector(location: str, columns: Sequence[str], main: Sequence[str], named: str | None) -> str:
    usual = [name for name in VECTORS if name in main]
    if named is None and len(usual) == 1:
        return usual[0]
    if named is None:
        columns = main
    return choose(location, "column of vectors (lists of floats)", columns, named, "say #?vector=COLUMN for one")


def _choose_metadata(location: str, types: Mapping[str, Any], named: str | None) -> str | None:
    """Choose a column that holds all the metadata; an empty name asks for none."""
    if named == "":
        return None
    name = named or first_of(METADATA, types)
    kind = types.get(name or "")
    if kind is not None and (_is_text(kind) or str(kind).startswith(("struct<", "map<string, ", "map<large_string, "))):
        return name
    if named is None:
        return None
    raise StoreError(
        f"{location}: column {name!r} of metadata (struct, map or JSON) is {kind or 'not there'}; name another"
    )


def _is_text(kind: Any) -> bool:
    """Return whether a type of Arrow is one of texts."""
    return str(kind) in ("string", "large_string", "string_view")
