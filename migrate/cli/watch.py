"""The loop of `sync --watch`: one sync after another, until the stores are switched or somebody interrupts it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

from migrate.cli.options import ModelOptions
from migrate.cli.progress import progress_bar
from migrate.cli.terminal import advise, show
from migrate.cli.verdict import load_model_of
from migrate.display import counted, dollars
from migrate.embedders.base import Embedder
from migrate.errors import AuthenticationError, InputError, LockedError, OutputError, RemoteError, UsageError
from migrate.report.sync import counts_text
from migrate.steps.base import RunContext
from migrate.steps.sync import Sync
from migrate.steps.sync.job import Synced, check_pair, sync_job
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.registry import find_exchange
from migrate.stores.updates import UpdatableStore


def watch(request: Sync, model: ModelOptions, every_s: float) -> None:
    """Sync again and again, `every_s` seconds after the end of the sync before; say what each has written.

    The first sync ends by its errors as one alone does, so that stores that are named wrongly are told at once. Later,
    a store that cannot be read or written for a while is told once, and looked for again.
    """
    new_store, old_store = _open(request)
    locations = (old_store.info.location, new_store.info.location)
    embedder = load_model_of(new_store, request.target, "--target", model)
    context = RunContext()
    # Of all rounds together: they share the meter of the model
    context.cap.cap_usd = request.max_cost
    with progress_bar() as progress:
        done = _round(request, old_store, new_store, embedder, replace(context, progress=progress))
    # What an earlier run has left is taken up, or thrown away, once
    request = replace(request, restart=False)
    del old_store, new_store
    state = "up to date"
    if done.written:
        state = counts_text(done.counts)
    try:
        show(f"{done.path}: {state}{_cost(context)}; watching")
        _follow(request, embedder, context, every_s, locations)
    except KeyboardInterrupt as error:
        # A round that was writing has its own note, of how far it came
        if not getattr(error, "__notes__", None):
            error.add_note(f"{done.path} is as its last line says, and the same command goes on")
        raise
    show(f"{request.new} was switched, and what is new is written there: nothing is left to watch")


def _follow(request: Sync, embedder: Embedder, context: RunContext, every_s: float, locations: Sequence[str]) -> None:
    """Sync in rounds until the stores are switched."""
    told = ""
    while True:
        time.sleep(every_s)
        if _are_switched(locations):
            return
        try:
            new_store, old_store = _open(request)
            done = _round(request, old_store, new_store, embedder, context)
            # A database in a folder is another program's again while nothing is done
            del old_store, new_store
        except AuthenticationError:
            raise
        except (InputError, LockedError, OutputError, RemoteError, OSError) as error:
            # A round meets a switch as stores that are locked, gone or replaced
            if _are_switched(locations):
                return
            if str(error) != told:
                told = str(error)
                # Not `warn`, which never repeats itself: the same may come again after better rounds
                advise(f"warning: {told}; looking again every {every_s:g} s")
            continue
        except UsageError:
            # Switched after the look for it above
            if _are_switched(locations):
                return
            raise
        told = ""
        if done.written:
            show(f"{done.path}: {counts_text(done.counts)}{_cost(context)}")


def _open(request: Sync) -> tuple[Store, Store]:
    new_store = open_store(str(request.new), verify=True)
    old_store = open_store(str(request.old), verify=True)
    check_pair(old_store, new_store)
    return new_store, old_store


def _round(request: Sync, old: Store, new: Store, embedder: Embedder, context: RunContext) -> Synced:
    # A database in use is seldom at rest for as long as a round takes
    held = old.at_one_moment() if isinstance(old, UpdatableStore) else nullcontext(old)
    with held as still:
        return sync_job(request, still, new, embedder, context).execute()


def _are_switched(locations: Sequence[str]) -> bool:
    exchanges = [find_exchange(location) for location in locations]
    return any(exchange is not None and exchange.record() is not None for exchange in exchanges)


def _cost(context: RunContext) -> str:
    """Return what all rounds have spent; nothing of a model that costs no money."""
    meters = context.cap.meters
    if not meters:
        return ""
    tokens = sum(meter.tokens for meter in meters)
    return f"; {counted(tokens, 'token', 'tokens')} so far, {dollars(context.cap.spent_usd)}"
