"""The arguments and options of a command, made from the fields of its step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field
from functools import wraps
from typing import Any

import click

from migrate.cli.options import PATH, STITCH, STORE, Decorator, FiniteRange, option
from migrate.cli.spending import AGREED, SpendingOptions, usd
from migrate.steps.base import PaidStep, Step, fields_of

_KINDS: dict[str, Any] = {
    "store": STORE,
    "stitch": STITCH,
    "path": PATH,
    "text": str,
    "count": click.IntRange(min=1),
    "seed": click.IntRange(0, 2**32 - 1),
    "price": FiniteRange(0, 1_000_000, min_open=True),
    "usd": usd,
}
"""How the words of a command line are read, by the kinds that fields name."""


def step_options(step: type[Step[Any]]) -> Decorator:
    """Add the arguments and options of a step to a command, which gets the step as `asked`.

    A command of a step that may cost money gets `spending` too.
    """
    typed = [field for field in fields_of(step) if "kind" in field.metadata]

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_step(**arguments: Any) -> Any:
            values = {field.name: arguments.pop(field.name) for field in typed}
            if "yes" in arguments:
                arguments["spending"] = SpendingOptions(values["max_cost"], arguments.pop("yes"))
            return command(asked=step(**values), **arguments)

        wrapped: Callable[..., Any] = AGREED(with_step) if issubclass(step, PaidStep) else with_step
        for field in reversed(typed):
            wrapped = _parameter(field)(wrapped)
        return wrapped

    return add


def _parameter(field: Field[Any]) -> Decorator:
    settings = dict(field.metadata)
    kind, text, flags = (settings.pop(name, None) for name in ("kind", "help", "flags"))
    if settings.pop("is_argument", False):
        return click.argument(field.name, type=_KINDS[kind])
    choices = settings.pop("choices", None)
    if kind or choices:
        settings["type"] = click.Choice(choices) if choices else _KINDS[kind]
        settings |= {"required": True} if field.default is MISSING else {"default": field.default}
    else:
        settings["is_flag"] = True
    names = flags or (f"--{field.name.replace('_', '-')}",)
    return option(*names, field.name, help=text, **settings)
