"""Notes of what commands were asked and have made, by which the same command again finds that it is done.

A command may be killed when its outputs are there and before anybody is told. A note of each request, in the user's
state folder, says what it has made, and how that was when it had made it; at the end also how the command ended, and
what it printed. Of a file or folder it is written before that gets its name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

# Arbitrary: a note is a small file, and of use to the very same command alone.
_MOST_NOTES: Final = 1_000
"""Notes that are kept; the oldest are removed first."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a command: its exit code, what it printed, and the locations of what it made."""

    code: int
    printed: str
    outputs: tuple[str, ...]


class Request:
    """A command that runs.

    Parameters
    ----------
    folder
        The folder of notes.
    digest
        Returns a SHA-256 of what was asked and what is read, as it is now.
    state_of
        Returns what changes with the files or the store at a location, None where nothing is; of what JSON can hold.
    """

    def __init__(self, folder: Path, digest: Callable[[], str], state_of: Callable[[str], Any]) -> None:
        self._folder = folder
        self._digest = digest
        self._state_of = state_of
        self._made: dict[str, Any] = {}
        self._written: Path | None = None
        self.printed: list[str] = []

    @cached_property
    def _note(self) -> Path:
        return self._folder / f"{self._digest()}.json"

    @cached_property
    def _earlier(self) -> dict[str, Any]:
        """The note of an earlier run; empty where there is none, or a damaged one."""
        with suppress(OSError, ValueError, RecursionError):
            note = json.loads(self._note.read_text("utf-8"))
            types = {"made": dict, "code": int | None, "printed": str}
            if isinstance(note, dict) and all(isinstance(note.get(field), kind) for field, kind in types.items()):
                return note
        return {"made": {}, "code": None, "printed": ""}

    def publishes(self, output: Path, unfinished: Path) -> None:
        """Note that what has another name is about to get that of an output."""
        self._made[str(output)] = self._state_of(str(unfinished))
        self._write(self._note, None)

    def has_made(self, location: str) -> None:
        """Note, when the command ends, that an output is there; something else says until then that it is complete."""
        self._made[location] = None

    def outputs(self) -> list[str]:
        """Return the locations of what the command has made so far, or was about to give its name."""
        return list(self._made)

    def ends(self, code: int) -> None:
        """Note how the command ended that has made its outputs; those in temporary folders are gone by now."""
        # opening a store on a server may write files to the cache, which are something made too
        states = {location: self._state_of(location) for location in tuple(self._made)}
        self._made = {location: state for location, state in states.items() if state is not None}
        if self._made:
            # a command that changes what it reads is asked of the changed one when it is repeated
            self._write(self._folder / f"{self._digest()}.json", code)

    def forget(self) -> None:
        """Remove the note, where the same command again would ask for something else; a killed one has left it."""
        self._made = {}
        if self._written is not None:
            with suppress(OSError):
                self._written.unlink(missing_ok=True)

    def made(self, output: Path) -> bool:
        """Return whether an earlier run of the same request made what has the name of an output, and was killed then.

        It may be made again, as nobody was told of it.
        """
        return self._earlier["code"] is None and self._is_as_made(str(output))

    def ended_before(self) -> Ended | None:
        """Return how an earlier run of the same request ended; None where what it made is not as it left it."""
        earlier = self._earlier
        if earlier["code"] is None or not earlier["made"] or not all(map(self._is_as_made, earlier["made"])):
            return None
        return Ended(earlier["code"], earlier["printed"], tuple(earlier["made"]))

    def _is_as_made(self, location: str) -> bool:
        states = self._earlier["made"]
        return location in states and states[location] == self._state_of(location)

    def _write(self, note: Path, code: int | None) -> None:
        """Write a note, with the exit code once there is one.

        A folder that cannot be written to keeps nobody from an output.
        """
        # Two runs of the same command may write their notes at once.
        unfinished = note.with_suffix(f".{os.getpid()}")
        note_text = {"made": self._made, "code": code, "printed": "".join(self.printed)}
        with suppress(OSError):
            # For this user alone: a note has what the command printed.
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            unfinished.write_text(json.dumps(note_text), "utf-8")
            os.replace(unfinished, note)
            self._written = note
            notes = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
            for old in notes[:-_MOST_NOTES]:
                old.unlink()


_running: Request | None = None


def running() -> Request | None:
    """Return the request that this process runs; None in a program of others."""
    return _running


@contextmanager
def run_request(request: Request) -> Iterator[None]:
    """Let a request be the one that runs."""
    global _running
    outer = _running
    _running = request
    try:
        yield
    finally:
        _running = outer
