"""`lead-migrate stamp`: the model of a store, recorded beside it."""

from __future__ import annotations

from migrate.cli import options
from migrate.steps.stamp import Stamp


@options.command("stamp", example="lead-migrate stamp my-store/ --model tfidf:32")
@options.record(Stamp)
@options.model_options
@options.dry_run
@options.as_json
@options.progress
@options.done_by("migrate.cli.stamp:command")
def stamp() -> None:
    """Record which model the vectors of STORE come from.

    Writes a manifest beside the index, so that later checks need no embedding. The store is checked first: if it does
    not come from the model, nothing is written, and the exit code is 1. The store's own files stay as they are.
    """
