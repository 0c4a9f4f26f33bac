"""An audit as cases for CI."""

from __future__ import annotations

from migrate.audit.model import AuditReport
from migrate.audit.verdict import Outcome
from migrate.report.audit import quality_rows, sentences
from migrate.report.suite import MARKS, Case, State, Suite, markdown_table

_STATES = {Outcome.SAFE: State.PASSED, Outcome.NOT_SAFE: State.FAILED, Outcome.INCONCLUSIVE: State.OPEN}


def audit_suite(report: AuditReport) -> Suite:
    """The verdict, and where staying is possible, whether it is not better."""
    verdict = report.verdict
    cases = [Case("verdict", _STATES[verdict.outcome], f"{verdict.outcome}: {verdict.sentence}")]
    gain = verdict.gain_over_stay
    if gain is not None:
        span = f"{gain.estimate:+.3f} {report.measure} (95 % bounds {gain.lower:+.3f} to {gain.upper:+.3f})"
        state = State.FAILED if verdict.worse_than_stay else State.PASSED
        cases.append(Case("not worse than staying", state, f"against staying: {span}"))
    bounds = verdict.retention
    properties = {
        "retention": f"{bounds.estimate:.6f}",
        "retention lower bound": f"{bounds.lower:.6f}",
        "retention upper bound": f"{bounds.upper:.6f}",
        "margin": f"{verdict.margin:g}",
        "queries": str(verdict.n_queries),
    }
    return Suite("lead-migrate audit", f"audit of {report.dataset}", cases, _markdown(report), properties)


def _markdown(report: AuditReport) -> str:
    *others, verdict = sentences(report)
    notes = "\n".join(f"- {one}" for one in others)
    mark = MARKS[_STATES[report.verdict.outcome]]
    return (
        f"## {mark} lead-migrate: {verdict}\n\n{markdown_table(quality_rows(report))}\n\n"
        f"<details><summary>Remarks</summary>\n\n{notes}\n\n</details>\n"
    )
