"""The places of the stores of an audit, and how the next command names them and the target model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from migrate.embedders import special_options
from migrate.embedders.base import Embedder
from migrate.embedders.cache import cache_of
from migrate.embedders.kinds import with_settings
from migrate.files import free_path
from migrate.stores.base import Store
from migrate.stores.registry import path_in
from migrate.stores.switching import successor_of, why_no_switch


@dataclass(frozen=True, slots=True, kw_only=True)
class Locations:
    """The words by which commands name what an audit is of; None or empty for what is not there, or not known.

    `source`, `translated` and `stitch` are where these are, `full` is where a full re-embed can be written to, and
    `server` where a store like the source can lie beside it, where that is on a server and the new store in files.
    `target` are words that name the target model, `--target SPEC` and the options that belong to it, `model` those for
    a command that finds the model's name in the store. `old_model` is the spec of the source's model, where that embeds
    queries that are new to it. `report` is the JSON report, `audit_again` the command that audits the same again and
    keeps its report. `can_switch` says that the new store can trade names with the
    source, `can_serve` that `live` takes the target model: one whose vectors are worth keeping.
    """

    source: str | None = None
    translated: str = ""
    stitch: str | None = None
    full: str = ""
    target: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    old_model: str | None = None
    report: str | None = None
    audit_again: tuple[str, ...] = ()
    has_texts: bool = True
    can_switch: bool = False
    can_serve: bool = True
    server: str | None = None

    @property
    def old(self) -> str:
        """The store whose texts are embedded: the source, or the translated one where that is not known."""
        if self.source is None:
            return self.translated
        return self.source


def locations_of(
    translated: Store, source: Store | None, embedder: Embedder, source_embedder: Embedder | None = None
) -> Locations:
    """Return the places of two stores, as their locations were given, and the names of their models."""
    old_model = None
    # A file has no new queries
    if source_embedder is not None and source_embedder.profile.kind != "file":
        identity = source_embedder.identity
        old_model = with_settings(identity.spec, special_options(identity))
    of_translated = Locations(
        translated=translated.info.location,
        target=("--target", embedder.identity.spec),
        old_model=old_model,
        can_serve=embedder.cacheable or cache_of(embedder) is not None,
    )
    if source is None:
        return replace(of_translated, full=_full_beside(translated, translated), has_texts=translated.info.has_texts)
    server = None
    if not successor_of(translated, "new"):  # in files, as only what lies on a server says where its successor may
        server = successor_of(source, "new")
    return replace(
        of_translated,
        source=source.info.location,
        full=_full_beside(source, translated),
        has_texts=source.info.has_texts,
        can_switch=why_no_switch(source, translated) is None,
        server=server,
    )


def _full_beside(old: Store, translated: Store) -> str:
    """Return where a full re-embed can be written: beside the old store on its server, else beside the new files."""
    return successor_of(old, "full") or str(_free_sibling(translated))


def _free_sibling(store: Store) -> Path:
    name = path_in(store.info.location) or Path(store.info.name)
    return free_path(name.with_name(f"{name.stem}-full"))
