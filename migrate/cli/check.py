"""`lead-migrate check`: the model of a store, held against its vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.audit.check import Check
from migrate.audit.host import check_with_cost, planned_models
from migrate.audit.query_set import load_questions
from migrate.check import Cause
from migrate.check.check import sample_size
from migrate.check.rows import list_rows
from migrate.cli.checked import lead_on
from migrate.cli.dry_run import models_for, stop_if_dry
from migrate.cli.inputs import load_model, local_paths
from migrate.cli.next_step import advise_next, model_words, path_beside
from migrate.cli.options import ModelOptions, Outputs
from migrate.cli.outputs import write_reports
from migrate.cli.progress import progress_bar
from migrate.cli.spending import Spending
from migrate.cli.terminal import advise, show_result
from migrate.cost.meter import SpendingCap
from migrate.files import refuse_file
from migrate.report.check import check_document, check_sections
from migrate.report.page import report_page
from migrate.report.suite import check_suite
from migrate.report.terminal import report_text
from migrate.stores import open_store

if TYPE_CHECKING:
    from migrate.cost.spending import PlannedModel


def command(
    request: Check,
    yes: bool,
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
    rows = request.rows
    if rows is not None:
        refuse_file(Path(rows), *local_paths(store), force=force)
    paid = Spending(request.max_cost, is_agreed=yes)
    opened = open_store(store)
    with progress_bar() as progress:
        embedder = load_model(models_for(model, dry_run=dry_run), spec, state=opened.folder)
        size = sample_size(request.sample, opened)
        manifest = request.manifest_use
        seed = request.seed
        cap = SpendingCap()
        embedder = cap.meter(embedder)
        plans: Sequence[PlannedModel] = ()
        # A manifest that may answer is held against the whole index, which a model without a price need not wait for
        if dry_run or rows is not None or cap.meter_of(embedder) is not None:
            has_rows = rows is not None
            plans = planned_models(opened, embedder, cap, size=size, manifest=manifest, seed=seed, has_rows=has_rows)
        if dry_run:
            reads = [store, request.judged]
            writes = [*outputs.report, rows]
            stop_if_dry(dry_run, reads=reads, writes=writes, models=plans, as_json=as_json)
        paid.agree_on(plans, progress=progress)
        cap.cap_usd = paid.cap_usd
        questions = None
        if request.judged is not None:
            questions = load_questions(str(request.judged), progress=progress)
        compatibility = check_with_cost(
            opened, embedder, questions, size=size, manifest=manifest, seed=seed, progress=progress
        )
        if rows is not None:
            compatibility = list_rows(opened, embedder, compatibility, Path(rows), force=force, progress=progress)
    paid.finish()
    document = check_document(compatibility)
    sections = check_sections(compatibility)
    write_reports(outputs, document, lambda: report_page(sections), check_suite(compatibility), force=force)
    show_result(document, lambda: report_text(sections), as_json=as_json)
    if rows is not None and compatibility.cause is Cause.MIXED:
        advise("to embed these documents anew:")
        advise_next(
            "reembed", store, "--rows", rows, *model_words("--target", spec), "-o", path_beside(opened, "mended")
        )
    else:
        lead_on(store, spec, opened, compatibility)
    return 0 if compatibility.compatible else 1
