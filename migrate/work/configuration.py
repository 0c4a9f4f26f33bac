"""What an output is made from, as a journal remembers it: only a run of the same configuration may continue it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from migrate import __version__
from migrate.errors import StoreError, UsageError
from migrate.files import canonical_json
from migrate.work.journal import VERSION

_ANEW: Final = "to discard the unfinished work and begin anew, add --restart"


@dataclass(frozen=True, slots=True)
class Configuration:
    """What is read (`source`) and how it is worked on (`options`); both of what JSON can hold."""

    command: str
    source: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As it stands in a journal."""
        facts = {
            "command": self.command,
            "source": self.source,
            "options": {**self.options, "tool": __version__, "journal": VERSION},
        }
        read_back: dict[str, Any] = json.loads(canonical_json(facts))
        return read_back

    def check(self, found: Mapping[str, Any], output: Path) -> None:
        """Make sure that a journal is of the same configuration.

        Raises
        ------
        StoreError
            The source is another, or has changed since.
        UsageError
            The command or its options are others.
        """
        expected = self.as_json()
        if found["command"] != expected["command"]:
            raise UsageError(
                f"{output}: expected unfinished work of {expected['command']}, found some of {found['command']}; "
                f"{_ANEW}"
            )
        if found["source"] != expected["source"]:
            raise StoreError(
                f"{output}: expected the source that the unfinished work was begun with, found another or a changed "
                f"one; {_ANEW}"
            )
        names = sorted(found["options"].keys() | expected["options"].keys())
        others = [name for name in names if found["options"].get(name) != expected["options"].get(name)]
        if others:
            raise UsageError(
                f"{output}: expected the options that the unfinished work was begun with, found other values of "
                f"{', '.join(others)}; {_ANEW}"
            )


def source_changed(what: str) -> StoreError:
    """The error of a source that is not what the unfinished work was begun with, to be raised."""
    return StoreError(f"{what}: changed since the unfinished work was begun; {_ANEW}")
