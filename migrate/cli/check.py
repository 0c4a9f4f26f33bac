"""`lead-migrate check`: the model of a store, held against its vectors."""

from __future__ import annotations

from migrate.audit.check import Check
from migrate.audit.host import check_with_cost, planned_models
from migrate.audit.query_set import load_questions
from migrate.check.check import sample_size
from migrate.cli.checked import lead_on
from migrate.cli.dry_run import models_for, stop_if_dry
from migrate.cli.inputs import load_model, local_paths
from migrate.cli.options import ModelOptions, Outputs
from migrate.cli.outputs import write_reports
from migrate.cli.terminal import progress_bar, show_result
from migrate.report.check import check_document, check_sections
from migrate.report.page import report_page
from migrate.report.suite import check_suite
from migrate.report.terminal import report_text
from migrate.stores import open_store


def command(
    request: Check,
    model: ModelOptions,
    outputs: Outputs,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Verify which model the vectors of STORE come from."""
    store = str(request.store)
    spec = str(request.model)
    outputs.refuse(*local_paths(store), force=force)
    opened = open_store(store)
    with progress_bar() as progress:
        embedder = load_model(models_for(model, dry_run=dry_run), spec, state=opened.folder)
        size = sample_size(request.sample, opened)
        manifest = request.manifest_use
        seed = request.seed
        if dry_run:
            models = planned_models(opened, embedder, size=size, manifest=manifest, seed=seed)
            reads = [store, request.judged]
            stop_if_dry(dry_run, reads=reads, writes=outputs.report, models=models, as_json=as_json)
        questions = None
        if request.judged is not None:
            questions = load_questions(str(request.judged), progress=progress)
        compatibility = check_with_cost(
            opened, embedder, questions, size=size, manifest=manifest, seed=seed, progress=progress
        )
    document = check_document(compatibility)
    sections = check_sections(compatibility)
    write_reports(outputs, document, lambda: report_page(sections), check_suite(compatibility), force=force)
    show_result(document, lambda: report_text(sections), as_json=as_json)
    lead_on(store, spec, opened, compatibility)
    return 0 if compatibility.compatible else 1
