"""`lead-migrate live`: true vectors for a translated store that serves, most wanted first, and its verdict.

The commands are declared here; `migrate.live.actions` carries them out.
"""

from __future__ import annotations

import click

from migrate.cli import options
from migrate.live.options import WorkerOptions

STORE = click.argument("store", type=options.STORE)


@click.group("live", cls=options.OrderedGroup, short_help="Complete a translated store while it serves.")
def command() -> None:
    """Complete a translated store while it serves.

    A program serves it with `migrate.live`, which notes what users look for. `run` starts a worker that gives it true
    vectors, most wanted first, and watches what is served. `status` shows the verdict and the progress, `stop` ends the
    worker, and `pause` and `resume` pause it and let it continue.
    """


@command.add_command
@options.command(
    "run",
    "Give a store true vectors, and watch it.",
    example="lead-migrate live run new-store --budget 40% --once",
)
@STORE
@options.record(WorkerOptions)
@options.record(options.MarginOptions, argument="safe")
@options.option("--target", metavar="SPEC", help="Model that the store was translated for.  [default: the store's own]")
@options.option("--yes", is_flag=True, help="Agree to embed all of the store where no --budget is given.")
@options.model_options
@options.dry_run
@options.as_json
@options.progress
@options.done_by("migrate.live.actions:run")
def run() -> None:
    """Give the translated STORE true vectors.

    Ends with `live stop` or Ctrl-C, and loses nothing. In a database, it updates the records one by one. Files stay as
    they are: searchers find the true vectors in the embedding cache, and `backfill` writes a new store with them.
    """


@command.add_command
@options.command("status", "Show how a live store is doing.", example="lead-migrate live status new-store")
@STORE
@options.as_json
@options.done_by("migrate.live.actions:status")
def status() -> None:
    """Show how the live STORE is doing.

    The verdict on what was served comes first.
    """


@command.add_command
@options.command("stop", "End the worker of a store.", example="lead-migrate live stop new-store")
@STORE
@options.done_by("migrate.live.actions:stop")
def stop() -> None:
    """End the worker of STORE, and wait until it has ended.

    It first writes what it has embedded.
    """


@command.add_command
@options.command("pause", "Hold up the worker of a store.", example="lead-migrate live pause new-store")
@STORE
@options.done_by("migrate.live.actions:pause")
def pause() -> None:
    """Pause the worker of STORE, and wait until it is idle.

    It embeds and writes nothing until `live resume`, even if it is killed and started again. Searchers keep running.
    """


@command.add_command
@options.command("resume", "Let a paused worker go on.", example="lead-migrate live resume new-store")
@STORE
@options.done_by("migrate.live.actions:resume")
def resume() -> None:
    """Let the worker of STORE continue after `live pause`."""
