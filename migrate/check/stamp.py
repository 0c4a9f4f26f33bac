"""Records beside a store which model it comes from, so that later checks need no embedding. Nothing else is changed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrate.check.check import SAMPLE_SIZE, check_store
from migrate.check.facts import dimension_finding
from migrate.check.found import read_finding
from migrate.check.model import Compatibility, Found
from migrate.embedders.base import Embedder
from migrate.errors import UsageError
from migrate.files import output_errors
from migrate.manifest import MADE_BY_STAMP, MANIFEST_NAME, Manifest, ModelIdentity, StoreFacts
from migrate.stores.base import Store
from migrate.stores.file_store import as_files, hash_written
from migrate.vectors import Progress, no_progress


@dataclass(frozen=True, slots=True)
class Stamp:
    """The manifest that was written, or None where the check refused; `checked` is None where it was left out.

    `found` is what an earlier check had found, where the stamp rests on that.
    """

    path: Path | str | None
    checked: Compatibility | None
    found: Found | None = None


def stamp_store(
    store: Store,
    embedder: Embedder,
    *,
    sample: int = SAMPLE_SIZE,
    trust: bool = False,
    force: bool = False,
    seed: int = 0,
    progress: Progress = no_progress,
) -> Stamp:
    """Write the manifest of a store that comes from a model, after checking that it does.

    Parameters
    ----------
    sample, seed, progress
        Of the check.
    trust
        Write it unchecked; the dimension must still fit.
    force
        Replace a manifest.

    Raises
    ------
    UsageError
        There is a manifest and `force` is not given.
    StoreError
        The store changed during the check; or as `check_store`.
    OutputError
        The folder cannot be written to.
    VectorError, RemoteError, InputError
        As `check_store`.
    """
    _refuse_stamped(store, force=force)
    before = store.snapshot()
    checked = None
    if not trust or not dimension_finding(store, embedder.identity).ok:
        checked = check_store(store, embedder, sample=sample, manifest="ignore", seed=seed, progress=progress)
        if not checked.compatible:
            return Stamp(None, checked)
    manifest = _manifest(store, embedder.identity, _checked(checked), seed)
    store.check_unchanged(before)
    return Stamp(store.keep_manifest(manifest), checked)


def stamp_as_found(store: Store, *, force: bool = False) -> Stamp:
    """Write the manifest of a store by what its last check has found; nothing is embedded, and no model is loaded.

    Raises
    ------
    UsageError
        There is a manifest and `force` is not given; or as `migrate.check.found.read_finding`.
    StoreError
        The store changed since, or while it was read.
    OutputError
        The folder cannot be written to.
    """
    _refuse_stamped(store, force=force)
    before = store.snapshot()
    found = read_finding(store)
    basis = {"basis": "sample", "sampled": found.sampled, "agreeing": found.agreeing}
    manifest = _manifest(store, found.model, basis, found.seed)
    store.check_unchanged(before)
    return Stamp(store.keep_manifest(manifest), None, found)


def _refuse_stamped(store: Store, *, force: bool) -> None:
    files = as_files(store)
    path = None if files is None else files.folder / MANIFEST_NAME
    if not force and (store.info.manifest is not None if path is None else os.path.lexists(path)):
        place = path or f"{store.info.location}: a manifest"
        raise UsageError(f"{place} exists: the store is stamped already; replace it with `force=True`")


def _manifest(store: Store, model: ModelIdentity, checked: Mapping[str, Any] | None, seed: int) -> Manifest:
    files = as_files(store)
    hashes: Mapping[str, Any] = {}
    if files is not None:
        with output_errors(files.folder):
            hashes = hash_written(files, files.folder)
    facts = StoreFacts(made_by=MADE_BY_STAMP, checked=checked)
    return Manifest(
        "store",
        model=model,
        seed=seed,
        counts={"documents": store.info.count},
        # that nothing was checked is noted too
        details={"checked": None, **facts.as_details(), **hashes},
    )


def _checked(checked: Compatibility | None) -> Mapping[str, Any] | None:
    """What the stamp is based on, None if nothing was checked."""
    if checked is None:
        return None
    figures = checked.figures
    counts = {} if figures is None else {"sampled": figures.sampled, "agreeing": figures.agreeing}
    return {"basis": checked.basis, **counts}
