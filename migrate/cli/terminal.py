"""The terminal: results on stdout, progress and advice on stderr, colour only where it is wanted."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from migrate.errors import OutputError
from migrate.locations import scrub
from migrate.report.characters import printable, printable_json, printable_lines

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import Task

    from migrate.audit.report import AuditReport
    from migrate.vectors import Progress

PROGRAM = "lead-migrate"
"""The console script."""

_NARROWEST = 40
"""Columns that everything is laid out for at least."""


def open_streams() -> None:
    """Give a process that was started without stdin, stdout or stderr one that leads nowhere.

    The next file to be opened would get its number otherwise, and what is printed would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
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
    """Print a result, a verdict in colour. Where nobody reads on, the exit code is still wanted."""
    text = printable_lines(text)
    _print(coloured_verdict(text) if verdict else text)


def _print(text: str) -> None:
    try:
        with bar_hidden():
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
        with bar_hidden():
            click.echo(scrub(printable(as_options(text))), err=True)
    except OSError:
        _discard(sys.stderr)


_ARGUMENT = re.compile(r"`([a-z]+(?:_[a-z]+)*)=([^`\s]*)`|`([a-z]+(?:_[a-z]+)+)`")


def as_options(message: str) -> str:
    """Return a message of the library, which names its arguments, as it names options.

    >>> as_options("is `base_url` right? Give `dimensions=8`, or replace it with `force=True`")
    'is --base-url right? Give --dimensions 8, or replace it with --force'
    """

    def option(found: re.Match[str]) -> str:
        flag = "--" + (found[1] or found[3]).replace("_", "-")
        return flag if found[2] in (None, "", "True") else f"{flag} {found[2]}"

    return _ARGUMENT.sub(option, message)


class Log(logging.Handler):
    """Prints what the library logs of damage and retries, a line each, on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        complain(record.getMessage())


def show_json(facts: Any, *, kind: str = "") -> None:
    """Print a document as JSON, or with a `kind` the facts of a result as one."""
    from migrate.report.facts import document

    whole = document(kind, facts) if kind else facts
    _print(printable_json(json.dumps(whole, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)))


def advise(text: str) -> None:
    """Print to stderr what is worth knowing but is not the result, unless `--quiet` was given."""
    if not is_quiet():
        complain(text)


QUIET = "migrate.quiet"
"""Under this name click's context says whether `--quiet` was given."""


def is_quiet() -> bool:
    """Return True where the command that is running was given `--quiet`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


def show_summary(report: AuditReport, page: Path | None) -> None:
    """Print the summary of an audit as wide as the terminal, in colour where `coloured_verdict` would."""
    from migrate.report.summary import audit_summary
    from migrate.report.terminal import WIDTH

    is_terminal = sys.stdout.isatty()
    width = max(shutil.get_terminal_size((WIDTH, 24)).columns, _NARROWEST) if is_terminal else WIDTH
    in_colour = is_terminal and not os.environ.get("NO_COLOR")
    _print(audit_summary(report, page=page, width=width, in_colour=in_colour))


def coloured_verdict(text: str) -> str:
    """Return the text with the verdict in colour where it begins a line, unless nobody would see it."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    colours = {"SAFE": "green", "NOT SAFE": "red", "INCONCLUSIVE": "yellow"}
    return re.sub(
        f"^({'|'.join(colours)})",
        lambda found: click.style(found[1], fg=colours[found[1]], bold=True),
        text,
        flags=re.M,
    )


_LINES_EVERY_S = 30.0
"""Seconds between two lines of progress where no bar is drawn; a stage that takes less has none."""

