"""Queries to judge next, written with their candidates for a person to grade; and whether grades tell rankings apart.

The candidates are the first ten documents of every ranking that the verdict compares (pooling; Spärck Jones and van
Rijsbergen 1975), in the order of their ids, so that nobody knows which ranking put them there. The file is that of
`migrate.datasets.graded`, which reads it back.

Whoever grades them all alike, or at random, makes any two rankings of them look equally good. That no difference is
seen means something only where one would have been (assay sensitivity; ICH E10, 2000).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrate.audit.drawn_queries import chances_of, draw_queries, greatest_change
from migrate.audit.inputs import PreparedAudit, rows_of, texts_of
from migrate.audit.measures import Scores, ndcg_at_random
from migrate.audit.query_set import QuerySet
from migrate.audit.results import FULL, STAY, TRANSLATED
from migrate.audit.verdict import MARGIN, retention_bounds
from migrate.files import write_bytes
from migrate.search.runs import Run
from migrate.vectors import Query

_DEPTH = 10
_ALIKE = 0.5
_UNRELATED = MARGIN
"""Share, 0-1, of the full re-embed's nDCG@10 that judged documents in random order must be shown to stay below."""


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
    metadata = {"metadata": dict(one.query.metadata)} if one.query.metadata else {}
    return {"_id": one.query.id, "text": one.query.text, **metadata, "chance": one.chance, "documents": documents}


def alike_grades(query_set: QuerySet, runs: Sequence[Run]) -> tuple[str, ...]:
    """A doubt where most queries with a relevant document have one grade for all that is judged or ranked first.

    A document that nobody judged has grade 0, so that judgements of relevant documents alone raise no doubt.
    """
    qrels = query_set.qrels or {}
    queries = [query.id for query in query_set.distinct if any(grade > 0 for grade in qrels.get(query.id, {}).values())]
    alike = 0
    for query_id in queries:
        candidates = set(qrels[query_id]).union(*(run.top(query_id, _DEPTH) for run in runs))
        alike += len({max(qrels[query_id].get(doc_id, 0), 0) for doc_id in candidates}) == 1
    if alike <= _ALIKE * len(queries):
        return ()
    return (
        f"in {alike:,} of {len(queries):,} queries with relevant documents all candidates have the same grade, which "
        "cannot show that one ranking is worse than another: give 0 to what does not answer the query, and the more to "
        "the rest the better it does",
    )


def unrelated_grades(query_set: QuerySet, full: Scores, *, seed: int, resamples: int) -> tuple[str, ...]:
    """A doubt where judged documents in random order are not shown to be worse than what the full re-embed finds.

    To be used where grades of 0 are there too: of documents that are all relevant no order is any better.

    `full` are the full re-embed's nDCG@10, (c,). Each query counts the same here, however it was drawn.
    """
    shuffled = query_set.merged(ndcg_at_random(query_set.qrels or {}, query_set.query_ids, _DEPTH))
    weighting = query_set.weighting(by_chance=False)
    bounds = retention_bounds(shuffled, full, seed=seed, resamples=resamples, weighting=weighting)
    if bounds.upper < _UNRELATED:
        return ()
    return (
        "the grades look unrelated to the rankings: the judged documents in random order score "
        f"{bounds.estimate:.2f} times what the full re-embed does (at most {bounds.upper:.2f}), so that these "
        "judgements could not show a loss: check the grades of some queries",
    )
