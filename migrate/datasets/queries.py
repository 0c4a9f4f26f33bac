"""Queries in a JSONL file: BEIR's `queries.jsonl`, or a log of the same form."""

from __future__ import annotations

from pathlib import Path

from migrate.datasets.records import read_records, record_id, record_text
from migrate.documents import Query
from migrate.errors import DatasetError


def read_queries(path: Path) -> tuple[Query, ...]:
    """Queries of a JSONL file of `{"_id" or "id", "text"}`, in the file's order; other keys are not read.

    Raises
    ------
    DatasetError
        The file is missing or holds no query; a line is not UTF-8, not JSON, has no id or a blank text, or has
        an id that came before. Names file and line.
    OutputError
        The operating system refused to read it.
    """
    queries: dict[str, Query] = {}
    for place, record in read_records(path):
        query = Query(record_id(record, place), record_text(record, "text", place))
        if query.id in queries:
            raise DatasetError(f"{place}: expected a new query id, found {query.id!r} again; remove one")
        if not query.text.strip():
            raise DatasetError(f"{place}: expected a text for query {query.id!r}, found a blank one; remove the query")
        queries[query.id] = query
    if not queries:
        raise DatasetError(f"{path}: expected queries, found an empty file; check how it was written")
    return tuple(queries.values())