_bar: RichProgress | None = None
"""The bar that is on the terminal now. There is one terminal, and so one bar."""


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A progress callback that shows how far each stage is, on stderr: done, total, rate and the time left.

    A bar where a person looks on; elsewhere, as in a pipe or in CI, a line from time to time.
    """
    if is_quiet():
        yield lambda _stage, _done, _total: None
    else:
        with _live_bar() if _is_watched() else _plain_lines() as report:
            yield report


@contextmanager
def bar_hidden() -> Iterator[None]:
    """Take the bar off the terminal, so that something else can be printed or asked."""
    if _bar is None:
        yield
        return
    _bar.stop()
    try:
        yield
    finally:
        _bar.start()


def _is_watched() -> bool:
    """Return whether stderr is a terminal that can move its cursor, and nobody asked for plain text."""
    environment = os.environ
    plain = environment.get("NO_COLOR") or environment.get("CI", "").lower() not in ("", "0", "false")
    wide = shutil.get_terminal_size().columns >= _NARROWEST
    return sys.stderr.isatty() and wide and not plain and environment.get("TERM", "dumb") not in ("dumb", "unknown")


@contextmanager
def _live_bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, TaskID
    from rich.progress import Progress as RichProgress
    from rich.table import Column
    from rich.text import Text

    global _bar
    console = Console(file=sys.stderr, force_terminal=True, legacy_windows=False)
    has_bar, compact = console.width >= 60, console.width < 80
    bar_width = 8  # at least

    class Stage(ProgressColumn):
        """What is done, in as many columns as the figures leave."""

        def render(self, task: Task) -> Text:
            stage = Text(task.description)
            taken = 1 + len(_figures(task, compact=compact)) + (1 + bar_width if has_bar else 0)
            stage.truncate(console.width - taken, overflow="ellipsis")
            return stage

    class Figures(ProgressColumn):
        """Done, total, rate, and the time that is left."""

        def render(self, task: Task) -> Text:
            return Text(_figures(task, compact=compact), justify="right")

    drawn = [BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=bar_width))] if has_bar else []
    columns = [Stage(Column(no_wrap=True)), *drawn, Figures(Column(no_wrap=True))]
    # The rate is a mean of minutes, as a candidate or a batch may take one. stdout may lead elsewhere than the bar.
    bar = RichProgress(
        *columns, console=console, transient=True, expand=True, redirect_stdout=False, speed_estimate_period=600
    )
    task: TaskID | None = None
    last = ("", 0)

    def report(stage: str, done: int, total: int | None) -> None:
        nonlocal task, last
        if task is None or _is_another(stage, done, last):
            if task is not None:
                bar.remove_task(task)
            # What is done already, as by an earlier run, says nothing about the rate.
            task = bar.add_task(stage, total=total, completed=done)
        last = (stage, done)
        bar.update(task, completed=done, total=total)

    with bar:
        _bar = bar
        try:
            yield report
        finally:
            _bar = None


def _is_another(stage: str, done: int, last: tuple[str, int]) -> bool:
    """Return whether a report is the first of its stage: documents are embedded, then queries."""
    return stage != last[0] or done < last[1]


def _figures(task: Task, *, compact: bool) -> str:
    """How far a stage is: `4,200/10,000 420/s 00:14 left`, or `4.20k/10.0k 420/s 00:14` in few columns."""
    from tqdm import tqdm

    def count(number: float) -> str:
        return tqdm.format_sizeof(number) if compact and number >= 1000 else f"{number:,.0f}"

    if task.total is None:
        return f"{count(task.completed)} {tqdm.format_interval(task.elapsed or 0)}"
    parts = [f"{count(task.completed)}/{count(task.total)}"]
    if task.speed:
        parts.append(f"{count(task.speed)}/s" if task.speed >= 1 else f"{1 / task.speed:,.0f} s each")
    if task.time_remaining is not None:
        parts.append(tqdm.format_interval(task.time_remaining) + ("" if compact else " left"))
    return " ".join(parts)


@contextmanager
def _plain_lines() -> Iterator[Progress]:
    from tqdm import tqdm

    last, begun, shown = ("", 0), (0.0, 0), 0.0

    def report(stage: str, done: int, total: int | None) -> None:
        nonlocal last, begun, shown
        now = time.monotonic()
        if _is_another(stage, done, last):
            begun, shown = (now, done), now
        last = (stage, done)
        if now - shown >= _LINES_EVERY_S:
            shown = now
            line = "{desc}: {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}]"
            seconds, initial = now - begun[0], begun[1]
            complain(tqdm.format_meter(done, total, seconds, prefix=stage, bar_format=line, initial=initial))

    yield report
