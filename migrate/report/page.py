"""Templates as HTML: pages, each one file without outside parts, and pieces for notebooks.

Findings as values that JSON holds: a dataclass is an object, a number without limit is null.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from migrate.report.characters import for_markup

if TYPE_CHECKING:
    from jinja2 import Environment


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
        return {str(name): as_plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_plain(item) for item in value]
    return value


_SHORT = re.compile(r"[^a-z0-9]+")


def render_page(template: str, **context: Any) -> str:
    """A page that needs no network: a template that extends `base.html`, with its values."""
    script = _environment().get_template("page.js").render()
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return render(template, headings=[], script=script, script_hash=digest, **context)


def render(template: str, **context: Any) -> str:
    """A template of `migrate/report/templates` with its values; texts are escaped."""
    return for_markup(_environment().get_template(template).render(**context))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("migrate.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"anchor": anchor, "formatted": format}
    return environment


def anchor(heading: str) -> str:
    """What a link to a section names.

    >>> anchor("Where it hurts")
    'where-it-hurts'
    """
    return _SHORT.sub("-", heading.lower()).strip("-")
