"""Reads and writes BEIR folders: `corpus.jsonl`, `queries.jsonl`, `qrels/{split}.tsv`. `download.py` fetches them.

Format: Thakur et al., "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval
Models", NeurIPS 2021 Datasets and Benchmarks, https://arxiv.org/abs/2104.08663.

Relevance judgements may be in BEIR's or TREC's format. Where a corpus is capped, the relevant documents stay and a
random sample of the others fills the remaining places.
"""

from __future__ import annotations

import json
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from migrate.datasets.records import (
    Corpus,
    query_metadata,
    read_corpus,
    read_lines,
    read_records,
    record_id,
    record_text,
)
from migrate.errors import DatasetError, UsageError
from migrate.files import atomic_folder
from migrate.vectors import Document, Query

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
        raise DatasetError(f"{path}: the file has no judgements; check how it was written")
    return qrels


def _fields(line: str, place: str) -> list[str]:
    fields = line.split("\t") if "\t" in line else line.split()  # between tabs, ids are kept to the byte
    if len(fields) not in (3, 4) or not (fields[0] and fields[-2]):
        expected = "query-id, corpus-id and score divided by tabs (or TREC's four columns)"
        raise DatasetError(f"{place}: expected {expected}, found {line[:80]!r}; correct the line")
    return fields


def _is_header(fields: list[str]) -> bool:
    if _GRADE.fullmatch(fields[-1].strip()):
        return False
    return fields[0].strip().casefold() in _HEADER_FIRST or fields[-1].strip().casefold() in _HEADER_LAST


def _grade(field: str, place: str) -> int:
    match = _GRADE.fullmatch(field)
    if not match:
        raise DatasetError(f"{place}: the grade {field[:80]!r} is not a whole number; correct the line")
    return int(match[1])


