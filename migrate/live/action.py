"""`lead-migrate live`: true vectors for a translated store that serves, most wanted first, and its verdict."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from migrate.cli.dry_run import models_for, stop_if_dry
from migrate.cli.inputs import local_paths
from migrate.cli.next_step import OLD, advise_next, advise_switch, advise_worker, path_beside, typed_again
from migrate.cli.options import MarginOptions, ModelOptions, Outputs
from migrate.cli.outputs import write_reports
from migrate.cli.terminal import advise, show, show_json
from migrate.cli.verdict import load_model_of
from migrate.errors import LockedError, UsageError
from migrate.files import atomic_file, refuse_file
from migrate.live.options import WorkerOptions


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
    from migrate.live.control import note_command
    from migrate.live.paying import Pace
    from migrate.live.report import run_text
    from migrate.live.worker import Worker, planned_model
    from migrate.stores import open_store
    from migrate.stores.registry import absolute_location

    # A switch exchanges folders: whoever works inside one would find nothing under a relative path any more.
    location = absolute_location(store)
    opened = open_store(location, verify=True)
    if model.cache_file is not None:
        model = replace(model, cache=str(model.cache_file.absolute()))
    embedder = load_model_of(opened, target, "--target", models_for(model, dry_run=dry_run))
    if dry_run:
        if request.pace is not None:
            Pace.parse(request.pace)
        planned = planned_model(opened, embedder, request)
        stop_if_dry(dry_run, reads=[store], writes=[store], models=[planned], as_json=as_json)
    if request.budget is None and not yes and embedder.profile.is_paid is not False:
        raise UsageError(
            f"{store}: all of its texts would be embedded by {target or embedder.identity.spec}, which may cost money; "
            "say how far to go with --budget, or agree with --yes"
        )
    worker = Worker(location, embedder, replace(request, margin=safe.margin, margin_from=safe.origin), tell=advise)
    note_command(worker.state, typed_again()[2:])
    line = shlex.join(["lead-migrate", "live", "status", store])
    advise(f"working at {store}; `{line}` says how it is doing")
    if worker.control.limits:
        advise(f"{worker.control.limits}, as `live set` said; name another --budget or --pace here to change it")
    if worker.control.paused_since is not None:
        line = shlex.join(["lead-migrate", "live", "resume", store])
        advise(f"paused since {worker.control.paused_since}; `{line}` lets it go on")
    report = worker.run()
    if as_json:
        show_json(report, kind="live run")
        return
    show(run_text(report))
    if report.phase != "complete" or not (advise_switch(OLD, None, store) or _advise_backfill(store)):
        advise_next("live status", store)


def status(store: str, metrics: Path | None, outputs: Outputs, as_json: bool) -> None:
    """Show how the live STORE is doing."""
    from migrate.live.control import command_again
    from migrate.live.report import metrics_text, status_document, status_sections
    from migrate.live.state import state_path
    from migrate.live.status import open_state, status_of
    from migrate.report.page import report_page
    from migrate.report.terminal import report_text
    from migrate.stores import open_store

    if metrics is not None or outputs.report:
        folder = state_path(open_store(store)).parent
        folder = folder if folder.name.endswith(".live") else folder.parent  # with the states of other tables beside it
        read = (*local_paths(store), folder)
        outputs.refuse(*read, endings=(".json", ".html"), force=True)
        if metrics is not None:
            refuse_file(metrics, *read, force=True)
    state = status_of(store)
    document = status_document(state)
    if metrics is not None:
        with atomic_file(metrics, force=True) as unfinished:
            unfinished.write_text(metrics_text(state), encoding="utf-8")
    write_reports(outputs, document, lambda: report_page(status_sections(state)), force=True)
    if as_json:
        show_json(document)
    else:
        show(report_text(status_sections(state)))
        if state.is_all_true:
            advise_switch(OLD, None, store)
        elif not (state.is_all_cached and _advise_backfill(store)) and not state.is_running:
            opened = open_store(store)
            with open_state(opened) as live:
                advise_worker(store, command_again(live, opened.info.count))


def _advise_backfill(store: str) -> bool:
    """Print how a store in files is written anew with the true vectors of the cache; False for a database."""
    from migrate.stores import open_store
    from migrate.stores.file_store import as_files

    opened = open_store(store)
    if as_files(opened) is None:
        return False
    advise_next("backfill", store, "-o", path_beside(opened, "complete"))
    return True


def stop(store: str, seconds: float) -> None:
    """End the worker of STORE, and wait until it has."""
    from migrate.live.control import is_running, stop_worker
    from migrate.live.status import open_state
    from migrate.stores import open_store

    with open_state(open_store(store)) as state:
        if not is_running(state):
            show(f"{store}: no worker is running")
            return
        if not stop_worker(state, seconds=seconds):
            raise LockedError(
                f"{store}: the worker did not stop within {seconds:g} s; it still will, or wait longer with --seconds"
            )
    show(f"{store}: the worker has ended")
    advise_next("live status", store)


def pause(store: str, seconds: float) -> None:
    """Hold up the worker of STORE, and wait until it has come to rest."""
    from migrate.live.control import control_of, is_running, pause_worker
    from migrate.live.status import open_state
    from migrate.stores import open_store

    with open_state(open_store(store)) as state:
        if not pause_worker(state, seconds=seconds):
            raise LockedError(
                f"{store}: the worker did not pause within {seconds:g} s; it will after what it is at, or wait longer "
                "with --seconds"
            )
        since = control_of(state).paused_since
        if is_running(state):
            show(f"{store}: the worker is paused since {since}")
        else:
            show(f"{store}: no worker is running; paused since {since}, and one that is started waits")
    advise_next("live resume", store)


def resume(store: str) -> None:
    """Let the worker of STORE go on after `live pause`."""
    from migrate.live.control import is_running, resume_worker
    from migrate.live.status import open_state
    from migrate.stores import open_store

    with open_state(open_store(store)) as state:
        was_paused, goes_on = resume_worker(state), is_running(state)
    ended = "the pause has ended" if was_paused else "it was not paused"
    show(f"{store}: {ended}; " + ("the worker goes on" if goes_on else "no worker is running"))
    advise_next("live status", store)


def set_command(store: str, budget: str | None, pace: str | None) -> None:
    """Give the worker of STORE another budget or pace."""
    from migrate.live.control import Control, is_running, require_worker, set_limits
    from migrate.live.status import open_state
    from migrate.stores import open_store

    if budget is None and pace is None:
        raise UsageError(f"{store}: nothing is to be set; give --budget, --pace or both")
    opened = open_store(store)
    with open_state(opened) as state:
        require_worker(state, store)
        spent = set_limits(state, opened.info.count, budget=budget, pace=pace)
        goes_on = is_running(state)
    remark = f"; that is used up already ({spent}), so nothing more is embedded" if spent else ""
    remark += "" if goes_on else "; no worker is running: start it by the same `live run` as before, and it holds"
    show(f"{store}: {Control(budget, pace).limits}{remark}")
    advise_next("live status", store)
