"""What CI shows of a finding: cases that passed, failed or stayed open, and a page of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from migrate.audit.model import AuditReport
from migrate.audit.verdict import Outcome
from migrate.report.audit import quality_rows, sentences

_MARKS = {Outcome.SAFE: "✅", Outcome.NOT_SAFE: "❌", Outcome.INCONCLUSIVE: "⚠️"}


class State(StrEnum):
    """How a case ended. `OPEN` says that it could not be decided, which no build should take for a success."""

    PASSED = "passed"
    FAILED = "failed"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that was looked at, under a name that does not change from run to run."""

    name: str
    state: State
    message: str


@dataclass(frozen=True, slots=True)
class Suite:
    """Cases of one command, what else is worth keeping, and a summary in Markdown."""

    name: str
    title: str
    cases: Sequence[Case]
    markdown: str
    properties: Mapping[str, str] = field(default_factory=dict)


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
    return (
        f"## {_MARKS[report.verdict.outcome]} lead-migrate: {verdict}\n\n{markdown_table(quality_rows(report))}\n\n"
        f"<details><summary>Remarks</summary>\n\n{notes}\n\n</details>\n"
    )


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    r"""A table, its first row the head; bars inside a cell are escaped.

    >>> print(markdown_table([["arm", "x"], ["a|b", "1"]]))
    | arm | x |
    |---|---:|
    | a\|b | 1 |
    """
    head, *body = rows
    lines = [head, *body]
    texts = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines]
    return "\n".join([texts[0], "|---|" + "---:|" * (len(head) - 1), *texts[1:]])
