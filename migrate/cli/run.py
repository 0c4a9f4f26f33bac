"""`lead-migrate run`: the whole path in one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from migrate.audit.locations import Locations
from migrate.cli.dry_run import models_for, stop_if_dry
from migrate.cli.inputs import load_model, local_paths, refuse_missing
from migrate.cli.next_step import (
    advise_other_queries,
    advise_paragraph,
    advise_recommendation,
    full_of_file,
    migration_of,
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
)
from migrate.cli.progress import progress_bar
from migrate.cli.reembed import show_reembedded
from migrate.cli.spending import Spending
from migrate.cli.terminal import advise, show
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
from migrate.pipeline import job as work
from migrate.pipeline.job import OUTPUTS
from migrate.report.fit import candidates_rows, choice_sentence, doubts
from migrate.report.terminal import table
from migrate.steps.base import Announce, RunContext, typed_name
from migrate.stores import open_store
from migrate.stores.switching import successor_of

if TYPE_CHECKING:
    from migrate.pipeline.job import Migration, RunJob
    from migrate.steps.reembed.job import ReembedJob
    from migrate.stores.base import Store


def command(
    request: Run,
    accept_margin: float | None,
    yes: bool,
    model: ModelOptions,
    outputs: Outputs,
    dry_run: bool,
    as_json: bool,
    verbose: bool,
) -> int:
    """Fit a stitch, translate STORE, and audit the result."""
    paid = Spending(request.max_cost, is_agreed=yes)
    store = str(request.store)
    target = str(request.target)
    seed = request.seed
    output = request.folder
    shown = {"as_json": as_json, "verbose": verbose, "force": request.force}
    margin_from = MarginOptions(request.margin, accept_margin).origin
    request.check()
    refuse_missing(store, request.queries_location, target=target)
    read = local_paths(store, request.queries_location)
    refuse_overlap(output, *read)
    outputs.refuse(*read, force=request.force)
    _refuse_own(outputs, output)
    model = models_for(model, dry_run=dry_run)
    with advise_other_queries(), progress_bar() as progress:
        opened = open_store(store, verify=True)
        is_inside = warn_of_place(opened, output)
        embedder = load_model(model, target, seed=seed)
        stop_if_same("run", opened, embedder, as_json=as_json)
        old = source_model_of(opened, typed_name(request.source_model), model)
        announce = Announce(pool=lambda step: advise(step.sentence))
        context = RunContext(progress=progress, announce=announce, margin_from=margin_from)
        inputs = work.inputs_of(request, opened, embedder, old, context)
        if work.needs_no_queries(inputs):
            return _embed_all(work.full_job(inputs), outputs, paid, request, dry_run=dry_run, as_json=as_json)
        query_set = with_unread(request.load_queries(opened, progress=progress), opened, embedder, seed=seed)
        questions = work.judging_queries(inputs, query_set)
        if work.would_embed_all(inputs, questions):
            return _embed_all(work.full_job(inputs), outputs, paid, request, dry_run=dry_run, as_json=as_json)
        # After the queries, as other ones need another audit, but before anything is weighed or paid for
        finished = work.finished_run(request, work.configuration_of(inputs, questions), inputs.store)
        if old is None:
            advise("no --source-model: the audit cannot say whether staying would be better")
        if finished is not None:
            advise("this run is finished already; its verdict is printed again")
            stop_if_dry(dry_run, reads=[output], writes=outputs.report, as_json=as_json)
            report = finished
        else:
            locations = Locations(
                full=_place_of_full(request, opened, is_inside=is_inside),
                target=("--target", target, *typed_model()),
                model=(*map(str, model_words("--target", target)), *typed_model()),
                audit_again=tuple(typed_again()),
            )
            job = work.run_job(inputs, questions, locations)
            done = _judge(job, store, paid, outputs, dry_run=dry_run, as_json=as_json)
            report = done.report
    if finished is None:
        paid.finish()
        chosen = [choice_sentence(done.stitch.selection), *doubts(done.stitch.selection)]
        for sentence in chosen:
            advise_paragraph(sentence)
        if verbose and not as_json:
            show(table(candidates_rows(done.stitch.selection)) + "\n")
    code = show_report(report, outputs, page=output / work.PAGE, **shown)
    if not as_json:
        advise_recommendation(report.recommendation)
    return code


def _place_of_full(request: Run, store: Store, *, is_inside: bool) -> str:
    """Return where a full re-embed is to go that leaves the old store; empty for beside what the run makes."""
    if is_inside:
        return str(path_beside(store, "full"))
    migration = migration_of(str(request.store), typed_name(request.target))
    if migration is None or migration.output != str(request.output) or successor_of(store, "full"):
        return ""
    return full_of_file(migration.store, migration.target) or ""


def _judge(job: RunJob, store: str, paid: Spending, outputs: Outputs, *, dry_run: bool, as_json: bool) -> Migration:
    """Fit, translate and audit, once the costs are agreed to; `store` is as it was typed."""
    request = job.options
    inputs = job.inputs
    opened = inputs.store
    kept_outputs = job.earlier
    is_pooled = request.reference != "build"
    if kept_outputs.outputs:
        remark = ""
        if kept_outputs.changed:
            remark = f" with other values of {', '.join(kept_outputs.changed)}"
        advise(f"the stitch and the translated store are there already; only the audit is repeated{remark}")
    if is_pooled and request.hold_out is None:
        offer_hold_out(job.judges, opened, inputs.embedder)
    warn_of_few_queries(job.judges)
    arguments = [store, *job.locations.target, "-o", job.locations.full]
    rate = None
    # What is embedded already costs nothing more, so there is nothing to weigh against a full re-embed
    if not warn_of_few(opened, arguments) and is_pooled and not kept_outputs.outputs:
        deal = paid.weigh(job, opened, "fit and audit", arguments, seed=request.seed)
        if deal is not None:
            rate = deal.documents_per_s
    reads = [store, request.queries_location]
    writes = [request.folder, *outputs.report]
    stop_if_dry(dry_run, reads=reads, writes=writes, job=job, as_json=as_json)
    paid.agree(job, progress=job.context.progress)
    stop_if_same("run", opened, inputs.embedder, paid=paid, as_json=as_json)
    return job.execute(rate)


def _embed_all(job: ReembedJob, outputs: Outputs, paid: Spending, request: Run, *, dry_run: bool, as_json: bool) -> int:
    """Make the full re-embed of a store of which there is nothing to judge; `request` is what was typed."""
    store = job.source
    output = str(job.options.output)
    if outputs.report:
        advise(f"{', '.join(map(str, outputs.report))}: not written, as there is no audit to report")
    advise_paragraph(f"there is nothing to judge, so the store is embedded in full: {work.why_full(store)}")
    reads = [str(request.store), request.queries_location]
    stop_if_dry(dry_run, reads=reads, writes=[output], job=job, as_json=as_json)
    paid.agree(job, progress=job.context.progress)
    stop_if_same("run", store, job.embedder, paid=paid, as_json=as_json)
    done = job.execute()
    paid.finish()
    show_reembedded(done, str(request.store), store, output, as_json=as_json)
    return 0


def _refuse_own(outputs: Outputs, folder: Path) -> None:
    """Make sure that no report has the place of what the run leaves by itself."""
    for path in outputs.report:
        if path.name in OUTPUTS and real_path(path.parent) == real_path(folder):
            raise UsageError(f"--report {path}: the run leaves that by itself; leave it out, or choose another name")
