"""The further models that a stitch reads texts with, where they are paid for: loaded as asked, and metered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from migrate.cli.spending import Asked, Spending

if TYPE_CHECKING:
    from migrate.cli.options import ModelOptions
    from migrate.documents import Document
    from migrate.embedders.base import Embedder
    from migrate.stitch.fitted import FittedStitch


def metered_views(fitted: FittedStitch, paid: Spending, model: ModelOptions) -> FittedStitch:
    """The stitch, with meters in the views that cost money; those go by the command's cache and server too."""
    if fitted.reader is None:
        return fitted
    models = {spec: _metered(spec, view, paid, model) for spec, view in fitted.reader.models.items()}
    return replace(fitted, reader=replace(fitted.reader, models=models))


def _metered(spec: str, view: Embedder, paid: Spending, model: ModelOptions) -> Embedder:
    from migrate.cli.spending import is_paid

    if not is_paid(view):
        return view
    if spec not in paid.views:
        paid.views[spec] = paid.also(model.for_source().load(spec), "view")
    return paid.views[spec]


def asked_of_views(
    fitted: FittedStitch, paid: Spending, texts: Callable[[], Iterable[Document]], *, has_texts: bool
) -> list[Asked]:
    """What the metered views of a stitch will be asked for: the texts, unless the stitch reads none."""
    if not (has_texts and fitted.reads_texts and fitted.reader is not None):
        return []
    return [Asked(paid.views[spec], texts) for spec in fitted.reader.models if spec in paid.views]
