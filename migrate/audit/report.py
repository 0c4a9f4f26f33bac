"""The report of an audit: arms with their measures, how each compares, the diagnostics, the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from migrate.audit.bounds import UNKNOWN, Bounds, Outcome
from migrate.audit.diagnostics import Diagnostics
from migrate.audit.held_out import HeldOut
from migrate.audit.locations import Locations
from migrate.audit.measures import Scores
from migrate.audit.own_search import OwnSearch
from migrate.audit.pool import PoolSummary
from migrate.audit.reference import ReferenceProof
from migrate.audit.results import (
    FULL,
    NDCG,
    STAY,
    TRANSLATED,
    ArmResult,
    Comparison,
    find_plan,
)
from migrate.audit.rules import Rules
from migrate.audit.verdict import Finding, Verdict, sentences
from migrate.display import answer_text, data_frame, notebook_html
from migrate.errors import UsageError
from migrate.manifest import Manifest

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class AuditReport:
    """The result of an audit. `measure` is what the verdict rests on: nDCG@10, or agreement@10 where nothing is judged.

    `query_ids` are those of the distinct query texts, in the order of all scores; a text that several queries
    share goes by the first of them. `family` are the arms that could serve instead, with bounds that hold for all of
    them at once. `skipped_arms` has what each of the other arms needs. `held_out` is the verdict without true
    vectors, None where there are none. `reference` is how the standard was
    shown to be one. `findings` are whatever else is to be known: with a doubt among them nothing is SAFE. `pool` is
    what was embedded where no full re-embed was, `made_from` what synthetic queries were made from, empty for others.
    `reference_at` is the location of the full re-embed, None where none is left after the audit; `is_kept` says whether
    what was embedded is cached.
    `query_texts` are in the order of `query_ids`.
    `stores` tells the translated store, and the source where there is one, from any other: see `content_of`.
    `plan` is the arm that `outcome` is of: the translated store, or one of `family`. `locations` is how commands name
    what was audited, `documents_per_s` how fast the target model embeds here, None where that was not measured.
    `rules` are those by which its bounds were drawn. `searches` are the own searches of the stores that have an index:
    what each keeps of exact search.
    """

    verdict: Verdict
    arms: tuple[ArmResult, ...]
    comparisons: Mapping[str, Comparison]
    measure: str
    query_ids: tuple[str, ...]
    n_documents: int
    dataset: str
    findings: tuple[Finding, ...]
    manifest: Manifest
    family: Mapping[str, Bounds] = field(default_factory=dict)
    skipped_arms: Mapping[str, str] = field(default_factory=dict)
    held_out: HeldOut | None = None
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    reference: ReferenceProof | None = None
    pool: PoolSummary | None = None
    made_from: str = ""
    reference_at: str | None = None
    is_kept: bool = False
    query_texts: tuple[str, ...] = ()
    stores: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    plan: str = TRANSLATED
    locations: Locations = field(default_factory=Locations)
    documents_per_s: float | None = None
    rules: Rules | None = field(default=None, repr=False, compare=False)
    searches: tuple[OwnSearch, ...] = ()

    def __repr__(self) -> str:
        counts = f"{self.verdict.observations.counted}, {self.n_documents:,} documents"
        return f"<AuditReport {self.sentence}; {self.dataset}, {counts}>"

    def __str__(self) -> str:
        return answer_text(self) or repr(self)

    def _repr_html_(self) -> str | None:
        return notebook_html(self)

    def to_pandas(self, rows: Literal["arms", "queries"] = "arms") -> DataFrame:
        """Return one row an arm: means, retention with its bounds, costs; or one row a query and arm, with its scores.

        Needs pandas.

        Raises
        ------
        UsageError
            It is not installed, or there are no such rows.
        """
        if rows == "arms":
            return data_frame([_arm_row(arm, self.comparisons.get(arm.name)) for arm in self.arms])
        if rows == "queries":
            return data_frame([row for arm in self.arms for row in _query_rows(arm, self.query_ids)])
        raise UsageError(f'to_pandas: {rows!r} are no rows of an audit; name "arms" or "queries"')

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for a reader of the whole report."""
        return sentences(self.findings, "note")

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences that belong beside the verdict."""
        return sentences(self.findings, "caveat")

    @property
    def doubts(self) -> tuple[str, ...]:
        """Sentences on why nothing is SAFE, whatever the figures."""
        return sentences(self.findings, "doubt")

    @property
    def basis(self) -> str:
        """The basis of a provisional verdict; empty where queries are judged."""
        if not self.verdict.scale.provisional:
            return ""
        queries = f", by synthetic queries ({self.made_from})" if self.made_from else ""
        return f"nothing is judged, so this rests on {self.measure} with the full re-embed{queries}"

    @property
    def outcome(self) -> Outcome:
        """The outcome of the plan, which is the translated store unless another was asked for."""
        return self.outcome_of(self.plan)

    def outcome_of(self, name: str = TRANSLATED) -> Outcome:
        """Return the outcome of the translated store, or of an arm of `family`."""
        return self.verdict.outcome if name == TRANSLATED else self._outcome_in_family(name)

    def _outcome_in_family(self, name: str) -> Outcome:
        if name in self.ways_out:
            return Outcome.SAFE
        is_below = self.verdict.observations.has_enough and self.family[name].upper < self.verdict.scale.harmful
        return Outcome.NOT_SAFE if is_below else Outcome.INCONCLUSIVE

    def judging(self, plan: str) -> AuditReport:
        """Return the report with the `outcome` of another plan, such as `two-stage-20`.

        Raises
        ------
        UsageError
            There is no such arm, or it was skipped.
        """
        return replace(self, plan=find_plan(plan, (TRANSLATED, *self.family), self.skipped_arms))

    def without_standard(self) -> AuditReport:
        """Return the report where the full re-embed is no standard, so that no share of it means anything."""
        comparisons = {
            name: replace(comparison, retention=UNKNOWN) if comparison.standard == FULL else comparison
            for name, comparison in self.comparisons.items()
        }
        return replace(
            self,
            verdict=self.verdict.without_standard().doubted(self.findings),
            comparisons=comparisons,
            family=dict.fromkeys(self.family, UNKNOWN),
            held_out=None,
            diagnostics=replace(self.diagnostics, slices=()),
        )

    @property
    def headline(self) -> str:
        """The outcome, and what it rests on if it is provisional."""
        return self._with_basis(self.verdict.outcome)

    @property
    def sentence(self) -> str:
        """The outcome and what it is of: the translated store, or before that the plan that is judged."""
        alone = f"{self.headline}: {self.verdict.sentence}"
        if self.plan == TRANSLATED:
            return alone
        bounds = self.family[self.plan]
        verdict = self.verdict
        judged = (
            f"{verdict.scale.measured} {verdict.scale.figure(bounds.estimate)} (bounds: {verdict.scale.span(bounds)})"
        )
        return f"{self._with_basis(self.outcome)}: {self.plan}, {judged}; translated alone: {alone}"

    def _with_basis(self, outcome: Outcome) -> str:
        return f"{outcome}{f' (provisional: {self.basis})' if self.basis else ''}"

    @property
    def stay(self) -> Scores | None:
        """The scores of staying by nDCG@10, in the order of `query_ids`; None without that arm or judgements."""
        return next((arm.scores.get(NDCG) for arm in self.arms if arm.name == STAY), None)

    @property
    def ways_out(self) -> tuple[str, ...]:
        """Arms that could serve instead and keep the margin, whichever of them one picks."""
        enough = self.verdict.observations.has_enough and not (self.doubts or self.verdict.observations.lacks_documents)
        safe = [name for name, bounds in self.family.items() if enough and bounds.lower >= self.verdict.scale.safe]
        return tuple(safe)

    def arm(self, name: str) -> ArmResult:
        """Return the arm of that name."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise KeyError(name)


def _arm_row(arm: ArmResult, comparison: Comparison | None) -> dict[str, Any]:
    row: dict[str, Any] = {"arm": arm.name, **{measure: arm.mean(measure) for measure in arm.scores}}
    if comparison is not None:
        bounds = comparison.retention
        row |= {"retention": bounds.estimate, "retention_lower": bounds.lower, "retention_upper": bounds.upper}
        row |= {"wins": comparison.wins, "ties": comparison.ties, "losses": comparison.losses}
        row |= {"standard": comparison.standard}
    return {**row, "seconds": arm.seconds, "tokens": arm.tokens, "usd": arm.usd, "meaning": arm.meaning}


def _query_rows(arm: ArmResult, query_ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    for position, query_id in enumerate(query_ids):
        scores = {measure: float(values[position]) for measure, values in arm.scores.items()}
        yield {"query_id": query_id, "arm": arm.name, **scores}
