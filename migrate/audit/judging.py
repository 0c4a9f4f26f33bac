"""Queries to judge next, written with their candidates for a person to grade; and whether grades tell rankings apart.

The candidates are the first ten documents of every ranking that the verdict compares (pooling; Spärck Jones and van
Rijsbergen 1975), in the order of their ids, so that nobody knows which ranking put them there. The file is that of
`migrate.datasets.graded`, which reads it back.

Whoever grades them all alike, or at random, makes any two rankings of them look equally good. That no difference is
seen means something only where one would have been (assay sensitivity; ICH E10, 2000).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrate.audit.drawn_queries import chances_of, draw_queries, greatest_change
from migrate.audit.inputs import PreparedAudit, rows_of, texts_of
from migrate.audit.measures import Scores, ndcg_at_random
from migrate.audit.query_set import QuerySet
from migrate.audit.results import FULL, STAY, TRANSLATED
from migrate.audit.verdict import MARGIN, retention_bounds
from migrate.datasets.graded import seal_of
from migrate.files import write_bytes
from migrate.search.runs import Run
from migrate.vectors import Query

_DEPTH = 10
_ALIKE = 0.5
_BY_LUCK = 0.01
"""Less likely than this nothing is taken for luck."""
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
    lines = (json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in _records(drawn))
    write_bytes(path, b"".join(lines))


def _records(drawn: Iterable[Unjudged]) -> Iterator[dict[str, Any]]:
    seal = ""
    for place, one in enumerate(drawn, start=1):
        seal = seal_of(seal, one.query, one.chance, one.documents)
        documents = [{"_id": doc_id, "text": text, "grade": None} for doc_id, text in one.documents.items()]
        facts = {"_id": one.query.id, "text": one.query.text, "chance": one.chance, "seal": seal}
        yield {"place": place, **facts, "documents": documents}


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


def one_sided(query_set: QuerySet, translated: Run, full: Run) -> tuple[str, ...]:
    """A doubt where judgements lie with the translated store's first ten, significantly more than with the full one's.

    Users click what is shown: of a log of the translated store all that is relevant is what that store found, and what
    it missed was never judged. Held against each other are queries (sign tests), by how many relevant documents and
    how many judged ones are in the first ten of either ranking, and by which ranking has all that is relevant there. A
    translation finds more than what it translates to by luck alone, and judgements of other rankings favour neither.
    """
    counts = {"relevant": [0, 0], "judged": [0, 0], "all of the relevant": [0, 0]}
    for query in query_set.distinct:
        grades = (query_set.qrels or {}).get(query.id, {})
        relevant = {doc_id for doc_id, grade in grades.items() if grade > 0}
        own, others = (set(run.top(query.id, _DEPTH)) for run in (translated, full))
        for name, first, second in (
            ("relevant", len(relevant & own), len(relevant & others)),
            ("judged", len(grades.keys() & own), len(grades.keys() & others)),
            ("all of the relevant", relevant <= own, relevant <= others),
        ):
            counts[name][0] += first > second
            counts[name][1] += first < second
    for name, (more, fewer) in counts.items():
        if tail(more, more + fewer, 0.5) < _BY_LUCK:
            held = "all of the relevant" if name.startswith("all") else f"more {name}"
            return (
                f"the judgements favour the translated store: its first {_DEPTH} hold {held} documents where the full "
                f"re-embed's do not in {more:,} queries, the other way round in {fewer:,}, as where users could click "
                "only what it showed; judge what both find: --judge-next",
            )
    return ()


def sampled(query_set: QuerySet, true: Set[str], documents: Set[str], *, is_safe_without: bool) -> tuple[str, ...]:
    """A doubt where most relevant `documents` of a store have `true` vectors, and significantly more than others have.

    Whoever judged the documents that were embedded has judged the sample, not the translation. `is_safe_without` says
    that the store is SAFE without the true vectors too, which leaves no doubt. Not for a store whose documents were
    chosen by queries: these may well be those that other queries want.
    """
    wanted = {doc_id for grades in (query_set.qrels or {}).values() for doc_id, grade in grades.items() if grade > 0}
    wanted &= documents
    lucky, share = len(wanted & true), len(true) / len(documents)
    if is_safe_without or lucky <= len(wanted) / 2 or tail(lucky, len(wanted), share) >= _BY_LUCK:
        return ()
    return (
        f"{lucky:,} of the {len(wanted):,} relevant documents have true vectors, and {share:.0%} of all documents: "
        "these judgements are of the sample, not of the translation; judge what both rankings find, with --judge-next, "
        "or queries of other documents",
    )


def tail(successes: int, trials: int, chance: float) -> float:
    """How likely so many successes or more are, of independent trials with this chance each."""
    from scipy.special import betainc

    return float(betainc(successes, trials - successes + 1, chance)) if successes else 1.0


def unrelated_grades(query_set: QuerySet, full: Scores, *, seed: int, resamples: int) -> tuple[str, ...]:
    """A doubt where judged documents in random order are not shown to be worse than what the full re-embed finds.

    To be used where grades of 0 are there too: of documents that are all relevant no order is any better.

    `full` are the full re-embed's nDCG@10, (c,). Each query counts the same here, however it was drawn.
    """
    shuffled = query_set.merged(ndcg_at_random(query_set.qrels or {}, query_set.query_ids, _DEPTH))
    bounds = retention_bounds(shuffled, full, seed=seed, resamples=resamples)
    if bounds.upper < _UNRELATED:
        return ()
    return (
        "the grades look unrelated to the rankings: the judged documents in random order score "
        f"{bounds.estimate:.2f} times what the full re-embed does (at most {bounds.upper:.2f}), so that these "
        "judgements could not show a loss: check the grades of some queries",
    )
