"""What a command leaves for CI: a JUnit file, annotations, a summary of the step."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from migrate.cli.options import PATH, option

if TYPE_CHECKING:
    from migrate.report.suite import Suite

_SUMMARY = "GITHUB_STEP_SUMMARY"


@dataclass(frozen=True, slots=True)
class CI:
    """Where a finding goes besides the terminal."""

    junit: Path | None
    github: bool

    def refuse(self, *inputs: Path, force: bool) -> None:
        """Make sure, before anything is spent, that the JUnit file can be written.

        Raises
        ------
        UsageError
            It is there already, or is one of the inputs.
        """
        from migrate.files import refuse_existing, refuse_overlap

        if self.junit is not None:
            refuse_overlap(self.junit, *inputs)
            refuse_existing(self.junit, force=force)

    def leave(self, suite: Suite, *, force: bool) -> None:
        """Write what was asked for. Annotations go to stderr, where GitHub reads them too, and no JSON is spoilt."""
        from migrate.files import atomic_file, write_bytes
        from migrate.report.github import annotation_lines
        from migrate.report.junit import junit_xml

        if self.junit is not None:
            with atomic_file(self.junit, force=force) as aside:
                write_bytes(aside, junit_xml(suite))
        if self.github:
            for line in annotation_lines(suite):
                click.echo(line, err=True)
            _summarize(suite.markdown)


def _summarize(markdown: str) -> None:
    path = os.environ.get(_SUMMARY)
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(markdown + "\n")


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
