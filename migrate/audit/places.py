"""The places of the stores of an audit, and how the next command names them and the target model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from migrate.embedders.base import Embedder
from migrate.files import free_path
from migrate.stores.base import Store
from migrate.stores.registry import path_in
from migrate.stores.switching import why_no_switch


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The words by which commands name what an audit is of; None or empty for what is not there, or not known.

    Attributes
    ----------
    source, translated, stitch
        Where these are.
    full
        Where a full re-embed can be written to.
    target
        Words that name the target model, `--target SPEC` and the options that belong to it.
    model
        Those for a command that finds the model's name in the store.
    report
        Where the JSON report is kept.
    again
        Words of the command that audits the same again and keeps its report.
    has_texts
        Whether the store has texts.
    can_switch
        Whether the new store can trade names with the source.
    can_serve
        Whether `live` takes the target model: one whose vectors are worth keeping.
    server
        Where a store like the source can lie beside it, where that is on a server, and the new store is in files.
    """

    source: str | None = None
    translated: str = ""
    stitch: str | None = None
    full: str = ""
    target: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    report: str | None = None
    again: tuple[str, ...] = ()
    has_texts: bool = True
    can_switch: bool = False
    can_serve: bool = True
    server: str | None = None


def places_of(translated: Store, source: Store | None, embedder: Embedder) -> Places:
    """The places of two stores, as their locations were given, and the name of the target model."""
    old = translated if source is None else source
    beside = None if source is None or translated.successor("new") else source.successor("new")
    return Places(
        source=None if source is None else source.info.location,
        translated=translated.info.location,
        full=old.successor("full") or str(_beside(translated)),
        target=("--target", embedder.identity.spec),
        has_texts=old.info.has_texts,
        can_switch=source is not None and why_no_switch(source, translated) is None,
        can_serve=embedder.cacheable or embedder.is_cached,
        server=beside,
    )


def _beside(store: Store) -> Path:
    path = path_in(store.info.location)
    name = Path(store.info.name if path is None else path)
    return free_path(name.with_name(f"{name.stem}-full"))
