"""Stores and models as a step was given them, opened: by a path or a spec, or as they are.

Python may give what it has opened where a command names it. That is settled here, but for the target of a translation
(`migrate.steps.translate.stitch`), the stores of `sync`, and a `QuerySet` (`migrate.audit.judged`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from migrate.check.facts import check_revision
from migrate.datasets.records import read_query_log
from migrate.embedders import is_spec_of, load_embedder, load_known
from migrate.embedders.base import Embedder
from migrate.embedders.kinds import runs_code, split_spec
from migrate.errors import UsageError
from migrate.stitch.fitted import FittedStitch
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.vectors import Query


def store_of(store: Store | str | Path, *, verify: bool = False) -> Store:
    """Return a store, opened where it is a path."""
    if isinstance(store, Store):
        return store
    return open_store(store, verify=verify)


def model_at(model: Embedder | str, state: Path | None = None) -> Embedder:
    """Return a model, loaded where it is a spec, with the state that lies in a folder."""
    if isinstance(model, str):
        return load_embedder(model, state=state)
    return model


def stitch_at(stitch: FittedStitch | Path | str) -> FittedStitch:
    """Return a stitch, loaded where it is the folder or the URL that it was saved to."""
    if isinstance(stitch, FittedStitch):
        return stitch
    return load_stitch(stitch)


def log_of(queries: Path | str | Sequence[Query] | None) -> Sequence[Query]:
    """Return the queries of a log, the most frequent first, read where it is a file; none where there is no log."""
    if isinstance(queries, str | Path):
        return read_query_log(Path(queries))
    return queries or ()


def model_of(store: Store, model: Embedder | str | None, option: str) -> Embedder:
    """Return the model that was given, or the one in the store's manifest as it was used then."""
    recorded = store.info.recorded_model
    if model is None and recorded is None:
        raise UsageError(
            f"{store.info.location}: the store does not say which model it was built with; name it with {option}="
        )
    if isinstance(model, Embedder):
        embedder = model
    else:
        embedder = load_known(model, recorded, state=store.folder)
        # One SPEC names another model after its weights were published anew
        if recorded is not None and is_spec_of(model, recorded):
            check_revision(store.info.location, recorded, embedder.identity)
    # A model of another dimension cannot be that of the vectors; better said here than by a product of matrices
    embedder.expect_dim(store.info.dim, store.info.location)
    return embedder


def source_model_of(store: Store, named: Embedder | str | None) -> Embedder | None:
    """Return the model of a store: the one that was named, or its own if that is at hand."""
    if isinstance(named, Embedder):
        return named
    if named is None:
        recorded = store.info.recorded_model
        # A manifest comes with a store, which may be anybody's, and must not run code
        if recorded is None or runs_code(recorded.spec):
            return None
        kind, name = split_spec(recorded.spec)
        # Vectors in a file stay where the store was made; without the model the fit only lacks a help
        if kind == "file" and not Path(name).is_file():
            return None
    return model_of(store, named, "source_model")
