"""Results as values that JSON holds, and the head that every document has; `docs/schema.json` describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from pathlib import PurePath
from typing import Any

import numpy as np


def document(kind: str, content: Any, *, version: int = 1) -> dict[str, Any]:
    """Return the facts of a result, a dataclass or names with values, as one document."""
    return {"schema_version": version, "kind": kind, **as_plain(content)}


def as_plain(value: Any) -> Any:
    """Return the value, and all that it holds, as dictionaries, lists, texts and finite numbers.

    >>> as_plain({"upper": float("inf"), "span": (0.5, np.float32(1))})
    {'upper': None, 'span': [0.5, 1.0]}
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        # Python would write `NaN` and `Infinity`, which are no JSON, and which other programs refuse to read.
        if not isfinite(value):
            return None
        return value
    if isinstance(value, PurePath):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        shown = [field.name for field in fields(value) if field.metadata.get("in_documents", True)]
        return {name: as_plain(getattr(value, name)) for name in shown}
    # `json` knows no numbers of NumPy.
    if isinstance(value, np.ndarray | np.generic):
        return as_plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): as_plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_plain(item) for item in value]
    return value
