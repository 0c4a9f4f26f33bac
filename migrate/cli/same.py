"""What a command says that was asked to move a store to the model that it is of already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from migrate.cli.next_step import OLD, advise_switch
from migrate.cli.terminal import show, show_json

if TYPE_CHECKING:
    from migrate.cli.spending import Spending
    from migrate.embedders.base import Embedder
    from migrate.stores.base import Store


def stop_if_same(kind: str, store: Store, embedder: Embedder, *, paid: Spending | None = None, as_json: bool) -> None:
    """Say that there is nothing to migrate, and end with 0, where the manifest shows it.

    Once the costs are agreed to, `paid` is what is spent, and some texts that are embedded may show it too.
    """
    from migrate.check.again import is_embedded_by, is_recorded_of

    if not (is_recorded_of(store, embedder) if paid is None else is_embedded_by(store, embedder)):
        return
    if paid is not None:
        paid.finish()
    spec, location = embedder.quick_identity().spec, store.info.location
    sentence = f"{location} is of {spec} already: nothing to migrate"
    if as_json:
        same = {"store": location, "model": spec, "nothing_to_migrate": sentence}
        show_json({"schema_version": 1, "kind": kind, **same})
    else:
        show(sentence)
        advise_switch(OLD, None, location, quiet=False)
    raise click.exceptions.Exit
