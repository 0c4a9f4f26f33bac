"""The bridge: the source store as it is, asked with the target model's queries after a stitch that maps them back.

The arm of Drift-Adapter (EMNLP 2025). It says what answers are to be had today, before anything is translated.
"""

from __future__ import annotations

from migrate.errors import StitchError, UsageError
from migrate.manifest import ModelIdentity
from migrate.stitch.direction import QUERY, require_direction
from migrate.stitch.fitted import FittedStitch
from migrate.stores.base import Store


def bridged_store(bridge: FittedStitch, source: Store | None, model: ModelIdentity) -> Store:
    """The store that `bridge` leads to, after making sure that it leads there from `model`.

    Raises
    ------
    UsageError
        There is no source store.
    StitchError
        The stitch is one for documents, was fitted on another store, or takes the queries of another model.
    """
    if source is None:
        raise UsageError("expected the source store that the bridge leads to, found none; name it with --source STORE")
    path, known = source.info.path, bridge.manifest.model
    require_direction(bridge.manifest, QUERY, source=str(path))
    difference = source.fingerprint().difference(bridge.manifest.details["fingerprint"])
    if difference is not None:
        raise StitchError(
            f"{path}: the bridge was fitted on another store ({difference}); fit one on this store with "
            "--direction query"
        )
    if known is not None and not _may_be_one(known, model):
        raise StitchError(
            f"{path}: expected a bridge for queries of {_name(model)}, found one for those of {_name(known)}; fit one "
            "for the model that embeds the queries"
        )
    return source


def _may_be_one(one: ModelIdentity, other: ModelIdentity) -> bool:
    """Whether nothing speaks against it: vectors from files say nothing of their model."""
    if one.dim != other.dim:
        return False
    if any(model.spec.startswith("file:") for model in (one, other)):
        return True
    return one.spec == other.spec and (one.revision == other.revision or None in (one.revision, other.revision))


def _name(model: ModelIdentity) -> str:
    revision = f" at revision {model.revision[:12]}" if model.revision else ""
    return f"{model.spec} ({model.dim} dimensions{revision})"
