"""The keys by which a file names a migration, and the arguments of commands that they stand for.

Reading the file and judging its values is the work of `migrate.cli.configuration`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from migrate.cli.terminal import advise
from migrate.errors import LeadMigrateError, UsageError
from migrate.locations import hide_secrets

CONFIGURATION: Final = "migrate.configuration"
"""Under this name click's context has the path of the file that options were read from, where there is one."""

FILE: Final = "lead-migrate.toml"
"""The file of a migration; `[tool.lead-migrate]` of a pyproject.toml holds the same."""

PLACES: Final = ("store", "output", "stitch", "new-store")
"""Keys of places, which each command has under a name of its own."""

KEYS: Final = ("store", "target", "source-model", "judged", "queries", "plan", "margin", *PLACES[1:])
"""The keys of a migration, in the order in which they are written."""

NOT_FOR: Final[Mapping[str, frozenset[str]]] = {
    # With judged queries, `check` embeds where the manifest would answer, and `assess` embeds a pool for each target
    "judged": frozenset({"assess", "check"}),
    "queries": frozenset({"assess"}),
}
"""Commands that an option of all commands does not reach, as it would make something else of them."""

UNSET_IN: Final = frozenset({"init", "status"})
"""Commands that take nothing from the file: one writes it, and the other reads it whole."""

_EITHER: Final = (
    ("judged", "queries"),
    ("into", "output"),
    ("as_found", "model"),
    ("to_dimensions", "stitch"),
    ("to_dimensions", "target"),
)
"""Parameters of which a command takes one: where it is typed, that of the file is not meant."""

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+._-]*:)(.*)", re.DOTALL)
_LOCAL_MODELS: Final = ("file:", "sentence-transformers:")


@dataclass(frozen=True, slots=True)
class MigrationSettings:
    """Settings of a migration: paths as seen from the current folder, None where a key is left out.

    `folder` is that of the file.
    """

    folder: Path
    store: str | None = None
    target: str | None = None
    source_model: str | None = None
    judged: str | None = None
    queries: str | None = None
    plan: str | None = None
    margin: float | None = None
    output: str | None = None
    stitch_place: str | None = None
    new_place: str | None = None

    @classmethod
    def of(cls, table: Mapping[str, Any], path: Path) -> MigrationSettings:
        """Return the migration of a table of settings; a UsageError names file and key of a value of another type."""
        folder = path.parent
        values = {key: table[key] for key in KEYS if key in table}
        for key, value in values.items():
            # A number that is text is read as one that was typed; `assess` takes a list of targets
            may_be_other = key == "margin" or (key == "target" and isinstance(value, list))
            if not may_be_other and (not isinstance(value, str) or not value):
                raise UsageError(f"{path}: {key} is {value!r}, and has to be text; correct it, or leave the key out")
        margin = values.get("margin")
        texts = {key: value for key, value in values.items() if isinstance(value, str)}
        return cls(
            folder=folder,
            store=place_from(folder, texts.get("store")),
            target=spec_from(folder, texts.get("target")),
            source_model=spec_from(folder, texts.get("source-model")),
            judged=judged_from(folder, texts.get("judged")),
            queries=queries_from(folder, texts.get("queries")),
            plan=texts.get("plan"),
            # Of another type it is refused by the commands that take it
            margin=float(margin) if isinstance(margin, int | float) else None,
            output=place_from(folder, texts.get("output")),
            stitch_place=place_from(folder, texts.get("stitch")),
            new_place=place_from(folder, texts.get("new-store")),
        )

    @property
    def stitch(self) -> str | None:
        """The stitch that `fit` writes and `translate` reads; by default the one in the folder of `run`."""
        return self.stitch_place or self._inside("stitch")

    @property
    def new(self) -> str | None:
        """The new store: by default what `run` or `reembed` leaves, a full re-embed where there is one."""
        if self.new_place is not None:
            return self.new_place
        # Every vector in it is a true one, so it goes before the translation that may lie beside it
        if self.full is not None and Path(self.full).is_dir():
            return self.full
        return self._inside("store")

    @property
    def full(self) -> str | None:
        """The place of a full re-embed, where `run` and `reembed` leave one."""
        return self._inside("full")

    @property
    def report(self) -> str | None:
        """The JSON report of the audit."""
        return self._inside("report.json")

    def _inside(self, name: str) -> str | None:
        if self.output is None:
            return None
        return str(Path(self.output) / name)

    def model_of_store(self) -> str | None:
        """Return the model that `store` is of: after a switch the target."""
        if self._is_switched():
            return self.target
        return self.source_model

    def served(self) -> str | None:
        """Return the name under which the new store is: after a switch that of the old one."""
        if self._is_switched():
            return self.store
        return self.new

    def proof(self) -> str | None:
        """Return the report that `switch` asks for; None for true vectors, which it would be held against."""
        from migrate.stores import open_store
        from migrate.stores.all_true import is_all_true

        if self.new is None or self.report is None or not Path(self.report).is_file():
            return None
        # What cannot be opened is told by the command
        with suppress(LeadMigrateError):
            if is_all_true(open_store(self.new)):
                return None
        return self.report

    def _is_switched(self) -> bool:
        from migrate.stores.registry import absolute_location, find_exchange

        if self.store is None:
            return False
        # What cannot be asked is told by the command that opens it
        with suppress(LeadMigrateError):
            exchange = find_exchange(absolute_location(self.store))
            return exchange is not None and exchange.record() is not None
        return False

    def arguments(self) -> dict[str, dict[str, Any]]:
        """Return the arguments and options that the places are, by command and by the name of the parameter.

        A function stands for what is found out when its command runs.
        """
        report = self.report
        reports = [report] if report is not None else None
        old_store = {"store": self.store}
        # Asked only by the command that takes it: a server is asked for it
        old_and_model = {**old_store, "model": self.model_of_store}
        served = {"store": self.served}
        new_store = {"store": self.new}
        by_command: dict[str, dict[str, Any]] = {
            "inspect": old_store,
            "assess": old_store,
            "stamp": old_and_model,
            "check": old_and_model,
            "run": {**old_store, "output": self.output},
            "fit": {**old_store, "output": self.stitch},
            "translate": {**old_store, "stitch": self.stitch, "output": self.new},
            "reembed": {**old_store, "output": self.full},
            "audit": {**new_store, "source": self.store, "report": reports},
            "sync": {"old": self.store, "new": self.new},
            "switch": {"old": self.store, "new": self.new, "audit": self.proof},
            # `forget` is left out: what deletes a store names it
            "rollback": {"old": self.store},
            **{f"live {name}": served for name in ("run", "status", "stop", "pause", "resume")},
        }
        return {
            command: {name: value for name, value in values.items() if value is not None}
            for command, values in by_command.items()
        }


