"""`lead-migrate labels`: what classifiers and detectors keep that were trained on true vectors."""

from __future__ import annotations

from collections.abc import Sequence

from migrate.audit.options import names_store
from migrate.cli.dry_run import models_for, stop_if_dry
from migrate.cli.inputs import local_paths, refuse_missing
from migrate.cli.options import MarginOptions, ModelOptions, Outputs
from migrate.cli.outputs import write_reports
from migrate.cli.progress import progress_bar
from migrate.cli.spending import Spending
from migrate.cli.terminal import show_result
from migrate.cli.verdict import EXIT_CODES, load_model_of
from migrate.datasets.records import read_ids, read_labels
from migrate.errors import UsageError
from migrate.lab.labels.job import labels_job
from migrate.lab.labels.options import LabelOptions
from migrate.lab.labels.report import downstream_blocks, downstream_document, downstream_suite
from migrate.report.terminal import as_text
from migrate.steps.base import RunContext
from migrate.stores import open_store


def command(
    request: LabelOptions,
    accept_margin: float | None,
    yes: bool,
    model: ModelOptions,
    outputs: Outputs,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Judge the vectors of a translated STORE by models that were trained on those of a full re-embed."""
    paid = Spending(request.max_cost, is_agreed=yes)
    store = request.store
    reference = request.reference
    outside = request.outside
    if not names_store(reference):
        raise UsageError(
            f"--labels needs a full re-embed to train on, and --reference is {reference}; give a store, such as "
            "`reembed` writes"
        )
    labels_by_id = read_labels(request.labels)
    outside_ids: Sequence[str] = ()
    if outside is not None:
        outside_ids = read_ids(outside)
    origin = MarginOptions(request.margin, accept_margin).origin
    if page := outputs.first(".html"):
        raise UsageError(f"--report {page}: there is no page by labels; name a file .json or .xml")
    model = models_for(model, dry_run=dry_run)
    refuse_missing(store, reference, request.labels, target=request.target)
    outputs.refuse(*local_paths(store, reference, request.labels, outside), force=request.force)
    with progress_bar() as progress:
        translated = open_store(store, verify=True)
        target = load_model_of(translated, request.target, "--target", model)
        context = RunContext(progress=progress)
        job = labels_job(request, translated, target, labels_by_id, outside_ids, margin_from=origin, context=context)
        stop_if_dry(
            dry_run,
            reads=[store, reference, request.labels, outside],
            writes=outputs.report,
            job=job,
            as_json=as_json,
        )
        # The few documents that prove a reference are worth no line where they cost nothing
        if any(planned.meter is not None for planned in job.models):
            paid.agree(job, progress=progress)
        job.cap.cap_usd = paid.cap_usd
        downstream = job.execute()
    paid.finish()
    document = downstream_document(downstream)
    show_result(document, lambda: as_text(downstream_blocks(downstream)), as_json=as_json)
    write_reports(outputs, document, str, downstream_suite(downstream, store), force=request.force)
    return EXIT_CODES[downstream.outcome.value]
