"""Findings without embedding a text: dimension, norms, and the manifest."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from migrate.check.model import Observation
from migrate.embedders import known_models
from migrate.embedders.kinds import split_spec
from migrate.errors import StoreError
from migrate.manifest import Manifest, ModelIdentity
from migrate.stores.base import Store
from migrate.stores.file_store import check_files, index_is_verified
from migrate.vectors import NormSummary, Vectors, check_vectors, squared_norms, summarize_norms

_WORDS = {
    "spec": "the model",
    "dim": "the dimension",
    "normalized": "unit length",
    "document_prefix": "the document prefix",
    "query_prefix": "the query prefix",
    "revision": "the revision",
}

_NAMED = 5
"""Models that are named at most of those that would fit."""

_NORMS = 256
"""Rows whose norms are looked at."""

_SAME_LENGTH = 0.01
"""How far from 1 the ratio of two lengths may be for both to be the same."""

_WITHOUT_NAME = ("file", "langchain", "")
"""Kinds of models whose specs do not say which model made the vectors: files, and objects of programs."""


def dimension_finding(store: Store, model: ModelIdentity) -> Observation:
    """Compare the dimensions."""
    store_dim = store.info.dim
    if store_dim == model.dim:
        return Observation("dimension", True, f"{store_dim:,}, as the model's")
    return Observation("dimension", False, f"the store has {store_dim:,} dimensions, the model gives {model.dim:,}")


def sampled_norms(store: Store, seed: int) -> NormSummary:
    """Return the norms of some random rows, all finite and not zero."""
    rows = np.sort(np.random.default_rng(seed).permutation(store.info.count)[:_NORMS])
    batch = store.get(rows)
    check_vectors(batch.ids, batch.vectors, source=store.info.location)
    return summarize_norms(batch.vectors)


def fitting_models(store: Store, model: ModelIdentity, seed: int) -> str:
    """Name known models but `model` of a store's dimension, and of its norms where the index keeps these."""
    norms = sampled_norms(store, seed)
    fits = [
        known_model
        for known_model in known_models()
        if known_model.dim == store.info.dim and known_model.spec != model.spec
    ]
    if store.info.exact:
        fits = [known_model for known_model in fits if known_model.normalized in (None, norms.is_unit)]
    names = [known_model.short_name for known_model in fits[:_NAMED]] or ["none"]
    if len(fits) > _NAMED:
        names.append("...")
    return f"known models that would fit: {', '.join(names)} (norms of {_norm_range(norms)})"


def norms_by_model(store: Store, model: ModelIdentity, seed: int) -> Observation:
    """Compare the norms of some random rows with those that are known of the model."""
    norms = sampled_norms(store, seed)
    if not store.info.exact:
        return _rough_norms(norms)
    expected = "not all 1"
    if model.normalized:
        expected = "1"
    fits = norms.is_unit == model.normalized
    return Observation("norms", fits, f"{_norm_range(norms)}; the model's are {expected}")


def norms_by_vectors(stored: Vectors, reembedded: Vectors, *, exact: bool) -> Observation:
    """Compare the lengths of vectors that point the same way, (n, dim) each."""
    old = summarize_norms(stored)
    new = summarize_norms(reembedded)
    if not exact:
        return _rough_norms(old)
    ratios = np.sqrt(squared_norms(stored).astype(np.float64) / squared_norms(reembedded))
    # Of most, as a text or two may have changed since
    if (np.abs(ratios - 1) < _SAME_LENGTH).mean() > 1 / 2:
        return Observation("norms", True, f"{_norm_range(old)}, as the model's")
    if old.is_unit:
        how = "normalised in the store, not by the model"
    elif new.is_unit:
        how = "not normalised in the store, but by the model"
    else:
        how = "scaled"
    return Observation("norms", False, f"{how}: {_norm_range(old)} in the store, {_norm_range(new)} by the model")


def _rough_norms(norms: NormSummary) -> Observation:
    return Observation("norms", True, f"{_norm_range(norms)}; not compared, as the index keeps them only roughly")


def _norm_range(norms: NormSummary) -> str:
    if norms.is_unit:
        return "1"
    return f"{norms.minimum:.3g} to {norms.maximum:.3g}"


def manifest_finding(manifest: Manifest, model: ModelIdentity) -> Observation:
    """Compare the manifest's model and prefixes with this one's; a revision counts where both sides know it."""
    recorded = manifest.model
    if recorded is None:
        return Observation("manifest", False, "names no model")
    # An API has no revision
    has_revisions = recorded.revision is not None and model.revision is not None
    differences = [
        difference
        for name, difference in model_differences(recorded, model).items()
        if name != "revision" or has_revisions
    ]
    if differences:
        return Observation("manifest", False, f"in the manifest {'; '.join(differences)}")
    return Observation(
        "manifest", True, f"names {recorded.spec}, made by {manifest.store.made_by or 'an unknown command'}"
    )


def are_comparable(recorded: ModelIdentity, model: ModelIdentity) -> bool:
    """Return whether names tell two models apart: a file of vectors, or an object of a program, may be any model's."""
    if recorded == model:
        return True
    kinds = {split_spec(identity.spec)[0] for identity in (recorded, model)}
    return kinds.isdisjoint(_WITHOUT_NAME)


def model_differences(recorded: ModelIdentity, model: ModelIdentity) -> dict[str, str]:
    """Return in words the fields of two identities that differ, of those that make two of them equal or not."""
    names = [field.name for field in fields(recorded) if field.compare]
    pairs = {name: (getattr(recorded, name), getattr(model, name)) for name in names}
    return {
        name: f"{_WORDS[name]} is {old!r}, for the model as named {new!r}"
        for name, (old, new) in pairs.items()
        if old != new
    }


def require_model(location: str, recorded: ModelIdentity, model: ModelIdentity) -> None:
    """Raise StoreError unless a model is the one of the store at `location`, with the same prefixes."""
    if differences := model_differences(recorded, model):
        raise StoreError(
            f"{location}: this is not the store's own model: in the manifest {'; '.join(differences.values())}; name "
            "that model, with the same prefixes"
        )


def check_revision(location: str, recorded: ModelIdentity, model: ModelIdentity) -> None:
    """Raise StoreError if the model of the store at `location` is no longer what its manifest says."""
    if recorded.revision is not None and recorded.revision != model.revision:
        raise StoreError(
            f"{location}: {recorded.spec} has changed since the store was made, from revision {recorded.revision[:12]} "
            f"to {str(model.revision)[:12]}; name the model as it was, or embed again"
        )


def unchanged_finding(store: Store) -> Observation | None:
    """Hold index and documents against the hashes in the manifest; None where it has no hash of the index."""
    try:
        names = check_files(store)
    except StoreError as error:
        return Observation("unchanged", False, str(error))
    if not index_is_verified(store):
        return None
    return Observation("unchanged", True, f"as in the manifest, by hash: {', '.join(names)}")
