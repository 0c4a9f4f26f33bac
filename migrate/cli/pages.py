"""Pages for a browser: that they are opened where there is one, and found where there is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from migrate.cli.options import option
from migrate.cli.terminal import advise

opens = option("--open", "opens", is_flag=True, help="Open the page in the browser when it is there.")
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


def refuse_open(page: Path | None, *, opens: bool) -> None:
    """Make sure, before anything is done, that there will be a page to open."""
    from migrate.errors import UsageError

    if opens and page is None:
        raise UsageError("--open: expected a page to open, found none; add --html FILE, or leave --open out")


def open_page(page: Path | None, *, opens: bool, quiet: bool) -> None:
    """Show a page in the browser if it is to be opened; in a pipe, in CI or without a display, say where it is."""
    if opens and page is not None and (not _has_browser() or click.launch(str(page.absolute()))):
        advise(f"page: {page}", quiet=quiet)


def _has_browser() -> bool:
    """Return whether somebody looks on at a screen that can show more than text."""
    if not sys.stdout.isatty() or os.environ.get("CI"):
        return False
    return sys.platform in ("darwin", "win32") or any(map(os.environ.get, _DISPLAYS))
