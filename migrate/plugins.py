"""Extensions by entry points: kinds of stores, embedders and stitches, commands and engines."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import Any

from migrate.errors import UsageError


def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name, in the order of names.

    Raises UsageError: two packages use one name.
    """
    return _installed_in(tuple(sys.path), group)


# A command asks some times, and what hundreds of packages say of themselves takes 10 ms to read each time
@cache
def _installed_in(_folders: tuple[str, ...], group: str) -> Mapping[str, EntryPoint]:
    points: dict[str, EntryPoint] = {}
    # In one order on every machine: the kinds are asked one after the other whether a path is theirs.
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        if point.name in points:
            packages = " and ".join(sorted(map(_package, (points[point.name], point))))
            raise UsageError(f"several packages provide {point.name} ({packages}); uninstall all but one")
        points[point.name] = point
    return points


@cache
def missing_extra(point: EntryPoint) -> str | None:
    """Return `PACKAGE[EXTRA]` for an extra of an entry point, `module:name [EXTRA]`, that lacks a package."""
    for extra in point.extras:
        for requirement in (point.dist and point.dist.requires) or ():
            name, _, marker = requirement.partition(";")
            if re.search(f"extra == ['\"]{re.escape(extra)}['\"]", marker) and not _is_installed(name):
                return f"{_package(point)}[{extra}]"
    return None


def _is_installed(requirement: str) -> bool:
    try:
        distribution(re.split(r"[^\w.-]", requirement.strip())[0])
    except PackageNotFoundError:
        return False
    return True


def load_plugin(point: EntryPoint, expected: type) -> Any:
    """Return the object of an entry point: an instance of `expected`, or a subclass of it.

    Raises UsageError: its module cannot be imported, or the object is another.
    """
    advice = "update or uninstall it"
    try:
        plugin = point.load()
    except Exception as error:  # a foreign module may raise anything
        reason = (str(error).strip() or "no message").splitlines()[0]
        raise UsageError(
            f"{_package(point)}: cannot provide {point.name}, importing {point.value} failed with "
            f"{type(error).__name__}: {reason}; {advice}"
        ) from error
    # Not `issubclass`, which Python refuses for a protocol that has more than methods.
    if not (expected in plugin.__mro__ if isinstance(plugin, type) else isinstance(plugin, expected)):
        if isinstance(plugin, type):
            name = plugin.__name__
        else:
            name = type(plugin).__name__
        raise UsageError(
            f"{_package(point)}: {point.value} should be of type {expected.__name__} and is {name}; {advice}"
        )
    return plugin


def _package(point: EntryPoint) -> str:
    if point.dist is not None:
        return point.dist.name
    return point.value
