"""What the spending commands share: how dollars are given, and which texts are paid for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from migrate.cli.options import ModelOptions

if TYPE_CHECKING:
    from migrate.cost.count import Known
    from migrate.cost.target import Target


class _Dollars(click.ParamType):
    """US dollars above 0, with or without the sign."""

    name = "usd"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            amount = float(str(value).strip().removeprefix("$").replace(",", ""))
        except ValueError:
            amount = math.nan
        if not (amount >= 0 and math.isfinite(amount)):
            self.fail(f"expected dollars such as $50, found {value!r}", param, ctx)
        return amount


USD = _Dollars()


def cached_texts(model: ModelOptions, target: Target) -> Known | None:
    """What tells which documents are in the embedding cache; None where asking would load a model, or there is none."""
    from migrate.embedders.cache import CachedEmbedder

    path = model.cache_file
    if not target.is_api or path is None or not path.is_file():
        return None
    embedder = model.load(target.spec)
    if not isinstance(embedder, CachedEmbedder):
        return None
    return lambda texts: embedder.known(texts, "document")
