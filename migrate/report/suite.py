"""Findings for CI: cases as JUnit XML and as annotations of GitHub Actions, and a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath
from xml.etree import ElementTree

from migrate.audit_report.names import TRANSLATED
from migrate.audit_report.records import ReportedAudit
from migrate.audit_report.report import AuditReport
from migrate.check.model import Compatibility
from migrate.locations import scrub
from migrate.outcome import Bounds, Outcome
from migrate.report.audit import audit_brief, sentences
from migrate.report.characters import for_markup, printable
from migrate.report.check import answer_line, check_brief
from migrate.report.sections import Block, Listed, TextTable, parts_of

MARKS = {"passed": "✅", "failed": "❌", "open": "⚠️"}
"""Signs by which a person sees a state at a glance."""


class State(StrEnum):
    """The end of a case. `OPEN` says that it could not be decided, which no build should take for a success."""

    PASSED = "passed"
    FAILED = "failed"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that was looked at, under a name that does not change from run to run.

    `title` says in a few words what came of it, and of which store; empty for what is a part of another case.
    """

    name: str
    state: State
    message: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Suite:
    """Cases of one command on one `store`, what else is worth keeping, and a summary in Markdown."""

    name: str
    title: str
    cases: Sequence[Case]
    markdown: str
    properties: Mapping[str, str] = field(default_factory=dict)
    store: str = ""


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    r"""Return a table, its first row the head; bars inside a cell are escaped.

    >>> print(markdown_table([["arm", "x"], ["a|b", "1"]]))
    | arm | x |
    |---|---:|
    | a\|b | 1 |
    """
    # A line end within a cell would end the row
    texts = ["| " + " | ".join(printable(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([texts[0], "|---|" + "---:|" * (len(rows[0]) - 1), *texts[1:]])


def as_markdown(*blocks: Block) -> str:
    """Return parts of a report that are sentences, tables or lists, a blank line between them."""
    shown = []
    for block in parts_of(blocks):
        match block:
            case str():
                shown.append(block)
            case TextTable():
                shown.append(markdown_table(block.rows))
            case Listed() if block.lines:
                shown.append("\n".join(f"- {line}" for line in block.lines))
    return "\n\n".join(shown)


def junit_xml(suite: Suite) -> bytes:
    """Return one `testsuite`: a failed case has a `failure`, an open one an `error`, as neither is a success."""
    states = [case.state for case in suite.cases]
    root = ElementTree.Element("testsuites")
    counts = {"failures": states.count(State.FAILED), "errors": states.count(State.OPEN)}
    attributes = {"name": suite.name, "tests": str(len(states)), **{name: str(count) for name, count in counts.items()}}
    element = ElementTree.SubElement(root, "testsuite", attributes)
    properties = ElementTree.SubElement(element, "properties")
    for name, value in suite.properties.items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": value})
    for case in suite.cases:
        _add(element, case, suite)
    for node in root.iter():
        # XML 1.0 has no way to write some control characters, which texts of a store may have
        if node.text:
            node.text = for_markup(node.text)
        node.attrib = {name: for_markup(value) for name, value in node.attrib.items()}
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _add(element: ElementTree.Element, case: Case, suite: Suite) -> None:
    inner = ElementTree.SubElement(element, "testcase", {"classname": suite.title, "name": case.name})
    if case.state is State.PASSED:
        ElementTree.SubElement(inner, "system-out").text = case.message
        return
    tag = "error"
    if case.state is State.FAILED:
        tag = "failure"
    ElementTree.SubElement(inner, tag, {"message": case.message, "type": case.state.value}).text = case.message


def annotation_lines(suite: Suite) -> Iterator[str]:
    """Yield one line a case; see "Workflow commands for GitHub Actions" in GitHub's documentation."""
    levels = {State.PASSED: "notice", State.FAILED: "error", State.OPEN: "warning"}
    for case in suite.cases:
        title = _property(case.title or f"{suite.name} {suite.store}: {case.name}")
        yield f"::{levels[case.state]} title={title}::{_data(case.message)}"


def _data(text: str) -> str:
    # The percent sign first, or the escapes of the others would be escaped again
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


STATES = {Outcome.SAFE: State.PASSED, Outcome.NOT_SAFE: State.FAILED, Outcome.INCONCLUSIVE: State.OPEN}
"""The end of a case by the outcome of what it judges."""


def audit_suite(report: AuditReport) -> Suite:
    """Return the verdict, and where staying is possible, the case that it is not better."""
    audit = report.audit
    verdict = audit.verdict
    # Caveats belong to a verdict wherever it is shown alone
    message = "; ".join([audit.plan.sentence, *verdict.caveats])
    cases = [Case("verdict", STATES[audit.plan.outcome], message, _title(audit))]
    gain = verdict.gain_over_stay
    if gain is not None:
        span = f"{gain.estimate:+.3f} {verdict.measure} (95 % bounds: {gain.lower:+.3f} to {gain.upper:+.3f})"
        state = _state(ok=not verdict.worse_than_stay)
        cases.append(Case("not worse than staying", state, f"against staying: {span}"))
    properties = {
        **_figures(verdict.measured, verdict.retention),
        "SAFE from": f"{verdict.safe_from:g}",
        "margin": f"{verdict.margin:g}",
        "queries": str(verdict.queries),
        "independent groups": str(verdict.groups),
    }
    if verdict.basis:
        properties["provisional"] = verdict.basis
    title = f"audit of {audit.dataset.name}"
    return Suite("lead-migrate audit", title, cases, _audit_markdown(audit), properties, audit.store)


def _figures(measured: str, bounds: Bounds) -> dict[str, str]:
    if not bounds.is_known:
        return {}
    return {
        measured: f"{bounds.estimate:.6f}",
        f"{measured} lower bound": f"{bounds.lower:.6f}",
        f"{measured} upper bound": f"{bounds.upper:.6f}",
    }


def _title(audit: ReportedAudit) -> str:
    """Return the verdict, its store, and how much that keeps; a provisional one says so."""
    verdict = audit.verdict
    outcome = str(audit.plan.outcome)
    keeps = "keeps"
    if verdict.provisional:
        outcome += " (provisional)"
        keeps = f"has {verdict.measured}"
    bounds = verdict.retention
    subject = audit.store
    if audit.plan.name != TRANSLATED:
        bounds = audit.family[audit.plan.name]
        subject += f" in plan {audit.plan.name}"
    if not bounds.is_known:
        return f"{outcome}: {subject} is not measured"
    return f"{outcome}: {subject} {keeps} {verdict.figure(bounds.estimate)}"


def heading_of(state: State, store: str) -> str:
    """Return the head of a page of Markdown: how it ended, and for which store."""
    return f"## {MARKS[state]} lead-migrate: `{printable(store)}`:"


def _audit_markdown(audit: ReportedAudit) -> str:
    *remarks, verdict = sentences(audit)
    outcome = audit.plan.outcome
    state = STATES[outcome]
    # Nothing was judged, so it is no success yet
    if audit.verdict.provisional and outcome is Outcome.SAFE:
        state = State.OPEN
    folded = f"<details><summary>Remarks</summary>\n\n{as_markdown(Listed(remarks))}\n\n</details>"
    heading = heading_of(state, audit.store)
    return f"{heading} {verdict}\n\n{as_markdown(audit_brief(audit))}\n\n{folded}\n"


def check_suite(result: Compatibility) -> Suite:
    """Return the answer, and everything that was looked at."""
    answer = "NOT COMPATIBLE"
    if result.compatible:
        answer = "COMPATIBLE"
    title = f"{answer}: {result.store} with {result.model.spec}"
    whole = Case("compatible", _state(ok=result.compatible), answer_line(result), title)
    cases = [whole, *(Case(finding.name, _state(ok=finding.ok), finding.message) for finding in result.findings)]
    figures = result.figures
    properties = {"cause": result.cause.value, "basis": result.basis}
    if figures is not None:
        properties |= {"sampled": str(figures.sampled), "agreeing": str(figures.agreeing)}
        properties["median cosine"] = f"{figures.median_cosine:.6f}"
    name = f"check of {PurePath(result.store).name}"
    store = str(result.store)
    heading = f"{heading_of(_state(ok=result.compatible), store)} {answer_line(result)}"
    markdown = f"{heading}\n\n{as_markdown(check_brief(result))}\n"
    return Suite("lead-migrate check", name, cases, markdown, properties, store)


def failed_suite(command: str, store: str, code: int, message: str) -> Suite:
    """Return a command that an error ended, with its exit code and the one line that was printed."""
    name = f"lead-migrate {command}"
    line = scrub(message)
    title = " ".join(filter(None, (name, store)))
    case = Case("ended by an error", State.FAILED, line, f"{title}: exit {code}")
    heading = f"## {MARKS[State.FAILED]} {name}:"
    if store:
        heading = heading_of(State.FAILED, store)
    return Suite(name, title, [case], f"{heading} {line}\n", store=store)


def _state(*, ok: bool) -> State:
    if ok:
        return State.PASSED
    return State.FAILED
