"""Reads and writes BEIR folders: `corpus.jsonl`, `queries.jsonl`, `qrels/{split}.tsv` (https://arxiv.org/abs/2104.08663).

Relevance judgements may be in BEIR's or TREC's format. `download.py` fetches the folders.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from migrate.datasets.records import (
    query_metadata,
    read_corpus,
    read_lines,
    read_records,
    record_id,
    record_text,
)
from migrate.errors import DatasetError, UsageError
from migrate.files import atomic_folder, write_bytes
from migrate.vectors import Document, Query

Qrels = dict[str, dict[str, int]]
"""query_id -> doc_id -> grade. A grade of 0 is a judgement too; only grades above 0 are relevant."""


def read_qrels(path: Path) -> Qrels:
    """Read the judgements of one split, in the file's order.

    Lines are `query-id <tab> corpus-id <tab> score` (BEIR) or `query-id iteration doc-id grade` (TREC); without
    a tab, columns are divided by white space. A header, a BOM, CRLF and blank lines are accepted. Grades are
    kept as they are, zero and below too: TREC grades go down to -2, and none of these is relevant.

    Raises DatasetError: the file is missing or holds no judgement; a line has other columns, a grade that is no whole
    number, or a grade that contradicts one before it. OutputError: the operating system refused to read it.
    """
    qrels: Qrels = {}
    for index, (number, line) in enumerate(read_lines(path)):
        location = f"{path}:{number}"
        # between tabs, ids are kept to the byte
        if "\t" in line:
            fields = line.split("\t")
        else:
            fields = line.split()
        if len(fields) not in (3, 4) or not (fields[0] and fields[-2]):
            expected = "query-id, corpus-id and score divided by tabs (or TREC's four columns)"
            raise DatasetError(f"{location}: {line[:80]!r} is not {expected}; correct the line")
        # pandas writes whole numbers as 1.0 where a cell of their column was empty.
        match = re.fullmatch(r"([+-]?[0-9]{1,9})(?:\.0+)?", fields[-1].strip())
        if not match:
            first, last = (field.strip().casefold() for field in (fields[0], fields[-1]))
            if index == 0 and (
                first in ("query-id", "query_id", "queryid", "query", "qid", "topic")
                or last in ("score", "relevance", "rel", "grade", "label", "relevancy", "judgement", "judgment")
            ):
                continue
            raise DatasetError(
                f"{location}: the grade {fields[-1][:80]!r} is not a whole number of up to nine digits; mend it"
            )
        query_id = fields[0]
        doc_id = fields[-2]
        grade = int(match[1])
        previous = qrels.setdefault(query_id, {}).setdefault(doc_id, grade)
        if previous != grade:
            judged = f"query {query_id!r} and document {doc_id!r}"
            raise DatasetError(f"{location}: {judged} have two grades, {previous} and {grade}; remove one")
    if not qrels:
        raise DatasetError(f"{path}: the file has no judgements; check how it was written")
    return qrels


def read_queries(path: Path) -> tuple[Query, ...]:
    """Read the queries of a JSONL file of `{"_id" or "id", "text"}`, in its order; other keys are their metadata.

    Raises DatasetError: the file is missing or holds no query; a line is not UTF-8, not JSON, has no id or a blank
    text, or has an id that came before. OutputError: the operating system refused to read it.
    """
    queries: dict[str, Query] = {}
    for location, record in read_records(path):
        query = Query(record_id(record, location), record_text(record, "text", location), query_metadata(record))
        if query.id in queries:
            raise DatasetError(f"{location}: the query id {query.id!r} appears twice; remove one")
        if not query.text.strip():
            raise DatasetError(f"{location}: query {query.id!r} has a blank text; remove the query")
        queries[query.id] = query
    if not queries:
        raise DatasetError(f"{path}: the file has no queries; check how it was written")
    return tuple(queries.values())


def rows_under_cap(
    documents: Iterable[Document], qrels: Mapping[str, Mapping[str, int]], max_docs: int, seed: int
) -> frozenset[int]:
    """Return positions of at most `max_docs` documents: the relevant ones, then a uniform sample."""
    if max_docs < 1:
        raise UsageError(f"max_docs: {max_docs} is too few; give at least 1")
    relevant = {doc_id for grades in qrels.values() for doc_id, grade in grades.items() if grade > 0}
    rows_kept: list[int] = []
    irrelevant = array("q")  # eight bytes a document: the largest sets have millions
    for row, document in enumerate(documents):
        (rows_kept if document.id in relevant else irrelevant).append(row)
    if len(rows_kept) > max_docs:
        raise UsageError(f"max_docs: {max_docs} is too few for the {len(rows_kept)} relevant documents; raise it")
    room = min(max_docs - len(rows_kept), len(irrelevant))
    drawn = np.random.default_rng(seed).choice(len(irrelevant), size=room, replace=False)
    return frozenset(rows_kept).union(irrelevant[position] for position in drawn)


@dataclass(frozen=True, slots=True)
class BeirSet:
    """Queries and judgements of one split, and the way to its documents."""

    name: str
    split: str
    corpus_path: Path | None
    """None where the folder has no `corpus.jsonl`: enough for an audit of stores."""
    queries: tuple[Query, ...]
    """The queries with a judgement in the split, in the file's order; all of them where there are no qrels."""
    qrels: Mapping[str, Mapping[str, int]] | None
    """query_id -> doc_id -> grade, for `queries` only; None where the folder has no qrels at all."""
    unknown_query_ids: tuple[str, ...] = ()
    """Queries that are judged but not in `queries.jsonl`; their judgements are not in `qrels`."""
    kept_rows: frozenset[int] | None = None
    """Positions in `corpus.jsonl` of the documents under a cap; None for all."""

    def documents(self) -> Iterator[Document]:
        """Stream the documents in the order of the corpus; each call reads the file again."""
        if self.corpus_path is None:
            raise DatasetError(f"{self.name}: the BEIR folder has no corpus.jsonl; add it")
        for row, document in enumerate(read_corpus(self.corpus_path)):
            if self.kept_rows is None or row in self.kept_rows:
                yield document

    @property
    def queries_without_relevant(self) -> tuple[str, ...]:
        """Ids of judged queries for which no document is relevant: they score 0 in every run."""
        return tuple(query_id for query_id, grades in (self.qrels or {}).items() if max(grades.values()) <= 0)


