"""Relevance judgements in tab-separated files, BEIR's or TREC's. Which queries exist is not known here."""

from __future__ import annotations

import re
from pathlib import Path

from migrate.datasets.records import read_lines
from migrate.errors import DatasetError

Qrels = dict[str, dict[str, int]]
"""query_id -> doc_id -> grade. A grade of 0 is a judgement too; only grades above 0 are relevant."""

_GRADE = re.compile(r"([+-]?[0-9]{1,9})(?:\.0+)?")
_HEADER_FIRST = frozenset({"query-id", "query_id", "queryid", "query", "qid", "topic"})
_HEADER_LAST = frozenset({"score", "relevance", "rel", "grade", "label", "relevancy", "judgement", "judgment"})


def read_qrels(path: Path) -> Qrels:
    """Judgements of one split, in the file's order.

    Lines are `query-id <tab> corpus-id <tab> score` (BEIR) or `query-id iteration doc-id grade` (TREC); without
    a tab, columns are divided by white space. A header, a BOM, CRLF and blank lines are accepted. Grades are
    kept as they are, zero and below too: TREC grades go down to -2, and none of these is relevant.

    Raises
    ------
    DatasetError
        The file is missing or holds no judgement; a line has other columns, a grade that is no whole number, or
        a grade that contradicts one before it. Names file, line, what was expected and what was found.
    OutputError
        The operating system refused to read it.
    """
    qrels: Qrels = {}
    for index, (number, line) in enumerate(read_lines(path)):
        place = f"{path}:{number}"
        fields = _fields(line, place)
        if index == 0 and _is_header(fields):
            continue
        query_id, doc_id, grade = fields[0], fields[-2], _grade(fields[-1].strip(), place)
        previous = qrels.setdefault(query_id, {}).setdefault(doc_id, grade)
        if previous != grade:
            judged = f"query {query_id!r} and document {doc_id!r}"
            raise DatasetError(f"{place}: expected one grade for {judged}, found {previous} and {grade}; remove one")
    if not qrels:
        raise DatasetError(f"{path}: expected judgements, found none; check how the file was written")
    return qrels


def _fields(line: str, place: str) -> list[str]:
    fields = line.split("\t") if "\t" in line else line.split()  # between tabs, ids are kept to the byte
    if len(fields) not in (3, 4) or not (fields[0] and fields[-2]):
        expected = "query-id, corpus-id and score divided by tabs (or TREC's four columns)"
        raise DatasetError(f"{place}: expected {expected}, found {line[:80]!r}; mend the line")
    return fields


def _is_header(fields: list[str]) -> bool:
    if _GRADE.fullmatch(fields[-1].strip()):
        return False
    return fields[0].strip().casefold() in _HEADER_FIRST or fields[-1].strip().casefold() in _HEADER_LAST


def _grade(field: str, place: str) -> int:
    match = _GRADE.fullmatch(field)
    if not match:
        raise DatasetError(f"{place}: expected a whole number as the grade, found {field[:80]!r}; mend the line")
    return int(match[1])
