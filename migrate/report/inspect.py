"""The facts of a store or a stitch, as values that JSON holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from migrate.errors import LeadMigrateError, StoreError, UsageError
from migrate.facts import document
from migrate.locations import place_of
from migrate.manifest import artefact_kind
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.file_store import as_files, check_files
from migrate.stores.registry import names_kind, path_in, stores_in
from migrate.vectors import UNIT_TOLERANCE, squared_norms


def inspect_document(location: Store | str | Path) -> dict[str, Any]:
    """Tell what is in a store; of a place with several, which those are; or what a stitch maps and reads.

    Raises
    ------
    LeadMigrateError
        As `open_store`, or `load_stitch`.
    """
    if isinstance(location, Store):
        return document("inspect", _store_content(location))
    return document("inspect", _facts_at(str(location)))


def _facts_at(location: str) -> dict[str, Any]:
    path = path_in(location)
    path_or_url: Path | str = path or place_of(location)
    is_url = isinstance(path_or_url, str) and not names_kind(location)
    if is_url or (path is not None and artefact_kind(path) == "stitch"):
        from migrate.report.stitch import stitch_document  # with all kinds of stitches, which no store needs
        from migrate.stitch.persistence import load_stitch

        return stitch_document(str(path_or_url), load_stitch(path_or_url))
    # A folder of several databases or tables is no store, but may be what somebody wants to look into
    try:
        opened = open_store(location)
    except (StoreError, UsageError):
        names_one = path is not None and path != Path(location) and "#" in location
        if path is None or names_one:
            raise
        several = _stores_in(path)
        if not several:
            raise
        return {"stores": several}
    return _store_content(opened)


def _stores_in(path: Path) -> list[dict[str, Any]]:
    """Return the stores at a path that is not one; none where a file cannot be read, which is then to be told."""
    stores = []
    for location in stores_in(path):
        # A folder that cannot be opened is listed all the same: whoever looks here wants to see that it is there
        store_facts: dict[str, Any] = {"store": location, "format": "not read", "vectors": None, "dimension": None}
        try:
            info = open_store(location).info
            store_facts |= {"format": info.kind, "vectors": info.count, "dimension": info.dim}
        except LeadMigrateError:
            if not Path(location).is_dir():
                return []
        stores.append(store_facts)
    return stores


def _store_content(store: Store) -> dict[str, Any]:
    info = store.info
    model = "unknown (no manifest)"
    if info.manifest is not None and info.manifest.model is not None:
        model = info.manifest.model.spec
    read_back = "approximate"
    if info.exact:
        read_back = "exact"
    return {
        "store": info.location,
        "format": info.kind,
        "index_type": info.index_type,
        "vectors": info.count,
        "dimension": info.dim,
        "metric": {"l2": "squared Euclidean distance (l2)", "ip": "inner product (ip)"}[info.metric],
        "read_back": read_back,
        **_norms(store),
        "checksum": _checksum(store),
        "texts": info.has_texts,
        "model": model,
        **info.details,
        "notes": list(info.notes),
    }


def _checksum(store: Store) -> str:
    """Name the files that are those of the manifest, and those of which it knows nothing."""
    files = as_files(store)
    if files is None:
        return "none to compare with"
    names = check_files(files)
    missing = [name for name in (files.index_path.name, *files.document_files) if name not in names]
    if not names:
        return "none to compare with"
    as_recorded = f"as in the manifest: {', '.join(names)}"
    if not missing:
        return as_recorded
    return f"{as_recorded}; none of {', '.join(missing)}"


def _norms(store: Store) -> dict[str, Any]:
    """Return the norms over all rows, and how many rows are zero or not finite."""
    least = np.inf
    greatest = 0.0
    n_bad = 0
    for batch in store.scan():
        # Whoever inspects a store wants to know of bad vectors, where other commands refuse the first
        with np.errstate(over="ignore", invalid="ignore"):
            squares = squared_norms(batch.vectors)
        good = squares[np.isfinite(squares) & (squares > 0)]
        n_bad += len(squares) - len(good)
        if len(good):
            least = min(least, float(good.min()))
            greatest = max(greatest, float(good.max()))
    content: dict[str, Any] = {"bad_vectors": n_bad}
    if greatest:
        low = float(np.sqrt(least))
        high = float(np.sqrt(greatest))
        norms = f"{low:.4g} to {high:.4g}"
        if abs(low - 1) < UNIT_TOLERANCE and abs(high - 1) < UNIT_TOLERANCE:
            norms = "unit"
        content = {"norms": norms, **content}
    return content