def load_beir(folder: Path, *, split: str = "test", max_docs: int | None = None, seed: int = 0) -> BeirSet:
    """Read queries and judgements of a BEIR folder; documents are streamed later.

    `folder` holds `queries.jsonl` and, each optional, `corpus.jsonl` and `qrels/`, whose `split` is a file there.

    With `max_docs` the corpus is capped as LEAD caps it (20,000): every document that is relevant to a query of the
    split stays, the rest of the room is filled by a random sample drawn with `seed`, and the corpus keeps its order.
    LEAD does not publish which documents it drew, so its exact subset is not reproduced; and scores on a capped corpus
    are higher than on the whole one, because the distractors are fewer.

    Raises DatasetError: a file is missing or malformed (names file and line), the split does not exist (names those
    that do), none of its queries exists, or the corpus is empty. UsageError: `max_docs` leaves no room for the relevant
    documents. OutputError: the operating system refused to read a file.
    """
    if not folder.is_dir():
        raise DatasetError(f"{folder}: no such folder; check the path of the BEIR folder")
    queries = read_queries(folder / "queries.jsonl")
    chosen = queries
    unknown = tuple[str, ...]()
    qrels: Qrels | None = None
    if (folder / "qrels").is_dir():
        judged = read_qrels(_qrels_path(folder, split))
        chosen = tuple(query for query in queries if query.id in judged)
        if not chosen:
            raise DatasetError(
                f"{folder / 'qrels'}: none of the {len(judged)} queries that split {split!r} judges is in "
                "queries.jsonl; check that both files belong together"
            )
        qrels = {query.id: judged[query.id] for query in chosen}
        unknown = tuple(query_id for query_id in judged if query_id not in qrels)
    path = folder / "corpus.jsonl"
    kept_rows = None
    if max_docs is not None:
        kept_rows = rows_under_cap(read_corpus(path), qrels or {}, max_docs, seed)
    beir_set = BeirSet(
        # `.` has no name before.
        name=folder.resolve().name,
        split=split,
        corpus_path=path if path.exists() else None,
        queries=chosen,
        qrels=qrels,
        unknown_query_ids=unknown,
        kept_rows=kept_rows,
    )
    if beir_set.corpus_path is not None:
        next(beir_set.documents())  # an empty or foreign file shows here, before anything is embedded
    return beir_set


def write_beir(
    folder: Path,
    documents: Iterable[Document],
    queries: Iterable[Query],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    force: bool = False,
) -> None:
    """Write a BEIR folder with one split, `test`; it appears when it is complete.

    Reading it gives equal documents, queries and qrels.
    A document is written with an empty title, because its text already holds whatever title it had. Texts come
    back without white space at their ends.

    Raises UsageError: `folder` exists and `force` is not given. DatasetError: a judged id holds a tab or a line end,
    which qrels cannot spell, or metadata holds what JSON cannot. OutputError: the operating system refused.
    """
    rows = ["query-id\tcorpus-id\tscore"]
    rows += [f"{_cell(q)}\t{_cell(d)}\t{grade}" for q, grades in qrels.items() for d, grade in grades.items()]
    with atomic_folder(folder, force=force) as unfinished:
        (unfinished / "qrels").mkdir()
        write_bytes(unfinished / "qrels" / "test.tsv", b"".join(f"{row}\n".encode() for row in rows))
        records: Iterable[dict[str, Any]] = ({"_id": query.id, "text": query.text} for query in queries)
        write_bytes(unfinished / "queries.jsonl", b"".join(map(_json_line, records)))
        records = (
            {"_id": each.id, "title": "", "text": each.text, "metadata": dict(each.metadata)} for each in documents
        )
        write_bytes(unfinished / "corpus.jsonl", b"".join(map(_json_line, records)))


def _qrels_path(folder: Path, split: str) -> Path:
    """Return the file of a split, looked up by name, so that no split reaches outside the folder."""
    splits = {path.stem: path for path in sorted((folder / "qrels").glob("*.tsv"))}
    if split not in splits:
        available = ", ".join(splits) or "no splits at all"
        raise DatasetError(f"{folder / 'qrels'}: there is no split {split!r}, but {available}; choose one of these")
    return splits[split]


def _cell(value: str) -> str:
    if not value or any(mark in value for mark in "\t\n\r"):
        raise DatasetError(f"qrels: the id {value!r} holds a tab or a line end; rename it")
    return value


def _json_line(record: dict[str, Any]) -> bytes:
    try:
        return json.dumps(record, ensure_ascii=False).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise DatasetError(f"record {record['_id']!r}: cannot be written as JSON ({error}); correct it") from error
