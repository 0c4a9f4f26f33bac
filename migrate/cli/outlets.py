"""Where a finding goes besides the terminal: files, and what CI reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate.cli.options import PATH, option
from migrate.cli.terminal import advise

if TYPE_CHECKING:
    from migrate.report.suite import Suite

_SUMMARY = "GITHUB_STEP_SUMMARY"
_REPORT = option("--report", type=PATH, metavar="FILE", help="File to write the JSON report to.")
_HTML = option("--html", type=PATH, metavar="FILE", help="File to write the report to as a page for a browser.")


@dataclass(frozen=True, slots=True)
class CI:
    """Where a finding goes besides the terminal."""

    junit: Path | None
    github: bool

    def refuse(self, *inputs: Path, force: bool) -> None:
        """Make sure, before anything is spent, that the JUnit file can be written.

        Raises
        ------
        UsageError, OutputError
            It is there already, or is one of the inputs, or its folder may not be written to.
        """
        _refuse([self.junit], inputs, force=force)

    def leave(self, suite: Suite, *, force: bool) -> None:
        """Write what was asked for. Annotations go to stderr, where GitHub reads them too, and no JSON is spoilt."""
        from migrate.files import atomic_file, write_bytes
        from migrate.report.characters import for_markup
        from migrate.report.github import annotation_lines
        from migrate.report.junit import junit_xml

        if self.junit is not None:
            with atomic_file(self.junit, force=force) as aside:
                write_bytes(aside, junit_xml(suite))
        if self.github:
            for line in annotation_lines(suite):
                advise(line, quiet=False)
            _summarize(for_markup(suite.markdown))


@dataclass(frozen=True, slots=True)
class Outlets:
    """Where a report goes besides the terminal: JSON, a page, and what CI reads."""

    report: Path | None
    html: Path | None
    ci: CI

    def refuse(self, *inputs: Path, force: bool) -> None:
        """Make sure, before anything is spent, that the files can be written.

        Raises
        ------
        UsageError, OutputError
            One is there already, or is one of the inputs, or its folder may not be written to.
        """
        _refuse([self.report, self.html], inputs, force=force)
        self.ci.refuse(*inputs, force=force)


def _refuse(outputs: Sequence[Path | None], inputs: Sequence[Path], *, force: bool) -> None:
    from migrate.files import refuse_file

    for path in filter(None, outputs):
        refuse_file(path, *inputs, force=force)


def _summarize(markdown: str) -> None:
    from migrate.files import output_errors

    path = os.environ.get(_SUMMARY)
    if path:
        with output_errors(Path(path)), Path(path).open("a", encoding="utf-8") as file:
            file.write(markdown + "\n")


def report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `Outlets`; the command gets one argument `outlets`."""

    @wraps(command)
    def with_outlets(ci: CI, **arguments: Any) -> Any:
        return command(outlets=Outlets(arguments.pop("report"), arguments.pop("html"), ci), **arguments)

    return _REPORT(_HTML(ci_options(with_outlets)))


def ci_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `CI`; the command gets one argument `ci`."""

    @wraps(command)
    def with_ci(**arguments: Any) -> Any:
        return command(ci=CI(arguments.pop("junit"), arguments.pop("github")), **arguments)

    wrapped: Callable[..., Any] = with_ci
    for add in (
        option("--github", is_flag=True, help="Annotate the run of GitHub Actions, and summarize it on its page."),
        option("--junit", type=PATH, metavar="FILE", help="File to write the finding to as JUnit XML."),
    ):
        wrapped = add(wrapped)
    return wrapped
