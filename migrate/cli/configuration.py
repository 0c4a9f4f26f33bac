"""Options that need not be typed: those of the nearest lead-migrate.toml or pyproject.toml, and of the environment.

Click reads the environment itself; here stands what it would pass over in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from migrate.cli.options import PREFIX, STITCH, STORE, variable_of
from migrate.cli.project.settings import (
    FILE,
    KEYS,
    NOT_FOR,
    PLACES,
    UNSET_IN,
    MigrationSettings,
    judged_from,
    place_from,
    queries_from,
    spec_from,
)
from migrate.errors import OutputError, UsageError
from migrate.files import BEIR_URL, WORK_FOLDER, describe_os_error
from migrate.reading import MalformedError, parse_toml, read_small
from migrate.removed import removed_command, removed_option

NAME = "pyproject.toml"
_TOOL = "lead-migrate"


def find_configuration(folder: Path) -> Path | None:
    """Return the lead-migrate.toml, or the pyproject.toml with a table `[tool.lead-migrate]`, in `folder` or above it.

    Raises UsageError: the nearest folder has both.
    """
    for parent in (folder, *folder.parents):
        own = parent / FILE
        shared = parent / NAME
        # The nearest one with our table: in a monorepo a package has a pyproject.toml of its own
        has_table = shared.is_file() and _table(shared) is not None
        if own.is_file() and has_table:
            raise UsageError(f"{own}: {shared} has a table [tool.{_TOOL}] too; keep one of the two")
        if own.is_file():
            return own
        if has_table:
            return shared
    return None


def read_migration(path: Path) -> MigrationSettings:
    """Return what a file says of a migration, its paths as seen from the current folder."""
    return MigrationSettings.of(_table(path) or {}, path)


def read_defaults(path: Path, commands: Mapping[str, click.Command]) -> dict[str, Any]:
    """Return the `default_map` of click: the defaults by command, and those of a command in a group by group.

    Options of the table go to every command that has them, those of a table COMMAND in it to one. A list goes
    to the commands where the option can be repeated, if there are any. Each command has the places of the migration
    under its own names.
    """
    table = _table(path)
    if table is None:
        raise click.UsageError(f"{path}: there is no table [tool.{_TOOL}]; name another file")
    by_command = {name: value for name, value in table.items() if isinstance(value, dict)}
    shared = {name: value for name, value in table.items() if not isinstance(value, dict)}
    allowed = {name: _options(command) for name, command in commands.items()}
    for name in by_command:
        if (sentence := removed_command(name)) is not None:
            raise click.UsageError(f"{path}: {sentence}")
    _refuse_unknown(path, by_command, set(allowed), "command")
    _refuse_unknown_options(path, shared, {*PLACES}.union(*allowed.values()))
    for name, values in by_command.items():
        _refuse_unknown_options(path, values, set(allowed[name]), name)
    places = MigrationSettings.of(table, path).arguments()
    repeated = {flag for options in allowed.values() for flag, option in options.items() if option.multiple}
    # A list means nothing to a command that takes the option once, and would be refused there
    lists = {flag for flag, value in shared.items() if isinstance(value, list) and flag in repeated}
    default_map: dict[str, Any] = {}
    for name, options in allowed.items():
        if name in UNSET_IN:
            continue
        *groups, command = name.split()
        defaults = default_map
        for group in groups:
            defaults = defaults.setdefault(group, {})
        taken = {flag for flag, option in options.items() if option.multiple or flag not in lists} - {*PLACES}
        left_out = {flag for flag, others in NOT_FOR.items() if name in others}
        # The table of a command comes last, and so before what all commands share
        values = {flag: value for flag, value in shared.items() if flag in taken - left_out} | by_command.get(name, {})
        typed = {str(options[flag].name): _value(path, options[flag], flag, value) for flag, value in values.items()}
        defaults[command] = places.get(name, {}) | typed
    return default_map


def unknown_variables(environment: Iterable[str], commands: Iterable[click.Command]) -> list[str]:
    """A sentence for each variable of ours that nothing reads."""
    allowed = {f"{PREFIX}_CONFIG", f"{PREFIX}_DEBUG", BEIR_URL, WORK_FOLDER}
    for command in commands:
        allowed |= {variable_of(option) for option in _options(command).values()}
    strange = sorted(name for name in environment if name.startswith(f"{PREFIX}_") and name not in allowed)
    return [f"warning: unknown environment variable {name}{_meant(name, allowed)}" for name in strange]


def _meant(name: str, allowed: Iterable[str]) -> str:
    """Return what took the place of the option of a variable, or else the variable that may be meant."""
    removed = removed_option("--" + name.removeprefix(f"{PREFIX}_").lower().replace("_", "-"))
    if removed is not None:
        return f": {removed}"
    return _nearest(name, allowed, f"{PREFIX}_")


def _nearest(name: str, allowed: Iterable[str], prefix: str = "") -> str:
    """A question for the name that may be meant; a prefix that all of them have makes none of them likelier."""
    candidates = sorted(value.removeprefix(prefix) for value in allowed)
    close = get_close_matches(name.removeprefix(prefix), candidates, n=1)
    if not close:
        return ""
    return f"; did you mean {prefix}{close[0]}?"


def _table(path: Path) -> dict[str, Any] | None:
    try:
        content = parse_toml(read_small(path))
    except MalformedError as error:
        raise click.UsageError(f"{path}: this is not TOML ({error}); correct it") from error
    except OSError as error:
        raise OutputError(f"cannot read {path}: {describe_os_error(error)}; check the permissions") from error
    if path.name != NAME and "tool" not in content:
        return content
    tools = content.get("tool")
    if not isinstance(tools, dict):
        return None
    table = tools.get(_TOOL)
    if not isinstance(table, dict):
        return None
    return table


def _options(command: click.Command) -> dict[str, click.Option]:
    """The options, each by its names as they are typed."""
    options = [option for option in command.params if isinstance(option, click.Option)]
    flags = ((flag, option) for option in options for flag in option.opts)
    named = {flag.lstrip("-"): option for flag, option in flags if flag.startswith("--")}
    # A setting of models has its name in a file even where a command has another option that is called so
    return named | {str(option.name).replace("_", "-"): option for option in options if option.hidden}


def _value(path: Path, option: click.Option, flag: str, value: Any) -> Any:
    """The value as it would be typed, so that click judges it alike; a list where an option can be repeated."""
    values = [value]
    if isinstance(value, list) and option.multiple:
        values = value
    if not all(isinstance(value, str | int | float) for value in values):
        raise click.UsageError(f"{path}: {value!r} of {flag} is not text, a number, true or false; correct it")
    if option.is_flag and isinstance(value, bool):
        return value
    typed = [_from_folder(path.parent, option, str(value)) for value in values]
    if option.multiple:
        return typed
    return typed[0]


def _from_folder(folder: Path, option: click.Option, value: str) -> str:
    """Return a value that is a path in the folder of the file as seen from the current folder; any other as it is."""
    if option.type in (STORE, STITCH) or isinstance(option.type, click.Path):
        return place_from(folder, value) or value
    if option.name in ("target", "source_model", "model", "view"):
        return spec_from(folder, value) or value
    if option.name == "judged":
        return judged_from(folder, value) or value
    if option.name == "queries":
        return queries_from(folder, value) or value
    if option.name == "cache" and value != "none":
        return place_from(folder, value) or value
    return value


def _refuse_unknown_options(path: Path, values: Iterable[str], allowed: set[str], command: str = "") -> None:
    """Refuse options that a command has not, or that none has; of one that is gone, say what took its place."""
    for name in sorted(set(values) - allowed):
        if (sentence := removed_option(f"--{name}", command)) is not None:
            raise click.UsageError(f"{path}: {sentence}")
    _refuse_unknown(path, values, allowed, f"option of {command}" if command else "option")


def _refuse_unknown(path: Path, names: Iterable[str], allowed: set[str], noun: str) -> None:
    strange = sorted(set(names) - allowed)
    if not strange:
        return
    where = ""
    if path.name == NAME:
        where = f" in [tool.{_TOOL}]"
    known = f"The keys of a migration are {', '.join(KEYS)}; any other option goes by its name"
    if noun != "option":
        known = f"There are {', '.join(sorted(allowed))}"
    near = _nearest(strange[0], allowed) or "."
    raise click.UsageError(f"{path}: unknown {noun} {strange[0]!r}{where}{near} {known}")
