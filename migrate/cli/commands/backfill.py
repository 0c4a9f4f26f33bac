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
@options.progress
@options.done_by("migrate.cli.backfill:command")
def backfill() -> None:
    """Write a translated STORE again, with true vectors from the cache.

    Each document whose text has been embedded since, by two-stage search or any other run with the same model, gets its
    true vector. Nothing new is embedded. Only a model behind an API embeds a few cached texts again, to prove that it
    is still the model of those vectors. The default model is the store's own. `reembed --from-cache` does the same.
    """
