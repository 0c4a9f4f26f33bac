"""What `audit` opens besides the translated store: the source, the bridge, the reference."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.cli.terminal import advise
from migrate.cli.verdict import load_model_of

if TYPE_CHECKING:
    from migrate.cli.options import ModelOptions
    from migrate.documents import Document
    from migrate.embedders.base import Embedder
    from migrate.stitch.fitted import FittedStitch
    from migrate.stores.base import Store
    from migrate.vectors import Progress

BUILD = "build"


def open_source(
    source: Path | None, source_model: str | None, model: ModelOptions, *, needed: bool, quiet: bool
) -> tuple[Store | None, Embedder | None]:
    """The source store and its model, or why there is no arm `stay`; what else needs the store needs no model."""
    from migrate.stores import open_store

    if source is None:
        advise("no --source: the audit cannot say whether staying would be better", quiet=quiet)
        return None, None
    opened = open_store(source, verify=True)
    known = opened.info.manifest
    if needed and source_model is None and (known is None or known.model is None):
        advise("no --source-model: the audit cannot say whether staying would be better", quiet=quiet)
        return opened, None
    return opened, load_model_of(opened, source_model, "--source-model", model.for_source())


def open_bridge(path: Path, source: Store | None, embedder: Embedder) -> FittedStitch:
    """The stitch of the arm `bridge`, refused before anything is embedded if it cannot be used."""
    from migrate.audit.bridge import bridged_store
    from migrate.stitch.loading import load_stitch

    fitted = load_stitch(path)
    bridged_store(fitted, source, embedder.identity)
    return fitted


def built_already(
    reference: str, keep: Path | None, translated: Store, embedder: Embedder, *, force: bool, restart: bool
) -> bool:
    """Whether an earlier run has built the reference in the folder `keep`, and broke off in the audit."""
    from migrate.embed import is_reembedded

    anew = reference != BUILD or force or restart
    return keep is not None and not anew and is_reembedded(translated, embedder, keep)


def texts_to_build(
    reference: str, keep: Path | None, translated: Store, *, is_kept: bool, restart: bool
) -> Callable[[], Iterable[Document]]:
    """What starts reading the documents that are embedded for the reference: all, or those that prove it."""
    from migrate.audit.reference import spot_documents
    from migrate.embed.reference import documents_left
    from migrate.stores import open_store

    if reference != BUILD:
        return lambda: spot_documents(open_store(Path(reference)))
    if is_kept:
        return tuple
    return translated.documents if keep is None else lambda: documents_left(translated, keep, restart=restart)


@contextmanager
def open_reference(
    reference: str,
    keep: Path | None,
    translated: Store,
    embedder: Embedder,
    progress: Progress,
    *,
    is_kept: bool,
    force: bool,
    restart: bool,
) -> Iterator[Store]:
    """The store to compare with: one that is there, or one that is embedded now and kept only if asked for."""
    from migrate.embed import reembed_store
    from migrate.stores import open_store

    if reference != BUILD:
        yield open_store(Path(reference), verify=True)
        return
    if keep is not None and is_kept:
        yield open_store(keep)
        return
    with tempfile.TemporaryDirectory() as aside:
        path = keep or Path(aside) / "reference"
        try:
            reembed_store(translated, embedder, path, force=force, restart=restart, progress=progress)
        except KeyboardInterrupt as error:
            if keep is None:
                error.__notes__ = []  # of parts that are done, in a folder that goes away now
            raise
        yield open_store(path)
