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
from migrate.audit.reference_proof import ReferenceProof
from migrate.audit.results import FULL, TRANSLATED, ArmResult
from migrate.audit.rules import Rules
from migrate.audit.verdict import Finding, Verdict, sentences
from migrate.audit_report.records import Comparison, OwnSearch
from migrate.manifest import Manifest
from migrate.outcome import decide_within


@dataclass(frozen=True, eq=False)
class Examination:
    """Whatever is to be known beside the scores of the arms; a doubt among the `findings` takes a SAFE away.

    `searches` are the own searches of the stores that have an index: what each keeps of exact search. `held_out` is the
    verdict without true vectors, None where there are none. `reference` is how the standard was shown to be one.
    """

    findings: tuple[Finding, ...] = ()
    searches: tuple[OwnSearch, ...] = ()
    held_out: HeldOut | None = None
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    reference: ReferenceProof | None = None

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


@dataclass(frozen=True)
class AuditedData:
    """The queries of an audit, by the name of where they are from, and the documents that were searched.

    `measure` is what the verdict rests on: nDCG@10, or agreement@10 where nothing is judged. `query_ids` are those of
    the distinct query texts, in the order of all scores; a text that several queries share goes by the first of them.
    `query_texts` are in the same order. `made_from` is what synthetic queries were made from, empty for others.
    """

    name: str
    n_documents: int
    measure: str
    query_ids: tuple[str, ...]
    query_texts: tuple[str, ...] = ()
    made_from: str = ""


@dataclass(frozen=True)
class AuditResult:
    """The result of an audit.

    `family` are the arms that could serve instead, with bounds that hold for all of them at once. `skipped_arms` has
    what each of the other arms needs. `pool` is what was embedded where no full re-embed was. `reference_at` is the
    location of the full re-embed, None where none is left after the audit; `is_kept` says whether what was embedded is
    cached. `stores` tells the translated store, and the source where there is one, from any other: see `content_of`.
    `plan` is the arm that `outcome` is of: the translated store, or one of `family`. `locations` is how commands name
    what was audited, `documents_per_s` how fast the target model embeds here, None where that was not measured.
    `rules` are those by which its bounds were drawn.
    """

    verdict: Verdict
    arms: tuple[ArmResult, ...]
    comparisons: Mapping[str, Comparison]
    data: AuditedData
    manifest: Manifest
    examination: Examination = field(default_factory=Examination)
    family: Mapping[str, Bounds] = field(default_factory=dict)
    skipped_arms: Mapping[str, str] = field(default_factory=dict)
    pool: PoolSummary | None = None
    reference_at: str | None = None
    is_kept: bool = False
    stores: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    plan: str = TRANSLATED
    locations: Locations = field(default_factory=Locations)
    documents_per_s: float | None = None
    rules: Rules | None = field(default=None, repr=False, compare=False)

    @property
    def outcome(self) -> Outcome:
        """The outcome of the plan, which is the translated store unless another was asked for."""
        return self.outcome_of(self.plan)

    def outcome_of(self, name: str = TRANSLATED) -> Outcome:
        """Return the outcome of the translated store, or of an arm of `family`."""
        verdict = self.verdict
        if name == TRANSLATED:
            return verdict.outcome
        if not verdict.observations.has_enough:
            return Outcome.INCONCLUSIVE
        outcome = decide_within(self.family[name], safe_from=verdict.scale.safe, not_safe_below=verdict.scale.harmful)
        # What takes a SAFE from the translated store takes it from every arm: they are held against the same standard
        if outcome is Outcome.SAFE and (self.examination.doubts or verdict.observations.lacks_documents):
            return Outcome.INCONCLUSIVE
        return outcome

    def without_standard(self) -> AuditResult:
        """Return the result where the full re-embed is no standard, so that no share of it means anything."""
        examination = self.examination
        comparisons = {
            name: replace(comparison, retention=UNKNOWN) if comparison.standard == FULL else comparison
            for name, comparison in self.comparisons.items()
        }
        return replace(
            self,
            verdict=self.verdict.without_standard().doubted(examination.findings),
            comparisons=comparisons,
            family=dict.fromkeys(self.family, UNKNOWN),
            examination=replace(examination, held_out=None, diagnostics=replace(examination.diagnostics, slices=())),
        )

    def arm(self, name: str) -> ArmResult:
        """Return the arm of that name."""
        for arm in self.arms:
            if arm.name == name:
                return arm
        raise KeyError(name)
