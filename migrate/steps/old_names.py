"""Old names of parameters, which are taken for one version more, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
Result = TypeVar("Result")


def new_names_of(step: type[Any]) -> Mapping[str, str]:
    """Return the names of a dataclass's fields by the old names that their metadata has."""
    return {old: it.name for it in fields(step) for old in it.metadata.get("old_names", ())}


def with_new_names(function: str, arguments: Mapping[str, Any], new_names: Mapping[str, str]) -> dict[str, Any]:
    """Return the keyword arguments of a function by their names of today; each old name is a DeprecationWarning.

    A name that has another meaning today is an old one only beside the old name of what it means today.

    Raises TypeError: an argument is given by two names.
    """
    renamed: dict[str, Any] = {}
    for name, value in arguments.items():
        has_new_meaning = name in new_names.values() and not any(new_names.get(other) == name for other in arguments)
        new = name if has_new_meaning else new_names.get(name, name)
        if new in renamed:
            raise TypeError(f"{function}() was given {new!r} by two names; leave the old one out")
        if new != name:
            warnings.warn(
                f"{function}({name}=...) is {function}({new}=...) now; the next version takes the new name alone",
                DeprecationWarning,
                stacklevel=3,
            )
        renamed[new] = value
    return renamed


def takes_old_names(name: str, new_names: Mapping[str, str]) -> Callable[[Callable[P, Result]], Callable[P, Result]]:
    """Let a function, or a class of this name by its `__init__`, take arguments by their old names too."""

    def decorate(function: Callable[P, Result]) -> Callable[P, Result]:
        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Result:
            return function(*arguments, **with_new_names(name, options, new_names))

        return call

    return decorate
