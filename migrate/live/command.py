"""`lead-migrate live`: true vectors for a translated store that serves, most wanted first, and its verdict.

The commands are declared here; `migrate.live.actions` carries them out.
"""

from __future__ import annotations

from types import ModuleType

import click

from migrate.cli import options
from migrate.cli.dry_run import DRY_RUN
from migrate.cli.options import MarginOptions, ModelOptions, option
from migrate.cli.steps import step_options
from migrate.live.options import WorkerOptions

STORE = click.argument("store", type=options.STORE)


def _actions() -> ModuleType:
    """Load what carries the commands out, when one runs: `--help` loads no library."""
    from migrate.live import actions

    return actions


@click.group("live", cls=options.OrderedGroup, short_help="Complete a translated store while it serves.")
def command() -> None:
    """Complete a translated store while it serves.

    A program serves it with `migrate.live`, which notes what users look for. `run` gives it true vectors, most wanted
    first, and watches what is served; `status` says how it is doing, the verdict first; `stop` ends the worker.
    While it runs, `pause` and `resume` hold it up and let it go on.
    """


@command.add_command
@options.command(
    "run",
    "Give a store true vectors, and watch it.",
    example="lead-migrate live run new-store --budget 40% --once",
)
@STORE
@step_options(WorkerOptions)
@options.option_group(MarginOptions, "safe", options.margin, options.accept_margin)
@option("--target", metavar="SPEC", help="Model that the store was translated for.  [default: the store's own]")
@option("--yes", is_flag=True, help="Agree to embed all of the store where no --budget is given.")
@options.model_options
@DRY_RUN
@options.as_json
@options.quiet
def run(
    store: str,
    request: WorkerOptions,
    safe: MarginOptions,
    target: str | None,
    yes: bool,
    model: ModelOptions,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Give the translated STORE true vectors.

    It ends by `live stop` or Ctrl-C, and nothing is lost by that. A database is written to record by record. Files stay
    as they are: searchers find the true vectors in the embedding cache, and `backfill` writes a new store with them.
    """
    opened = _actions().open_for_worker(store, target, model, dry_run=dry_run)
    if dry_run:
        _actions().show_plan(opened, request, as_json=as_json)
    _actions().run_worker(opened, request, safe, is_agreed=yes, as_json=as_json)


@command.add_command
@options.command("status", "Show how a live store is doing.", example="lead-migrate live status new-store")
@STORE
@options.as_json
def status(store: str, as_json: bool) -> None:
    """Show how the live STORE is doing.

    The verdict on what was served comes first.
    """
    _actions().show_status(store, as_json=as_json)


@command.add_command
@options.command("stop", "End the worker of a store.", example="lead-migrate live stop new-store")
@STORE
def stop(store: str) -> None:
    """End the worker of STORE, and wait until it has.

    What it has embedded is written first.
    """
    _actions().stop(store)


@command.add_command
@options.command("pause", "Hold up the worker of a store.", example="lead-migrate live pause new-store")
@STORE
def pause(store: str) -> None:
    """Hold up the worker of STORE, and wait until it has come to rest.

    It embeds and writes nothing until `live resume`, even if it is killed and started again. Searchers go on.
    """
    _actions().pause(store)


@command.add_command
@options.command("resume", "Let a paused worker go on.", example="lead-migrate live resume new-store")
@STORE
def resume(store: str) -> None:
    """Let the worker of STORE go on after `live pause`."""
    _actions().resume(store)
