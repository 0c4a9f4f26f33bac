"""`lead-migrate assess`: the plans of a migration side by side, with what they cost."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from migrate.cli.dry_run import models_for, stop_if_dry
from migrate.cli.inputs import load_model, local_paths, refuse_missing
from migrate.cli.next_step import JUDGED, advise_next, migration_of, model_words, path_beside, place_of_full
from migrate.cli.options import ModelOptions, Outputs
from migrate.cli.outputs import write_reports
from migrate.cli.progress import progress_bar
from migrate.cli.spending import Spending, cached_texts, warn_of_old_prices
from migrate.cli.terminal import advise, show, show_json
from migrate.cli.verdict import source_model_of, stop_if_same
from migrate.cost.rates import CALIBRATION_TEXTS
from migrate.embedders import facts_of
from migrate.embedders.kinds import split_settings, with_settings
from migrate.errors import UsageError
from migrate.manifest import today
from migrate.pipeline.choose import Choose
from migrate.pipeline.shortlist import choose_job
from migrate.reading import MalformedError, read_table
from migrate.report.assess import assess_document, assess_sections
from migrate.report.page import report_page
from migrate.report.terminal import report_text
from migrate.steps.assess import Assess
from migrate.steps.assess.job import AssessJob
from migrate.steps.base import Announce, RunContext
from migrate.stores import open_store

if TYPE_CHECKING:
    from migrate.cli.commands.assess import Judging
    from migrate.embedders.base import Embedder
    from migrate.pipeline.shortlist import Shortlist
    from migrate.stores.base import Store

_ALONE = ("calibrate", "audit", "price")
"""Fields of an assessment that say something of one target, which no queries judge."""


def command(
    request: Assess,
    judging: Judging,
    yes: bool,
    model: ModelOptions,
    outputs: Outputs,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Estimate what moving STORE to another model would cost, or which of several models to move to."""
    # The option can be repeated, so click gives a tuple where Python gives one target
    targets = tuple(map(str, cast("tuple[object, ...]", request.target)))
    if judging.has_queries:
        paid = Spending(judging.max_cost, is_agreed=yes)
        model = models_for(model, dry_run=dry_run)
        _choose(request, targets, judging, paid, model, outputs, force=force, dry_run=dry_run, as_json=as_json)
        return
    if len(targets) > 1:
        raise UsageError(
            "several targets are told apart by queries: give --judged DIR or --queries FILE, or name one --target"
        )
    target = targets[0]
    store = str(request.store)
    read = (store, request.audit)
    # `--report` named the audit to read in earlier versions: with `--force` the old spelling would overwrite it
    _refuse_audits(outputs)
    outputs.refuse(*local_paths(*read), endings=(".json", ".html"), force=force)
    with progress_bar() as progress:
        bare, settings = split_settings(target)
        # Elsewhere a rate slows requests down; here it is how fast the whole store would be embedded
        rate = settings.get("rate", model.rate)
        model = replace(model, rate=None)
        target = with_settings(bare, {**settings, "rate": None})
        # Without the cache, which would be no measure of how fast the model is
        embedder = load_model(replace(model, cache="none"), target, seed=request.seed, asks_again=False)
        opened = open_store(store)
        job = AssessJob(
            options=request,
            store=opened,
            embedder=embedder,
            model=embedder.profile.at_price(request.price),
            rate=rate,
            is_own_server=model.base_url is not None,
            cached=cached_texts(model, target, embedder.profile),
            batch_size=settings.get("batch_size", model.batch_size),
            progress=progress,
        )
        stop_if_same("assess", opened, embedder, as_json=as_json)
        if dry_run:
            embeds = []
            if job.is_timed():
                embeds.append(f"to embed: {CALIBRATION_TEXTS} texts by {embedder.profile.spec}, to time them")
            stop_if_dry(dry_run, reads=read, writes=outputs.report, embeds=embeds, as_json=as_json)
        assessment = job.execute()
    warn_of_old_prices([assessment.target])
    document = assess_document(assessment)
    write_reports(outputs, document, lambda: report_page(assess_sections(assessment)), force=force)
    if as_json:
        show_json(document)
        return
    show(report_text(assess_sections(assessment)))
    arguments: list[str | Path] = [store, *(model_words("--target", target) or ["--target", target])]
    if assessment.deal.full_is_better:
        advise_next("reembed", *arguments, "-o", place_of_full(store, target, opened))
    else:
        arguments += ["--judged", JUDGED, "-o", _place_of_run(store, target, opened)]
        advise_next("run", *arguments, also=("price",))


