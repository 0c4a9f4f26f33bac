"""`lead-migrate backfill`: true vectors out of the embedding cache into a translated store."""

from __future__ import annotations

import click

from migrate.cli import options
from migrate.cli.dry_run import DRY_RUN
from migrate.cli.options import ModelOptions
from migrate.cli.reembed import fill_from_cache
from migrate.cli.steps import step_options
from migrate.steps.reembed import Reembed


@options.command(
    "backfill",
    example="lead-migrate backfill new-store -o better-store",
)
@step_options(Reembed, "store", "target", "output", "force", "restart", from_cache=True)
@click.option("--from-cache", is_flag=True, hidden=True, expose_value=False)  # it was asked for before
@options.model_options
@DRY_RUN
@options.as_json
@options.quiet
def command(request: Reembed, model: ModelOptions, dry_run: bool, as_json: bool) -> None:
    """Write a translated STORE anew, with true vectors.

    Each text that was embedded since gets its own. What two-stage search, or any other run with the same model, has
    left in the cache is used. Nothing is embedded but for a few texts of the cache, by which a model behind an API
    proves that it still is the one whose vectors they are. The model is by default the store's own. `reembed
    --from-cache` is the same.
    """
    fill_from_cache(request, model, dry_run=dry_run, as_json=as_json)
