"""What CI shows of a finding: cases that passed, failed or stayed open, and a page of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from migrate.report.characters import printable

MARKS = {"passed": "✅", "failed": "❌", "open": "⚠️"}
"""What a person sees of a state at a glance."""


class State(StrEnum):
    """How a case ended. `OPEN` says that it could not be decided, which no build should take for a success."""

    PASSED = "passed"
    FAILED = "failed"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that was looked at, under a name that does not change from run to run."""

    name: str
    state: State
    message: str


@dataclass(frozen=True, slots=True)
class Suite:
    """Cases of one command, what else is worth keeping, and a summary in Markdown."""

    name: str
    title: str
    cases: Sequence[Case]
    markdown: str
    properties: Mapping[str, str] = field(default_factory=dict)


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    r"""A table, its first row the head; bars inside a cell are escaped.

    >>> print(markdown_table([["arm", "x"], ["a|b", "1"]]))
    | arm | x |
    |---|---:|
    | a\|b | 1 |
    """
    head, *body = rows
    lines = [head, *body]
    texts = ["| " + " | ".join(printable(cell).replace("|", "\\|") for cell in row) + " |" for row in lines]
    return "\n".join([texts[0], "|---|" + "---:|" * (len(head) - 1), *texts[1:]])
