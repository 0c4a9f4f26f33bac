"""`lead-migrate switch`, `rollback` and `forget`: the new store under the old name, and back."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from migrate.cli import options
from migrate.cli.next_step import advise_worker
from migrate.cli.options import option
from migrate.cli.terminal import advise, show, show_json

if TYPE_CHECKING:
    from migrate.switch import Switch


@options.command(
    "switch",
    "Let the new store answer under the old name.",
    example="lead-migrate switch my-store new-store --report report.json",
)
@click.argument("old", type=options.STORE)
@click.argument("new", type=options.STORE)
@option(
    "--report",
    type=options.PATH,
    metavar="FILE",
    help="JSON report of the audit that found NEW safe.  [default: the report.json that `run` left beside NEW]",
)
@option("--unproven", is_flag=True, help="Switch without a proof that NEW is SAFE.")
@options.as_json
def command(old: str, new: str, report: Path | None, unproven: bool, as_json: bool) -> None:
    """Let the store NEW answer where OLD did; OLD steps aside, and is kept until `rollback` or `forget`.

    A full re-embed (`reembed`) needs no report, as every vector in it is the model's own.

    Both names change in one step, where the system or the database can do that. A switch that was killed is finished
    by the same command, or undone by `rollback`.
    """
    from migrate.report.switch import switch_document, switched_text
    from migrate.stores.registry import absolute_location
    from migrate.switch import switch_store

    done = switch_store(absolute_location(old), absolute_location(new), report=report, unproven=unproven)
    moved = _folder_under_shell(done)
    name = done.old if moved else old
    _show(switch_document("switch", done), switched_text(done, name), as_json=as_json)
    if as_json:
        return
    if moved:
        advise(f"this shell is in the old store's folder now; to the new one: cd {shlex.quote(moved)}", quiet=False)
    if done.two_stage is not None:
        advise_worker(name, quiet=False)


def _folder_under_shell(done: Switch) -> str | None:
    """Return the path at which the shell was, where the switch has moved its folder, so that `.` is another store."""
    from migrate.files import real_path
    from migrate.stores.registry import path_in

    old, aside = path_in(done.old), path_in(done.aside)
    if old is None or aside is None:
        return None
    here, moved = Path.cwd(), real_path(aside if aside.is_dir() else aside.parent)
    folder = old if old.is_dir() else old.parent
    return str(folder / here.relative_to(moved)) if here.is_relative_to(moved) else None


@options.command("rollback", "Let the old store answer again.", example="lead-migrate rollback my-store")
@click.argument("old", type=options.STORE)
@options.as_json
def rollback(old: str, as_json: bool) -> None:
    """Undo a `switch`: the old store answers at OLD again, and the new one where it was before."""
    from migrate.report.switch import rolled_back_text, switch_document
    from migrate.stores.registry import absolute_location
    from migrate.switch import roll_back

    done = roll_back(absolute_location(old))
    _show(switch_document("rollback", done), rolled_back_text(done), as_json=as_json)


@options.command("forget", "Delete the old store after a switch.", example="lead-migrate forget my-store --yes")
@click.argument("old", type=options.STORE)
@option("--yes", is_flag=True, help="Do not ask.")
@options.as_json
def forget(old: str, yes: bool, as_json: bool) -> None:
    """Delete the old store that stepped aside for the one that answers at OLD now, and nothing else."""
    from migrate.errors import UsageError
    from migrate.report.switch import forgotten_text, switch_document
    from migrate.stores.registry import absolute_location
    from migrate.switch import find_switch, forget_switch

    word = absolute_location(old)
    found = find_switch(word)
    if not yes and not sys.stdin.isatty():
        raise UsageError(f"{found.aside} would be deleted, and nobody can be asked here; agree with --yes")
    question = f"Delete {found.aside}, the store that answered as {found.old} before?"
    if not yes and not click.confirm(question, err=True):
        raise UsageError(f"{found.aside}: not agreed to; nothing was deleted")
    done = forget_switch(word)
    _show(switch_document("forget", done), forgotten_text(done), as_json=as_json)


def _show(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        show_json(document)
    else:
        show(text)
