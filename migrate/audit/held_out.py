"""The verdict without the documents that have true vectors: what the stitch alone keeps.

A sample that is relevant to the queries flatters a translation: these documents were embedded for real. Without them,
in the stores and in the judgements, only translated documents are found and judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from migrate.audit.arms import FULL, TRANSLATED, deciding_scores
from migrate.audit.inputs import Ground
from migrate.audit.measures import Qrels
from migrate.audit.query_set import Keys, Questions
from migrate.audit.retrieval import Asking
from migrate.audit.verdict import Verdict, decide
from migrate.stores.base import Store
from migrate.stores.confidence import stored_confidence


@dataclass(frozen=True, slots=True)
class HeldOut:
    """What the audit finds without `documents` that have true vectors, `relevant` of them to some query.

    `queries` is how many are left, each text once: those whose only relevant documents are gone are not asked.
    """

    documents: int
    relevant: int
    queries: int
    verdict: Verdict

    def doubted(self, doubts: tuple[str, ...]) -> HeldOut:
        """The finding where there are doubts about what it rests on."""
        return replace(self, verdict=self.verdict.doubted(doubts))

    @property
    def sentence(self) -> str:
        """For a person."""
        bounds, left = self.verdict.retention, self.verdict.n_documents
        few = f", the first 10 of the {left} documents left are hardly a selection"
        return (
            f"without the {self.documents:,} documents that have true vectors ({self.relevant:,} of them relevant; "
            f"{self.queries:,} queries left): {self.verdict.outcome.value}, retention {bounds.estimate:.3f}, 95 % "
            f"bounds {bounds.lower:.3f} to {bounds.upper:.3f}{few if self.verdict.lacks_documents else ''}"
        )


def true_documents(translated: Store, keys: Keys) -> frozenset[str]:
    """The documents with a true vector among those of their chunks, as `confidence.npy` has them; none without it.

    Raises
    ------
    StoreError
        `confidence.npy` is damaged, or of another store.
    """
    values = stored_confidence(translated)
    if values is None:
        return frozenset()
    known = np.flatnonzero(values == 1)
    return frozenset(keys[doc_id] for doc_id in translated.get(known).ids) if len(known) else frozenset()


def judge_held_out(ground: Ground, asking: Asking, *, margin: float, resamples: int) -> HeldOut | None:
    """Ask the translated store and the reference without the documents that have true vectors.

    None where no document has, where all have, or where no query is left.
    """
    gone = true_documents(ground.stores[TRANSLATED], ground.keys[TRANSLATED])
    documents = set(ground.keys[FULL].values())
    if not gone or gone >= documents:
        return None
    questions, rows = _without(asking.questions, gone)
    if not len(rows):
        return None
    again, asked = replace(asking, questions=questions), ground.vectors[FULL][rows]
    arm, full = (
        again.search(ground.stores[name], asked, ground.keys[name], left_out=gone).run for name in (TRANSLATED, FULL)
    )
    scores = [deciding_scores(run, full, questions) for run in (arm, full)]
    verdict = decide(
        *scores,
        margin=margin,
        seed=asking.seed,
        resamples=resamples,
        provisional=questions.qrels is None,
        n_documents=len(documents - gone),
    )
    relevant = {d for grades in (asking.questions.qrels or {}).values() for d, grade in grades.items() if grade > 0}
    return HeldOut(len(gone), len(gone & relevant), verdict.n_queries, verdict)


def _without(questions: Questions, gone: frozenset[str]) -> tuple[Questions, np.ndarray]:
    """The questions that still have a relevant document, and where they stood."""
    if questions.qrels is None:
        return questions, np.arange(len(questions.queries))
    qrels: Qrels = {query_id: _left(grades, gone) for query_id, grades in questions.qrels.items()}
    rows = np.array(
        [i for i, query in enumerate(questions.queries) if any(qrels.get(query.id, {}).values())], dtype=int
    )
    return replace(questions, queries=[questions.queries[i] for i in rows], qrels=qrels), rows


def _left(grades: Mapping[str, int], gone: frozenset[str]) -> dict[str, int]:
    return {doc_id: max(grade, 0) for doc_id, grade in grades.items() if doc_id not in gone}
