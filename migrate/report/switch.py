"""A switch of two stores, and its way back, as text and JSON."""

from __future__ import annotations

import shlex
from typing import Any

from migrate.audit.recommendation import serving_lines
from migrate.facts import document
from migrate.steps.switch.job import Dropped, Switched


def switched_text(done: Switched, old: str) -> str:
    """Say what answers now, by which model, where the old store is, and the ways back and on.

    `old` is the name as it was typed.
    """
    already = ""
    if done.already:
        already = ", as an earlier switch began"
    lines = [
        f"{done.old}: the new store answers here now{already}",
        _queries(done.model, done.old_model),
        f"the old store is kept: {done.aside}",
        _proof(done),
    ]
    if done.two_stage is not None:
        lines += [f"  {line}" for line in serving_lines(old, done.two_stage)]
    steps = {"roll back": "rollback", "delete the old store": "forget"}
    lines += [f"to {step}: {shlex.join(['lead-migrate', command, old])}" for step, command in steps.items()]
    return "\n".join(lines)


def _proof(done: Switched) -> str:
    if not done.proven:
        return "unproven: nothing says that the new store is SAFE"
    if done.two_stage is None and done.all_true:
        return "SAFE by construction: every vector of the new store is its model's own"
    if done.two_stage is None:
        return f"SAFE, as the report says of these two stores{_by_margin(done)}"
    return (
        f"SAFE in two stages alone, as the report says{_by_margin(done)}: the first {done.two_stage} must be ranked "
        "again by true vectors, so let `migrate.live` serve it:"
    )


def _by_margin(done: Switched) -> str:
    """Say what share of retention the report asks for; empty where it does not say."""
    if done.margin is None:
        return ""
    return f" by a margin of {100 * done.margin:g} %"


def rolled_back_text(done: Switched) -> str:
    """Say what answers again."""
    return "\n".join(
        [
            f"{done.old}: the old store answers here again",
            f"the new store is where it was: {done.new}",
            _queries(done.old_model, done.model),
        ]
    )


def what_is_forgotten(planned: Switched | Dropped) -> str:
    """Say what a `forget` deletes."""
    if isinstance(planned, Dropped):
        return f"the field {planned.field}"
    return f"{planned.aside}, the store that answered as {planned.old} before"


def forgotten_text(done: Switched | Dropped) -> str:
    """Say what is gone."""
    if isinstance(done, Dropped):
        return f"{done.field}: the field is deleted; the others stay"
    return f"{done.old}: the old store is deleted; the new one stays, and cannot be rolled back any more"


def switch_document(kind: str, done: Switched | Dropped) -> dict[str, Any]:
    """Return the same for programs."""
    return document(kind, done)


def _queries(model: str | None, earlier: str | None) -> str:
    # Whoever switches has programs that embed queries: to forget these is the one way to break search
    if model is None:
        return "queries must be embedded with the model of this store, which it does not name"
    instead = ""
    if earlier not in (None, model):
        instead = f" instead of {earlier}"
    return f"queries must be embedded with {model}{instead} from now on"