def place_from(folder: Path, location: str | None) -> str | None:
    """Return a location that is relative to a folder as seen from the current one: a path, or one behind a kind."""
    if location is None:
        return None
    # Whatever is printed of it has no password; who connects still knows it
    location = hide_secrets(location)
    scheme = _SCHEME.fullmatch(location)
    if scheme is not None and not (folder / location).exists():
        if "://" in scheme[2].partition("#")[0] or scheme[2].startswith("//"):
            return location
        return scheme[1] + _path_from(folder, scheme[2])
    return _path_from(folder, location)


def spec_from(folder: Path, spec: str | None) -> str | None:
    """Return a model whose name is a path relative to a folder as seen from the current one."""
    if spec is None:
        return None
    for kind in _LOCAL_MODELS:
        name = spec.removeprefix(kind)
        # The name of a model on a hub has a slash too
        if name != spec and (kind == "file:" or (folder / name.partition(",")[0]).exists()):
            return kind + _path_from(folder, name)
    return spec


def judged_from(folder: Path, name: str | None) -> str | None:
    """Return judged queries, a folder or the name of a BEIR set, perhaps with a split."""
    if name is None:
        return None
    if (folder / name).exists() or ((folder / name.rpartition(":")[0]).is_dir() and ":" in name):
        return _path_from(folder, name)
    return name


def queries_from(folder: Path, name: str | None) -> str | None:
    """Return queries without judgements, a file or the word `synthetic`."""
    if name is None or name == "synthetic":
        return name
    return _path_from(folder, name)


def _path_from(folder: Path, path: str) -> str:
    if os.path.isabs(path):  # noqa: PTH117 - a Path would lose a slash that is part of what follows
        return path
    way = os.path.relpath(folder)
    if way == os.curdir:
        return path
    return f"{way}/{path}"


def prefer_typed(context: click.Context) -> None:
    """Let a parameter that was typed take the place of another from the file, where a command takes one of the two."""
    for pair in _EITHER:
        for typed, other in (pair, pair[::-1]):
            sources = [context.get_parameter_source(name) for name in (typed, other)]
            if sources == [ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP]:
                _leave_out(context, other)
    if _is_other_store(context, "new") and context.get_parameter_source("audit") is ParameterSource.DEFAULT_MAP:
        # The file's report is about the file's new store, and would be held against any other
        _leave_out(context, "audit")


def _leave_out(context: click.Context, name: str) -> None:
    context.params[name] = None
    context.set_parameter_source(name, ParameterSource.DEFAULT)


def _is_other_store(context: click.Context, name: str) -> bool:
    """Return whether a store was typed, and is another one than the file has for that parameter."""
    from migrate.stores.registry import absolute_location

    if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
        return False
    of_file = context.lookup_default(name)
    return of_file is None or absolute_location(str(context.params[name])) != absolute_location(str(of_file))


def note_origin(context: click.Context) -> None:
    """Say which arguments and options are from the file, in one line."""
    names = [
        max(param.opts, key=len).lstrip("-").lower()
        for param in context.command.params
        # A function of `arguments` may find that there is nothing
        if context.params.get(str(param.name)) is not None
        and context.get_parameter_source(str(param.name)) is ParameterSource.DEFAULT_MAP
    ]
    if names:
        path = os.path.relpath(context.meta[CONFIGURATION])
        advise(f"from {path}: {', '.join(names)}")
