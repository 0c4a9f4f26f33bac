"""`lead-migrate run`: the whole path in one command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrate.audit.step import BUILD, POOL
from migrate.cli import options
from migrate.cli.next_step import (
    advise_recommendation,
    is_out_of_sight,
    model_words,
    path_beside,
    typed_again,
    typed_model,
    warn_of_place,
)
from migrate.cli.options import (
    CI,
    GeneralOptions,
    LearningOptions,
    MarginOptions,
    ModelOptions,
    Outputs,
    QueryOptions,
    ci_options,
    option,
)
from migrate.cli.pages import open_page
from migrate.cli.pages import opens as open_option
from migrate.cli.same import stop_if_same
from migrate.cli.spending import SpendingOptions, spending_options
from migrate.cli.terminal import advise, progress_bar, show
from migrate.cli.unread import warn_of_plan, with_unread
from migrate.cli.verdict import load_model_of, show_finished, show_report

if TYPE_CHECKING:
    from migrate.embedders.base import Embedder
    from migrate.stores.base import Store


@options.command(
    "run",
    "The whole path in one command.",
    example="lead-migrate run my-store --target tfidf:64 --beir my-beir -o migration",
)
@click.argument("store", type=options.STORE)
@options.target
@options.query_options
@options.output
@option(
    "--reference",
    type=click.Choice([POOL, BUILD]),
    default=POOL,
    help="What to compare with: a `pool` of documents that are embedded now, or every document (`build`).",
)
@options.learning_options
@options.margin_options
@options.plan
@options.price
@spending_options
@options.model_options
@ci_options
@open_option
@options.general_options(options.seed, options.force, options.restart, options.as_json, options.verbose, options.quiet)
def command(
    store: str,
    target: str,
    judged: QueryOptions,
    output: Path,
    reference: str,
    learning: LearningOptions,
    asked: MarginOptions,
    plan: str,
    price: float | None,
    spending: SpendingOptions,
    model: ModelOptions,
    ci: CI,
    opens: bool,
    general: GeneralOptions,
) -> int:
    """Fit, translate and audit; everything is left in one folder.

    The audit embeds a pool of documents, no more than the verdict needs; with --reference build, every document is
    embedded for comparison.

    The same command again goes on where a run broke off, and says the verdict again where it did not. With another
    --reference, other queries, another margin or price it keeps the stitch and the translated store, and audits anew.

    The arm `stay` is there when the source model is named, or when the store's manifest says it.
    """
    from migrate.audit.places import Places
    from migrate.audit.query_set import PARENT_FIELD
    from migrate.files import refuse_overlap
    from migrate.pipeline import PAGE, MigrationRequest, finished_run, plan_migration
    from migrate.report.document import recommendation_document
    from migrate.report.fit import choice_sentence
    from migrate.report.terminal import candidates_table, wrap
    from migrate.stores import open_store

    quiet, force = general.quiet, general.force
    judged.require(by_pool=reference == POOL)
    read = options.local_paths(store, judged.location)
    refuse_overlap(output, *read)
    ci.refuse(*read, force=force)
    with progress_bar(quiet=quiet) as progress:
        opened = open_store(store, verify=True)
        is_inside = warn_of_place(opened, output, quiet=quiet)
        embedder = model.load(target, seed=general.seed)
        stop_if_same("run", opened, embedder, as_json=general.as_json)
        old = _source_model(opened, learning.source_model, model)
        if old is None:
            advise("no --source-model: the audit cannot say whether staying would be better", quiet=quiet)
        questions = judged.load(opened, parent_field=PARENT_FIELD, seed=general.seed, progress=progress)
        paid = spending.open(quiet=quiet)
        request = MigrationRequest(
            opened,
            embedder,
            with_unread(questions, opened, embedder, seed=general.seed, quiet=quiet),
            output,
            source_embedder=old,
            stitch=learning.stitches,
            size=learning.size,
            strategy=learning.strategy,
            query_log=learning.load_log(old),
            prefix=learning.prefix,
            price_usd_per_mtok=price,
            margin=asked.margin,
            margin_from=asked.origin,
            plan=plan,
            places=Places(
                full=str(path_beside(opened, "full")) if is_inside else "",
                target=("--target", target, *typed_model()),
                model=(*map(str, model_words("--target", target)), *typed_model()),
                again=tuple(typed_again()),
            ),
            pool=reference == POOL,
            announce=lambda step: advise(step.sentence, quiet=quiet),
            seed=general.seed,
            force=force,
            restart=general.restart,
        )
        finished = None if force or general.restart else finished_run(request)
        if finished is not None:
            advise("this run has come to its end before; nothing is done again", quiet=quiet)
            code = show_finished(finished, ci, general)
        else:
            planned = plan_migration(request)
            if planned.kept.outputs:
                anew = f" with other values of {', '.join(planned.kept.changed)}" if planned.kept.changed else ""
                advise(f"stitch and translated store are there; only the audit is made anew{anew}", quiet=quiet)
            else:
                warn_of_plan(planned.fit, quiet=quiet)
            judged.offer_hold_out(planned.questions, opened, embedder, by_pool=reference == POOL, quiet=quiet)
            if reference == POOL and not planned.kept.outputs:
                places = request.known_places
                words = [store, *places.target, "-o", places.full]
                deal = paid.weigh(planned, opened, "fit and audit", words, seed=general.seed)
                planned = replace(planned, documents_per_s=None if deal is None else deal.documents_per_s)
            paid.agree(planned, progress=progress)
            stop_if_same("run", opened, planned.models[0].embedder, paid=paid, as_json=general.as_json)
            done = planned.run(cap_usd=paid.cap_usd, progress=progress)
    if finished is None:
        paid.finish()
        for line in wrap(choice_sentence(done.stitch.selection)).splitlines():
            advise(line, quiet=quiet)
        if general.verbose and not general.as_json:
            show(candidates_table(done.stitch.selection) + "\n")
            if learning.query_log is not None:
                show(options.log_sentence(done.stitch.manifest, by_vectors=old is not None) + "\n")
        code = show_report(done.report, Outputs(None, None, ci), general, page=output / PAGE)
    if not general.as_json:
        found = finished.document.get("recommendation") if finished else recommendation_document(done.report)
        advise_recommendation(found, quiet=quiet)
    open_page(output / PAGE, opens=opens, quiet=quiet)
    return code


def _source_model(store: Store, spec: str | None, model: ModelOptions) -> Embedder | None:
    """The model that was named, or the one that the store says it was built with, where that can be had."""
    manifest = store.info.manifest
    recorded = manifest.model if manifest is not None else None
    if spec is None and (recorded is None or is_out_of_sight(recorded)):
        return None
    return load_model_of(store, spec, "--source-model", model.for_source())
