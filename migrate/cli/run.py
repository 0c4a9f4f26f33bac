"""`lead-migrate run`: the whole path in one command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from migrate.cli import options
from migrate.cli.dry_run import DRY_RUN, models_for, stop_if_dry
from migrate.cli.next_step import (
    advise_other_queries,
    advise_recommendation,
    model_words,
    path_beside,
    typed_again,
    typed_model,
    warn_of_place,
)
from migrate.cli.options import (
    MarginOptions,
    ModelOptions,
    Outputs,
    report_options,
)
from migrate.cli.reembed import show_reembedded
from migrate.cli.spending import Spending
from migrate.cli.steps import step_options
from migrate.cli.terminal import advise, progress_bar, show
from migrate.cli.unread import offer_hold_out, with_unread
from migrate.cli.verdict import (
    show_report,
    source_model_of,
    stop_if_same,
    warn_of_few,
    warn_of_few_queries,
)
from migrate.errors import UsageError
from migrate.files import real_path, refuse_overlap
from migrate.pipeline import Run

if TYPE_CHECKING:
    from migrate.embed import Embedding
    from migrate.pipeline.job import Migration
    from migrate.steps.reembed import Reembed


@options.command(
    "run",
    example="lead-migrate run my-store --target tfidf:64 --judged my-beir -o migration",
)
@step_options(Run)
@options.accept_margin
@options.model_options
@report_options
@DRY_RUN
@options.as_json
@options.verbose
@options.quiet
def command(
    request: Run,
    accept_margin: float | None,
    paid: Spending,
    model: ModelOptions,
    outputs: Outputs,
    dry_run: bool,
    as_json: bool,
    verbose: bool,
) -> int:
    """Fit a stitch, translate STORE, and audit the result.

    Everything is left in one folder. The audit embeds a pool of documents, no more than the verdict needs; with
    --reference build, every document is embedded for comparison. Of a small store, of which fit and audit would embed
    every document, there is nothing to judge, and no queries are needed: it is embedded in full, as `reembed` does,
    unless --reference is named.

    The same command again goes on where a run broke off; a finished run only prints its verdict again. With another
    --reference, other queries, another margin or price it keeps the stitch and the translated store, and audits anew;
    a store that was embedded in full is translated beside that.

    The arm `stay` is there when the source model is named, or when the store's manifest says it.
    """
    from migrate.audit.locations import Locations
    from migrate.pipeline.job import PAGE
    from migrate.report.fit import candidates_rows, choice_sentence, doubts
    from migrate.report.terminal import table, wrap
    from migrate.stores import open_store

    store, target, seed, output = str(request.store), str(request.target), request.seed, request.folder
    shown = {"as_json": as_json, "verbose": verbose, "force": request.force}
    margin = MarginOptions(request.margin, accept_margin)
    request.check()
    options.refuse_missing(store, request.queries_location, target=target)
    read = options.local_paths(store, request.queries_location)
    refuse_overlap(output, *read)
    outputs.refuse(*read, force=request.force)
    _refuse_own(outputs, output)
    model = models_for(model, dry_run=dry_run)
    with advise_other_queries(), progress_bar() as progress:
        opened = open_store(store, verify=True)
        is_inside = warn_of_place(opened, output)
        embedder = model.load(target, seed=seed)
        stop_if_same("run", opened, embedder, as_json=as_json)
        old = source_model_of(opened, _text(request.source_model), model)
        step = replace(
            request,
            store=opened,
            target=embedder,
            source_model=old,
            margin_from=margin.origin,
            locations=Locations(
                full=str(path_beside(opened, "full")) if is_inside else "",
                target=("--target", target, *typed_model()),
                model=(*map(str, model_words("--target", target)), *typed_model()),
                audit_again=tuple(typed_again()),
            ),
            announce=lambda step: advise(step.sentence),
            progress=progress,
        )
        if not step.job.needs_no_queries:
            judged = with_unread(step.load_queries(opened), opened, embedder, seed=seed)
            step = replace(step, judged=judged, queries=None, hold_out=None, group_field=None)
        if step.job.full is not None:
            if outputs.report:
                advise(f"{', '.join(map(str, outputs.report))}: not written, as there is no audit to report")
            return _embed_all(step, step.job.full, paid, request, dry_run=dry_run, as_json=as_json)
        finished = step.job.finished
        if old is None:
            advise("no --source-model: the audit cannot say whether staying would be better")
        if finished is not None:
            advise("this run is finished already; its verdict is printed again")
            stop_if_dry(dry_run, reads=[output], writes=outputs.report, as_json=as_json)
            report = finished
        else:
            done = _judge(step, request, paid, outputs, dry_run=dry_run, as_json=as_json)
            report = done.report
    if finished is None:
        paid.finish()
        chosen = [choice_sentence(done.stitch.selection), *doubts(done.stitch.selection)]
        for line in "\n".join(map(wrap, chosen)).splitlines():
            advise(line)
        if verbose and not as_json:
            show(table(candidates_rows(done.stitch.selection)) + "\n")
    code = show_report(report, outputs, page=output / PAGE, **shown)
    if not as_json:
        advise_recommendation(report.recommendation)
    return code


def _judge(step: Run, request: Run, paid: Spending, outputs: Outputs, *, dry_run: bool, as_json: bool) -> Migration:
    """Fit, translate and audit, once the costs are agreed to; `request` is what was typed."""
    job, store, opened = step.job, str(request.store), step.job.store
    judges, kept_outputs, rate = job.questions, job.earlier, None
    if kept_outputs.outputs:
        remark = f" with other values of {', '.join(kept_outputs.changed)}" if kept_outputs.changed else ""
        advise(f"the stitch and the translated store are there already; only the audit is repeated{remark}")
    if job.is_pooled and request.hold_out is None:
        offer_hold_out(judges, opened, job.embedder)
    warn_of_few_queries(judges)
    arguments = [store, *job.locations.target, "-o", job.locations.full]
    if not warn_of_few(opened, arguments) and job.is_pooled and not kept_outputs.outputs:
        deal = paid.weigh(step, opened, "fit and audit", arguments, seed=request.seed)
        rate = None if deal is None else deal.documents_per_s
    reads, writes = [store, request.queries_location], [request.folder, *outputs.report]
    stop_if_dry(dry_run, reads=reads, writes=writes, step=step, as_json=as_json)
    paid.agree(step, progress=step.progress)
    stop_if_same("run", opened, job.embedder, paid=paid, as_json=as_json)
    return cast("Migration", step.execute(rate))


def _embed_all(step: Run, full: Reembed, paid: Spending, request: Run, *, dry_run: bool, as_json: bool) -> int:
    """Make the full re-embed of a store of which there is nothing to judge; `request` is what was typed."""
    from migrate.report.terminal import wrap

    store = full.source
    for line in wrap(f"there is nothing to judge, so the store is embedded in full: {step.job.why_full}").splitlines():
        advise(line)
    reads = [str(request.store), request.queries_location]
    stop_if_dry(dry_run, reads=reads, writes=[full.output], step=step, as_json=as_json)
    paid.agree(step, progress=step.progress)
    stop_if_same("run", store, full.embedder, paid=paid, as_json=as_json)
    done = cast("Embedding", step.execute())
    paid.finish()
    show_reembedded(done, str(request.store), store, str(full.output), as_json=as_json)
    return 0


def _refuse_own(outputs: Outputs, folder: Path) -> None:
    """Make sure that no report has the place of what the run leaves by itself."""
    from migrate.pipeline.job import OUTPUTS

    for path in outputs.report:
        if path.name in OUTPUTS and real_path(path.parent) == real_path(folder):
            raise UsageError(f"--report {path}: the run leaves that by itself; leave it out, or choose another name")


def _text(typed: object | None) -> str | None:
    return None if typed is None else str(typed)
