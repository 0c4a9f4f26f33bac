"""Holds what the child process says of an index against the header that was read without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from migrate.errors import StoreError
from migrate.stores import fourcc
from migrate.stores.cursor import malformed
from migrate.stores.faiss_layout import Header
from migrate.stores.faiss_recipe import factory

_TYPES: Final[dict[str, type]] = {
    "chain": str,
    "dim": int,
    "count": int,
    "metric": int,
    "exact": bool,
    "remarks": list,
    "recipe": dict,
    "labels": bool,
}


def check_facts(path: Path, content: bytes, header: Header) -> dict[str, Any]:
    """The facts in a frame.

    Raises
    ------
    StoreError
        They are not what facts are like, or contradict the header.
    """
    facts = _parsed(path, content)
    found = (facts["dim"], facts["count"], facts["metric"])
    expected = (header.dim, header.count, fourcc.METRIC_NUMBERS[header.metric])
    if found != expected:
        raise malformed(path, f"dimension, count and metric {expected}", found)
    return facts


def _parsed(path: Path, content: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(content)
        typed = all(type(facts[name]) is kind for name, kind in _TYPES.items())
        factory(facts["recipe"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: expected facts from FAISS, found others ({error}); the file is damaged") from error
    if not typed:
        raise StoreError(f"{path}: expected facts from FAISS, found others; the file is damaged")
    return dict(facts)
