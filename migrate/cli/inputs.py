"""Inputs of commands: files and folders as they were typed, and models with the options of the command."""

from __future__ import annotations

import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from migrate.cli.interruption import watch_model
from migrate.cli.options import SETTINGS
from migrate.datasets.download import BEIR_MD5
from migrate.embedders import load_embedder, recorded_options
from migrate.embedders.cache import CachedEmbedder
from migrate.embedders.kinds import split_settings
from migrate.errors import StoreError
from migrate.stores.registry import path_in

if TYPE_CHECKING:
    from migrate.cli.options import ModelOptions
    from migrate.embedders.base import Embedder
    from migrate.manifest import ModelIdentity


def local_paths(*locations: Path | str | None) -> list[Path]:
    """Return the files and folders among what is read, which no output may replace."""
    return [path for location in locations if location is not None and (path := path_in(location)) is not None]


_WITH_SCHEME = re.compile(r"[A-Za-z][\w+-]+:")


def refuse_missing(*locations: object | None, target: object | None = None) -> None:
    """Refuse files and folders to be read of which two or more are missing, all in one line.

    A single one is refused where it is opened. Locations with a scheme and names of BEIR sets are not looked at, and of
    targets only `file:PATH` is. Raises StoreError: several are missing.
    """
    names = [str(location) for location in locations if location is not None]
    if str(target).startswith("file:"):
        bare, _ = split_settings(str(target))
        names.append(bare.removeprefix("file:"))
    paths = [name for name in names if not _WITH_SCHEME.match(name) and name not in BEIR_MD5]
    missing = [path for path in dict.fromkeys(paths) if not (os.path.lexists(path) or local_paths(path))]
    if len(missing) > 1:
        raise StoreError(f"no such files or folders: {', '.join(missing)}; check the paths")


def load_model(
    model: ModelOptions,
    spec: str,
    *,
    recorded: ModelIdentity | None = None,
    state: Path | None = None,
    seed: int = 0,
    asks_again: bool = True,
) -> Embedder:
    """Return the embedder of a spec, with the options of a command, and what a manifest has `recorded` of it.

    A command that `asks_again` for the same texts pays for them once even without the cache: what it embeds is
    stored in a file until it ends.
    """
    settings = {name: value for name in SETTINGS if (value := getattr(model, name)) is not None}
    if recorded is not None:
        settings = {**recorded_options(recorded), **settings}
    cache = model.cache_file
    embedder = load_embedder(spec, base_url=model.base_url, **settings, state=state, cache=cache, seed=seed)
    watch_model(embedder)
    if not asks_again or cache is not None or not embedder.cacheable:
        return embedder
    temporary_cache = _file_aside()
    if temporary_cache is None:
        return embedder
    return CachedEmbedder(embedder, temporary_cache, keeps=False)


def _file_aside() -> Path | None:
    """Return a file that goes away with the command that is running, one for all its models; None outside of one."""
    context = click.get_current_context(silent=True)
    if context is None:
        return None
    key = f"{__name__}.aside"
    if key not in context.meta:
        # The folder ends with the command, also where that fails
        context.meta[key] = Path(context.with_resource(TemporaryDirectory(prefix="lead-migrate-")))
    folder: Path = context.meta[key]
    return folder / "embeddings.sqlite"
