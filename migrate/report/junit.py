"""Cases as JUnit XML, the form that CI servers read."""

from __future__ import annotations

from xml.etree import ElementTree

from migrate.report.characters import for_markup
from migrate.report.suite import Case, State, Suite


def junit_xml(suite: Suite) -> bytes:
    """One `testsuite`: a failed case has a `failure`, an open one an `error`, as neither may pass for a success."""
    states = [case.state for case in suite.cases]
    root = ElementTree.Element("testsuites")
    counts = {"failures": states.count(State.FAILED), "errors": states.count(State.OPEN)}
    facts = {"name": suite.name, "tests": str(len(states)), **{name: str(count) for name, count in counts.items()}}
    element = ElementTree.SubElement(root, "testsuite", facts)
    properties = ElementTree.SubElement(element, "properties")
    for name, value in suite.properties.items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": value})
    for case in suite.cases:
        _add(element, case, suite)
    for part in root.iter():
        part.text = for_markup(part.text) if part.text else None
        part.attrib = {name: for_markup(value) for name, value in part.attrib.items()}
    ElementTree.indent(root)
    written: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return written + b"\n"


def _add(element: ElementTree.Element, case: Case, suite: Suite) -> None:
    inner = ElementTree.SubElement(element, "testcase", {"classname": suite.title, "name": case.name})
    if case.state is State.PASSED:
        ElementTree.SubElement(inner, "system-out").text = case.message
        return
    tag = "failure" if case.state is State.FAILED else "error"
    ElementTree.SubElement(inner, tag, {"message": case.message, "type": case.state.value}).text = case.message
