"""Queries to judge next, written with their candidates for a person to grade; and whether grades tell rankings apart.

The candidates are the first ten documents of every ranking that the verdict compares (pooling; Spärck Jones and van
Rijsbergen 1975), in the order of their ids. The file is that of `migrate.datasets.graded`, which reads it back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from migrate.audit.drawn_queries import chances_of, draw_queries, greatest_change
from migrate.audit.inputs import rows_of, texts_of
from migrate.audit.measures import Scores, ndcg, ndcg_at_random
from migrate.audit.query_set import QuerySet
from migrate.audit.results import FULL, STAY, TIE, TRANSLATED
from migrate.audit.retrieval import Retriever
from migrate.audit.unjudged import LOSS_AT_LEAST
from migrate.audit.verdict import MARGIN, Bounds, Finding, doubt, retention_bounds
from migrate.datasets.graded import seal_of
from migrate.files import atomic_file, write_bytes
from migrate.search.runs import Run
from migrate.vectors import Query

TO_JUDGE = 300

_DEPTH = 10
_BY_LUCK = 0.01
"""What is less likely than this is not taken for luck."""
_BY_LITTLE_LUCK, _NEXT_TO_NOTHING = 0.15, 0.01
"""The same where no larger share of the relevant documents than this was not found by the translated store."""
_UNRELATED = MARGIN
"""Share, 0-1, of the full re-embed's nDCG@10 that judged documents in random order must be shown to stay below."""


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A drawn query, its chance to be drawn, and the texts of the documents to judge, by their ids."""

    query: Query
    chance: float
    documents: Mapping[str, str]


def draw_unjudged(retriever: Retriever, runs: Mapping[str, Run], n: int = TO_JUDGE) -> tuple[Unjudged, ...]:
    """At most `n` of the audit's queries, drawn by how much judgements could tell store and full re-embed apart."""
    queries = retriever.query_set.distinct
    changes = greatest_change(runs[TRANSLATED], runs[FULL], [query.id for query in queries], _DEPTH)
    chances = chances_of(changes)
    drawn = [(queries[row], float(chances[row])) for row in draw_queries(chances, n, retriever.audit.seed).tolist()]
    ranked = [runs[name] for name in (FULL, TRANSLATED, STAY) if name in runs]
    pools = {query.id: sorted({d for run in ranked for d in run.top(query.id, _DEPTH)}) for query, _ in drawn}
    wanted = sorted({doc_id for pool in pools.values() for doc_id in pool})
    texts = texts_of(retriever.stores[TRANSLATED], rows_of(retriever.keys[TRANSLATED], wanted))
    return tuple(Unjudged(query, chance, {d: texts.get(d, "") for d in pools[query.id]}) for query, chance in drawn)


def write_unjudged(path: Path, drawn: Iterable[Unjudged], *, force: bool = False) -> None:
    """Write the file to grade."""
    lines = (json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in _records(drawn))
    with atomic_file(path, force=force) as aside:
        write_bytes(aside, b"".join(lines))


def _records(drawn: Iterable[Unjudged]) -> Iterator[dict[str, Any]]:
    seal = ""
    for place, one in enumerate(drawn, start=1):
        seal = seal_of(seal, one.query, one.chance, one.documents)
        documents = [{"_id": doc_id, "text": text, "grade": None} for doc_id, text in one.documents.items()]
        metadata = {"metadata": dict(one.query.metadata)} if one.query.metadata else {}
        facts = {"_id": one.query.id, "text": one.query.text, **metadata, "chance": one.chance, "seal": seal}
        yield {"place": place, **facts, "documents": documents}


def alike_grades(query_set: QuerySet, runs: Sequence[Run]) -> tuple[Finding, ...]:
    """Return a doubt where most queries with a relevant document have one grade for all that is judged or ranked first.

    A document that nobody judged has grade 0, so that judgements of relevant documents alone raise no doubt.
    """
    qrels = query_set.qrels or {}
    queries = [query.id for query in query_set.distinct if any(grade > 0 for grade in qrels.get(query.id, {}).values())]
    alike = 0
    for query_id in queries:
        candidates = set(qrels[query_id]).union(*(run.top(query_id, _DEPTH) for run in runs))
        alike += len({max(qrels[query_id].get(doc_id, 0), 0) for doc_id in candidates}) == 1
    if alike <= 0.5 * len(queries):
        return ()
    text = (
        f"in {alike:,} of {len(queries):,} queries with relevant documents all candidates have the same grade, which "
        "cannot show that one ranking is worse than another: give 0 to what does not answer the query, and the more to "
        "the rest the better it does"
    )
    return (doubt(text),)


