"""What a person sees: results on stdout, progress and advice on stderr, colour only where it is wanted."""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from migrate.errors import OutputError
from migrate.report.characters import printable, printable_json, printable_lines

if TYPE_CHECKING:
    from migrate.audit.report import AuditReport
    from migrate.vectors import Progress

PROGRAM = "lead-migrate"
"""The console script."""

_NARROWEST = 40
"""Columns that everything is laid out for at least."""

_COLOURS = {"SAFE": "green", "NOT SAFE": "red", "INCONCLUSIVE": "yellow"}


_STREAMS = ("stdin", "stdout", "stderr")


def open_streams() -> None:
    """Give a process that was started without stdin, stdout or stderr one that leads nowhere.

    The next file to be opened would get its number otherwise, and what is printed would be written into it.
    """
    for number, name in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            # the lowest number that is free is the one that is missing
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - until the end


def close_streams() -> None:
    """Write what is left. Where that fails, it was told before, or nobody is there to be told."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _discard(stream)


def _discard(stream: TextIO) -> None:
    """From now on a stream leads nowhere: what it still holds would fail again, and change the exit code."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def show(text: str, *, verdict: bool = False) -> None:
    """Print a result, a verdict in colour. Where nobody reads on, the exit code is still wanted.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    text = printable_lines(text)
    _print(coloured_verdict(text) if verdict else text)


def _print(text: str) -> None:
    try:
        click.echo(text)
    except BrokenPipeError:
        _discard(sys.stdout)
    except OSError as error:
        _discard(sys.stdout)
        raise OutputError(
            f"cannot write to standard output: {error.strerror or error}; free some space, or send it elsewhere"
        ) from error


def complain(text: str) -> None:
    """Print one line to stderr, whatever the text holds; where nobody can read it, go on."""
    try:
        click.echo(printable(text), err=True)
    except OSError:
        _discard(sys.stderr)


class Log(logging.Handler):
    """What modules below have to say of damage and retries, as a line on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        complain(record.getMessage())


def show_json(document: dict[str, Any]) -> None:
    """Print one JSON document."""
    _print(printable_json(json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)))


def advise(text: str, *, quiet: bool) -> None:
    """Print to stderr what is worth knowing but is not the result."""
    if not quiet:
        complain(text)


def show_summary(report: AuditReport, page: Path | None) -> None:
    """Print the summary of an audit as wide as the terminal, in colour where `coloured_verdict` would."""
    from migrate.report.summary import audit_summary
    from migrate.report.terminal import WIDTH

    is_terminal = sys.stdout.isatty()
    width = max(shutil.get_terminal_size((WIDTH, 24)).columns, _NARROWEST) if is_terminal else WIDTH
    in_colour = is_terminal and not os.environ.get("NO_COLOR")
    _print(audit_summary(report, page=page, width=width, in_colour=in_colour))


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
