"""Outputs of commands: the summary of an audit, the files of `--report`, and what GitHub Actions shows."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate.cli.terminal import NARROWEST, complain
from migrate.files import atomic_file, json_text, output_errors, write_bytes
from migrate.report.characters import for_markup
from migrate.report.suite import annotation_lines, junit_xml
from migrate.report.summary import audit_summary
from migrate.report.terminal import WIDTH

if TYPE_CHECKING:
    from migrate.audit_report.report import AuditReport
    from migrate.cli.options import Outputs
    from migrate.report.suite import Suite


def summary_text(report: AuditReport, page: Path | None) -> str:
    """Return the summary of an audit as wide as the terminal; `page` is where the report is shown."""
    columns = WIDTH
    # In a pipe or a file the width of a terminal says nothing of who reads it
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size((WIDTH, 24)).columns
    return audit_summary(report, page=page, width=max(columns, NARROWEST))


def write_reports(
    outputs: Outputs, document: Mapping[str, Any], page: Callable[[], str], suite: Suite | None = None, *, force: bool
) -> None:
    """Write the files of `--report`. GitHub Actions is shown the suite too."""
    if suite is not None:
        show_to_github(suite)
    for path in outputs.report:
        if path.suffix == ".json":
            payload = json_text(document).encode()
        elif path.suffix == ".html":
            payload = page().encode()
        elif suite is not None:
            payload = junit_xml(suite)
        else:
            payload = b""
        with atomic_file(path, force=force) as unfinished:
            write_bytes(unfinished, payload)


def show_to_github(suite: Suite) -> None:
    """Annotate the run of GitHub Actions, where this is one, and summarize it on its page.

    Annotations go to stderr, where GitHub reads them too, and no JSON is spoilt.
    """
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    for line in annotation_lines(suite):
        complain(line)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        # Other commands of the same step may have written to it
        with output_errors(Path(summary)), Path(summary).open("a", encoding="utf-8") as file:
            file.write(for_markup(suite.markdown) + "\n")
