"""The rules by which the arms of an audit are compared and judged: how queries count, the margin, a pool's floor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from migrate.audit.bootstrap import FLOOR_SHARE, Bootstrap, Floor
from migrate.audit.bounds import CONFIDENCE, Bounds
from migrate.audit.keys import PARENT_FIELD
from migrate.audit.measures import Scores
from migrate.audit.query_set import QuerySet
from migrate.audit.results import FULL, ArmResult, win_tie_loss
from migrate.audit.verdict import Verdict, verdict_of
from migrate.audit_report.records import Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The parameters of an audit, by the names that `Audit` has for them.

    `stages` are the depths of two-stage arms, none for no such arm, None for the usual ones. `pool_depth` is how many
    documents of the translated store a pool has for a query at most, None without a pool. `ranked_queries` is for how
    many queries it has them, None for all. `search_effort` is what programs set in the place of the stored setting of a
    search, None for that.
    """

    plan: str
    margin: float
    seed: int
    stages: Sequence[int] | None
    slices: Sequence[str]
    pool_depth: int | None
    ranked_queries: int | None = None
    search_effort: int | None = None
    margin_from: str = ""
    parent_field: str = PARENT_FIELD
    price: float | None = None


@dataclass(frozen=True, eq=False)
class Rules:
    """The rules of an audit of one query set; scores are one for each distinct text, (c,).

    `n_documents` are searched. `floor` is under the scores of the full re-embed, or of any arm's agreement, where a
    pool stands for it.
    """

    query_set: QuerySet
    settings: Settings
    n_documents: int
    floor: Floor | None = None

    def bootstrap(self, *, in_pool: bool = False) -> Bootstrap:
        """Return the rules for bounds of scores, which are those `in_pool` where a floor belongs to them."""
        floor = None
        if in_pool:
            floor = self.floor
        return Bootstrap(self.query_set.grouping, self.settings.seed, floor=floor)

    def verdict(
        self, arm: Scores, full: Scores, stay: Scores | None = None, *, confidence: float = CONFIDENCE
    ) -> Verdict:
        """Return the verdict on the translated store, in whatever state; scores are by the deciding measure."""
        is_judged = self.query_set.is_judged
        return verdict_of(
            arm,
            full,
            stay if is_judged else None,
            margin=self.settings.margin,
            provisional=not is_judged,
            n_documents=self.n_documents,
            bootstrap=replace(self.bootstrap(in_pool=True), confidence=confidence),
        )

    def compare(self, arm: ArmResult, standard: ArmResult) -> Comparison:
        """Return the retention of an arm, and the queries it wins, ties and loses against its standard."""
        scores, reference = (scores_of.scores[self.query_set.measure] for scores_of in (arm, standard))
        bootstrap = self.bootstrap(in_pool=standard.name == FULL)
        return Comparison(bootstrap.retention(scores, reference), *win_tie_loss(scores, reference), standard.name)

    def quality(self, full: Scores, *, confidence: float = CONFIDENCE) -> Bounds:
        """Return the mean score of the full re-embed, with bounds; by judgements alone."""
        perfect = np.ones(len(full))
        return self._of_full(full, lambda bootstrap, scores: bootstrap.retention(scores, perfect), confidence)

    def gain(self, full: Scores, stay: Scores, *, confidence: float = CONFIDENCE) -> Bounds:
        """Return by how much the full re-embed scores more than staying, query by query, with bounds."""
        return self._of_full(full, lambda bootstrap, scores: bootstrap.difference(scores, stay), confidence)

    def _of_full(self, full: Scores, measure: Callable[[Bootstrap, Scores], Bounds], confidence: float) -> Bounds:
        """Return bounds of what goes up with the scores of the full re-embed.

        In a pool these are the most that it can score: the upper bound is of them, the lower one of the floor, with the
        error that the floor leaves, as in `Bootstrap.retention`.
        """
        bootstrap = replace(self.bootstrap(), confidence=confidence)
        bounds = measure(bootstrap, full)
        if self.floor is None or self.floor.is_share:
            return bounds
        level = 1 - (1 - FLOOR_SHARE) * (1 - confidence)
        lower = min(measure(replace(bootstrap, confidence=level), self.floor.least).lower, bounds.lower)
        expected = measure(bootstrap, self.floor.expected).estimate
        return Bounds(max(min(expected, bounds.upper), lower), lower, bounds.upper)

    def expected(self, full: Scores) -> Scores:
        """Return the scores of the full re-embed, as they are expected where only a pool of it is there."""
        if self.floor is None:
            return full
        return self.floor.expected

    def likely(self, arm: Scores, full: Scores) -> tuple[Scores, Scores]:
        """Return the scores of an arm and of the full re-embed, as they are expected where there is only a pool."""
        if self.floor is None:
            return arm, full
        return self.floor.likely(arm, full)
