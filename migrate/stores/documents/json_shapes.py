"""The records in a value of JSON, whichever way a program has put documents into one.

Programs write a list of records, an object of records by id, one list for each field (as Chroma's `get` and pandas'
`to_dict("list")` return them), a list among other facts (`{"model": ..., "chunks": [...]}`), or one of the other shapes
of pandas' `to_json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from migrate.stores.binary_reader import malformed
from migrate.stores.documents.jsonl import shown_type
from migrate.stores.documents.names import METADATA, NOT_OF_DOCUMENTS, field_of

KEY: Final = ""
"""The field of a record that has its key in an object of JSON."""

_SPLIT: Final = {"columns", "index", "data"}
"""The names in an object of pandas' `to_json(orient="split")`."""


def records_in(path: Path, value: Any) -> Iterator[Any]:
    """Yield the records in a value: objects, texts, or, in a file of something else, anything.

    Raises a StoreError where the value is neither a list nor an object, or its lists do not fit each other.
    """
    if isinstance(value, list):
        yield from value
        return
    if not isinstance(value, dict):
        raise malformed(path, f"neither a list nor an object but {shown_type(value)}", "put the documents in one")
    if len(value) != 1:
        inner = None
    else:
        inner = next(iter(value.values()))
    if isinstance(inner, dict) and any(isinstance(entry, list) for entry in inner.values()):
        value = inner  # {"data": {"documents": [...], ...}}
    if value.keys() == _SPLIT and _is_split(value):
        yield from (dict(zip(value["columns"], cells, strict=True)) for cells in value["data"])
        return
    columns = _numbered_columns(value) or {
        name: entry for name, entry in value.items() if isinstance(entry, list) and name not in NOT_OF_DOCUMENTS
    }
    yield from _rows_of(path, columns) if columns else _by_key(value)


def _by_key(records: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the records of an object that has them by id."""
    for key, entry in records.items():
        if isinstance(entry, str):
            record = {"text": entry}
        else:
            record = entry
        yield record | {KEY: key} if isinstance(record, dict) else record


def _rows_of(path: Path, columns: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """Yield a record for each place in some lists; the objects of a list of objects are records themselves."""
    tables = [name for name, column in columns.items() if _holds_objects(column) and field_of(name) not in METADATA]
    # An object with nothing but a list of metadata: those are the records, as nothing else is there.
    if not tables and len(columns) == 1:
        tables = [name for name, column in columns.items() if _holds_objects(column)]
    if len(tables) > 1:
        problem = f"it holds several lists of objects ({', '.join(tables)})"
        raise malformed(path, problem, "keep the one with the documents")
    if tables:
        # what lies beside the records, of another length, is nothing of theirs
        count = len(columns[tables[0]])
        columns = {name: column for name, column in columns.items() if len(column) == count}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())[:200]
        remedy = "give each of them one value a document, and take out what is not of documents"
        raise malformed(path, f"its lists have different lengths ({listed})", remedy)
    fields = _distinct_fields(name for name in columns if name not in tables)
    for row in range(next(iter(lengths.values()))):
        record = {field: columns[name][row] for name, field in fields.items() if columns[name][row] is not None}
        if tables:
            whole = columns[tables[0]][row]
        else:
            whole = {}
        if twice := record.keys() & whole.keys():
            problem = f"record {row + 1} has {min(twice)!r} twice, in {tables[0]} and beside it"
            raise malformed(path, problem, "rename one")
        yield record | whole


def _distinct_fields(names: Iterator[str]) -> dict[str, str]:
    """Return the field that each list has the values of; where two would be the same, each keeps its own name."""
    fields = {name: field_of(name) for name in names}
    meant = list(fields.values())
    return {name: field if meant.count(field) == 1 else name for name, field in fields.items()}


def _holds_objects(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(value, dict) for value in values)


def _is_split(value: Mapping[str, Any]) -> bool:
    """Return whether `columns` are the names of the cells of each row in `data`."""
    names = value["columns"]
    rows = value["data"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return False
    return isinstance(rows, list) and all(isinstance(cells, list) and len(cells) == len(names) for cells in rows)


def _numbered_columns(value: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the columns of pandas' `to_json()`, each an object by the number of the row; else none."""
    columns = list(value.values())
    if not columns or not all(isinstance(column, dict) for column in columns):
        return {}
    numbers = [str(row) for row in range(len(columns[0]))]
    if not numbers or any(list(column) != numbers for column in columns):
        return {}
    return {name: list(column.values()) for name, column in value.items()}
