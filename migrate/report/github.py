"""Cases as annotations of GitHub Actions: lines of a form that its runner takes out of the log."""

from __future__ import annotations

from collections.abc import Iterator

from migrate.report.suite import State, Suite

_LEVELS = {State.PASSED: "notice", State.FAILED: "error", State.OPEN: "warning"}


def annotation_lines(suite: Suite) -> Iterator[str]:
    """One line a case; see "Workflow commands for GitHub Actions" in GitHub's documentation."""
    for case in suite.cases:
        title = _property(f"{suite.name}: {case.name}")
        yield f"::{_LEVELS[case.state]} title={title}::{_data(case.message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
