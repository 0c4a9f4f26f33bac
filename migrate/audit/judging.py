"""Queries to judge next: drawn, and written with their candidates for a person to grade.

The candidates are the first ten documents of every ranking that the verdict compares (pooling; Spärck Jones and van
Rijsbergen 1975), in the order of their ids, so that nobody knows which ranking put them there. The file is that of
`migrate.datasets.graded`, which reads it back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrate.audit.drawn_queries import chances_of, draw_queries, greatest_change
from migrate.audit.inputs import PreparedAudit, rows_of, texts_of
from migrate.audit.results import FULL, STAY, TRANSLATED
from migrate.files import write_bytes
from migrate.search.runs import Run
from migrate.vectors import Query

_DEPTH = 10


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A drawn query, its chance to be drawn, and the texts of the documents to judge, by their ids."""

    query: Query
    chance: float
    documents: Mapping[str, str]


def draw_unjudged(inputs: PreparedAudit, runs: Mapping[str, Run], n: int) -> tuple[Unjudged, ...]:
    """At most `n` of the audit's queries, drawn by how much judgements could tell store and full re-embed apart."""
    queries = inputs.query_set.distinct
    changes = greatest_change(runs[TRANSLATED], runs[FULL], [query.id for query in queries], _DEPTH)
    chances = chances_of(changes)
    drawn = [(queries[row], float(chances[row])) for row in draw_queries(chances, n, inputs.options.seed).tolist()]
    ranked = [runs[name] for name in (FULL, TRANSLATED, STAY) if name in runs]
    pools = {query.id: sorted({d for run in ranked for d in run.top(query.id, _DEPTH)}) for query, _ in drawn}
    wanted = sorted({doc_id for pool in pools.values() for doc_id in pool})
    texts = texts_of(inputs.stores[TRANSLATED], rows_of(inputs.keys[TRANSLATED], wanted))
    return tuple(Unjudged(query, chance, {d: texts.get(d, "") for d in pools[query.id]}) for query, chance in drawn)


def write_unjudged(path: Path, drawn: Iterable[Unjudged]) -> None:
    """Write the file to grade.

    Raises
    ------
    OSError
        The operating system refused.
    """
    lines = (json.dumps(_record(one), ensure_ascii=False).encode() + b"\n" for one in drawn)
    write_bytes(path, b"".join(lines))


def _record(one: Unjudged) -> dict[str, Any]:
    documents = [{"_id": doc_id, "text": text, "grade": None} for doc_id, text in one.documents.items()]
    return {"_id": one.query.id, "text": one.query.text, "chance": one.chance, "documents": documents}
