"""`lead-migrate completion`: the script by which a shell completes commands and options."""

from __future__ import annotations

import click

from migrate.cli import options


@options.command("completion", example="lead-migrate completion bash")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@options.done_by("migrate.cli.completion:command")
def completion() -> None:
    """Print the script that completes words with the Tab key in SHELL.

    Add it to the shell's start-up file: ~/.bashrc, ~/.zshrc, or ~/.config/fish/completions/lead-migrate.fish.
    """
