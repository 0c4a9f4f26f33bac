"""The control of a worker from outside: pause, another budget or pace, the end.

All of it is kept in the state of the store, which the worker reads between batches, so that it outlives both sides.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from migrate.cost import usd_of
from migrate.cost.estimate import dollars
from migrate.errors import LockedError, UsageError
from migrate.files import output_lock
from migrate.live.options import WorkerOptions
from migrate.live.paying import Pace, WorkerSpending, refuse_unpriced
from migrate.live.state import STOP, LiveState
from migrate.steps.translate.choice import Budget

_CONTROL: Final = "control"
_OBEYED: Final = "own control that is obeyed"
_TYPED: Final = "own options as they were typed"
_WORDS: Final = "own command as it was typed"


@dataclass(frozen=True, slots=True)
class Control:
    """A worker's orders: its budget and pace, None where `live run` alone says them, and the time of its pause."""

    budget: str | None = None
    pace: str | None = None
    paused_at: float | None = None

    @property
    def paused_since(self) -> str | None:
        """The time of the pause, as ISO 8601 has it; None where there is none."""
        if self.paused_at is None:
            return None
        return dt.datetime.fromtimestamp(self.paused_at, dt.UTC).isoformat(timespec="seconds")

    @property
    def limits(self) -> str:
        """The budget and the pace that were set, in words; empty where none was."""
        named = {"budget": self.budget, "pace": self.pace}
        return ", ".join(f"{name} {text}" for name, text in named.items() if text is not None)

    def budget_of(self, options: WorkerOptions) -> Budget | None:
        """Return the budget in force of a worker with these options."""
        text = options.budget if self.budget is None else self.budget
        return None if text is None else Budget.parse(text)

    def pace_of(self, options: WorkerOptions) -> Pace | None:
        """Return the pace in force of a worker with these options."""
        text = options.pace if self.pace is None else self.pace
        return None if text is None else Pace.parse(text)


def control_of(state: LiveState) -> Control:
    """Return what was last asked of the worker of a store."""
    return Control(**(state.value(_CONTROL) or {}))


def control_at_start(state: LiveState, options: WorkerOptions) -> Control:
    """Return what a worker that is started now obeys.

    A budget or pace that was set holds as long as the worker is started by the option that it took the place of; any
    other option is newer.
    """
    control, typed = control_of(state), state.value(_TYPED) or {}
    if typed.get("budget") != options.budget:
        control = replace(control, budget=None)
    if typed.get("pace") != options.pace:
        control = replace(control, pace=None)
    return control


def begin_control(state: LiveState, options: WorkerOptions, price: float | None) -> None:
    """Note that a worker starts, and what a million tokens of its model cost."""
    with state.transaction():
        _keep(state, control_at_start(state, options))
        state.note(_TYPED, {"budget": options.budget, "pace": options.pace, "price": price})


def note_command(state: LiveState, arguments: Sequence[str]) -> None:
    """Note the options of `live run` as they were typed, by which the worker is started again."""
    state.note(_WORDS, list(arguments))


def command_again(state: LiveState, count: int) -> list[str] | None:
    """Return the options by which the worker of a store with `count` documents is started again.

    They are those of the last one, without a budget that is used up; None where no command has started one.
    """
    arguments: list[str] | None = state.value(_WORDS)
    typed = state.value(_TYPED) or {}
    budget = control_of(state).budget or typed.get("budget")
    if arguments is None or budget is None or _used_up(state, Budget.parse(budget), count, typed.get("price")) is None:
        return arguments
    return [word for word in arguments if not word.startswith("--budget=") and word != "--once"]


def note_obeyed(state: LiveState, control: Control) -> None:
    """Note that the worker goes by this from now on."""
    state.note(_OBEYED, asdict(control))


def is_running(state: LiveState) -> bool:
    """Tell if a worker holds the lock of a store."""
    try:
        with output_lock(state.path.with_name("worker")):
            return False
    except LockedError:
        return True


def stop_worker(state: LiveState, *, seconds: float) -> bool:
    """Ask the worker to come to an end, and wait for it; return whether it did within so many seconds."""
    state.note(STOP, True)
    return _wait_for(lambda: not is_running(state), seconds)


def pause_worker(state: LiveState, *, seconds: float) -> bool:
    """Ask the worker to pause, and wait until it has; return whether it did within so many seconds.

    One that is started later waits too, until `resume_worker`.
    """
    with state.transaction():
        control = control_of(state)
        if control.paused_at is None:
            control = replace(control, paused_at=time.time())
            _keep(state, control)
    return _wait_for(lambda: state.value(_OBEYED) == asdict(control) or not is_running(state), seconds)


def resume_worker(state: LiveState) -> bool:
    """End a pause; return whether there was one."""
    with state.transaction():
        control = control_of(state)
        _keep(state, replace(control, paused_at=None))
    return control.paused_at is not None


def set_limits(state: LiveState, count: int, *, budget: str | None = None, pace: str | None = None) -> str | None:
    """Give the worker of a store with `count` documents another budget or pace.

    Return what is spent, where that uses the budget up already.

    Raises UsageError: a limit is not one, or the budget is in dollars and the price of the model is not known.
    """
    price = (state.value(_TYPED) or {}).get("price")
    limit = None if budget is None else Budget.parse(budget)
    if limit is not None:
        refuse_unpriced(limit, price)
    if pace is not None:
        Pace.parse(pace)
    with state.transaction():
        control = control_of(state)
        budget = control.budget if budget is None else budget
        _keep(state, replace(control, budget=budget, pace=control.pace if pace is None else pace))
    return None if limit is None else _used_up(state, limit, count, price)


def _used_up(state: LiveState, budget: Budget, count: int, price: float | None) -> str | None:
    """Return what the worker has spent, where that is all of a budget; None where something is left."""
    spending = WorkerSpending.kept_in(state)
    amount, described = float(spending.documents), f"{spending.documents:,} texts"
    if budget.unit == "usd":
        amount = usd_of(spending.tokens, price) or 0.0
        described = dollars(amount)
    elif budget.unit == "tokens":
        amount, described = spending.tokens, f"{spending.tokens:,} tokens"
    elif budget.unit == "share":
        amount /= count
    return described if amount >= budget.amount else None


def require_worker(state: LiveState, store: str) -> None:
    """Make sure that a worker runs, or has run and may be started again as it was; raises UsageError."""
    if not is_running(state) and state.value(_TYPED) is None:
        raise UsageError(
            f"{store}: no worker has run yet; give --budget and --pace to `lead-migrate live run` as you start it"
        )


def _keep(state: LiveState, control: Control) -> None:
    state.note(_CONTROL, asdict(control))


def _wait_for(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True
