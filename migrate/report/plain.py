"""Findings as values that JSON holds: a dataclass is an object, a number without limit is null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from typing import Any

import numpy as np


def as_plain(value: Any) -> Any:
    """The value, whatever stands in it, as dictionaries, lists, texts and finite numbers.

    >>> as_plain({"upper": float("inf"), "span": (0.5, np.float32(1))})
    {'upper': None, 'span': [0.5, 1.0]}
    """
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return as_plain(value.tolist())
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): as_plain(one) for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_plain(one) for one in value]
    return value
