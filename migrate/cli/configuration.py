"""Options from `[tool.lead-migrate]` of the nearest pyproject.toml: what a team agreed on need not be typed."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

NAME = "pyproject.toml"
_TOOL = "lead-migrate"


def find_configuration(folder: Path) -> Path | None:
    """The first pyproject.toml with a table `[tool.lead-migrate]`, in `folder` or above it."""
    for place in (folder, *folder.parents):
        path = place / NAME
        if path.is_file() and _table(path) is not None:
            return path
    return None


def read_defaults(path: Path, commands: Mapping[str, click.Command]) -> dict[str, dict[str, Any]]:
    """Defaults by command, as click takes them.

    Options of the table go to every command that has them, those of `[tool.lead-migrate.COMMAND]` to one.

    Raises
    ------
    UsageError
        The file is no TOML, or names a command or an option that there is not.
    """
    table = _table(path)
    if table is None:
        raise click.UsageError(f"{path}: expected a table [tool.{_TOOL}], found none; name another file")
    own = {name: value for name, value in table.items() if isinstance(value, dict)}
    shared = {name: value for name, value in table.items() if not isinstance(value, dict)}
    known = {name: _options(command) for name, command in commands.items()}
    _check(path, set(own), set(known), "command")
    _check(path, set(shared), set().union(*known.values()), "option")
    for name, options in own.items():
        _check(path, set(options), set(known[name]), f"option of {name}")
    return {
        name: {options[flag]: value for flag, value in {**shared, **own.get(name, {})}.items() if flag in options}
        for name, options in known.items()
    }


def _table(path: Path) -> dict[str, Any] | None:
    try:
        facts = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: expected TOML, found something else ({error})") from error
    found = facts.get("tool", {}).get(_TOOL)
    return found if isinstance(found, dict) else None


def _options(command: click.Command) -> dict[str, str]:
    """From the name of each option, as it is typed, to the parameter it fills."""
    flags = ((flag, option) for option in command.params if isinstance(option, click.Option) for flag in option.opts)
    return {flag.lstrip("-"): str(option.name) for flag, option in flags if flag.startswith("--")}


def _check(path: Path, found: set[str], known: set[str], what: str) -> None:
    strange = sorted(found - known)
    if strange:
        raise click.UsageError(f"{path}: expected the name of a known {what} in [tool.{_TOOL}], found {strange[0]!r}")
