"""What an audit finds: arms with their measures, how each compares, the diagnostics, the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from migrate.audit.diagnostics import Diagnostics
from migrate.audit.frontier import Frontier
from migrate.audit.held_out import HeldOut
from migrate.audit.measures import Scores
from migrate.audit.reference import ReferenceProof
from migrate.audit.results import NDCG, REEMBEDDED, STAY, ArmResult, Comparison
from migrate.audit.verdict import FEWEST_QUERIES, Bounds, Verdict
from migrate.manifest import Manifest


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit. `measure` is what the verdict rests on: nDCG@10, or overlap@10 where nothing is judged.

    `query_ids` are those of the distinct query texts, in the order of all scores; a text that several queries
    share goes by the first of them. `family` are the arms that could serve instead, with bounds that hold for all of
    them at once. `skipped_arms` has what each of the other arms needs. `held_out` is the verdict without true
    vectors, None where there are none. `frontier` are the budgets that were tried. `reference` is how the standard was
    shown to be one, `doubts` what is odd about it or about the scores: with any of them nothing is SAFE.
    """

    verdict: Verdict
    arms: tuple[ArmResult, ...]
    comparisons: Mapping[str, Comparison]
    measure: str
    query_ids: tuple[str, ...]
    n_documents: int
    dataset: str
    notes: tuple[str, ...]
    manifest: Manifest
    family: Mapping[str, Bounds] = field(default_factory=dict)
    skipped_arms: Mapping[str, str] = field(default_factory=dict)
    held_out: HeldOut | None = None
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    frontier: Frontier | None = None
    reference: ReferenceProof | None = None
    doubts: tuple[str, ...] = ()

    @property
    def stay(self) -> Scores | None:
        """What staying scores by nDCG@10, in the order of `query_ids`; None without that arm, or without judgements."""
        return next((arm.scores.get(NDCG) for arm in self.arms if arm.name == STAY), None)

    @property
    def ways_out(self) -> tuple[str, ...]:
        """Arms that could serve instead and keep the margin, whichever of them one picks."""
        enough = self.verdict.n_queries >= FEWEST_QUERIES and not (self.doubts or self.verdict.lacks_documents)
        return tuple(name for name, bounds in self.family.items() if enough and bounds.lower >= self.verdict.margin)

    def arm(self, name: str) -> ArmResult:
        """The arm of that name.

        Raises
        ------
        KeyError
            There is none.
        """
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise KeyError(name)

    def with_frontier(self, frontier: Frontier) -> AuditReport:
        """The report with the budgets that were tried, those of the best policy among its arms."""
        budgets = {arm.name: (arm, comparison) for arm, comparison in frontier.arms}
        return replace(
            self,
            arms=(*self.arms, *(arm for arm, _ in budgets.values())),
            comparisons={**self.comparisons, **{name: comparison for name, (_, comparison) in budgets.items()}},
            skipped_arms={n: need for n, need in self.skipped_arms.items() if not budgets or n != REEMBEDDED},
            frontier=frontier,
        )
