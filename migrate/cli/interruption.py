"""The line about a command that Ctrl-C or SIGTERM has ended: what was kept, and that the same command goes on."""

from __future__ import annotations

from collections.abc import Iterator

import click

from migrate.command_notes import Request
from migrate.display import counted
from migrate.embedders.base import Embedder
from migrate.embedders.cache import cache_of
from migrate.files import cache_folder
from migrate.stores.registry import path_in
from migrate.work.outputs import GOES_ON

NOTHING_KEPT = "run the same command again; nothing unfinished was kept"

_MODELS = "migrate.models"
"""Under this name click's context keeps the models that the command has loaded."""

_NAMED = 3
"""Outputs that are named; of more only the number is told."""


def watch_model(embedder: Embedder) -> None:
    """Remember a model of the command that is running, whose cache has what it embeds."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta.setdefault(_MODELS, []).append(embedder)


def note_kept(error: KeyboardInterrupt, context: click.Context, request: Request) -> None:
    """Let an interruption say what the same command finds again."""
    notes = getattr(error, "__notes__", [])
    rows = [note.removeprefix(GOES_ON) for note in notes if note.startswith(GOES_ON)]
    # Of commands that have a sentence of their own
    sentences = [note for note in notes if not note.startswith(GOES_ON)]
    remains = [*_finished(request), *rows, *_cached(context.meta.get(_MODELS, []))]
    if sentences:
        error.__notes__ = ["; ".join([*sentences, *remains])]
    elif remains:
        error.__notes__ = [GOES_ON + ", ".join(remains)]
    else:
        error.__notes__ = [NOTHING_KEPT]


def kept_of(error: BaseException | None) -> str:
    """Return what was noted of an interruption; of a second one, while the first was dealt with, that of the first."""
    while error is not None:
        notes = getattr(error, "__notes__", None)
        if notes:
            return str(notes[0])
        error = error.__cause__ or error.__context__
    return NOTHING_KEPT


def _finished(request: Request) -> Iterator[str]:
    cache = str(cache_folder())
    # A server is not asked: it may be what the user gave up waiting for
    outputs = [
        location
        for location in request.outputs()
        if not location.startswith(cache) and ((path := path_in(location)) is None or path.exists())
    ]
    if len(outputs) > _NAMED:
        yield f"{len(outputs)} outputs are finished"
    elif outputs:
        verb = "is" if len(outputs) == 1 else "are"
        yield f"{', '.join(outputs)} {verb} finished"


def _cached(models: list[Embedder]) -> Iterator[str]:
    caches = [cache for model in models if (cache := cache_of(model)) is not None and cache.keeps]
    embedded = sum(cache.misses for cache in caches)
    if embedded:
        yield f"{counted(embedded, 'embedded text is', 'embedded texts are')} in the cache"
    elif any(cache.hits for cache in caches):
        yield "what was embedded before is in the cache"
