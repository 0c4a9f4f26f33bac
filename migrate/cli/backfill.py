"""`lead-migrate backfill`: true vectors out of the embedding cache into a translated store."""

from __future__ import annotations

from migrate.cli.options import ModelOptions
from migrate.cli.reembed import fill_from_cache
from migrate.steps.reembed import Reembed


def command(request: Reembed, model: ModelOptions, dry_run: bool, as_json: bool) -> None:
    """Write a translated STORE anew, with true vectors."""
    fill_from_cache(request, model, dry_run=dry_run, as_json=as_json)
