"""`lead-migrate inspect`: what is in a store, or in a stitch."""

from __future__ import annotations

from typing import Any

from migrate.cli.next_step import STORE, advise_next, advise_store
from migrate.cli.progress import progress_bar
from migrate.cli.terminal import show, show_json
from migrate.inspect import Inspect
from migrate.report.characters import printable
from migrate.report.terminal import facts_text, table
from migrate.stores import open_store
from migrate.stores.base import NO_TEXTS


def command(request: Inspect, as_json: bool) -> None:
    """Show what STORE or STITCH contains."""
    store = str(request.store)
    with progress_bar():
        document = request.run()
    if as_json:
        show_json(document)
    elif "stores" in document:
        _show_several(document["stores"])
    elif "stitch" in document:
        _show_stitch(store, document)
    else:
        _show_store(store, document)


def _show_store(store: str, document: dict[str, Any]) -> None:
    content = {key: value for key, value in document.items() if key not in ("schema_version", "kind")}
    # The next step says it, with what helps
    content["notes"] = [note for note in document["notes"] if not note.startswith(NO_TEXTS)]
    rows = []
    for name, value in content.items():
        lines = value if isinstance(value, list) else [value]
        rows += [(name.replace("_", " "), _text(line)) for line in lines]
    show(facts_text(rows))
    advise_store(store, open_store(store))


def _show_several(stores: list[dict[str, Any]]) -> None:
    rows = [["-" if value is None else _text(value) for value in content.values()] for content in stores]
    show(table([["store", "format", "vectors", "dimension"], *rows], left=[1]))
    # One with vectors has more to show
    example = next((row for row in stores if row["vectors"]), stores[0])
    advise_next("inspect", example["store"])


def _show_stitch(folder: str, document: dict[str, Any]) -> None:
    from migrate.report.stitch import stitch_rows  # with all kinds of stitches, which no store needs

    show(facts_text(list(stitch_rows(document))))
    if document["maps"] == "documents":
        advise_next("translate", STORE, folder, "-o", "NEW")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return printable(str(value))
