"""Progress of commands on stderr, in one of three forms.

A bar where a person looks on; a line from time to time elsewhere, as in a pipe or in CI; with `--json-progress` lines
of JSON for programs. All three are fed by the one callback that `progress_bar` gives.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from migrate.cli.terminal import JSON_PROGRESS, LOCK, NARROWEST, complain, is_quiet, put_bar
from migrate.facts import document
from migrate.progress import Progress, heard_by, no_progress

if TYPE_CHECKING:
    from tqdm import tqdm

_WIDE: Final = 60
"""Columns from which on there is room for the bar itself and the rate."""

_LINES_EVERY_S = 30.0
"""Seconds between two lines of progress where no bar is drawn; a stage that takes less has none."""
_JSON_EVERY_S: Final = 0.5
"""Seconds between two lines of JSON within a stage that goes on."""
_SIGN_EVERY_S: Final = 5.0
"""Seconds between two lines of JSON within a stage that does not: a sign that the command is alive."""
_TICK_S: Final = 0.5
_SILENT_S: Final = 1.0
"""Seconds after which work is shown that no stage names."""
_UNNAMED: Final = "working"

_UNITS: Final = {
    "count tokens": "texts",
    "download": "bytes",
    "embed": "texts",
    "embed word pieces": "word pieces",
    "fit candidates": "candidates",
    "fit stitches": "stitches",
    "compare spaces": "pairs",
    "hash": "bytes",
    "judge directions": "directions",
    "judge labels": "stages",
    "judge probes": "probes",
    "match documents": "stores",
    "read the documents": "bytes",
    "try other ways of embedding": "ways",
}
"""What stages count that do not count documents."""


class _Form(Protocol):
    """Form in which a stage is shown, from its first report to the end."""

    def show(self, done: int, total: int | None) -> None:
        """Show how far the stage is now."""

    def tick(self) -> None:
        """Show that time goes by, called by a thread of its own."""

    def close(self) -> None:
        """Show the end of the stage."""


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Give a callback that shows how far each stage is, on stderr: done, total, rate and the time left."""
    global _shown
    shown = _ShownProgress()
    with ExitStack() as stack:
        if shown.is_seen:
            stack.callback(shown.close)
            stack.enter_context(_ticking(shown))
        _shown = shown.report if shown.is_seen else no_progress
        try:
            with heard_by(show_progress):
                yield show_progress
        finally:
            _shown = no_progress


_shown: Progress = no_progress
"""The callback of the bar that a command has begun."""


def show_progress(stage: str, done: int, total: int | None) -> None:
    """Show how far a stage is, while a command has a `progress_bar`: the callback of steps that commands make."""
    _shown(stage, done, total)


class _ShownProgress:
    """The stages of a command, one after the other, each in the form that is wanted."""

    def __init__(self) -> None:
        context = click.get_current_context(silent=True)
        self._is_watched = _is_watched()
        self._is_json = context is not None and bool(context.meta.get(JSON_PROGRESS))
        self._command = context.command_path.partition(" ")[2] if context is not None else ""
        self._form: _Form | None = None
        self._stage = ""
        self._done = 0
        self._is_complete = False
        self._heard = time.monotonic()
        self.is_seen = self._is_json or not is_quiet()

    def report(self, stage: str, done: int, total: int | None) -> None:
        """Show how far a stage is."""
        with LOCK:
            # A stage can begin again: documents are embedded, then queries
            if self._form is None or stage != self._stage or done < self._done:
                self._begin(stage, done, total)
            else:
                self._form.show(done, total)
            self._done = done
            self._is_complete = done == total
            self._heard = time.monotonic()

    def tick(self) -> None:
        """Show that time goes by, and work that no stage names: what is between two of them takes time too."""
        with LOCK:
            if self._form is not None and not self._is_complete:
                self._form.tick()
            elif time.monotonic() - self._heard > _SILENT_S:
                self._begin(_UNNAMED, 0, None)
                self._done = 0
                self._is_complete = False

    def close(self) -> None:
        """Show the end of the last stage."""
        with LOCK:
            if self._form is not None:
                self._form.close()
                self._form = None

    def _begin(self, stage: str, done: int, total: int | None) -> None:
        self.close()
        self._stage = stage
        if self._is_json:
            self._form = _JsonLines(self._command, stage, done, total)
        elif self._is_watched:
            self._form = _Bar(stage, done, total)
        else:
            self._form = _Lines(stage, done, total)


