"""`lead-migrate switch`, `rollback` and `forget`: the new store under the old name, and back."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from migrate.cli.dry_run import stop_if_dry
from migrate.cli.next_step import advise_worker
from migrate.cli.progress import progress_bar
from migrate.cli.terminal import advise, show_result
from migrate.errors import UsageError
from migrate.files import command_ends, real_path
from migrate.report.switch import forgotten_text, rolled_back_text, switch_document, switched_text, what_is_forgotten
from migrate.steps.switch import Forget, Rollback, Switch
from migrate.stores.registry import path_in

if TYPE_CHECKING:
    from migrate.steps.switch.job import Dropped, Switched

_Done = TypeVar("_Done", bound="Switched | Dropped")


def command(request: Switch, dry_run: bool, as_json: bool) -> None:
    """Put the store NEW in the place of OLD."""
    if dry_run:
        with progress_bar():
            planned = request.open().done
        stop_if_dry(
            dry_run,
            reads=[planned.old, planned.new, request.audit],
            writes=[f"the name {planned.old}, for the new store", f"{planned.aside}, for the old one"],
            as_json=as_json,
        )
    with progress_bar():
        done = request.run()
    moved = _folder_under_shell(done)
    name = done.old if moved else str(request.old)
    _show("switch", done, lambda done: switched_text(done, name), as_json=as_json)
    if as_json:
        return
    if moved:
        advise(f"this shell is in the old store's folder now; to the new one: cd {shlex.quote(moved)}")
    if done.two_stage is not None:
        advise_worker(name)


def _folder_under_shell(done: Switched) -> str | None:
    """Return the path at which the shell was, where the switch has moved its folder, so that `.` is another store."""
    old = path_in(done.old)
    replaced = path_in(done.aside)
    if old is None or replaced is None:
        return None
    # The shell follows the folder that was moved, and does not notice
    moved = real_path(replaced if replaced.is_dir() else replaced.parent)
    current = Path.cwd()
    if not current.is_relative_to(moved):
        return None
    folder = old if old.is_dir() else old.parent
    return str(folder / current.relative_to(moved))


@command_ends()
def rollback(request: Rollback, dry_run: bool, as_json: bool) -> None:
    """Undo a switch: put the old store back in its place."""
    if dry_run:
        planned = request.open().done
        stop_if_dry(
            dry_run,
            reads=[planned.old, planned.aside],
            writes=[f"the name {planned.old}, for the old store", f"{planned.new}, for the new one"],
            as_json=as_json,
        )
    with progress_bar():
        done = request.run()
    _show("rollback", done, rolled_back_text, as_json=as_json)


@command_ends()
def forget(request: Forget, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Delete the old store after a switch, or a field."""
    deleted = what_is_forgotten(request.open().done)
    if dry_run:
        stop_if_dry(dry_run, reads=[request.old], writes=[f"{deleted}, which is deleted"], as_json=as_json)
    if not yes and not sys.stdin.isatty():
        raise UsageError(f"{deleted} would be deleted, and there is no terminal to ask in; agree with --yes")
    if not yes and not click.confirm(f"Delete {deleted}?", err=True):
        raise UsageError(f"{deleted}: not agreed to; nothing was deleted")
    with progress_bar():
        done = request.run()
    _show("forget", done, forgotten_text, as_json=as_json)


def _show(kind: str, done: _Done, text: Callable[[_Done], str], *, as_json: bool) -> None:
    show_result(switch_document(kind, done), lambda: text(done), as_json=as_json)
