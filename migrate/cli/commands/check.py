"""`lead-migrate check`: the model of a store, held against its vectors."""

from __future__ import annotations

from migrate.audit.check import Check
from migrate.cli import options


@options.command("check", example="lead-migrate check my-store/ --model tfidf:32")
@options.record(Check)
@options.agreed
@options.model_options
@options.report_options
@options.force_lists
@options.dry_run
@options.as_json
@options.progress
@options.done_by("migrate.cli.check:command")
def check() -> None:
    """Verify which model the vectors of STORE come from.

    Exits with 0 if the model gives these vectors to the texts of STORE; if not, with 1 and the reason. If there is a
    manifest with the hash of the index, nothing is embedded. If the model fits when used in another way, such as with
    texts cut at another length, the next command records that. If the vectors are near the model's but not equal, it
    reports what that costs in retrieval, and whether a stitch repairs it.

    With --rows every text is embedded, and FILE lists the documents whose vectors are not the model's.
    """
