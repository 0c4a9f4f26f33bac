"""The terminal: results on stdout, progress and advice on stderr, colour only where it is wanted."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, TextIO

import click

from migrate.command_notes import running
from migrate.errors import OutputError
from migrate.locations import scrub
from migrate.report.characters import printable, printable_json, printable_lines

if TYPE_CHECKING:
    from tqdm import tqdm


PROGRAM = "lead-migrate"
"""The console script."""

NARROWEST = 40
"""Columns that everything is laid out for at least."""


def open_streams() -> None:
    """Give a process that was started without stdin, stdout or stderr one that leads nowhere.

    The next file to be opened would get its number otherwise, and what is printed would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is the one that is missing
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            # Open until the process ends
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


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
    _keep(text)
    if verdict:
        text = coloured_verdict(text)
    _print(text)


def show_again(printed: str) -> None:
    """Print what an earlier run of the same command has printed."""
    if printed:
        _print(coloured_verdict(printed.removesuffix("\n")))


def _keep(text: str) -> None:
    """Keep a result for the same command again, which has nothing left to do."""
    request = running()
    if request is not None:
        request.printed.append(f"{text}\n")


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

    >>> as_options("is `base_url` right? Give `max_cost=8`, or replace it with `force=True`")
    'is --base-url right? Give --max-cost 8, or replace it with --force'
    """

    def option(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        value = match[2]
        flag = f"--{name.replace('_', '-')}"
        if value in (None, "", "True"):
            return flag
        return f"{flag} {value}"

    return _ARGUMENT.sub(option, message)


class Log(logging.Handler):
    """Prints what the library logs of damage and retries, a line each, on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        complain(record.getMessage())


def show_json(content: Any, *, kind: str = "") -> None:
    """Print a document as JSON, or with a `kind` the facts of a result as one."""
    from migrate.facts import document

    if kind:
        content = document(kind, content)
    text = printable_json(json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False))
    _keep(text)
    _print(text)


def show_result(document: Any, text: Callable[[], str], *, as_json: bool) -> None:
    """Print a result as a JSON document, or as text."""
    if as_json:
        show_json(document)
    else:
        show(text())


def advise(text: str) -> None:
    """Print to stderr what is worth knowing but is not the result, unless `--quiet` was given."""
    if not is_quiet():
        complain(text)


_WARNED = "migrate.warned"
"""Under this name click's context keeps the warnings that the command has printed."""


def warn(text: str) -> None:
    """Print a warning to stderr, unless the command has printed it already or was given `--quiet`."""
    context = click.get_current_context(silent=True)
    warned = set() if context is None else context.meta.setdefault(_WARNED, set())
    if text not in warned:
        warned.add(text)
        advise(f"warning: {text}")


QUIET = "migrate.quiet"
"""Under this name click's context says whether `--quiet` was given."""
JSON_PROGRESS = "migrate.json_progress"
"""Under this name it says whether `--json-progress` was given."""


def is_quiet() -> bool:
    """Return True where the command that is running was given `--quiet`."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


def coloured_verdict(text: str) -> str:
    """Return the text with verdicts in colour where they begin a line, unless nobody would see it."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    colours = {"SAFE": "green", "NOT SAFE": "red", "INCONCLUSIVE": "yellow"}
    return re.sub(
        f"^(translated alone: )?({'|'.join(colours)})",
        lambda match: (match[1] or "") + click.style(match[2], fg=colours[match[2]], bold=True),
        text,
        flags=re.M,
    )


LOCK = RLock()
"""Held by whoever writes to the terminal: a bar is drawn by a thread of its own too."""

_bar: tqdm[Any] | None = None
"""The bar that is on the terminal now. There is one terminal, and so one bar."""


def put_bar(bar: tqdm[Any] | None) -> None:
    """Let a bar be the one that makes room for what is printed; None where there is none any more."""
    global _bar
    _bar = bar


@contextmanager
def bar_hidden() -> Iterator[None]:
    """Take the bar off the terminal, so that something else can be printed or asked."""
    with LOCK:
        hidden = _bar
        if hidden is None:
            yield
            return
        hidden.clear()
        try:
            yield
        finally:
            # Drawn again even after an error: what is told next goes below it
            hidden.refresh()
