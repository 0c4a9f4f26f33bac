"""`lead-migrate check`: the model of a store, held against its vectors."""

from __future__ import annotations

from migrate.audit.check import Check
from migrate.cli import options


@options.command("check", example="lead-migrate check my-store/ --model tfidf:32")
@options.record(Check)
@options.model_options
@options.report_options
@options.force_reports
@options.dry_run
@options.as_json
@options.quiet
@options.done_by("migrate.cli.check:command")
def check() -> None:
    """Verify which model the vectors of STORE come from.

    Exits with 0 if they are those that the model gives to its texts, with 1 and the reason if not. A manifest whose
    hash is that of the index answers at once. What fits instead, such as texts cut at another length, is printed as the
    next command. Of vectors near the model's but not the same, it is said what they cost in retrieval, and whether a
    stitch repairs it.
    """
