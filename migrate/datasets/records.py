"""Reads JSONL corpora, query logs, labels and ids strictly: an error names the file and the line."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from migrate.errors import DatasetError, OutputError
from migrate.files import describe_os_error, open_file
from migrate.vectors import Document, Query


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number (from 1) and text of every line that is not blank, without its line end; a BOM is skipped.

    Lines end at a newline byte only: Unicode has other line separators, and BEIR texts contain them.
    """
    if not path.exists():
        raise DatasetError(f"{path}: no such file; check the path")
    if not path.is_file():
        raise DatasetError(f"{path}: is a folder or a device, not a file; check the path")
    try:
        with open_file(path) as file:
            for number, raw in enumerate(file, start=1):
                if number == 1:
                    # Spreadsheets and editors of Windows begin a file with it.
                    content = raw.removeprefix(b"\xef\xbb\xbf")
                else:
                    content = raw
                try:
                    line = content.decode("utf-8").rstrip("\r\n")
                except UnicodeDecodeError as error:
                    reason = f"byte 0x{content[error.start]:02x} at column {error.start + 1}"
                    raise DatasetError(f"{path}:{number}: not UTF-8 ({reason}); convert the file to UTF-8") from None
                if line.strip():
                    yield number, line
    except OSError as error:
        raise OutputError(f"cannot read {path}: {describe_os_error(error)}; check the permissions") from error


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield place ("file:line") and content of every line of a JSONL file, each a JSON object."""
    for number, line in read_lines(path):
        location = f"{path}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            # some errors of the decoder quote the line; ours stays one line
            if isinstance(error, json.JSONDecodeError):
                reason = error.msg
            else:
                reason = type(error).__name__
            raise DatasetError(f"{location}: not a JSON object ({reason}); correct the line") from None
        if not isinstance(record, dict):
            raise DatasetError(f"{location}: the line is {describe_type(record)}, not a JSON object; correct it")
        yield location, record


def record_id(record: dict[str, Any], location: str) -> str:
    """Return the id of a record, under `_id` (BEIR) or `id`; an integer becomes its decimal digits."""
    value = record.get("_id", record.get("id"))
    # `true` is an integer to Python.
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value:
        kind = "missing"
        if "_id" in record or "id" in record:
            kind = describe_type(value)
        raise DatasetError(f'{location}: the id is {kind}; give the record a text under "_id" or "id"')
    return encodable(value, location)


def record_text(record: dict[str, Any], key: str, location: str, *, default: str | None = None) -> str:
    """Return the text under `key`; where it is absent or null, `default`, unless that is None too."""
    value = record.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str):
        kind = describe_type(value) if key in record else "missing"
        raise DatasetError(f'{location}: "{key}" is {kind}, and should be a text; correct the line')
    return encodable(value, location)


def encodable(text: str, location: str) -> str:
    r"""Return `text` if UTF-8 can hold it: JSON may spell half a surrogate pair, as in `"\ud83d"`."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"half a surrogate pair (U+{ord(text[error.start]):04X})"
        raise DatasetError(f"{location}: the text holds {half}; correct the line") from None
    return text


def describe_type(value: object) -> str:
    """Return the JSON type of a value, for messages."""
    if value == "" and isinstance(value, str):
        return "an empty text"
    names = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    # By the type itself, as a boolean is an `int` to Python.
    return names.get(type(value), "null")


def read_query_log(path: Path) -> tuple[Query, ...]:
    """Read the queries of a log, each text once, the most frequent first, ties in the file's order.

    A file whose first line is a JSON object, or that is named `*.jsonl`, is read as one object a line with the query
    under `text` and, where it has one, an id under `_id` or `id` (BEIR's `queries.jsonl` is such a file). Any other
    file has a query a line. Blank queries are passed over, white space around a query is dropped, and a query without
    an id is named by the number of the line where it comes first. Ids may repeat. Other keys of an
    object are the query's metadata (`query_metadata`).

    Raises DatasetError: the file is missing or holds no query; a line is not UTF-8, or, among JSON objects, is none,
    has no text or an id that is neither a text nor a whole number. OutputError: the operating system refused to read
    it.
    """
    times: Counter[str] = Counter()
    firsts: dict[str, Query] = {}
    for query in _logged_queries(path):
        if query.text:
            times[query.text] += 1
            firsts.setdefault(query.text, query)
    if not times:
        raise DatasetError(f"{path}: the file has no queries; write one a line")
    # `most_common` leaves equal counts in the order in which they first came.
    return tuple(firsts[text] for text, _ in times.most_common())


def _logged_queries(path: Path) -> Iterator[Query]:
    is_jsonl = path.suffix == ".jsonl"
    if not is_jsonl:
        with suppress(ValueError, RecursionError):
            is_jsonl = isinstance(json.loads(next((line for _, line in read_lines(path)), "")), dict)
    if not is_jsonl:
        yield from (Query(str(number), line.strip()) for number, line in read_lines(path))
        return
    for location, record in read_records(path):
        named = record.get("_id", record.get("id")) is not None
        if named:
            query_id = record_id(record, location)
        else:
            query_id = location.rpartition(":")[2]
        yield Query(query_id, record_text(record, "text", location).strip(), query_metadata(record))


