"""The options of a step that ends in a verdict: the queries that judge, the margin and the plan that they judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.errors import UsageError
from migrate.progress import Progress, no_progress
from migrate.steps.base import (
    FORCE,
    GROUP_FIELD,
    HOLD_OUT,
    JUDGED,
    MARGIN,
    PLAN,
    PRICE,
    SEED,
    UNJUDGED,
    Announce,
    JobStep,
    PaidOptions,
    Result,
    RunContext,
    new_cap,
)

if TYPE_CHECKING:
    from migrate.audit.pool import PoolStep
    from migrate.audit.query_set import QuerySet
    from migrate.cost.meter import SpendingCap
    from migrate.stores.base import Store


@dataclass(frozen=True, kw_only=True, eq=False)
class JudgedOptions(PaidOptions):
    """The options that all steps have that end in a verdict by queries, judged ones or others."""

    judged: QuerySet | str | Path | None = field(default=None, metadata=JUDGED)
    queries: str | Path | None = field(default=None, metadata=UNJUDGED)
    hold_out: str | None = field(default=None, metadata=HOLD_OUT)
    group_field: str | None = field(default=None, metadata=GROUP_FIELD)
    margin: float = field(default=0.95, metadata=MARGIN)
    plan: str = field(default="translated", metadata=PLAN)
    price: float | None = field(default=None, metadata=PRICE)
    seed: int = field(default=0, metadata=SEED)
    force: bool = field(
        default=False, metadata={**FORCE, "help": "Replace what --output and --report name if it exists."}
    )

    def check_queries(self, *, is_pooled: bool, are_needed: bool = True) -> None:
        """Make sure that there are queries, of one kind, a margin, and that some are held out of a pool only."""
        # Before anything is paid for; also of no number
        if not 0 < self.margin <= 1:
            raise UsageError(f"a margin of {self.margin} is no share; give one above 0 and up to 1, such as 0.95")
        if self.judged is not None and self.queries is not None:
            raise UsageError("--judged and --queries exclude each other; leave one out")
        if are_needed:
            self._require_queries()
        if self.share_held_out() is not None and not is_pooled:
            raise UsageError(
                "--hold-out goes with --reference pool, as nothing is chosen for other references; leave it out"
            )

    def check_ranked(self, ranked: int | None, *, is_pooled: bool) -> None:
        """Make sure that a pool ranks enough queries for a verdict, None for all, and that the plan ranks again."""
        from migrate.audit.results import rerank_depths
        from migrate.outcome import FEWEST_QUERIES

        if ranked is None:
            return
        if ranked < FEWEST_QUERIES:
            raise UsageError(
                f"--ranked-queries: a verdict needs {FEWEST_QUERIES} queries that are ranked; give "
                f"{FEWEST_QUERIES} or more, not {ranked}"
            )
        if not is_pooled or self.judged is None:
            raise UsageError(
                "--ranked-queries goes with --reference pool and --judged, where queries choose what is embedded; "
                "leave it out"
            )
        if not rerank_depths(self.plan):
            raise UsageError(
                f"--ranked-queries judges a plan that ranks documents again, and {self.plan!r} does not; add "
                "--plan two-stage-50, or leave --ranked-queries out"
            )

    def _require_queries(self) -> None:
        if not self.has_queries:
            raise UsageError(
                "no queries are named: give judged ones with --judged DIR or any with --queries FILE, or have them "
                "made with --queries synthetic"
            )

    @property
    def has_queries(self) -> bool:
        """True where there are queries to judge by."""
        return self.judged is not None or self.queries is not None

    def share_held_out(self) -> float | None:
        """Return the share of the queries, 0-1, that is held out; None for none."""
        from migrate.audit.query_set import share_of

        if self.hold_out is None:
            return None
        return share_of(self.hold_out)

    @property
    def queries_location(self) -> str | None:
        """The file, folder or set that the queries are read from; None for synthetic ones and for objects."""
        from migrate.audit.query_set import SYNTHETIC, split_of

        if self.queries is not None:
            if self.queries == SYNTHETIC:
                return None
            return str(self.queries)
        if not isinstance(self.judged, str | Path):
            return None
        return split_of(str(self.judged))[0]

    def load_queries(
        self, store: Store, *, parent_field: str = "parent_id", progress: Progress = no_progress
    ) -> QuerySet:
        """Return the queries, with judgements if there are any, without those that are held out."""
        from migrate.audit.query_set import (
            SYNTHETIC,
            QuerySet,
            by_field,
            hold_out,
            load_questions,
            load_unjudged,
            synthetic_queries,
        )

        self._require_queries()
        if isinstance(self.judged, QuerySet):
            query_set = self.judged
        elif self.judged is not None:
            query_set = load_questions(str(self.judged), progress=progress)
        elif self.queries == SYNTHETIC:
            query_set = synthetic_queries(store, parent_field=parent_field, seed=self.seed)
        else:
            query_set = load_unjudged(Path(str(self.queries)))
        if self.group_field is not None:
            query_set = by_field(query_set, self.group_field)
        share = self.share_held_out()
        if share is None:
            return query_set
        return hold_out(query_set, share)


@dataclass(frozen=True, kw_only=True, eq=False)
class JudgedStep(JobStep[Result]):
    """A step that ends in a verdict, and may grow a pool for it."""

    def run(
        self,
        *,
        progress: Progress = no_progress,
        cap: SpendingCap | None = None,
        announce: Callable[[PoolStep], None] | None = None,
        margin_from: str = "",
    ) -> Result:
        """Check the parameters, and do the work within `max_cost`, as the job does.

        Parameters
        ----------
        progress
            Called with a step, how much of it is done, and how much there is.
        cap
            Counts what all models together have spent; steps that are given the same share it.
        announce
            Called with each step of a pool, before its documents are embedded.
        margin_from
            Origin of the margin, such as the name of a file, for the report.
        """
        self.check()
        announced = Announce()
        if announce is not None:
            announced = Announce(pool=announce)
        context = RunContext(progress=progress, cap=cap or new_cap(), announce=announced, margin_from=margin_from)
        return self.open(context).run()
