"""Records beside a store which model it comes from, so that later checks need no embedding. Nothing else is changed.

The findings of a check are kept in the user's cache folder until a stamp takes them. They are bound to the place and
the content of the store: of another store, or of one that has changed since, none is told.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from migrate.check.check import SAMPLE_SIZE, check_store
from migrate.check.facts import dimension_finding
from migrate.check.model import Compatibility, Found
from migrate.embedders.base import Embedder
from migrate.errors import OutputError, StoreError, UsageError
from migrate.files import atomic_file, cache_folder, describe_os_error, output_errors, write_json
from migrate.manifest import MADE_BY_STAMP, MANIFEST_NAME, Manifest, ModelIdentity, StoreFacts
from migrate.reading import MalformedError, expect, read_table, typed
from migrate.stores.base import Store, no_place
from migrate.stores.file_store import as_files, hash_written
from migrate.stores.registry import absolute_location
from migrate.vectors import Progress, no_progress


@dataclass(frozen=True, slots=True)
class Stamped:
    """The manifest that was written, or None where the check refused; `checked` is None where it was left out.

    `found` is the finding of an earlier check, where the stamp rests on that.
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
) -> Stamped:
    """Write the manifest of a store that comes from a model, after checking that it does."""
    refuse_stamped(store, force=force)
    snapshot = store.snapshot()
    checked = None
    basis: dict[str, Any] | None = None
    if not trust or not dimension_finding(store, embedder.identity).ok:
        checked = check_store(store, embedder, sample=sample, manifest="ignore", seed=seed, progress=progress)
        if not checked.compatible:
            return Stamped(None, checked)
        basis = {"basis": checked.basis}
        if checked.figures is not None:
            basis |= {"sampled": checked.figures.sampled, "agreeing": checked.figures.agreeing}
    manifest = _manifest(store, embedder.identity, basis, seed)
    # A store that was written to meanwhile is another one than was checked
    store.check_unchanged(snapshot)
    return Stamped(_keep(store, manifest, force=force), checked)


def stamp_as_found(store: Store, *, force: bool = False) -> Stamped:
    """Write the manifest of a store by the findings of its last check; nothing is embedded, and no model is loaded."""
    refuse_stamped(store, force=force)
    snapshot = store.snapshot()
    finding = read_finding(store)
    basis = {"basis": "sample", "sampled": finding.sampled, "agreeing": finding.agreeing}
    manifest = _manifest(store, finding.model, basis, finding.seed)
    store.check_unchanged(snapshot)
    return Stamped(_keep(store, manifest, force=force), None, finding)


def _keep(store: Store, manifest: Manifest, *, force: bool) -> Path | str:
    """Write the manifest of a store, the same one again without `force` too; return where it is."""
    earlier = store.info.manifest
    if earlier is not None and not force:
        # The date is the only thing that two stamps of one store differ in
        manifest = replace(manifest, created=earlier.created)
        if manifest != earlier:
            raise _is_stamped(store)
    if store.companions is None:
        raise no_place(store.info.location)
    return store.companions.keep(manifest)


def takes_stamp(store: Store) -> bool:
    """Return whether there is a place for the manifest of a store; a collection of a server may have none."""
    return store.companions is not None and store.companions.has_place()


def manifest_place(store: Store) -> Path | str:
    """Return the file that a stamp writes, or what to call it where it lies in a database."""
    files = as_files(store)
    if files is None:
        return f"{store.info.location}: a manifest"
    return files.folder / MANIFEST_NAME


def refuse_stamped(store: Store, *, force: bool) -> None:
    """Make sure that a store has no manifest but one of a stamp, which may be the same again; raises UsageError."""
    location = manifest_place(store)
    earlier = store.info.manifest
    if force or (earlier is not None and earlier.store.made_by == MADE_BY_STAMP):
        return
    is_there = earlier is not None
    if isinstance(location, Path):
        # A link to nowhere is there too, and a file that is no manifest
        is_there = os.path.lexists(location)
    if is_there:
        raise _is_stamped(store)


def _is_stamped(store: Store) -> UsageError:
    return UsageError(f"{manifest_place(store)} exists: the store is stamped already; replace it with `force=True`")


def _manifest(store: Store, model: ModelIdentity, checked: Mapping[str, Any] | None, seed: int) -> Manifest:
    files = as_files(store)
    hashes: Mapping[str, Any] = {}
    if files is not None and files.added_column is None:
        folder = files.index_path.parent
        with output_errors(folder):
            hashes = hash_written(files, folder)
    store_facts = StoreFacts(made_by=MADE_BY_STAMP, checked=checked)
    # That nothing was checked is noted too
    details = {"checked": None, **store_facts.as_details(), **hashes}
    return Manifest("store", model=model, seed=seed, counts={"documents": store.info.count}, details=details)


def leave_finding(store: Store, finding: Found | None) -> None:
    """Keep the finding of a check in the place of that of an earlier one; None forgets that alone.

    Raises OutputError if the cache folder cannot be written to.
    """
    path = _finding_path(store)
    with output_errors(path):
        if finding is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path, force=True) as unfinished:
        write_json(unfinished, {"found": asdict(finding), "store": store.snapshot().as_json()})


def read_finding(store: Store) -> Found:
    """Return what the last check of a store has found; raises UsageError, OutputError or StoreError."""
    path = _finding_path(store)
    location = store.info.location
    try:
        finding = expect(read_table(path), {"found": dict[str, Any], "store": dict[str, Any]})
        model_found = typed(Found, finding["found"])
    except (FileNotFoundError, MalformedError) as error:
        raise UsageError(
            f"{location}: no check has found its model; run `lead-migrate check {location} --model SPEC` first"
        ) from error
    except OSError as error:
        raise OutputError(f"cannot read {path}: {describe_os_error(error)}; check the permissions") from error
    # JSON turns tuples into lists, so both sides go through it
    if finding["store"] != json.loads(json.dumps(store.snapshot().as_json())):
        raise StoreError(f"{location}: the store changed after the check that found {model_found.spec}; check it again")
    return model_found


def _finding_path(store: Store) -> Path:
    location = absolute_location(store.info.location)
    # A location may be longer than a file's name can be, and has slashes in it
    return cache_folder() / "checks" / f"{hashlib.sha256(location.encode()).hexdigest()[:32]}.json"
