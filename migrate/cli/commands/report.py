"""`lead-migrate report`: the report of an audit, shown again from its JSON file."""

from __future__ import annotations

import click

from migrate.cli import options


@options.command("report", example="lead-migrate report report.json --report report.html")
@click.argument("file", type=options.PATH)
@options.report_options
@options.force_reports
@options.as_json
@options.verbose
@options.quiet
@options.done_by("migrate.cli.report:command")
def report() -> None:
    """Show an audit again from the JSON report in FILE.

    Prints what `audit` or `run` printed, writes the report in other forms, and ends with the exit code of its verdict.
    A
    report whose verdict does not follow from its own numbers, because it was edited or damaged, is refused.
    """