def _choose(
    request: Assess,
    targets: tuple[str, ...],
    judging: Judging,
    paid: Spending,
    model: ModelOptions,
    outputs: Outputs,
    *,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Judge targets by queries, and show them side by side."""
    typed = [it for it in fields(request) if it.name in _ALONE and getattr(request, it.name) != it.default]
    if typed:
        flag = typed[0].name.replace("_", "-")
        raise UsageError(f"--{flag} is for one target that no queries judge; leave it out, or --judged and --queries")
    store = str(request.store)
    step = Choose(
        store,
        targets,
        judged=judging.judged,
        queries=judging.queries,
        sample=judging.sample,
        seed=request.seed,
    )
    step.check()
    refuse_missing(store, step.queries_location)
    outputs.refuse(*local_paths(store, step.queries_location), endings=(".json", ".html"), force=force)
    with progress_bar() as progress:
        opened = open_store(store, verify=True)
        named = {target: load_model(model, target, seed=request.seed) for target in targets}
        context = RunContext(progress=progress, announce=Announce(pool=lambda step: advise(step.sentence)))
        job = choose_job(step, opened, named, _source_model(opened, judging.source_model, model), context)
        reads = [store, step.queries_location]
        stop_if_dry(dry_run, reads=reads, writes=outputs.report, job=job, as_json=as_json)
        if all(planned.embedder.profile.is_paid is False for planned in job.models):
            advise("to embed: the targets cost no money")
        paid.agree_on(job.models, progress=progress)
        job.cap.cap_usd = paid.cap_usd
        shortlist = job.execute()
    paid.finish()
    document = shortlist.as_document()
    write_reports(outputs, document, lambda: report_page(shortlist.to_report()), force=force)
    if as_json:
        show_json(document)
        return
    show(report_text(shortlist.to_report()))
    _advise_best(shortlist, opened, store, judging)


def _source_model(store: Store, spec: str | None, model: ModelOptions) -> Embedder | None:
    """The model of the store, unless its provider has switched it off."""
    recorded = store.info.recorded_model
    if spec is None and recorded is not None:
        # A model that is switched off answers no query: its error would end a choice that can do without it
        entry = facts_of(recorded.spec, recorded.revision)
        if entry is not None and entry.lifecycle.is_off(today()):
            return None
    embedder = source_model_of(store, spec, model)
    if embedder is None:
        advise("no --source-model: whether the targets are better than staying cannot be tested")
    return embedder


def _advise_best(shortlist: Shortlist, store: Store, location: str, judging: Judging) -> None:
    """Print the run that moves the store to the best target, where there is one."""
    if shortlist.best is None:
        return
    arguments: list[str | Path] = [location, "--target", shortlist.best.name]
    if judging.judged is not None:
        arguments += ["--judged", judging.judged]
    else:
        arguments += ["--queries", str(judging.queries)]
    if judging.source_model is not None:
        arguments += ["--source-model", judging.source_model]
    advise_next("run", *arguments, "-o", _place_of_run(location, shortlist.best.name, store))


def _place_of_run(word: str, target: str, store: Store) -> str | Path:
    """Return the folder of a settings file that names this migration, or one beside the store."""
    migration = migration_of(word, target)
    if migration is not None and migration.output is not None:
        return migration.output
    return path_beside(store, "moved")


def _refuse_audits(outputs: Outputs) -> None:
    """Make sure that no report of an audit, which --report named in earlier versions, is replaced."""
    for path in outputs.report:
        with suppress(OSError, MalformedError):
            if read_table(path).get("kind") == "audit":
                raise UsageError(
                    f"--report {path}: a report of an audit is there; --audit reads it; name another output"
                )
