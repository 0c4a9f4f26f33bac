"""`lead-migrate audit`: a translated store against a full re-embed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from click.core import ParameterSource

from migrate.audit.audit import open_audit, run_audit
from migrate.audit.document import report_of
from migrate.audit.locations import locations_of
from migrate.audit.options import names_store
from migrate.audit.results import plan_word
from migrate.audit.step import Audit
from migrate.audit_report import read_audit
from migrate.cli.dry_run import models_for, stop_if_dry
from migrate.cli.inputs import local_paths, refuse_missing
from migrate.cli.next_step import (
    advise_other_queries,
    advise_recommendation,
    full_of_file,
    model_words,
    typed_again,
    typed_model,
)
from migrate.cli.options import MarginOptions, ModelOptions, Outputs, source_of
from migrate.cli.progress import progress_bar
from migrate.cli.spending import Spending
from migrate.cli.terminal import advise
from migrate.cli.unread import DOCUMENTS, QUERIES, offer_hold_out, with_unread
from migrate.cli.verdict import load_model_of, show_report, warn_of_few, warn_of_few_queries
from migrate.embedders import special_options
from migrate.embedders.kinds import split_settings, with_settings
from migrate.errors import LeadMigrateError
from migrate.files import free_path
from migrate.reading import MalformedError
from migrate.steps.base import Announce, RunContext, typed_name
from migrate.stores.all_true import is_full_reembed, is_made_from_another
from migrate.stores.switching import successor_of

if TYPE_CHECKING:
    from migrate.audit.audit import AuditJob
    from migrate.audit.inputs import AuditInputs
    from migrate.audit.locations import Locations
    from migrate.cost.deal import Deal
    from migrate.embedders.base import Embedder
    from migrate.stores.base import Store


def command(
    request: Audit,
    accept_margin: float | None,
    yes: bool,
    model: ModelOptions,
    outputs: Outputs,
    dry_run: bool,
    as_json: bool,
    verbose: bool,
) -> int:
    """Judge whether a translated STORE is safe to use."""
    paid = Spending(request.max_cost, is_agreed=yes)
    margin_from = MarginOptions(request.margin, accept_margin).origin
    model = models_for(model, dry_run=dry_run)
    request.check()
    reference = None
    if names_store(request.reference):
        reference = request.reference
    read = [typed_name(location) for location in (request.store, reference, request.queries_location, request.source)]
    refuse_missing(
        request.store,
        request.source,
        request.queries_location,
        reference,
        target=request.target,
    )
    # Before anything is spent
    earlier = _earlier_of_file(outputs)
    force = request.force or bool(earlier)
    outputs.refuse(*local_paths(*read), force=force)
    with advise_other_queries(), progress_bar() as progress:
        announce = Announce(pool=lambda step: advise(step.sentence))
        context = RunContext(progress=progress, announce=announce, margin_from=margin_from)
        job = open_audit(request, context, partial(_load, model))
        inputs = _warned(request, job.inputs)
        locations = _locations_of(request, inputs, outputs)
        stop_if_dry(dry_run, reads=read, writes=outputs.report, job=job, as_json=as_json)
        deal = _agreed(job, locations, paid, str(request.store))
        result = run_audit(inputs)
    rate = None if deal is None else deal.documents_per_s
    report = report_of(replace(result, locations=locations, documents_per_s=rate))
    paid.finish()
    page = outputs.first(".html")
    # Only now, as an audit that fails replaces nothing
    for path, created in earlier.items():
        advise(f"{path}: the audit of {created} is replaced")
    code = show_report(report, outputs, page=page, as_json=as_json, verbose=verbose, force=force)
    if not as_json:
        advise_recommendation(report.recommendation)
    return code


def _earlier_of_file(outputs: Outputs) -> dict[Path, str]:
    """Return the times of earlier audits whose reports are in the place that a settings file names, by path.

    The file has one report, that of its migration as it is now, so the next audit replaces it without being told to.
    None are returned where one of the files that are there is something else.
    """
    if source_of("report") is not ParameterSource.DEFAULT_MAP:
        return {}
    earlier = {}
    for path in filter(Path.exists, outputs.report):
        try:
            earlier[path] = str((read_audit(str(path)).get("manifest") or {}).get("created"))
        except (OSError, MalformedError, LeadMigrateError):
            return {}
    return earlier


def _load(model: ModelOptions, store: Store, spec: Embedder | str | None, role: str) -> Embedder:
    """Load the model of a store by the options of the command."""
    options_of_role = model if role == "target" else model.for_source()
    return load_model_of(store, spec, f"--{role.replace('_', '-')}", options_of_role)


def _warned(request: Audit, inputs: AuditInputs) -> AuditInputs:
    """Say what an audit cannot tell, and what models leave unread; return the inputs with notes of that."""
    if is_full_reembed(inputs.translated):
        without = "an audit"
        if plan_word(request.plan) != inputs.settings.plan:
            without = f"the plan {plan_word(request.plan)}, so that is left out, and without an audit"
        advise(f"{request.store}: every vector is the model's own already: `switch` takes the store without {without}")
    if inputs.source is None:
        advise("no --source: the audit cannot say whether staying would be better")
    elif inputs.source_embedder is None:
        advise("no --source-model: the audit cannot say whether staying would be better")
    if request.is_pooled and request.hold_out is None:
        offer_hold_out(inputs.query_set, inputs.translated, inputs.embedder)
    if inputs.full is not None:
        return inputs
    warned: tuple[str, ...] = (DOCUMENTS, QUERIES)
    # `fit` has warned of the documents of a store that a stitch was fitted for
    if is_made_from_another(inputs.translated):
        warned = (QUERIES,)
    seed = inputs.settings.seed
    queries = with_unread(inputs.query_set, inputs.translated, inputs.embedder, seed=seed, warned=warned)
    return replace(inputs, query_set=queries)


def _agreed(job: AuditJob, locations: Locations, paid: Spending, store: str) -> Deal | None:
    """Say what an audit costs beside a full re-embed, and ask where that is too much."""
    inputs = job.inputs
    is_built = inputs.full is None
    if is_built:
        warn_of_few_queries(inputs.query_set)
    arguments = [locations.source or store, *locations.target, "-o", locations.full]
    is_small = is_built and warn_of_few(inputs.translated, arguments)
    deal = None
    is_weighed = is_built and not inputs.builds_reference and locations.has_texts and not is_small
    # There is nothing to weigh against a full re-embed that is one itself
    if is_weighed and not is_full_reembed(inputs.translated):
        deal = paid.weigh(job, inputs.translated, "the audit", arguments, seed=inputs.settings.seed)
    # With a reference that is there only queries are embedded, which is worth no line where they cost nothing
    if is_built or any(model.meter is not None for model in job.models):
        paid.agree(job, progress=inputs.progress)
    job.cap.cap_usd = paid.cap_usd
    return deal


def _locations_of(request: Audit, inputs: AuditInputs, outputs: Outputs) -> Locations:
    """Return the names for the next command, as they were typed here or are noted in the store."""
    typed = typed_model()
    target = typed_name(request.target)
    identity = inputs.embedder.identity
    bare, settings = split_settings(target or identity.spec)
    spec = with_settings(bare, {**special_options(identity), **settings})
    locations = locations_of(inputs.translated, inputs.source, inputs.embedder, inputs.source_embedder)
    full = None
    if inputs.source is None or not successor_of(inputs.source, "full"):
        full = full_of_file(typed_name(request.source), target)
    return replace(
        locations,
        full=full or locations.full,
        target=("--target", spec, *typed),
        model=(*map(str, model_words("--target", target)), *typed),
        report=typed_name(outputs.first(".json")),
        audit_again=(*typed_again(), f"--report={free_path(Path('report.json'))}"),
    )
