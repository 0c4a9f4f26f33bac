"""Reads queries that were drawn to be judged, once a person has graded their candidates.

One JSON object a line, in the order in which the queries were drawn, as `audit --judge-next` writes it:

    {"_id": "q7", "text": "...", "chance": 0.31, "documents": [{"_id": "d2", "text": "...", "grade": null}, ...]}

A person replaces each null by a whole number, 0 for not relevant. Whoever stops early has judged a sample all the same,
unless it is for what an audit said; whoever skips queries has not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrate.datasets.records import query_metadata, read_records, record_id, record_text
from migrate.errors import DatasetError
from migrate.vectors import Query

_LEAST_CHANCE = 0.01


@dataclass(frozen=True, slots=True)
class GradedQueries:
    """Queries that were graded, which are the first ones of the file, their grades and their chances to be drawn.

    `ungraded` is how many queries of the file come after them.
    """

    queries: tuple[Query, ...]
    qrels: Mapping[str, Mapping[str, int]]
    chances: Mapping[str, float]
    ungraded: int = 0


def read_graded(path: Path) -> GradedQueries:
    """The queries of such a file, up to the first one that is not graded.

    Raises
    ------
    DatasetError
        A line is not what was written, a query is graded in part or after one that was skipped, or none is graded.
    OutputError
        The operating system refused to read it.
    """
    queries: dict[str, Query] = {}
    qrels: dict[str, dict[str, int]] = {}
    chances: dict[str, float] = {}
    skipped, ungraded = "", 0
    for place, record in read_records(path):
        query = Query(record_id(record, place), record_text(record, "text", place), query_metadata(record))
        grades = _grades(record, place)
        if query.id in queries or query.id == skipped:
            raise DatasetError(f"{place}: the query id {query.id!r} appears twice; remove one")
        if grades is None:
            skipped = skipped or query.id
            ungraded += 1
            continue
        if skipped:
            raise DatasetError(
                f"{place}: query {query.id!r} is graded, but {skipped!r} before it is not; the queries are a sample "
                "only in their order: grade that one too"
            )
        queries[query.id], qrels[query.id], chances[query.id] = query, grades, _chance(record, place)
    if not queries:
        raise DatasetError(f"{path}: no query is graded; replace each null by a grade, 0 for not relevant")
    return GradedQueries(tuple(queries.values()), qrels, chances, ungraded)


def _grades(record: dict[str, Any], place: str) -> dict[str, int] | None:
    """The grades of a query's documents, None where none of them has any."""
    documents = record.get("documents")
    if not isinstance(documents, list) or not documents or not all(isinstance(one, dict) for one in documents):
        raise DatasetError(f"{place}: there is no list of documents; take the file that `--judge-next` wrote")
    grades = {record_id(one, place): one.get("grade") for one in documents}
    if all(grade is None for grade in grades.values()):
        return None
    for doc_id, grade in grades.items():
        if not isinstance(grade, int) or isinstance(grade, bool):
            raise DatasetError(f"{place}: the grade of document {doc_id!r} is no whole number; give it one, such as 0")
    return {doc_id: int(grade) for doc_id, grade in grades.items() if grade is not None}


def _chance(record: dict[str, Any], place: str) -> float:
    chance = record.get("chance")
    if not isinstance(chance, (int, float)) or isinstance(chance, bool) or not _LEAST_CHANCE <= chance <= 1:
        raise DatasetError(
            f"{place}: the chance is no number from {_LEAST_CHANCE:g} to 1; take what `--judge-next` wrote"
        )
    return float(chance)
