"""`lead-migrate live`: true vectors for a translated store that serves, most wanted first, and its verdict."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrate.cli import options
from migrate.cli.next_step import OLD, advise_next, advise_switch, advise_worker
from migrate.cli.options import MarginOptions, ModelOptions, option
from migrate.cli.terminal import advise, show, show_json
from migrate.cli.verdict import load_model_of

if TYPE_CHECKING:
    from migrate.live.renewal import Renewal

_FILES = "Stores in files"
_RENEWAL = "Fitting the stitch again"


@click.group("live", cls=options.OrderedGroup, short_help="True vectors for a store that serves.")
def command() -> None:
    """Complete a translated store while it serves.

    A program serves it with `migrate.live`, which notes what users look for. `run` writes true vectors into it, most
    wanted first, and watches what is served; `status` says how it is doing, the verdict first; `stop` ends the worker.
    """


@command.add_command
@options.command(
    "run",
    "Write true vectors into a store, and watch it.",
    example="lead-migrate live run new-store --budget 40% --once",
)
@click.argument("store", type=options.STORE)
@option(
    "--budget",
    metavar="BUDGET",
    help="How far to go: 10%, 5000 documents, $20, or 300000tok; money and tokens are what workers of this store spend "
    "in all their runs.  [default: the whole store]",
)
@option("--pace", metavar="N/UNIT", help="How fast at most: documents as 20/s, or tokens as 90000tok/min.")
@option("--from-queue", is_flag=True, help="Only documents that queries found.")
@option("--once", is_flag=True, help="End when nothing is left to write, in the place of waiting for more.")
@option(
    "--on-unsafe",
    metavar="COMMAND",
    help="Shell command for when the verdict becomes NOT SAFE; it gets the verdict as JSON on its standard input.",
)
@option(
    "--publish",
    type=options.FiniteRange(0, 1, min_open=True),
    default=0.02,
    metavar="SHARE",
    help="What share of the store waits for a new folder to be written.",
    section=_FILES,
)
@option(
    "--publish-minutes",
    type=options.FiniteRange(0),
    default=10.0,
    help="Or how long what waits waits at most.",
    section=_FILES,
)
@option(
    "--stitch",
    type=options.STITCH,
    metavar="STITCH",
    help="Stitch that the store was translated by, to fit it again.",
    section=_RENEWAL,
)
@option(
    "--source",
    type=options.STORE,
    metavar="STORE",
    help="Store that it was translated from, for --stitch.",
    section=_RENEWAL,
)
@option(
    "--refit-at",
    default="10%,30%,60%",
    metavar="SHARES",
    help="With --stitch: shares of true vectors at which it is fitted again, and what is translated renewed.",
    section=_RENEWAL,
)
@options.margin_options
@option("--target", metavar="SPEC", help="Model that the store was translated for.  [default: the store's own]")
@options.price
@option("--yes", is_flag=True, help="Agree to embed all of the store where no --budget is given.")
@options.model_options
@options.seed
@options.as_json
@options.quiet
def run(
    store: str,
    budget: str | None,
    pace: str | None,
    from_queue: bool,
    once: bool,
    on_unsafe: str | None,
    publish: float,
    publish_minutes: float,
    stitch: Path | str | None,
    source: str | None,
    refit_at: str,
    asked: MarginOptions,
    target: str | None,
    price: float | None,
    yes: bool,
    model: ModelOptions,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write true vectors into the translated STORE until `live stop` or Ctrl-C ends it; nothing is lost by that.

    A database is written to record by record, a folder by a new one that takes its place in one step.
    """
    from migrate.errors import UsageError
    from migrate.live.paying import Pace
    from migrate.live.report import report_document, report_text
    from migrate.live.worker import Worker, WorkerOptions
    from migrate.steps.translate.choice import Budget
    from migrate.stores import open_store
    from migrate.stores.registry import absolute_location

    # A folder is exchanged for another: whoever works inside it would find nothing under a relative path any more.
    location = absolute_location(store)
    opened = open_store(location, verify=True)
    model = replace(model, cache=model.cache and model.cache.absolute())
    embedder = load_model_of(opened, target, "--target", model)
    if budget is None and not yes and embedder.profile.is_paid is not False:
        raise UsageError(
            f"{store}: all of its texts would be embedded by {embedder.identity.spec}, which may cost money; say how "
            "far to go with --budget, or agree with --yes"
        )
    worker = Worker(
        location,
        embedder,
        WorkerOptions(
            budget=None if budget is None else Budget.parse(budget),
            pace=None if pace is None else Pace.parse(pace),
            queue_only=from_queue,
            publish=publish,
            publish_s=60 * publish_minutes,
            once=once,
            on_unsafe=on_unsafe,
            margin=asked.margin,
            margin_from=asked.origin,
            price_usd_per_mtok=price,
            renewal=_renewal(stitch, source, refit_at),
            seed=seed,
        ),
    )
    said = shlex.join(["lead-migrate", "live", "status", store])
    advise(f"working at {store}; `{said}` says how it is doing", quiet=quiet)
    report = worker.run()
    if as_json:
        show_json(report_document(report))
        return
    show(report_text(report))
    if report.phase != "complete" or not advise_switch(OLD, None, store, quiet=quiet):
        advise_next("live status", store, quiet=quiet)


