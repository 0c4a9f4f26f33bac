"""Actions of the commands of `lead-migrate live`, once these have been read."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from migrate.cli.dry_run import models_for, stop_if_dry
from migrate.cli.next_step import OLD, advise_next, advise_switch, advise_worker, path_beside, typed_again
from migrate.cli.options import MarginOptions, ModelOptions
from migrate.cli.progress import progress_bar
from migrate.cli.terminal import advise, show, show_json
from migrate.cli.verdict import load_model_of
from migrate.embedders.base import Embedder
from migrate.errors import LockedError, UsageError
from migrate.live.control import (
    COMMAND,
    PATIENCE_S,
    as_iso,
    is_running,
    pause_worker,
    paused_at,
    resume_worker,
    stop_worker,
)
from migrate.live.options import WorkerOptions
from migrate.live.report import run_text, status_document, status_text
from migrate.live.status import open_state, status_of
from migrate.live.worker import Worker, planned_model
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.file_store import as_files
from migrate.stores.registry import absolute_location


@dataclass(frozen=True)
class Opened:
    """A store as it was typed and as it was opened, with its model, as it was named and behind a cache."""

    typed: str
    spec: str
    store: Store
    location: str
    embedder: Embedder


def open_for_worker(typed: str, target: str | None, model: ModelOptions, *, dry_run: bool) -> Opened:
    """Open a store and the model that was named, or its own."""
    # A switch exchanges folders: whoever works inside one would find nothing under a relative path any more.
    location = absolute_location(typed)
    store = open_store(location, verify=True)
    if model.cache_file is not None:
        model = replace(model, cache=str(model.cache_file.absolute()))
    embedder = load_model_of(store, target, "--target", models_for(model, dry_run=dry_run))
    return Opened(typed, target or embedder.identity.spec, store, location, embedder)


def show_plan(opened: Opened, request: WorkerOptions, *, as_json: bool) -> None:
    """Print what a worker would embed, and end the command."""
    planned = planned_model(opened.store, opened.embedder, request)
    stop_if_dry(True, reads=[opened.typed], writes=[opened.typed], models=[planned], as_json=as_json)


def run(
    store: str,
    request: WorkerOptions,
    safe: MarginOptions,
    target: str | None,
    yes: bool,
    model: ModelOptions,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Give the translated STORE true vectors."""
    opened = open_for_worker(store, target, model, dry_run=dry_run)
    if dry_run:
        show_plan(opened, request, as_json=as_json)
    run_worker(opened, request, safe, is_agreed=yes, as_json=as_json)


def run_worker(opened: Opened, request: WorkerOptions, safe: MarginOptions, *, is_agreed: bool, as_json: bool) -> None:
    """Run a worker to its end, and print that."""
    store = opened.typed
    if request.budget is None and not is_agreed and opened.embedder.profile.is_paid is not False:
        raise UsageError(
            f"{store}: all of its texts would be embedded by {opened.spec}, which may cost money; "
            "say how far to go with --budget, or agree with --yes"
        )
    request = replace(request, margin=safe.margin, margin_from=safe.origin)
    worker = Worker(opened.location, opened.embedder, request)
    # By these `live status` prints how to start it again once it has ended
    words = typed_again()[2:]
    worker.state.note(COMMAND, words)
    advise(f"working at {store}; `{_line('status', store)}` says how it is doing")
    since = as_iso(paused_at(worker.state))
    if since is not None:
        advise(f"paused since {since}; `{_line('resume', store)}` lets it go on")
    with progress_bar():
        report = worker.run()
    if report.phase == "paused":  # its budget is used up, and by the same one nothing more is done
        with open_state(opened.store) as state:
            state.note(COMMAND, [word for word in words if not word.startswith("--budget=") and word != "--once"])
    if as_json:
        show_json(report, kind="live run")
        return
    show(run_text(report))
    if report.phase != "complete" or not (advise_switch(OLD, None, store) or _advise_backfill(store)):
        advise_next("live status", store)


def status(store: str, as_json: bool) -> None:
    """Print how a store is doing, and what may be done next."""
    found = status_of(store)
    if as_json:
        show_json(status_document(found))
        return
    show(status_text(found))
    if found.is_all_true:
        advise_switch(OLD, None, store)
    elif not (found.is_all_cached and _advise_backfill(store)) and not found.is_running:
        with open_state(open_store(store)) as state:
            advise_worker(store, state.value(COMMAND))


def stop(store: str) -> None:
    """End the worker of a store."""
    with open_state(open_store(store)) as state:
        if not is_running(state):
            show(f"{store}: no worker is running")
            return
        if not stop_worker(state):
            raise LockedError(f"{store}: the worker did not stop within {PATIENCE_S:g} s; it will after what it is at")
    show(f"{store}: the worker has ended")
    advise_next("live status", store)


def pause(store: str) -> None:
    """Hold up the worker of a store."""
    with open_state(open_store(store)) as state:
        if not pause_worker(state):
            raise LockedError(f"{store}: the worker did not pause within {PATIENCE_S:g} s; it will after what it is at")
        since = as_iso(paused_at(state))
        if is_running(state):
            show(f"{store}: the worker is paused since {since}")
        else:
            show(f"{store}: no worker is running; paused since {since}, and one that is started waits")
    advise_next("live resume", store)


def resume(store: str) -> None:
    """Let the worker of a store go on."""
    with open_state(open_store(store)) as state:
        was_paused = resume_worker(state)
        goes_on = is_running(state)
    ended = "it was not paused"
    if was_paused:
        ended = "the pause has ended"
    show(f"{store}: {ended}; " + ("the worker goes on" if goes_on else "no worker is running"))
    advise_next("live status", store)


def _line(action: str, typed: str) -> str:
    return shlex.join(["lead-migrate", "live", action, typed])


def _advise_backfill(typed: str) -> bool:
    """Print how a store in files is written anew with the true vectors of the cache; False for a database."""
    opened = open_store(typed)
    if as_files(opened) is None:
        return False
    advise_next("backfill", typed, "-o", path_beside(opened, "complete"))
    return True
