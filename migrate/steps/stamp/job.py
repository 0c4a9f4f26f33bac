"""The work of a stamp: the store and the model are opened, compared and recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrate.check.check import sample_size
from migrate.check.stamp import Stamped, stamp_as_found, stamp_store
from migrate.steps.opening import model_at, store_of
from migrate.vectors import Progress

if TYPE_CHECKING:
    from migrate.steps.base import ModelLike, StoreLike


def stamp_named(
    store: StoreLike,
    model: ModelLike | None,
    *,
    sample: int | str | None,
    trust: bool,
    force: bool,
    seed: int,
    progress: Progress,
) -> Stamped:
    """Open what is named, check the store and write its manifest; without a model, by what the last check has found."""
    opened = store_of(store)
    if model is None:
        return stamp_as_found(opened, force=force)
    return stamp_store(
        opened,
        model_at(model, opened.folder),
        sample=sample_size(sample, opened),
        trust=trust,
        force=force,
        seed=seed,
        progress=progress,
    )
