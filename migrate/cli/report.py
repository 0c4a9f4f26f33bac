"""`lead-migrate report`: the report of an audit, shown again from its JSON file."""

from __future__ import annotations

from pathlib import Path

import click

from migrate.cli import options
from migrate.cli.next_step import advise_recommendation
from migrate.cli.options import Outputs, report_options
from migrate.cli.verdict import show_report


@options.command("report", example="lead-migrate report report.json --report report.html")
@click.argument("file", type=click.Path(path_type=Path))
@report_options
@options.force_reports
@options.as_json
@options.verbose
@options.quiet
def command(file: Path, outputs: Outputs, force: bool, as_json: bool, verbose: bool) -> int:
    """Show an audit again from the JSON report in FILE.

    Prints what `audit` or `run` printed, writes the report in other forms, and ends with the exit code of its verdict.
    A report that its own numbers do not bear, as where it was edited or damaged, is refused.
    """
    from migrate.audited.report import load_report

    outputs.refuse(file, force=force)
    report = load_report(file)
    code = show_report(report, outputs, page=outputs.first(".html"), as_json=as_json, verbose=verbose, force=force)
    if not as_json:
        advise_recommendation(report.recommendation)
    return code
