"""`lead-migrate check`: the model of a store, held against its vectors."""

from __future__ import annotations

from dataclasses import replace

from migrate.audit.check import Check
from migrate.cli import options
from migrate.cli.dry_run import DRY_RUN, models_for, stop_if_dry
from migrate.cli.next_step import lead_on
from migrate.cli.options import ModelOptions, Outputs
from migrate.cli.steps import step_options
from migrate.cli.terminal import progress_bar, show_result


@options.command("check", example="lead-migrate check my-store/ --model tfidf:32")
@step_options(Check)
@options.model_options
@options.report_options
@options.force_reports
@DRY_RUN
@options.as_json
@options.quiet
def command(
    request: Check,
    model: ModelOptions,
    outputs: Outputs,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Verify which model the vectors of STORE come from.

    Exits with 0 if they are those that the model gives to its texts, with 1 and the reason if not. A manifest whose
    hash is that of the index answers at once. What fits instead, such as texts cut at another length, is printed as the
    next command. Of vectors near the model's but not the same, it is said what they cost in retrieval, and whether a
    stitch repairs it.
    """
    from migrate.report.check import check_document, check_sections
    from migrate.report.page import report_page
    from migrate.report.suite import check_suite
    from migrate.report.terminal import report_text
    from migrate.stores import open_store

    store, spec = str(request.store), str(request.model)
    outputs.refuse(*options.local_paths(store), force=force)
    opened = open_store(store)
    with progress_bar() as progress:
        embedder = models_for(model, dry_run=dry_run).load(spec, state=opened.model_folder)
        step = replace(request, store=opened, model=embedder, progress=progress)
        if dry_run:
            reads = [store, request.judged]
            stop_if_dry(dry_run, reads=reads, writes=outputs.report, models=step.planned_models(), as_json=as_json)
        compatibility = step.run()
    document, sections = check_document(compatibility), check_sections(compatibility)
    outputs.leave(document, lambda: report_page(sections), check_suite(compatibility), force=force)
    show_result(document, lambda: report_text(sections), as_json=as_json)
    lead_on(store, spec, opened, compatibility)
    return 0 if compatibility.compatible else 1
