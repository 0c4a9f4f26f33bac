"""`lead-migrate completion`: the script of click for a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from migrate.cli.terminal import PROGRAM, show
from migrate.errors import UsageError


def command(shell: str) -> None:
    """Print the script."""
    kind = get_completion_class(shell)
    if kind is None:
        raise UsageError(f"{shell}: this version of click completes no words there; upgrade it")
    # Click looks for a variable of this name whenever the program starts
    variable = f"_{PROGRAM.replace('-', '_').upper()}_COMPLETE"
    root = click.get_current_context().find_root().command
    show(kind(root, {}, PROGRAM, variable).source())
