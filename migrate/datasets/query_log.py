"""Query logs: what users asked, as JSONL or as plain text with a query a line. Judgements are not read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from migrate.datasets.records import read_lines, read_records, record_id, record_text
from migrate.documents import Query
from migrate.errors import DatasetError


def read_query_log(path: Path) -> tuple[Query, ...]:
    """The queries of a log, each text once, the most frequent first, ties in the file's order.

    A file whose first line is a JSON object, or that is named `*.jsonl`, is read as one object a line with the query
    under `text` and, where it has one, an id under `_id` or `id` (BEIR's `queries.jsonl` is such a file). Any other
    file has a query a line. Blank queries are passed over, white space around a query is dropped, and a query without
    an id is named by the number of the line where it comes first. Ids may repeat.

    Raises
    ------
    DatasetError
        The file is missing or holds no query; a line is not UTF-8, or, among JSON objects, is none, has no text or
        an id that is neither a text nor a whole number. Names file and line.
    OutputError
        The operating system refused to read it.
    """
    times: Counter[str] = Counter()
    ids: dict[str, str] = {}
    for query_id, text in _records(path) if _is_jsonl(path) else _lines(path):
        if text.strip():
            times[text.strip()] += 1
            ids.setdefault(text.strip(), query_id)
    if not times:
        raise DatasetError(f"{path}: expected queries, found none; give a query a line, or leave out the log")
    return tuple(Query(ids[text], text) for text, _ in times.most_common())


def _is_jsonl(path: Path) -> bool:
    first = next((line for _, line in read_lines(path)), "")
    if path.suffix == ".jsonl":
        return True
    try:
        return isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in read_lines(path):
        yield str(number), line


def _records(path: Path) -> Iterator[tuple[str, str]]:
    for place, record in read_records(path):
        named = record.get("_id", record.get("id")) is not None
        query_id = record_id(record, place) if named else place.rpartition(":")[2]
        yield query_id, record_text(record, "text", place)
