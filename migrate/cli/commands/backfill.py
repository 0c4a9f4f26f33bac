"""`lead-migrate backfill`: true vectors out of the embedding cache into a translated store."""

from __future__ import annotations

import click

from migrate.cli import options
from migrate.steps.reembed import Reembed


@options.command(
    "backfill",
    example="lead-migrate backfill new-store -o better-store",
)
@options.record(Reembed, "store", "target", "output", "force", "restart", from_cache=True)
@click.option("--from-cache", is_flag=True, hidden=True, expose_value=False)  # it was asked for before
@options.model_options
@options.dry_run
@options.as_json
@options.quiet
@options.done_by("migrate.cli.backfill:command")
def backfill() -> None:
    """Write a translated STORE anew, with true vectors.

    Each text that was embedded since gets its own. What two-stage search, or any other run with the same model, has
    left in the cache is used. Nothing is embedded but for a few texts of the cache, by which a model behind an API
    proves that it still is the one whose vectors they are. The model is by default the store's own. `reembed
    --from-cache` is the same.
    """
