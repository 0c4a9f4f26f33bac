"""The arguments and options of a command, made from the fields of its step."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from migrate.cli.options import Decorator, declared
from migrate.cli.spending import AGREED, Spending
from migrate.cli.terminal import show_progress
from migrate.steps.base import fields_of


def step_options(step: type[Any], *names: str, **settings: Any) -> Decorator:
    """Add the arguments and options of a step, or another dataclass, to a command, which gets it as `request`.

    Only those of the fields in `names` where there are any; `settings` are fields that the command sets itself. A
    command with a limit of what may be spent gets `paid` too.
    """
    typed = [field for field in fields_of(step) if "kind" in field.metadata and field.name not in settings]
    typed = [field for field in typed if not names or field.name in names]
    costs = any(field.name == "max_cost" for field in typed)
    if any(field.name == "progress" for field in fields_of(step)):
        settings = {"progress": show_progress, **settings}

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_step(**arguments: Any) -> Any:
            values = {field.name: arguments.pop(field.name) for field in typed}
            if costs:
                arguments["paid"] = Spending(values["max_cost"], is_agreed=arguments.pop("yes"))
            return command(request=step(**values, **settings), **arguments)

        wrapped: Callable[..., Any] = AGREED(with_step) if costs else with_step
        for field in reversed(typed):
            wrapped = declared(field.name, field.metadata, field.default)(wrapped)
        return wrapped

    return add
