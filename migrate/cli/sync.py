"""`lead-migrate sync`: what was added to the old store since, in the new one."""

from __future__ import annotations

from migrate.cli.dry_run import models_for
from migrate.cli.next_step import JUDGED, advise_next, advise_switch
from migrate.cli.options import ModelOptions
from migrate.cli.progress import progress_bar
from migrate.cli.spending import Spending
from migrate.cli.terminal import advise, show, show_json
from migrate.cli.unread import warn_of_unread
from migrate.cli.verdict import load_model_of
from migrate.cli.watch import watch as follow
from migrate.cost.unread import count_unread
from migrate.embedders.abilities import loaded_profile
from migrate.errors import UsageError
from migrate.report.sync import counts_text, plan_document, plan_text, synced_document, synced_text
from migrate.steps.base import RunContext
from migrate.steps.sync import Sync
from migrate.steps.sync.job import check_pair, sync_job
from migrate.stores import open_store


def command(
    request: Sync,
    dry_run: bool,
    watch: bool,
    every: float | None,
    yes: bool,
    model: ModelOptions,
    as_json: bool,
) -> None:
    """Bring NEW, translated from OLD, up to date with OLD."""
    if every is not None and not watch:
        raise UsageError("--every is the pace of --watch; give both, or neither")
    if not watch:
        _sync_once(request, dry_run, yes, model, as_json)
        return
    if dry_run or as_json or yes:
        raise UsageError(
            "--watch goes on without a question or an end, so it takes no --dry-run, --json or --yes; "
            "--max-cost caps all that it spends"
        )
    follow(request, model, every or 30)


def _sync_once(request: Sync, dry_run: bool, yes: bool, model: ModelOptions, as_json: bool) -> None:
    paid = Spending(request.max_cost, is_agreed=yes)
    old = str(request.old)
    new = str(request.new)
    model = models_for(model, dry_run=dry_run)
    with progress_bar() as progress:
        new_store = open_store(new, verify=True)
        old_store = open_store(old, verify=True)
        # Before the model is loaded, which an old store in the place of the new one need not name
        check_pair(old_store, new_store)
        embedder = load_model_of(new_store, request.target, "--target", model)
        job = sync_job(request, old_store, new_store, embedder, RunContext(progress=progress))
        counts = job.changes.counts
        if counts.to_embed:
            if not dry_run:
                advise(counts_text(counts))
            limits = loaded_profile(job.embedder)
            if limits.max_tokens is not None:
                unread = count_unread(job.models[0].documents(), limits, progress=progress)
                warn_of_unread(unread, "new and changed documents", "cut them as the others were cut")
        if dry_run:
            document = plan_document(job)
            text = plan_text(job)
        else:
            if counts.to_embed:
                paid.agree(job, progress=progress)
            done = job.execute()
            document = synced_document(done)
            text = synced_text(done)
    paid.finish()
    if as_json:
        show_json(document)
        return
    show(text)
    if dry_run and not job.is_current:
        advise_next("sync", old, new, also=("any_store", "target", "price"))
    elif not advise_switch(old, old_store, new) and not job.is_current:
        arguments = ["--reference", "pool", "--source", old, "--judged", JUDGED]
        advise_next("audit", new, *arguments, also=("target",))
