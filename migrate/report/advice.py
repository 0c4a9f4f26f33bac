"""What to do about a verdict, in words; only what the findings bear out."""

from __future__ import annotations

from collections.abc import Iterator

from migrate.audit.model import AuditReport
from migrate.audit.verdict import Outcome


def advice(report: AuditReport) -> Iterator[str]:
    """The next steps that the findings speak for, the nearest first."""
    verdict = report.verdict
    if verdict.outcome is Outcome.SAFE:
        yield "put the translated store in the place of the old one, together with the queries of the target model"
        return
    if report.doubts:
        yield "make a reference that is beyond doubt: `audit STORE --reference build` embeds every text now"
    if verdict.lacks_documents:
        yield "embed the whole store again: it is too small for an audit, and for a migration to be worth it"
        return
    if verdict.worse_than_stay:
        yield "stay with the source store for now: it answers better than the translated one"
    if report.frontier is not None:
        yield report.frontier.sentence
    for name in report.ways_out:
        bounds = report.family[name]
        yield (
            f"`{name}` keeps the margin (retention {bounds.estimate:.3f}, at least {bounds.lower:.3f} with 95 % "
            f"confidence, whichever of {len(report.family)} further arms is picked)"
        )
    if report.frontier is None:
        yield (
            "try what re-embedding a part would keep: `audit` says it with `--frontier`, `--source` and the `--stitch` "
            "of the translation"
        )
    if verdict.outcome is Outcome.INCONCLUSIVE and verdict.queries_needed:
        yield f"or judge about {verdict.queries_needed:,} queries"
