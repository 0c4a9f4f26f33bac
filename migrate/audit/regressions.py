"""The queries that lose most by the migration: what they ask, what they found, and what they find now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from migrate.audit.arms import FULL, STAY, TIE, TRANSLATED, deciding_scores
from migrate.audit.ground import Ground
from migrate.audit.homes import rows_of, texts_of
from migrate.search.runs import Run

WORST = 10
_SHOWN = 3
_CHARACTERS = 160


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that was found: the beginning of its text, and its grade where it is judged."""

    doc_id: str
    text: str
    grade: int | None


@dataclass(frozen=True, slots=True)
class Regression:
    """A query that loses: its score by the deciding measure and its first documents, by arm.

    The arms are `full re-embed`, `translated`, and `stay` where it is there.
    """

    query_id: str
    text: str
    scores: Mapping[str, float]
    hits: Mapping[str, tuple[Hit, ...]]


def find_regressions(ground: Ground, runs: Mapping[str, Run], *, count: int = WORST) -> tuple[Regression, ...]:
    """The `count` queries whose score falls furthest behind that of the full re-embed, worst first, ties by place.

    Queries of one text are one, with their mean scores and the hits of the first of them.
    """
    questions = ground.questions
    shown = [name for name in (FULL, TRANSLATED, STAY) if name in runs]
    scores = {name: deciding_scores(runs[name], runs[FULL], questions) for name in shown}
    loss = scores[FULL] - scores[TRANSLATED]
    worst = [int(row) for row in np.argsort(-loss, kind="stable")[:count] if loss[row] > TIE]
    asked = [questions.distinct[row] for row in worst]
    tops = {(name, query.id): runs[name].top(query.id, _SHOWN) for name in shown for query in asked}
    rows = rows_of(ground.keys[TRANSLATED], sorted({doc_id for top in tops.values() for doc_id in top}))
    texts = texts_of(ground.stores[TRANSLATED], rows)

    def hit(query_id: str, doc_id: str) -> Hit:
        grades = (questions.qrels or {}).get(query_id, {})
        return Hit(doc_id, _short(texts.get(doc_id, "")), grades.get(doc_id))

    return tuple(
        Regression(
            query.id,
            query.text,
            {name: float(scores[name][row]) for name in shown},
            {name: tuple(hit(query.id, doc_id) for doc_id in tops[name, query.id]) for name in shown},
        )
        for row, query in zip(worst, asked, strict=True)
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _CHARACTERS else line[: _CHARACTERS - 1].rstrip() + "…"