def query_metadata(record: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a query: those of its "metadata", where that is an object, and its own but id and text."""
    fields = {name: value for name, value in record.items() if name not in ("_id", "id", "text", "metadata")}
    metadata = record.get("metadata")
    if isinstance(metadata, dict):
        return {**fields, **metadata}
    return fields


def read_labels(path: Path) -> dict[str, str]:
    """Read the label of each document id.

    A `.jsonl` or `.json` file has objects with an id under `_id` or `id` and a `label`, a text or a number; other files
    have two columns, id and label, with a tab between them or, in a `.csv` file, a comma. A header is accepted.

    Raises DatasetError: the file is missing or holds no label; a line has other columns, or gives a document a second
    label. OutputError: the operating system refused to read it.
    """
    labels: dict[str, str] = {}
    for location, doc_id, label in _label_records(path) if path.suffix in (".jsonl", ".json") else _rows(path):
        if labels.setdefault(doc_id, label) != label:
            both = f"{labels[doc_id]!r} and {label!r}"
            raise DatasetError(f"{location}: document {doc_id!r} has two labels, {both}; remove one")
    if not labels:
        raise DatasetError(f"{path}: the file has no labels; write a document's id and its label on each line")
    return labels


def read_ids(path: Path) -> tuple[str, ...]:
    """Read ids of documents, each once: one a line, or JSONL with an id under `_id` or `id`.

    Raises DatasetError: the file is missing or holds no id, or a line is no object with one. OutputError: the operating
    system refused to read it.
    """
    if path.suffix in (".jsonl", ".json"):
        ids = dict.fromkeys(record_id(record, location) for location, record in read_records(path))
    else:
        ids = dict.fromkeys(line.strip() for _, line in read_lines(path) if line.strip())
    if not ids:
        raise DatasetError(f"{path}: the file has no ids; write a document's id on each line")
    return tuple(ids)


def _label_records(path: Path) -> Iterator[tuple[str, str, str]]:
    for location, record in read_records(path):
        label = record.get("label")
        if label in (None, "") or isinstance(label, dict | list):
            kind = "none"
            if "label" in record:
                kind = describe_type(label)
            raise DatasetError(f'{location}: the "label" is {kind}, not a text or a number; correct the line')
        yield location, record_id(record, location), str(label)


def _rows(path: Path) -> Iterator[tuple[str, str, str]]:
    divider, name = (",", "a comma") if path.suffix == ".csv" else ("\t", "a tab")
    for index, (number, line) in enumerate(read_lines(path)):
        # One line at a time: a quote that is never closed would take all lines after it for one cell.
        fields = next(csv.reader([line], delimiter=divider), [])
        if len(fields) != 2 or not all(fields):
            expected = f"id and label with {name} between them"
            raise DatasetError(f"{path}:{number}: {line[:80]!r} is not {expected}; correct the line")
        doc_id, label = (field.strip().casefold() for field in fields)
        ids = ("id", "_id", "doc_id", "doc-id", "docid", "corpus-id")
        labels = ("label", "class", "category", "target")
        if index > 0 or doc_id not in ids or label not in labels:
            yield f"{path}:{number}", fields[0], fields[1]


def read_corpus(path: Path) -> Iterator[Document]:
    """Return the documents of a JSONL file of `{"_id" or "id", "text", "title"?, "metadata"?}`, in the file's order.

    A document's text is `title + " " + text`, stripped, as BEIR and sentence-transformers embed it; the title
    is kept in the metadata as well. Other keys of a record are not read. A text may be empty: whether that can
    be embedded is for the embedder to say. They are streamed: nothing is held in memory but the ids.

    Raises DatasetError at once if there is no such file, and on iteration: the file holds no document; a line is not
    UTF-8, not JSON, has no id or text, or an id that came before. OutputError: the operating system refused to read it.
    """
    if not path.is_file():
        raise DatasetError(f"{path}: no such file; give a JSONL file of documents")
    return _documents(path)


def _documents(path: Path) -> Iterator[Document]:
    ids: set[str] = set()
    for location, record in read_records(path):
        document = _document(record, location)
        if document.id in ids:
            raise DatasetError(f"{location}: the document id {document.id!r} appears twice; remove one")
        ids.add(document.id)
        yield document
    if not ids:
        raise DatasetError(f"{path}: the file has no documents; check how it was written")


def _document(record: dict[str, Any], location: str) -> Document:
    title = record_text(record, "title", location, default="")
    text = record_text(record, "text", location)
    metadata = record.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise DatasetError(f'{location}: the "metadata" is {describe_type(metadata)}, not an object; correct it')
    if title:
        metadata_kept = {**metadata, "title": title}
    else:
        metadata_kept = metadata
    return Document(record_id(record, location), f"{title} {text}".strip(), metadata_kept)
