"""The queries to judge next: drawn from many by how much their judgements could matter, with bounds that allow for it.

Each query of a log is kept with the chance of `greatest_change`, and `FLOOR` at least, until there are enough (von
Neumann 1951), and counts by the inverse of its chance (Horvitz & Thompson 1952), which makes means those of all queries
again. The bounds of `migrate.audit.verdict` hold as they are: they ask for independent values with a known worst one.

They are written with their candidates for a person to grade: the first ten documents of every ranking that the verdict
compares (pooling; Spärck Jones and van Rijsbergen 1975), in the order of their ids. The file is that of
`migrate.datasets.graded`, which reads it back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from migrate.audit.measures import CUT, Scores
from migrate.audit.results import FULL, TRANSLATED
from migrate.audit.verdict import Weighting
from migrate.datasets.graded import seal_of
from migrate.files import atomic_file, write_bytes
from migrate.search.runs import Rankings
from migrate.vectors import Query

if TYPE_CHECKING:
    from migrate.audit.retrieval import Retriever

FLOOR = 0.1
"""The least chance to be drawn, so that no query weighs more than ten; `benchmarks/labels.py` compares others."""


def greatest_change(first: Rankings, second: Rankings, query_ids: Sequence[str], k: int = CUT) -> Scores:
    """Return the greatest difference of nDCG@k between two runs that judgements could make, (q,), 0 to 1.

    The difference of DCG is a sum over documents of grade times the difference of discounts. For grades in a given
    order it is linear in them, and so is the ideal DCG: their quotient is greatest where the first r documents
    share one grade and all others have none. The worst r are those with the greatest differences of discounts.
    """
    discounts = 1 / np.log2(np.arange(k) + 2)
    ideal = np.cumsum(discounts)
    return np.array([_change(first.top(q, k), second.top(q, k), discounts, ideal) for q in query_ids], dtype=float)


def _change(first: Sequence[str], second: Sequence[str], discounts: Scores, ideal: Scores) -> float:
    discount_of: dict[str, float] = {}
    for ranking, sign in ((first, 1.0), (second, -1.0)):
        for doc_id, discount in zip(ranking, discounts.tolist(), strict=False):
            discount_of[doc_id] = discount_of.get(doc_id, 0.0) + sign * discount
    changes = np.sort(np.array(list(discount_of.values())))
    n = min(len(changes), len(ideal))
    sums = np.stack([changes[::-1][:n].cumsum(), -changes[:n].cumsum()]) / ideal[:n]
    return float(sums.max(initial=0.0))


def chances_of(changes: Scores) -> Scores:
    """Return the chance with which each query is drawn."""
    chances: Scores = np.maximum(changes, FLOOR)
    return chances


def draw_queries(chances: Scores, n: int, seed: int = 0) -> NDArray[np.int64]:
    """Return rows of at most `n` queries in the order in which they were drawn: the first ones are a sample too."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(chances))
    drawn: NDArray[np.int64] = order[rng.random(len(order)) < chances[order]][:n]
    return drawn


def weighting_of(chances: Scores, *, limited: bool) -> Weighting:
    """Return how drawn queries count, by their chances, (n,).

    `limited` says that the two runs that are compared are those whose greatest changes the chances come from. Any other
    two may differ by 1 for a query that had the least chance.
    """
    weights = 1 / chances
    return Weighting(weights, max(1 / FLOOR, float(weights.max(initial=1.0))), limited)


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