@contextmanager
def _ticking(shown: _ShownProgress) -> Iterator[None]:
    """Let a thread tell every moment that time goes by: the one that works may be in a library for minutes."""
    ended = Event()

    def tick() -> None:
        while not ended.wait(_TICK_S):
            # A terminal that is gone is told by the thread that works
            with suppress(OSError):
                shown.tick()

    thread = Thread(target=tick, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class _Bar:
    """A bar on a terminal."""

    def __init__(self, stage: str, done: int, total: int | None) -> None:
        columns = shutil.get_terminal_size().columns
        self._is_wide = columns >= _WIDE
        # What stands beside the name of the stage takes so many columns
        width_used = 42 if self._is_wide else 26
        options = {"file": sys.stderr, "ncols": columns, "bar_format": self._format(done, total)}
        self._bar = _tqdm(stage[: columns - width_used], done, total, every_s=0.1, **options)
        put_bar(self._bar)

    def show(self, done: int, total: int | None) -> None:
        self._bar.total = total
        self._bar.bar_format = self._format(done, total)
        self._bar.update(done - self._bar.n)

    def _format(self, done: int, total: int | None) -> str:
        if total is None and not done:
            return "{desc} {elapsed}"
        if total is None:
            return "{desc} {n_fmt} {rate_fmt} {elapsed}"
        if not self._is_wide:
            return "{desc} {n_fmt}/{total_fmt} {elapsed}<{remaining}"
        return "{desc} {bar} {n_fmt}/{total_fmt} {rate_fmt} {elapsed}<{remaining}"

    def tick(self) -> None:
        self._bar.refresh()

    def close(self) -> None:
        put_bar(None)
        self._bar.close()


class _Lines:
    """A line from time to time, where no cursor can be moved."""

    def __init__(self, stage: str, done: int, total: int | None) -> None:
        form = "{desc}: {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}]"
        wait_s = _LINES_EVERY_S
        self._bar = _tqdm(stage, done, total, every_s=wait_s, delay=wait_s, file=_Complaints(), bar_format=form)

    def show(self, done: int, total: int | None) -> None:
        self._bar.total = total
        self._bar.update(done - self._bar.n)

    def tick(self) -> None:
        """Write nothing: a log is not to grow while nothing happens."""

    def close(self) -> None:
        self._bar.close()


class _Complaints(io.StringIO):
    """A stream that prints what is drawn as lines."""

    def write(self, text: str) -> int:
        """Print a line, unless it is empty."""
        if text.strip():
            complain(text.strip())
        return len(text)


class _JsonLines:
    """A JSON object a line, of the schema `progress` in `docs/schema.json`."""

    def __init__(self, command: str, stage: str, done: int, total: int | None) -> None:
        self._command = command
        self._stage = stage
        self._first = done
        self._began = time.monotonic()
        self._done = done
        self._total = total
        self._write("begin")

    def show(self, done: int, total: int | None) -> None:
        self._done = done
        self._total = total
        if time.monotonic() - self._written >= _JSON_EVERY_S:
            self._write("running")

    def tick(self) -> None:
        if time.monotonic() - self._written >= _SIGN_EVERY_S:
            self._write("running")

    def close(self) -> None:
        self._write("end")

    def _write(self, state: str) -> None:
        self._written = time.monotonic()
        elapsed_s = self._written - self._began
        rate = None
        remaining_s = None
        # What is done already, as by an earlier run, says nothing about the rate
        if self._done > self._first and elapsed_s > 0:
            rate = (self._done - self._first) / elapsed_s
            if self._total is not None:
                remaining_s = round((self._total - self._done) / rate, 3)
        content = {
            "command": self._command,
            "step": self._stage,
            "state": state,
            "done": self._done,
            "total": self._total,
            "unit": _UNITS.get(self._stage, "documents"),
            "rate": rate,
            "elapsed_s": round(elapsed_s, 3),
            "remaining_s": remaining_s,
        }
        complain(json.dumps(document("progress", content)))


def _tqdm(stage: str, done: int, total: int | None, *, every_s: float, **options: Any) -> tqdm[Any]:
    from tqdm import tqdm

    tqdm.monitor_interval = 0  # the ticking is done here
    # By default tqdm makes a lock of `multiprocessing`, and with it the choice of how later processes start
    tqdm.set_lock(RLock())
    # The rate is a mean of minutes, as a candidate or a batch may take one. What is done already, as by an earlier run,
    # says nothing about it.
    return tqdm(
        desc=stage, initial=done, total=total, leave=False, mininterval=every_s, miniters=1, smoothing=0.05, **options
    )


def _is_watched() -> bool:
    """Return whether stderr is a terminal that can move its cursor, and nobody asked for plain text."""
    environment = os.environ
    plain = environment.get("NO_COLOR") or environment.get("CI", "").lower() not in ("", "0", "false")
    wide = shutil.get_terminal_size().columns >= NARROWEST
    return sys.stderr.isatty() and wide and not plain and environment.get("TERM", "dumb") not in ("dumb", "unknown")
