"""What a person sees: results on stdout, progress and advice on stderr, colour only where it is wanted."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from migrate.vectors import Progress

PROGRAM = "lead-migrate"
"""The console script."""

_COLOURS = {"SAFE": "green", "NOT SAFE": "red", "INCONCLUSIVE": "yellow"}


def printable(text: str) -> str:
    """The text as one line that a terminal shows and does not obey: names of files and ids may hold anything."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def show(text: str) -> None:
    """Print a result."""
    click.echo(text)


def show_json(document: dict[str, Any]) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False))


def advise(text: str, *, quiet: bool) -> None:
    """Print to stderr what is worth knowing but is not the result."""
    if not quiet:
        click.echo(text, err=True)


def coloured_verdict(text: str) -> str:
    """The text with the verdict in colour where it begins a line, if stdout is a terminal and NO_COLOR is unset."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return "\n".join(_coloured(line) for line in text.split("\n"))


def _coloured(line: str) -> str:
    for outcome, colour in _COLOURS.items():
        if line.startswith(outcome):
            return click.style(outcome, fg=colour, bold=True) + line[len(outcome) :]
    return line


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Progress]:
    """A progress callback that draws one bar a stage on stderr, where stderr is a terminal."""
    from tqdm import tqdm

    bar: tqdm[Any] | None = None
    shown = ""

    def report(stage: str, done: int, total: int | None) -> None:
        nonlocal bar, shown
        if bar is None or stage != shown:
            if bar is not None:
                bar.close()
            shown = stage
            # disable=None: tqdm draws on terminals only
            bar = tqdm(desc=stage, total=total, disable=True if quiet else None, leave=False, file=sys.stderr)
        bar.total = total
        bar.update(done - bar.n)

    try:
        yield report
    finally:
        if bar is not None:
            bar.close()
