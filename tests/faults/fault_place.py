"""A row of the table of faults, and the place where it is played: good inputs in a folder of their own."""

from __future__ import annotations

import functools
import hashlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from children import DEADLINE_S, start_command
from openai_server import OpenAIServer
from privileges import without_privileges

from migrate.cli.main import run

PREFIX = "lead-migrate: "
MAIN = "import sys\nfrom migrate.cli.main import main\nmain(sys.argv[1:])\n"
OURS = ("out", ".out", "cache", "expected", ".expected")
"""How the names begin of what commands write; everything else in a place is input, and stays as it is."""
KILLED = (137, -9)
"""How a process ends that cleans nothing up."""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def complaints(self):
        return [line.removeprefix(PREFIX) for line in self.err.splitlines() if line.startswith(PREFIX)]

    @property
    def lines(self):
        return [*self.out.splitlines(), *self.err.splitlines()]


@dataclass
class Place:
    """A folder with `store`, `stitch` and `beir`, in which commands run.

    A spoiler may change the files, `patch` this process, or set `child`: Python to be run before the command, which
    then gets a process of its own; a new Python, with `environment`, where what is loaded has to see it. `words` fill
    the braces in commands. `meddled` are the inputs that the spoiler itself changes while the command runs.
    """

    folder: Path
    patch: pytest.MonkeyPatch
    stack: ExitStack
    child: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    unprivileged: bool = False
    words: dict[str, str] = field(default_factory=dict)
    meddled: set[str] = field(default_factory=set)
    servers: list[OpenAIServer] = field(default_factory=list)

    def __truediv__(self, name):
        return self.folder / name

    @property
    def index(self):
        return self.folder / "store" / "index.faiss"

    @property
    def docs(self):
        return self.folder / "store" / "docs.jsonl"

    def run(self, command):
        arguments = [part.format(**self.words) for part in command]
        if self.environment:
            program = [sys.executable, "-c", f"{self.child}\n{MAIN}", *arguments]
            environment = os.environ | self.environment
            done = subprocess.run(program, capture_output=True, text=True, env=environment, timeout=100)
            return Outcome(done.returncode, done.stdout, done.stderr)
        if self.child is not None:
            return self._run_in_child(arguments)
        out, err = io.StringIO(), io.StringIO()
        rights = without_privileges() if self.unprivileged else nullcontext()
        with redirect_stdout(out), redirect_stderr(err), rights:
            code = run(arguments)
        return Outcome(code, out.getvalue(), err.getvalue())

    def _run_in_child(self, arguments):
        with tempfile.TemporaryDirectory() as name:
            out, err = Path(name, "out"), Path(name, "err")
            process = start_command(arguments, self.folder, out, prelude=self.child, errors=err)
            process.join(DEADLINE_S)
            assert process.exitcode is not None, f"{arguments} did not end within {DEADLINE_S} s"
            printed = [path.read_text("utf-8") if path.exists() else "" for path in (out, err)]
        return Outcome(process.exitcode, *printed)

    def make(self, *command):
        outcome = self.run(command)
        assert outcome.code == 0, outcome

    def inputs(self):
        paths = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        names = ((str(path.relative_to(self.folder)), path) for path in paths)
        return {name: digest(path) for name, path in names if not (name.startswith(OURS) or name in self.meddled)}

    def locks(self):
        return set(self.folder.rglob(".*.lock"))


def digest(path):
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except PermissionError:
        return "unreadable"


Spoiler = Callable[[Place], object]


def spoiler(function):
    """Let a function of a place and more be called with the rest alone, and give a spoiler, which takes the place."""

    @functools.wraps(function)
    def with_rest(*rest, **options):
        def spoil(place):
            return function(place, *rest, **options)

        return spoil

    return with_rest


@dataclass(frozen=True)
class Fault:
    """One row: `spoil` brings it about, then the command is run inside the place, and `after` must hold.

    A generator brings about many, one after the other, each of which must end in the same way.
    """

    name: str
    spoil: Spoiler
    command: tuple[str, ...]
    code: int
    after: Spoiler = lambda _place: None

    @property
    def is_error(self):
        return self.code not in (0, 1, 3)


def play(fault, place):
    """Play a row and check all that holds for every row; returns how each state that was brought about ended."""
    brought = fault.spoil(place)
    states = brought if isinstance(brought, Iterator) else [None]
    return [_play_state(fault, place) for _ in states]


def _play_state(fault, place):
    inputs, output, locks = place.inputs(), entry(place / "out"), place.locks()
    outcome = place.run(fault.command)
    assert outcome.code == fault.code, outcome
    assert "Traceback" not in outcome.out + outcome.err, outcome
    assert len(outcome.complaints) == (fault.is_error and outcome.code not in KILLED), outcome
    if fault.is_error:
        assert outcome.out == "", outcome
        # a run that is killed after the last rename has succeeded all the same
        assert entry(place / "out") in (output, entry(place / "expected") or output)
    assert place.inputs() == inputs
    if outcome.code not in KILLED:
        assert place.locks() <= locks
    assert not (place / "executed").exists()
    fault.after(place)
    return outcome


def entry(path):
    """What stands under a name: nothing, a link, a file or a folder with these contents."""
    if path.is_symlink():
        return path.readlink()
    if path.is_dir():
        return {str(file.relative_to(path)): digest(file) for file in path.rglob("*") if file.is_file()}
    return digest(path) if path.exists() else None


def files_of(folder):
    found = entry(folder)
    assert isinstance(found, dict), folder
    return found