def _renewal(stitch: Path | str | None, source: str | None, refit_at: str) -> Renewal | None:
    from migrate.errors import UsageError
    from migrate.live.renewal import Renewal
    from migrate.steps.translate.choice import Budget
    from migrate.stores import open_store
    from migrate.stores.registry import absolute_location

    if stitch is None and source is None:
        return None
    if stitch is None or source is None:
        raise UsageError("--stitch and --source belong together: the stitch, and the store that it was fitted on")
    budgets = [Budget.parse(part) for part in refit_at.split(",")]
    if any(budget.unit != "share" for budget in budgets):
        raise UsageError(f"--refit-at {refit_at}: these are no shares of the store; write them such as 10%,30%")
    return Renewal.of(open_store(absolute_location(source)), str(stitch), tuple(budget.amount for budget in budgets))


@command.add_command
@options.command(
    "status", "How a live store is doing.", example="lead-migrate live status new-store --metrics live.prom"
)
@click.argument("store", type=options.STORE)
@option("--metrics", type=options.PATH, metavar="FILE", help="Write the counters in the text format of Prometheus.")
@option("--html", type=options.PATH, metavar="FILE", help="Write a page with quality and spending over time.")
@options.as_json
def status(store: str, metrics: Path | None, html: Path | None, as_json: bool) -> None:
    """Say how the live STORE is doing: the verdict on what was served first.

    The files are written anew each time.
    """
    from migrate.files import atomic_file, refuse_file
    from migrate.live.report import metrics_text, status_document, status_page, status_text
    from migrate.live.state import state_path
    from migrate.live.status import status_of
    from migrate.stores import open_store

    pages = [(path, page) for path, page in ((metrics, metrics_text), (html, status_page)) if path is not None]
    if pages:
        kept = state_path(open_store(store)).parent
        kept = kept if kept.name.endswith(".live") else kept.parent  # with the states of other tables beside it
    for path, _ in pages:
        refuse_file(path, *options.local_paths(store), kept, force=True)
    found = status_of(store)
    for path, page in pages:
        with atomic_file(path, force=True) as aside:
            aside.write_text(page(found), encoding="utf-8")
    if as_json:
        show_json(status_document(found))
    else:
        show(status_text(found))
        if found.is_all_true:
            advise_switch(OLD, None, store, quiet=False)
        elif not found.is_running:
            advise_worker(store, quiet=False)


@command.add_command
@options.command("stop", "End the worker of a store.", example="lead-migrate live stop new-store")
@click.argument("store", type=options.STORE)
@option("--seconds", type=options.FiniteRange(0), default=60.0, help="How long to wait for it.")
def stop(store: str, seconds: float) -> None:
    """Ask the worker of STORE to come to its end, and wait: what it has embedded is written first."""
    from migrate.errors import LockedError
    from migrate.live.status import open_state
    from migrate.live.worker import is_running, stop_worker
    from migrate.stores import open_store

    with open_state(open_store(store)) as state:
        if not is_running(state):
            show(f"{store}: no worker is running")
            return
        if not stop_worker(state, seconds=seconds):
            raise LockedError(f"{store}: the worker did not end within {seconds:g} s; it will, or wait with --seconds")
    show(f"{store}: the worker has ended")
    advise_next("live status", store, quiet=False)
