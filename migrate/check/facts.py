"""What can be checked without embedding a text: dimension, norms, and the manifest."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from migrate.check.model import Finding
from migrate.embedders import known_models
from migrate.errors import StoreError
from migrate.manifest import Manifest, ModelIdentity
from migrate.stores.base import Store
from migrate.stores.file_store import index_is_verified, verify_files
from migrate.vectors import NormSummary, Vectors, check_vectors, squared_norms, summarize_norms

_NORM_ROWS = 256
_SAME_NORM = 0.01
_LISTED = 5
_WORDS = {
    "spec": "the model",
    "dim": "the dimension",
    "normalized": "unit length",
    "document_prefix": "the document prefix",
    "query_prefix": "the query prefix",
    "revision": "the revision",
}


def dimension_finding(store: Store, model: ModelIdentity) -> Finding:
    """Whether the dimensions are equal."""
    store_dim = store.info.dim
    if store_dim == model.dim:
        return Finding("dimension", True, f"{store_dim:,}, as the model's")
    return Finding("dimension", False, f"the store has {store_dim:,} dimensions, the model gives {model.dim:,}")


def fitting_models(store: Store, model: ModelIdentity, seed: int) -> str:
    """Known models but `model` of a store's dimension, and of its norms where the index keeps these."""
    norms = summarize_norms(_some_vectors(store, seed))
    fits = [facts for facts in known_models() if facts.dim == store.info.dim and facts.spec != model.spec]
    if store.info.exact:
        fits = [facts for facts in fits if facts.normalized == norms.is_unit]
    names = ", ".join(facts.short_name for facts in fits[:_LISTED]) + (", ..." if len(fits) > _LISTED else "")
    return f"known models that would fit: {names or 'none'} (norms of {_norm_range(norms)})"


def _some_vectors(store: Store, seed: int) -> Vectors:
    """Vectors of some random rows, all finite and not zero."""
    rows = np.sort(np.random.default_rng(seed).permutation(store.info.count)[:_NORM_ROWS])
    batch = store.get(rows)
    check_vectors(batch.ids, batch.vectors, source=store.info.location)
    return batch.vectors


def norms_by_model(store: Store, model: ModelIdentity, seed: int) -> Finding:
    """Whether some random rows have the norms that are known of the model."""
    norms = summarize_norms(_some_vectors(store, seed))
    if not store.info.exact:
        return Finding("norms", True, f"{_norm_range(norms)}; not compared, as the index keeps them only roughly")
    fits = norms.is_unit == model.normalized
    return Finding("norms", fits, f"{_norm_range(norms)}; the model's are {'1' if model.normalized else 'not all 1'}")


def keeps_order(store: Store, seed: int) -> bool:
    """Whether a query finds the same documents of a store in the same order, however long its vector is."""
    return store.info.metric == "ip" or summarize_norms(_some_vectors(store, seed)).is_unit


def norms_by_vectors(stored: Vectors, fresh: Vectors, *, exact: bool) -> Finding:
    """Whether vectors that point the same way, (n, dim) each, are equally long."""
    old, new = summarize_norms(stored), summarize_norms(fresh)
    if not exact:
        return Finding("norms", True, f"{_norm_range(old)}; not compared, as the index keeps them only roughly")
    ratios = np.sqrt(squared_norms(stored).astype(np.float64) / squared_norms(fresh))
    if (np.abs(ratios - 1) < _SAME_NORM).mean() > 1 / 2:
        return Finding("norms", True, f"{_norm_range(old)}, as the model's")
    if old.is_unit:
        how = "normalised in the store, not by the model"
    else:
        how = "not normalised in the store, but by the model" if new.is_unit else "scaled"
    return Finding("norms", False, f"{how}: {_norm_range(old)} in the store, {_norm_range(new)} by the model")


def _norm_range(norms: NormSummary) -> str:
    return "1" if norms.is_unit else f"{norms.minimum:.3g} to {norms.maximum:.3g}"


def manifest_finding(manifest: Manifest, model: ModelIdentity) -> Finding:
    """Whether the manifest names this model, with these prefixes; a revision counts where both sides know it."""
    recorded = manifest.model
    if recorded is None:
        return Finding("manifest", False, "names no model")
    known = recorded.revision is not None and model.revision is not None
    differences = [one for name, one in _differences(recorded, model).items() if name != "revision" or known]
    if differences:
        return Finding("manifest", False, f"in the manifest {'; '.join(differences)}")
    return Finding("manifest", True, f"names {recorded.spec}, made by {manifest.store.made_by or 'an unknown command'}")


def _differences(recorded: ModelIdentity, model: ModelIdentity) -> dict[str, str]:
    """What of two identities is not the same, in words."""
    pairs = {field.name: (getattr(recorded, field.name), getattr(model, field.name)) for field in fields(recorded)}
    return {
        name: f"{_WORDS[name]} is {one!r}, for the model as named {other!r}"
        for name, (one, other) in pairs.items()
        if one != other
    }


def require_model(location: str, recorded: ModelIdentity, model: ModelIdentity) -> None:
    """Make sure that a model is the one that the vectors of the store at `location` are of, with the same prefixes.

    Raises
    ------
    StoreError
        It is another, or differs in what is named.
    """
    if differences := _differences(recorded, model):
        raise StoreError(
            f"{location}: expected the store's own model, found another: in the manifest "
            f"{'; '.join(differences.values())}; name that model, with the same prefixes"
        )


def check_revision(location: str, recorded: ModelIdentity, model: ModelIdentity) -> None:
    """Make sure that the model of the store at `location` is still what it was, where its manifest tells."""
    if recorded.revision is not None and recorded.revision != model.revision:
        raise StoreError(
            f"{location}: expected {recorded.spec} at revision {recorded.revision[:12]}, "
            f"found {str(model.revision)[:12]}; the model has changed since the store was made"
        )


def unchanged_finding(store: Store) -> Finding | None:
    """Whether index and documents are the ones of the manifest; None where it holds no hash of the index."""
    try:
        names = verify_files(store)
    except StoreError as error:
        return Finding("unchanged", False, str(error))
    if not index_is_verified(store):
        return None
    return Finding("unchanged", True, f"as in the manifest, by SHA-256: {', '.join(names)}")