def read_queries(path: Path) -> tuple[Query, ...]:
    """Queries of a JSONL file of `{"_id" or "id", "text"}`, in the file's order; other keys are their metadata.

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
        query = Query(record_id(record, place), record_text(record, "text", place), query_metadata(record))
        if query.id in queries:
            raise DatasetError(f"{place}: the query id {query.id!r} appears twice; remove one")
        if not query.text.strip():
            raise DatasetError(f"{place}: query {query.id!r} has a blank text; remove the query")
        queries[query.id] = query
    if not queries:
        raise DatasetError(f"{path}: the file has no queries; check how it was written")
    return tuple(queries.values())


def rows_under_cap(
    documents: Iterable[Document], qrels: Mapping[str, Mapping[str, int]], max_docs: int, seed: int
) -> frozenset[int]:
    """Positions of at most `max_docs` documents: every relevant one, then a uniform sample without replacement."""
    if max_docs < 1:
        raise UsageError(f"max_docs: {max_docs} is too few; give at least 1")
    relevant = {doc_id for grades in qrels.values() for doc_id, grade in grades.items() if grade > 0}
    kept: list[int] = []
    irrelevant = array("q")  # eight bytes a document: the largest sets have millions
    for row, document in enumerate(documents):
        (kept if document.id in relevant else irrelevant).append(row)
    if len(kept) > max_docs:
        raise UsageError(f"max_docs: {max_docs} is too few for the {len(kept)} relevant documents; raise it")
    room = min(max_docs - len(kept), len(irrelevant))
    drawn = np.random.default_rng(seed).choice(len(irrelevant), size=room, replace=False)
    return frozenset(kept).union(irrelevant[position] for position in drawn)


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
    n_unjudged_queries: int = 0
    """How many queries of `queries.jsonl` the split does not judge, and are therefore not in `queries`."""
    kept_rows: frozenset[int] | None = None
    """Positions in `corpus.jsonl` of the documents under a cap; None for all."""

    def documents(self) -> Iterator[Document]:
        """Stream the documents in the order of the corpus; each call reads the file again."""
        for row, document in enumerate(self._corpus()):
            if self.kept_rows is None or row in self.kept_rows:
                yield document

    def unknown_doc_ids(self) -> frozenset[str]:
        """Ids of judged documents that `documents()` does not yield; reads the corpus once.

        Under a cap these include documents that exist, were judged not relevant, and were not drawn.
        """
        judged = {doc_id for grades in (self.qrels or {}).values() for doc_id in grades}
        return frozenset(judged.difference(document.id for document in self.documents()))

    @property
    def n_judgements(self) -> int:
        """How many pairs of query and document are judged."""
        return sum(len(grades) for grades in (self.qrels or {}).values())

    @property
    def queries_without_relevant(self) -> tuple[str, ...]:
        """Ids of judged queries for which no document is relevant: they score 0 in every run."""
        return tuple(query_id for query_id, grades in (self.qrels or {}).items() if max(grades.values()) <= 0)

    def _corpus(self) -> Corpus:
        if self.corpus_path is None:
            raise DatasetError(f"{self.name}: the BEIR folder has no corpus.jsonl; add it")
        return read_corpus(self.corpus_path)


def load_beir(folder: Path, *, split: str = "test", max_docs: int | None = None, seed: int = 0) -> BeirSet:
    """Read queries and judgements of a BEIR folder; documents are streamed later.

    With `max_docs` the corpus is capped as LEAD caps it (20,000): every document that is relevant to a query of
    the split stays, the rest of the room is filled by a random sample drawn with `seed`, and the corpus keeps
    its order. LEAD does not publish which documents it drew, so its exact subset is not reproduced; and scores
    on a capped corpus are higher than on the whole one, because the distractors are fewer.

    Parameters
    ----------
    folder
        Holds `queries.jsonl` and, each optional, `corpus.jsonl` and `qrels/`.
    split
        Name of the file in `qrels/`, without `.tsv`. Not looked at where there is no `qrels/`.
    max_docs
        The most documents to take; None for all.
    seed
        Draws the sample under `max_docs`.

    Raises
    ------
    DatasetError
        A file is missing or malformed (names file and line), the split does not exist (names those that do),
        none of its queries exists, or the corpus is empty.
    UsageError
        `max_docs` leaves no room for the relevant documents.
    OutputError
        The operating system refused to read a file.
    """
    if not folder.is_dir():
        raise DatasetError(f"{folder}: no such folder; check the path of the BEIR folder")
    queries = read_queries(folder / "queries.jsonl")
    judged = read_qrels(_qrels_path(folder, split)) if (folder / "qrels").is_dir() else None
    chosen, qrels, unknown = _match(queries, judged, folder / "qrels", split)
    path = folder / "corpus.jsonl"
    beir_set = BeirSet(
        name=folder.resolve().name,
        split=split,
        corpus_path=path if path.exists() else None,
        queries=chosen,
        qrels=qrels,
        unknown_query_ids=unknown,
        n_unjudged_queries=len(queries) - len(chosen),
        kept_rows=None if max_docs is None else rows_under_cap(read_corpus(path), qrels or {}, max_docs, seed),
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
    split: str = "test",
    force: bool = False,
) -> None:
    """Write a BEIR folder; it appears when it is complete. Reading it gives equal documents, queries and qrels.

    A document is written with an empty title, because its text already holds whatever title it had. Texts come
    back without white space at their ends.

    Raises
    ------
    UsageError
        `folder` exists and `force` is not given.
    DatasetError
        A judged id holds a tab or a line end, which qrels cannot spell, or metadata holds what JSON cannot.
    OutputError
        The operating system refused.
    """
    rows = [f"{_cell(q)}\t{_cell(d)}\t{grade}" for q, grades in qrels.items() for d, grade in grades.items()]
    with atomic_folder(folder, force=force) as aside:
        (aside / "qrels").mkdir()
        _write_lines(
            aside / "qrels" / f"{split}.tsv", [line.encode() for line in ("query-id\tcorpus-id\tscore", *rows)]
        )
        _write_lines(aside / "queries.jsonl", (_json_line({"_id": query.id, "text": query.text}) for query in queries))
        _write_lines(aside / "corpus.jsonl", map(_document_line, documents))


def _qrels_path(folder: Path, split: str) -> Path:
    """The file of a split, looked up by name, so that no split reaches outside the folder."""
    splits = {path.stem: path for path in sorted((folder / "qrels").glob("*.tsv"))}
    if split not in splits:
        there = ", ".join(splits) or "no splits at all"
        raise DatasetError(f"{folder / 'qrels'}: expected the split {split!r}, found {there}; choose one of these")
    return splits[split]


def _match(
    queries: tuple[Query, ...], judged: Qrels | None, qrels_folder: Path, split: str
) -> tuple[tuple[Query, ...], Qrels | None, tuple[str, ...]]:
    """Queries that count, their judgements, and the ids of judged queries that do not exist."""
    if judged is None:
        return queries, None, ()
    chosen = tuple(query for query in queries if query.id in judged)
    if not chosen:
        raise DatasetError(
            f"{qrels_folder}: none of the {len(judged)} queries that split {split!r} judges is in "
            "queries.jsonl; check that both files belong together"
        )
    chosen_ids = {query.id for query in chosen}
    qrels = {query.id: judged[query.id] for query in chosen}
    return chosen, qrels, tuple(query_id for query_id in judged if query_id not in chosen_ids)


def _cell(value: str) -> str:
    if not value or any(mark in value for mark in "\t\n\r"):
        raise DatasetError(f"qrels: the id {value!r} holds a tab or a line end; rename it")
    return value


def _document_line(document: Document) -> bytes:
    metadata = dict(document.metadata)
    return _json_line({"_id": document.id, "title": "", "text": document.text, "metadata": metadata})


def _json_line(record: dict[str, Any]) -> bytes:
    try:
        return json.dumps(record, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise DatasetError(f"record {record['_id']!r}: cannot be written as JSON ({error}); correct it") from error


def _write_lines(path: Path, lines: Iterable[bytes]) -> None:
    with path.open("wb") as file:
        file.writelines(line + b"\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
