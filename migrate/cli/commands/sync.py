"""`lead-migrate sync`: what was added to the old store since, in the new one."""

from __future__ import annotations

from migrate.cli import options
from migrate.steps.sync import Sync


@options.command(
    "sync",
    example="lead-migrate sync my-store new-store --dry-run",
)
@options.option("--dry-run", is_flag=True, help="Say what changed and what it would cost; embed and write nothing.")
@options.option("--watch", is_flag=True, help="Go on with what is written to OLD, until the stores are switched.")
@options.option("--every", type=options.FiniteRange(min=0.1), help="Seconds between looks of --watch.  [default: 30]")
@options.record(Sync)
@options.agreed
@options.model_options
@options.as_json
@options.progress
@options.done_by("migrate.cli.sync:command")
def sync() -> None:
    """Bring NEW, translated from OLD, up to date with OLD.

    Documents that were added to OLD or changed there get true vectors; deleted ones are removed; all others keep their
    vectors, bit for bit. Texts and metadata are taken from OLD.
    """
