"""`lead-migrate audit`: a translated store against a full re-embed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from migrate.audit.options import BUILD, POOL
from migrate.audit.step import Audit
from migrate.cli import options
from migrate.cli.dry_run import DRY_RUN, models_for, stop_if_dry
from migrate.cli.next_step import advise_other_queries, advise_recommendation, model_words, typed_again, typed_model
from migrate.cli.options import MarginOptions, ModelOptions, Outputs, report_options
from migrate.cli.spending import Spending
from migrate.cli.steps import step_options
from migrate.cli.terminal import advise, progress_bar
from migrate.cli.unread import DOCUMENTS, QUERIES, offer_hold_out, with_unread
from migrate.cli.verdict import load_model_of, show_report, warn_of_few, warn_of_few_queries
from migrate.files import free_path

if TYPE_CHECKING:
    from migrate.audit.locations import Locations
    from migrate.audited.report import AuditReport
    from migrate.vectors import Progress


@options.command(
    "audit",
    example="lead-migrate audit new-store --reference build --judged my-beir --source my-store",
)
@step_options(Audit)
@options.accept_margin
@options.model_options
@report_options
@DRY_RUN
@options.as_json
@options.verbose
@options.quiet
def command(
    request: Audit,
    accept_margin: float | None,
    paid: Spending,
    model: ModelOptions,
    outputs: Outputs,
    dry_run: bool,
    as_json: bool,
    verbose: bool,
) -> int:
    """Judge whether a translated STORE is safe to use.

    Prints SAFE (exit 0), NOT SAFE (1) or INCONCLUSIVE (3), with the numbers behind it. With --reference pool, it embeds
    a small part of the documents, and more only until the verdict is settled or --max-cost is reached; what is SAFE by
    judged queries then is SAFE against a full re-embed.
    """
    from migrate.stores.all_true import is_made_from_another

    step = replace(
        request,
        margin_from=MarginOptions(request.margin, accept_margin).origin,
        announce=lambda step: advise(step.sentence),
    )
    sources = (request.store, request.reference, request.queries_location, request.source)
    read = cast("tuple[str | Path | None, ...]", sources)
    paths = options.local_paths(*read)
    model = models_for(model, dry_run=dry_run)
    request.check()
    reference = None if request.reference in (BUILD, POOL) else request.reference
    options.refuse_missing(
        request.store,
        request.source,
        request.queries_location,
        reference,
        target=request.target,
    )
    outputs.refuse(*paths, force=request.force)  # refused before anything is spent
    with advise_other_queries(), progress_bar() as progress:
        step = _opened(step, model, progress)
        inputs = step.inputs
        if request.is_pooled and request.hold_out is None:
            offer_hold_out(inputs.query_set, inputs.translated, inputs.embedder)
        if inputs.full is None:
            # `fit` has warned of the documents of a store that a stitch was fitted for
            warned = (QUERIES,) if is_made_from_another(inputs.translated) else (DOCUMENTS, QUERIES)
            queries = with_unread(inputs.query_set, inputs.translated, inputs.embedder, seed=step.seed, warned=warned)
            step = replace(step, judged=queries)
        locations = _locations_of(step, request, outputs)
        reads = [location for location in read if location not in (BUILD, POOL)]
        stop_if_dry(dry_run, reads=reads, writes=outputs.report, step=step, as_json=as_json)
        report = _run(step, locations, paid, str(request.store))
    paid.finish()
    page = outputs.first(".html")
    code = show_report(report, outputs, page=page, as_json=as_json, verbose=verbose, force=request.force)
    if not as_json:
        advise_recommendation(report.recommendation)
    return code


def _opened(request: Audit, model: ModelOptions, progress: Progress) -> Audit:
    """Return the audit with its stores, models and queries, loaded as the command says."""
    from migrate.steps.opening import store_of

    step = replace(request, progress=progress)
    translated = store_of(request.store, verify=True)
    target = load_model_of(translated, cast("str | None", request.target), "--target", model)
    queries = step.load_queries(translated, parent_field=step.parent_field)
    step = replace(step, store=translated, judged=queries, queries=None, hold_out=None, group_field=None, target=target)
    if request.source is None:
        advise("no --source: the audit cannot say whether staying would be better")
    else:
        source = store_of(request.source, verify=True)
        manifest, old = source.info.manifest, cast("str | None", request.source_model)
        step = replace(step, source=source)
        if old is None and (manifest is None or manifest.model is None):
            advise("no --source-model: the audit cannot say whether staying would be better")
        else:
            source_model = load_model_of(source, old, "--source-model", model.for_source())
            step = replace(step, source_model=source_model)
    return step


def _run(step: Audit, locations: Locations, paid: Spending, store: str) -> AuditReport:
    """Say what an audit costs, ask where that is too much, and do it."""
    from migrate.audit.audit import run_audit
    from migrate.audit.document import report_of

    deal = None
    translated = step.inputs.translated
    is_built = step.inputs.full is None
    if is_built:
        warn_of_few_queries(step.inputs.query_set)
    arguments = [locations.source or store, *locations.target, "-o", locations.full]
    is_small = is_built and warn_of_few(translated, arguments)
    if step.is_pooled and locations.has_texts and not is_small:
        deal = paid.weigh(step, translated, "the audit", arguments, seed=step.seed)
    if is_built or any(model.meter is not None for model in step.models):
        paid.agree(step, progress=step.progress)
    step.cap.cap_usd = paid.cap_usd
    result = run_audit(step, step.inputs)
    rate = None if deal is None else deal.documents_per_s
    return report_of(replace(result, locations=locations, documents_per_s=rate))


def _locations_of(step: Audit, request: Audit, outputs: Outputs) -> Locations:
    """Return the names for the next command, as they were typed here or are noted in the store."""
    from migrate.audit.locations import locations_of
    from migrate.embedders import special_options
    from migrate.embedders.kinds import split_settings, with_settings

    typed, target = typed_model(), cast("str | None", request.target)
    inputs = step.inputs
    identity = inputs.embedder.identity
    bare, settings = split_settings(target or identity.spec)
    spec = with_settings(bare, {**special_options(identity), **settings})
    return replace(
        locations_of(inputs.translated, inputs.source, inputs.embedder, inputs.source_embedder),
        target=("--target", spec, *typed),
        model=(*map(str, model_words("--target", target)), *typed),
        report=None if (report_file := outputs.first(".json")) is None else str(report_file),
        audit_again=(*typed_again(), f"--report={free_path(Path('report.json'))}"),
    )