def one_sided(query_set: QuerySet, translated: Run, full: Run) -> tuple[Finding, ...]:
    """Return a doubt where judgements lie with the first ten of the translated store, more than with the full one.

    Users click what is shown: of a log of the translated store all that is relevant is what that store found, and what
    it missed was never judged. Sign tests hold queries against each other: in which ranking are more relevant, or more
    judged documents, which has all that is relevant, and which has it higher up. A translation is better than what it
    translates to by luck alone, and judgements of other rankings favour neither. Where next to nothing is relevant but
    what the translated store found, less is taken for a sign.
    """
    qrels, ids = query_set.qrels or {}, [query.id for query in query_set.distinct]
    signs: dict[str, list[float]] = {"more relevant": [], "more judged": [], "all relevant": [], "relevant": []}
    lost = np.zeros(2, dtype=int)
    n_relevant = 0
    for query_id in ids:
        grades = qrels.get(query_id, {})
        relevant = {doc_id for doc_id, grade in grades.items() if grade > 0}
        own, others = (set(run.top(query_id, _DEPTH)) for run in (translated, full))
        signs["more relevant"].append(len(relevant & own) - len(relevant & others))
        signs["more judged"].append(len(grades.keys() & own) - len(grades.keys() & others))
        signs["all relevant"].append(int(relevant <= own) - int(relevant <= others))
        lost += len(relevant - own), len(relevant - others)
        n_relevant += len(relevant)
    signs["relevant"] = (ndcg(translated, qrels, ids, _DEPTH) - ndcg(full, qrels, ids, _DEPTH)).tolist()
    why = "as where users could click only what it showed; judge what both find: --judge-next"
    for what, differences in signs.items():
        more, fewer = (int((side * np.array(differences) > TIE).sum()) for side in (1, -1))
        if tail(more, more + fewer, 0.5) < _BY_LUCK / len(signs):
            where = f"higher up in its first {_DEPTH}" if what == "relevant" else f"in its first {_DEPTH}"
            text = (
                f"the judgements favour the translated store: it has {what} documents {where} where the full re-embed "
                f"has not in {more:,} queries, the other way round in {fewer:,}, {why}"
            )
            return (doubt(text),)
    own_lost, others_lost = lost.tolist()
    if own_lost <= _NEXT_TO_NOTHING * n_relevant and tail(others_lost, own_lost + others_lost, 0.5) < _BY_LITTLE_LUCK:
        text = (
            f"the judgements favour the translated store: {n_relevant - own_lost:,} of {n_relevant:,} relevant "
            f"documents are in its first {_DEPTH}, {n_relevant - others_lost:,} in those of the full re-embed, {why}"
        )
        return (doubt(text),)
    return ()


def contradicted(judged: Bounds, agreement: Bounds) -> tuple[Finding, ...]:
    """Return a doubt where bounds of retention, `judged`, are above what those of agreement@10 leave possible.

    Judgements that came from the answers of a store that the translated one resembles, as the old store's may, favour
    it over the full re-embed; what the target model scores knows nothing of them.
    """
    most = 1 - LOSS_AT_LEAST * (1 - agreement.upper)
    if judged.lower <= most:
        return ()
    text = (
        f"the judgements show a retention of at least {judged.lower:.3f}, where agreement@10 with the full re-embed, "
        f"which needs none ({agreement.estimate:.3f}), allows {most:.3f} at most: clicks on what this store or the old "
        "one showed look like that; judge what both rankings find: --judge-next"
    )
    return (doubt(text),)


MOST, NEARLY_ALL = 0.5, 0.95


def sampled(
    query_set: QuerySet, true: Set[str], documents: Set[str], *, least: float = MOST, is_safe_without: bool
) -> tuple[Finding, ...]:
    """Return a doubt where more than `least`, 0-1, of the relevant `documents` have `true` vectors, unlike the others.

    Whoever judged the documents that were embedded has judged the sample, not the translation. `is_safe_without` says
    that the store is SAFE without the true vectors too, which leaves no doubt.
    """
    wanted = {doc_id for grades in (query_set.qrels or {}).values() for doc_id, grade in grades.items() if grade > 0}
    wanted &= documents
    lucky, share = len(wanted & true), len(true) / len(documents)
    if is_safe_without or lucky <= least * len(wanted) or tail(lucky, len(wanted), share) >= _BY_LUCK:
        return ()
    text = (
        f"{lucky:,} of the {len(wanted):,} relevant documents have true vectors, and {share:.0%} of all documents: "
        "these judgements are of the sample, not of the translation; judge what both rankings find, with --judge-next, "
        "or queries of other documents"
    )
    return (doubt(text),)


def tail(successes: int, trials: int, chance: float) -> float:
    """Return how likely so many successes or more are, of independent trials with this chance each."""
    from scipy.special import betainc

    return float(betainc(successes, trials - successes + 1, chance)) if successes else 1.0


def unrelated_grades(query_set: QuerySet, full: Scores, *, seed: int, resamples: int) -> tuple[Finding, ...]:
    """Return a doubt where judged documents in random order are not shown to be worse than the full re-embed.

    To be used where grades of 0 are there too: of documents that are all relevant no order is any better.

    `full` are the full re-embed's nDCG@10, (c,). Each query counts the same here, however it was drawn.
    """
    shuffled = query_set.merged(ndcg_at_random(query_set.qrels or {}, query_set.query_ids, _DEPTH))
    weighting = query_set.weighting(by_chance=False)
    bounds = retention_bounds(shuffled, full, seed=seed, resamples=resamples, weighting=weighting)
    if bounds.upper < _UNRELATED:
        return ()
    text = (
        "the grades look unrelated to the rankings: the judged documents in random order score "
        f"{bounds.estimate:.2f} times what the full re-embed does (at most {bounds.upper:.2f}), so that these "
        "judgements could not show a loss: check the grades of some queries"
    )
    return (doubt(text),)
