"""Places at which tests let a process die, as `kill -9` would. Does nothing unless the environment asks for it.

LEAD_MIGRATE_FAILPOINT=name:n ends the process with exit code 137 when it comes to the point `name` for the n-th time.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Final

VARIABLE: Final = "LEAD_MIGRATE_FAILPOINT"
POINTS: Final = ("begun", "synced", "torn", "recorded", "filled", "complete", "aside", "published")
"""In the order in which a run comes to them; `aside` only where an older output is replaced."""

_visits: Counter[str] = Counter()


def reach(name: str) -> None:
    """Die here if the environment says so."""
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        return
    _visits[name] += 1
    if wanted == f"{name}:{_visits[name]}":
        os._exit(137)
