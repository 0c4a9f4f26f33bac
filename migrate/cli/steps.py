"""The arguments and options of a command, made from the fields of its step."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from migrate.cli.options import Decorator, declared
from migrate.cli.spending import AGREED, SpendingOptions
from migrate.steps.base import PaidStep, fields_of


def step_options(step: type[Any]) -> Decorator:
    """Add the arguments and options of a step, or another dataclass, to a command, which gets it as `asked`.

    A command of a step that may cost money gets `spending` too.
    """
    typed = [field for field in fields_of(step) if "kind" in field.metadata]

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_step(**arguments: Any) -> Any:
            values = {field.name: arguments.pop(field.name) for field in typed}
            if issubclass(step, PaidStep):
                arguments["spending"] = SpendingOptions(values["max_cost"], arguments.pop("yes"))
            return command(asked=step(**values), **arguments)

        wrapped: Callable[..., Any] = AGREED(with_step) if issubclass(step, PaidStep) else with_step
        for field in reversed(typed):
            wrapped = declared(field.name, field.metadata, field.default)(wrapped)
        return wrapped

    return add
