"""The result of an audit: arms with their measures, how each compares, the diagnostics, the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from migrate.audit.bounds import UNKNOWN, Bounds, Outcome
from migrate.audit.diagnostics import Diagnostics
from migrate.audit.held_out import HeldOut
from migrate.audit.locations import Locations
from migrate.audit.pool import PoolSummary
from migrate.audit.reference import ReferenceProof
from migrate.audit.results import FULL, TRANSLATED, ArmResult
from migrate.audit.rules import Rules
from migrate.audit.verdict import Finding, Verdict, sentences
from migrate.audited.records import Comparison, OwnSearch
from migrate.manifest import Manifest
from migrate.outcome import decide_within


@dataclass(frozen=True)
class AuditResult:
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
    def outcome(self) -> Outcome:
        """The outcome of the plan, which is the translated store unless another was asked for."""
        return self.outcome_of(self.plan)

    def outcome_of(self, name: str = TRANSLATED) -> Outcome:
        """Return the outcome of the translated store, or of an arm of `family`."""
        return self.verdict.outcome if name == TRANSLATED else self._outcome_in_family(name)

    def _outcome_in_family(self, name: str) -> Outcome:
        verdict = self.verdict
        if not verdict.observations.has_enough:
            return Outcome.INCONCLUSIVE
        limits = {"safe_from": verdict.scale.safe, "not_safe_below": verdict.scale.harmful}
        outcome = decide_within(self.family[name], **limits)
        if outcome is Outcome.SAFE and (self.doubts or verdict.observations.lacks_documents):
            return Outcome.INCONCLUSIVE
        return outcome

    def without_standard(self) -> AuditResult:
        """Return the result where the full re-embed is no standard, so that no share of it means anything."""
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
    def ways_out(self) -> tuple[str, ...]:
        """Arms that could serve instead and keep the margin, whichever of them one picks."""
        return tuple(name for name in self.family if self._outcome_in_family(name) is Outcome.SAFE)

    def arm(self, name: str) -> ArmResult:
        """Return the arm of that name."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise KeyError(name)
