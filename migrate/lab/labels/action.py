"""`lead-migrate labels`: what classifiers and detectors keep that were trained on true vectors."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from migrate.cli.dry_run import models_for, stop_if_dry
from migrate.cli.inputs import local_paths, refuse_missing
from migrate.cli.options import MarginOptions, ModelOptions, Outputs
from migrate.cli.outputs import write_reports
from migrate.cli.spending import Spending
from migrate.cli.terminal import progress_bar, show_result
from migrate.cli.verdict import EXIT_CODES, load_model_of
from migrate.errors import UsageError
from migrate.lab.labels.options import LabelOptions
from migrate.lab.labels.report import downstream_blocks, downstream_document, downstream_suite
from migrate.lab.labels.step import JudgeLabels
from migrate.report.terminal import as_text
from migrate.steps.base import step_like


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
    opened = step_like(JudgeLabels, request)
    opened.check()
    origin = MarginOptions(request.margin, accept_margin).origin
    if page := outputs.first(".html"):
        raise UsageError(f"--report {page}: there is no page by labels; name a file .json or .xml")
    store, reference = str(request.store), str(request.reference)
    labels, outside = cast("str | Path", request.labels), cast("str | Path | None", request.outside)
    model = models_for(model, dry_run=dry_run)
    refuse_missing(store, reference, labels, target=request.target)
    outputs.refuse(*local_paths(store, reference, labels, outside), force=request.force)
    with progress_bar() as progress:
        target = load_model_of(opened.translated, cast("str | None", request.target), "--target", model)
        step = step_like(JudgeLabels, request, target=target, margin_from=origin, progress=progress)
        stop_if_dry(
            dry_run, reads=[store, reference, labels, outside], writes=outputs.report, step=step, as_json=as_json
        )
        if any(planned.meter is not None for planned in step.models):
            paid.agree(step, progress=progress)
        step.cap.cap_usd = paid.cap_usd
        downstream = step.execute()
    paid.finish()
    document = downstream_document(downstream)
    show_result(document, lambda: as_text(downstream_blocks(downstream)), as_json=as_json)
    write_reports(outputs, document, str, downstream_suite(downstream, store), force=request.force)
    return EXIT_CODES[downstream.outcome.value]
