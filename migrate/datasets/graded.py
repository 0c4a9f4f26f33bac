"""Reads queries that were drawn to be judged, once a person has graded their candidates.

One JSON object a line, in the order in which the queries were drawn, as `audit --judge-next` writes it:

    {"place": 1, "_id": "q7", "text": "...", "chance": 0.31, "seal": "9f...",
     "documents": [{"_id": "d2", "text": "...", "grade": null}, ...]}

A person replaces each null by a whole number, 0 for not relevant. Whoever stops early has judged a sample all the same,
unless it is for what an audit said; whoever skips queries has not. So a record has its place, from 1 on, and a seal
(`seal_of`) over all of it but texts of documents and grades, and over the record before: what was left out, moved or
changed shows. It keeps mistakes out, not forgers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrate.datasets.records import read_records, record_id, record_text
from migrate.errors import DatasetError
from migrate.vectors import Query


@dataclass(frozen=True, slots=True)
class GradedQueries:
    """Queries that were graded, which are the first ones of the file, their grades and their chances to be drawn.

    `ungraded` is how many queries of the file come after them.
    """

    queries: tuple[Query, ...]
    qrels: Mapping[str, Mapping[str, int]]
    chances: Mapping[str, float]
    ungraded: int = 0


def seal_of(seal_before: str, query: Query, chance: float, doc_ids: Iterable[str]) -> str:
    """Return the seal of a record, 32 hexadecimal digits; `seal_before` is that of the one before, or empty."""
    sealed = [seal_before, query.id, query.text, dict(query.metadata), f"{chance:.9g}", sorted(doc_ids)]
    return hashlib.sha256(json.dumps(sealed, sort_keys=True).encode()).hexdigest()[:32]


def read_graded(path: Path) -> GradedQueries:
    """Read the queries of such a file, up to the first one that is not graded.

    Raises DatasetError if a line is not what was written or not where it was written, a query is graded in part or
    after one that was skipped, or none is graded.
    """
    queries: dict[str, Query] = {}
    qrels: dict[str, dict[str, int]] = {}
    chances: dict[str, float] = {}
    skipped, ungraded, seal = "", 0, ""
    for number, (location, record) in enumerate(read_records(path), start=1):
        metadata = record.get("metadata")  # alone: what else a record has is of the draw
        fields = metadata if isinstance(metadata, dict) else {}
        query = Query(record_id(record, location), record_text(record, "text", location), fields)
        grades = _grades(record, location)
        if query.id in queries or query.id == skipped:
            raise DatasetError(f"{location}: the query id {query.id!r} appears twice; remove one")
        chance = _chance(record, location)
        seal = _check_seal(record, seal, number, query, chance, location)
        if grades is None:
            skipped = skipped or query.id
            ungraded += 1
            continue
        if skipped:
            raise DatasetError(
                f"{location}: query {query.id!r} is graded, but {skipped!r} before it is not; the queries are a sample "
                "only in their order: grade that one too"
            )
        queries[query.id], qrels[query.id], chances[query.id] = query, grades, chance
    if not queries:
        raise DatasetError(f"{path}: no query is graded; replace each null by a grade, 0 for not relevant")
    return GradedQueries(tuple(queries.values()), qrels, chances, ungraded)


def _grades(record: dict[str, Any], location: str) -> dict[str, int] | None:
    """Return the grades of a query's documents, None where none of them has any."""
    documents = record.get("documents")
    if (
        not isinstance(documents, list)
        or not documents
        or not all(isinstance(document, dict) for document in documents)
    ):
        raise DatasetError(f"{location}: there is no list of documents; take the file that `--judge-next` wrote")
    grades = {record_id(document, location): document.get("grade") for document in documents}
    if all(grade is None for grade in grades.values()):
        return None
    for doc_id, grade in grades.items():
        if not isinstance(grade, int) or isinstance(grade, bool):
            raise DatasetError(
                f"{location}: the grade of document {doc_id!r} is not a whole number; give it one, such as 0"
            )
    return {doc_id: int(grade) for doc_id, grade in grades.items() if grade is not None}


def _check_seal(
    record: dict[str, Any], seal_before: str, number: int, query: Query, chance: float, location: str
) -> str:
    """Return the seal of a record, after making sure that it is the one that was drawn as number `number`."""
    drawn_as = record.get("place")
    if not isinstance(drawn_as, int) or isinstance(drawn_as, bool) or not isinstance(record.get("seal"), str):
        raise DatasetError(
            f"{location}: the place or the seal of the query is missing; nothing shows that these queries are the "
            "first ones that were drawn: draw them again with `--judge-next`, and copy the grades"
        )
    if drawn_as != number:
        raise DatasetError(
            f"{location}: in the place of number {number} is the query that was drawn as number {drawn_as} "
            f"({query.id!r}); the queries are a sample only in their order: put all of them back in the "
            "places that `--judge-next` gave them, and grade from the first on"
        )
    seal = seal_of(seal_before, query, chance, (record_id(document, location) for document in record["documents"]))
    if seal != record["seal"]:
        raise DatasetError(
            f"{location}: query {query.id!r} is not as it was drawn: text, chance or candidates were changed, or it is "
            "of another draw; put back all but the grades as `--judge-next` wrote it"
        )
    return seal


def _chance(record: dict[str, Any], location: str) -> float:
    chance = record.get("chance")
    if not isinstance(chance, (int, float)) or isinstance(chance, bool) or not 0.01 <= chance <= 1:
        raise DatasetError(f"{location}: the chance is not a number from 0.01 to 1; take what `--judge-next` wrote")
    return float(chance)
