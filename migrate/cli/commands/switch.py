"""`lead-migrate switch`, `rollback` and `forget`: the new store under the old name, and back."""

from __future__ import annotations

from migrate.cli import options
from migrate.steps.switch import Forget, Rollback, Switch


@options.command(
    "switch",
    example="lead-migrate switch my-store new-store --audit report.json",
)
@options.record(Switch)
@options.dry_run
@options.as_json
@options.progress
@options.done_by("migrate.cli.switch:command")
def switch() -> None:
    """Put the store NEW in the place of OLD.

    OLD is kept, under another name, until `rollback` or `forget`. A full re-embed (`reembed`) needs no report, because
    every vector in it is the model's own.

    Both names change in one step, where the system or the database can do that. If a switch is killed, the same
    command finishes it, and `rollback` undoes it.
    """


@options.command("rollback", example="lead-migrate rollback my-store")
@options.record(Rollback)
@options.dry_run
@options.as_json
@options.progress
@options.done_by("migrate.cli.switch:rollback")
def rollback() -> None:
    """Undo a switch: put the old store back in its place.

    The old store answers under the name OLD again, and the new store under its earlier name.
    """


@options.command("forget", example="lead-migrate forget my-store --yes")
@options.record(Forget)
@options.option("--yes", is_flag=True, help="Delete without asking.")
@options.dry_run
@options.as_json
@options.progress
@options.done_by("migrate.cli.switch:forget")
def forget() -> None:
    """Delete the old store after a switch, or a field.

    This deletes the store that answered under the name OLD before the switch. A field is named as STORE?vector=FIELD:
    either a field that `translate --into` has added, or an older field, once another was added beside it. Nothing else
    is deleted.
    """
