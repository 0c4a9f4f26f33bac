"""`lead-migrate report`: the report of an audit, shown again from its JSON file."""

from __future__ import annotations

from pathlib import Path

from migrate.audit_report.report import load_report
from migrate.cli.next_step import advise_recommendation
from migrate.cli.options import Outputs
from migrate.cli.verdict import show_report


def command(file: Path, outputs: Outputs, force: bool, as_json: bool, verbose: bool) -> int:
    """Show an audit again from the JSON report in FILE."""
    # `--report` must not name the report that is read
    outputs.refuse(file, force=force)
    report = load_report(file)
    code = show_report(report, outputs, page=outputs.first(".html"), as_json=as_json, verbose=verbose, force=force)
    if not as_json:
        advise_recommendation(report.recommendation)
    return code
