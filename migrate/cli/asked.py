"""Commands as requests: what was asked and is read, by which the same command again is known, and what is done then."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import click

from migrate.cli.interruption import note_kept
from migrate.cli.terminal import PROGRAM, complain, show_again
from migrate.command_notes import Request, run_request
from migrate.errors import LeadMigrateError, OutputError, StoreError, UsageError
from migrate.files import canonical_json, clear_lock, sha256_json, state_folder
from migrate.stores import open_store
from migrate.stores.registry import names_kind, path_in
from migrate.version import __version__

_OUTPUTS: Final = ("output", "report", "save_stitch", "csv")
"""Names of parameters that are written; what lies there is made by the command."""


def run_once(context: click.Context, invoke: Callable[[click.Context], Any]) -> Any:
    """Run a command; where it refuses what the same command has done before, end as that did."""
    request = _request_of(context)
    try:
        with run_request(request):
            code = invoke(context)
    except KeyboardInterrupt as error:
        note_kept(error, context, request)
        raise
    except (UsageError, StoreError):
        # With --force it was not refused for what is there: it was to be done again, and could not be
        if context.params.get("force") or (code := _ended_before(request)) is None:
            raise
        return code
    # A command that returns nothing has ended well
    request.ends(code if isinstance(code, int) else 0)
    return code


def _request_of(context: click.Context) -> Request:
    """Return the request of a command; nothing is read before it makes something, or refuses to."""
    try:
        folder = state_folder() / "requests"
    except OutputError:  # a user without a home folder; no note can be written into a device
        folder = Path(os.devnull)
    return Request(folder, lambda: _digest_of(context), _state_of)


def _ended_before(request: Request) -> int | None:
    """Print what an earlier run of the same command has printed, and return its exit code; None where there is none."""
    ended = request.ended_before()
    if ended is None:
        return None
    for location in ended.outputs:
        clear_lock(Path(location))
    show_again(ended.printed)
    complain(f"{PROGRAM}: the same command has done this before, and all is as it left it; nothing was done")
    return ended.code


def _digest_of(context: click.Context) -> str:
    """Return the SHA-256 of a command's name and parameters, and of the stores and files that they name."""
    params = {name: list(_texts(value)) for name, value in context.params.items()}
    read = {text for name, texts in params.items() if name not in _OUTPUTS for text in texts}
    asked = {
        "command": context.command_path.partition(" ")[2],
        "version": __version__,
        # Relative paths mean other files elsewhere
        "folder": os.getcwd(),  # noqa: PTH109 - a name, of which nothing is opened
        # One model name is another model on another server
        "servers": {variable: url for variable, url in os.environ.items() if variable.endswith("_BASE_URL")},
        "parameters": params,
        "read": {text: [_state_of(text), _changed_at(text)] for text in read},
    }
    return sha256_json(asked)


def _texts(value: Any) -> Iterator[str]:
    """Yield a value, or each of several, as text."""
    if isinstance(value, list | tuple):
        yield from map(str, value)
    else:
        yield str(value)


def _state_of(location: str) -> Any:
    """Return sizes and times of files, or what tells a store on a server from a changed one; None where nothing is.

    Hidden files are our own locks and notes. A store that had to be read whole for it is like none that was before.
    """
    path = path_in(location)
    if path is not None:
        return _files_in(path)
    if not names_kind(location):
        return None
    try:
        state = open_store(location).state()
    except LeadMigrateError:
        return None
    if state is None:
        # A value that no earlier request can have noted
        return uuid4().hex
    # As a note holds it, in which tuples are lists
    return json.loads(canonical_json(state))


def _changed_at(location: str) -> list[int]:
    """Return when the system last saw the files of a location change; programs set the times that `_state_of` has.

    A file that is unpacked over another may have both its size and its time.
    """
    path = path_in(location)
    if path is None:
        return []
    inside = [path / inner for inner in sorted(_files_in(path)) if inner]
    return [file.stat().st_ctime_ns for file in inside or [path]]


def _files_in(path: Path) -> dict[str, list[int]]:
    """Return size and time of a file, under no name, or of all files in a folder by their paths in it."""
    if not path.is_dir():
        status = path.stat()
        return {"": [status.st_size, status.st_mtime_ns]}
    states = {}
    for folder, folders, names in os.walk(path):
        # In place, which is how `os.walk` is told what not to enter
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            file = Path(folder, name)
            if not name.startswith(".") and file.is_file():
                status = file.stat()
                states[file.relative_to(path).as_posix()] = [status.st_size, status.st_mtime_ns]
    return states
