"""Labels of documents in a file: JSONL, or a table with tabs or commas. Which documents exist is not known here."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from migrate.datasets.records import describe_type, read_lines, read_records, record_id
from migrate.errors import DatasetError

_HEADER_ID = frozenset({"id", "_id", "doc_id", "doc-id", "docid", "corpus-id"})
_HEADER_LABEL = frozenset({"label", "class", "category", "target"})


def read_labels(path: Path) -> dict[str, str]:
    """Label by document id.

    A `.jsonl` or `.json` file has objects with an id under `_id` or `id` and a `label`, a text or a number; other files
    have two columns, id and label, with a tab between them or, in a `.csv` file, a comma. A header is accepted.

    Raises
    ------
    DatasetError
        The file is missing or holds no label; a line has other columns, or gives a document a second label.
    OutputError
        The operating system refused to read it.
    """
    labels: dict[str, str] = {}
    for place, doc_id, label in _records(path) if path.suffix in (".jsonl", ".json") else _rows(path):
        if labels.setdefault(doc_id, label) != label:
            found = f"{labels[doc_id]!r} and {label!r}"
            raise DatasetError(f"{place}: expected one label for document {doc_id!r}, found {found}; remove one")
    if not labels:
        raise DatasetError(f"{path}: expected a document's id and its label on each line, found none; check the file")
    return labels


def _records(path: Path) -> Iterator[tuple[str, str, str]]:
    for place, record in read_records(path):
        label = record.get("label")
        if label in (None, "") or isinstance(label, dict | list):
            found = describe_type(label) if "label" in record else "none"
            raise DatasetError(f'{place}: expected a text or a number under "label", found {found}; mend the line')
        yield place, record_id(record, place), str(label)


def _rows(path: Path) -> Iterator[tuple[str, str, str]]:
    divider = "," if path.suffix == ".csv" else "\t"
    for index, (number, line) in enumerate(read_lines(path)):
        fields = next(csv.reader([line], delimiter=divider), [])
        if len(fields) != 2 or not all(fields):
            expected = f"id and label with {'a comma' if divider == ',' else 'a tab'} between them"
            raise DatasetError(f"{path}:{number}: expected {expected}, found {line[:80]!r}; mend the line")
        doc_id, label = fields
        header = doc_id.strip().casefold() in _HEADER_ID and label.strip().casefold() in _HEADER_LABEL
        if index > 0 or not header:
            yield f"{path}:{number}", doc_id, label
