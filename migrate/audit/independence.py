"""Queries that chose documents do not judge: the one rule of `audit`, `audit --frontier` and `run`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from migrate.audit.power import FEWEST_QUERIES
from migrate.audit.questions import Questions
from migrate.errors import InconclusiveError
from migrate.sample.choosers import digest_of


def independent(questions: Questions, choosers: Collection[str]) -> Questions:
    """The questions without those among `choosers` (`migrate.sample.choosers`), with a note of how many these are.

    Raises
    ------
    InconclusiveError
        Too few are left for a verdict. Nothing need be embedded to know it.
    """
    left = [query for query in questions.queries if digest_of(query) not in choosers] if choosers else []
    gone = len(questions.queries) - len(left)
    if not choosers or not gone:
        return questions
    ids = {query.id for query in left}
    qrels = None if questions.qrels is None else {q: found for q, found in questions.qrels.items() if q in ids}
    known = f"{gone:,} of {len(questions.queries):,} queries are in the query log that chose documents to embed"
    kept = replace(questions, queries=left, qrels=qrels, notes=(*questions.notes, f"{known}; they do not judge"))
    if len(kept.distinct) < FEWEST_QUERIES:
        raise InconclusiveError(
            f"INCONCLUSIVE: {questions.name}: {known} and may not judge; expected at least {FEWEST_QUERIES} others, "
            f"found {len(kept.distinct)}; judge by other queries, or choose documents by other ones or at random"
        )
    return kept
