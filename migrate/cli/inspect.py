"""`lead-migrate inspect`: what is in a store, or in a stitch."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import click

from migrate.cli import options
from migrate.cli.next_step import STORE, advise_next, advise_store
from migrate.cli.terminal import show, show_json
from migrate.errors import LeadMigrateError, StoreError, UsageError
from migrate.report.characters import printable

if TYPE_CHECKING:
    from migrate.stores.base import Store


@options.command("inspect", "What is in a store or a stitch.", example="lead-migrate inspect my-store/")
@click.argument("store", type=options.STORE, metavar="STORE|STITCH")
@options.as_json
def command(store: str, as_json: bool) -> None:
    """Tell what is in STORE: format, index, vectors, metric, norms, texts, model, and anything odd.

    Of a folder with several stores, or a database with several tables or collections, list them.
    Of STITCH, a folder or a URL that `fit` wrote to: what it maps and reads, how it was judged, the singular values and
    bias of each layer, and the loss curve of a network.
    """
    from migrate.locations import place_of
    from migrate.manifest import artefact_kind
    from migrate.report.terminal import WIDTH
    from migrate.stores import open_store
    from migrate.stores.base import NO_TEXTS
    from migrate.stores.registry import names_kind, path_in

    path = path_in(store)
    place = place_of(store) if path is None else path
    is_url = isinstance(place, str) and not names_kind(store)
    if is_url or (path is not None and artefact_kind(path) == "stitch"):
        _show_stitch(place, as_json=as_json)
        return
    try:
        opened = open_store(store)
    except (StoreError, UsageError):
        is_one = path is None or (path != Path(store) and "#" in store)
        several = [] if path is None or is_one else _stores_in(path)
        if not several:
            raise
        _show_several(several, as_json=as_json)
        return
    facts = _facts(opened)
    if as_json:
        show_json({"schema_version": 1, "kind": "inspect", **facts})
        return
    facts["notes"] = [note for note in facts["notes"] if not note.startswith(NO_TEXTS)]
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        for line in value if isinstance(value, list) else [value]:
            row, indent = f"{name.replace('_', ' '):{width}}  {_text(line)}", " " * (width + 2)
            show(fill(row, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))
    advise_store(store, opened, quiet=False)


def _stores_in(path: Path) -> list[dict[str, Any]]:
    """What is at a path that is not one store; nothing where a file cannot be read, which is then to be told."""
    from migrate.stores import open_store
    from migrate.stores.registry import stores_in

    found = []
    for location in stores_in(path):
        facts: dict[str, Any] = {"store": location, "format": "not read", "vectors": None, "dimension": None}
        try:
            info = open_store(location).info
            facts |= {"format": info.kind, "vectors": info.count, "dimension": info.dim}
        except LeadMigrateError:
            if not Path(location).is_dir():
                return []
        found.append(facts)
    return found


def _show_several(stores: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        show_json({"schema_version": 1, "kind": "inspect", "stores": stores})
        return
    rows: list[tuple[str, ...]] = [("store", "format", "vectors", "dimension")]
    rows += [tuple("-" if value is None else _text(value) for value in facts.values()) for facts in stores]
    store, kind, count, dim = (max(map(len, column)) for column in zip(*rows, strict=True))
    for row in rows:
        show(f"{row[0]:{store}}  {row[1]:{kind}}  {row[2]:>{count}}  {row[3]:>{dim}}")
    advise_next("inspect", next((one for one in stores if one["vectors"]), stores[0])["store"], quiet=False)


def _show_stitch(folder: Path | str, *, as_json: bool) -> None:
    from migrate.report.stitch import stitch_document, stitch_rows
    from migrate.stitch.persistence import load_stitch

    document = stitch_document(str(folder), load_stitch(folder))
    if as_json:
        show_json({"schema_version": 1, "kind": "inspect", **document})
        return
    rows = list(stitch_rows(document))
    width = max(len(name) for name, _ in rows)
    for name, line in rows:
        show(f"{name:{width}}  {printable(line)}")
    if document["maps"] == "documents":
        advise_next("translate", STORE, str(folder), "-o", "NEW", quiet=False)


def _facts(store: Store) -> dict[str, Any]:
    info = store.info
    model = info.manifest.model if info.manifest else None
    first_tokens = info.manifest.store.first_tokens if info.manifest else None
    return {
        "store": info.location,
        "format": info.kind,
        "index_type": info.index_type,
        "vectors": info.count,
        "dimension": info.dim,
        "metric": {"l2": "squared Euclidean distance (l2)", "ip": "inner product (ip)"}[info.metric],
        "read_back": "exact" if info.exact else "approximate",
        **_norms(store),
        "checksum": _checksum(store),
        "texts": info.has_texts,
        "model": model.spec if model else "unknown (no manifest)",
        **({"first_tokens": first_tokens} if first_tokens else {}),
        **info.details,
        "notes": list(info.notes),
    }


def _checksum(store: Store) -> str:
    """Which files are those of the manifest, and of which it knows nothing."""
    from migrate.stores.file_store import as_files

    files = as_files(store)
    if files is None:
        return "none to compare with"
    names = files.verify()
    missing = [name for name in (files.index_path.name, *files.document_files) if name not in names]
    if not names:
        return "none to compare with"
    return f"as in the manifest: {', '.join(names)}" + (f"; none of {', '.join(missing)}" if missing else "")


def _norms(store: Store) -> dict[str, Any]:
    """Norms over all rows, and how many rows are zero or not finite."""
    import numpy as np

    from migrate.vectors import UNIT_TOLERANCE, squared_norms

    least, greatest, bad = np.inf, 0.0, 0
    for batch in store.scan():
        with np.errstate(over="ignore", invalid="ignore"):
            squares = squared_norms(batch.vectors)
        good = squares[np.isfinite(squares) & (squares > 0)]
        bad += len(squares) - len(good)
        if len(good):
            least, greatest = min(least, float(good.min())), max(greatest, float(good.max()))
    facts: dict[str, Any] = {"bad_vectors": bad}
    if greatest:
        low, high = float(np.sqrt(least)), float(np.sqrt(greatest))
        unit = abs(low - 1) < UNIT_TOLERANCE and abs(high - 1) < UNIT_TOLERANCE
        facts = {"norms": "unit" if unit else f"{low:.4g} to {high:.4g}", **facts}
    return facts


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))
