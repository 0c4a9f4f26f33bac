"""Queries to judge next, written with their candidates for a person to grade.

The candidates are the first ten documents of every ranking that the verdict compares (pooling; Spärck Jones and van
Rijsbergen 1975), in the order of their ids. The file is that of `migrate.datasets.graded`, which reads it back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrate.audit.drawn_queries import chances_of, draw_queries, greatest_change
from migrate.audit.measures import CUT
from migrate.audit.results import FULL, TRANSLATED
from migrate.audit.retrieval import Retriever
from migrate.datasets.graded import seal_of
from migrate.files import atomic_file, write_bytes
from migrate.vectors import Query


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A drawn query, its chance to be drawn, and the texts of the documents to judge, by their ids."""

    query: Query
    chance: float
    documents: Mapping[str, str]


def draw_unjudged(retriever: Retriever, n: int = 300) -> tuple[Unjudged, ...]:
    """Return up to `n` queries, drawn by how much judgements could tell translated store and full re-embed apart."""
    queries, runs = retriever.query_set.distinct, retriever.compared
    chances = chances_of(greatest_change(runs[TRANSLATED], runs[FULL], [query.id for query in queries]))
    drawn = [(queries[row], float(chances[row])) for row in draw_queries(chances, n, retriever.settings.seed).tolist()]
    pools = {query.id: sorted({d for run in runs.values() for d in run.top(query.id, CUT)}) for query, _ in drawn}
    texts = retriever.texts(sorted({doc_id for pool in pools.values() for doc_id in pool}))
    return tuple(Unjudged(query, chance, {d: texts.get(d, "") for d in pools[query.id]}) for query, chance in drawn)


def write_unjudged(path: Path, drawn: Iterable[Unjudged], *, force: bool = False) -> None:
    """Write the file to grade."""
    lines = (json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in _records(drawn))
    with atomic_file(path, force=force) as temporary:
        write_bytes(temporary, b"".join(lines))


def _records(drawn: Iterable[Unjudged]) -> Iterator[dict[str, Any]]:
    seal = ""
    for number, draw in enumerate(drawn, start=1):
        seal = seal_of(seal, draw.query, draw.chance, draw.documents)
        documents = [{"_id": doc_id, "text": text, "grade": None} for doc_id, text in draw.documents.items()]
        metadata = {"metadata": dict(draw.query.metadata)} if draw.query.metadata else {}
        record = {"_id": draw.query.id, "text": draw.query.text, **metadata, "chance": draw.chance, "seal": seal}
        yield {"place": number, **record, "documents": documents}
