"""`lead-migrate labels`: what classifiers and detectors keep that were trained on true vectors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from migrate.cli import options
from migrate.cli.dry_run import DRY_RUN, models_for, stop_if_dry
from migrate.cli.options import MarginOptions, ModelOptions, Outputs, report_options
from migrate.cli.steps import step_options
from migrate.cli.terminal import progress_bar, show_result
from migrate.cli.verdict import EXIT_CODES, load_model_of
from migrate.errors import UsageError
from migrate.lab.labels.step import JudgeLabels

if TYPE_CHECKING:
    from migrate.cli.spending import Spending


@options.command(
    "labels",
    "Judge vectors by classifiers trained on true ones.",
    example="lead-migrate labels new-store --reference full --labels labels.jsonl",
)
@step_options(JudgeLabels)
@options.accept_margin
@options.model_options
@report_options
@DRY_RUN
@options.as_json
@options.quiet
def command(
    request: JudgeLabels,
    accept_margin: float | None,
    paid: Spending,
    model: ModelOptions,
    outputs: Outputs,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Judge the vectors of a translated STORE by models that were trained on those of a full re-embed.

    A linear probe and kNN are trained on one half of the labelled documents, and with --outside a detector; the other
    half is judged by its true and by its translated vectors. Prints SAFE (exit 0), NOT SAFE (1) or INCONCLUSIVE (3) by
    the worst of them. The model embeds a few documents, which prove the reference.
    """
    from migrate.lab.labels.report import downstream_blocks, downstream_document, downstream_suite
    from migrate.report.terminal import as_text

    request.check()
    step = replace(request, margin_from=MarginOptions(request.margin, accept_margin).origin)
    if page := outputs.first(".html"):
        raise UsageError(f"--report {page}: there is no page by labels; name a file .json or .xml")
    store, reference = str(step.store), str(step.reference)
    labels, outside = cast("str | Path", step.labels), cast("str | Path | None", step.outside)
    model = models_for(model, dry_run=dry_run)
    options.refuse_missing(store, reference, labels, target=step.target)
    outputs.refuse(*options.local_paths(store, reference, labels, outside), force=step.force)
    with progress_bar() as progress:
        target = load_model_of(step.translated, cast("str | None", step.target), "--target", model)
        step = replace(step, target=target, progress=progress)
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
    outputs.leave(document, str, downstream_suite(downstream, store), force=step.force)
    return EXIT_CODES[downstream.outcome.value]
