"""`lead-migrate run`: the whole path in one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrate.cli import options
from migrate.cli.audit import BUILD, POOL
from migrate.cli.next_step import advise_next, advise_switch, free_path, is_out_of_sight, model_words, store_word
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
    from migrate.audit.inputs import PoolReference
    from migrate.audit.query_set import PARENT_FIELD
    from migrate.files import refuse_overlap
    from migrate.pipeline import PAGE, STITCH, STORE, MigrationRequest, finished_run, plan_migration
    from migrate.report.document import choice_document
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
            pool=PoolReference(on_step=lambda step: advise(step.sentence, quiet=quiet)) if reference == POOL else None,
            seed=general.seed,
            force=force,
            restart=general.restart,
        )
        finished = None if force or general.restart else finished_run(request)
        if finished is not None:
            advise("this run has come to its end before; nothing is done again", quiet=quiet)
            code = show_finished(finished, ci, general)
        else:
            plan = plan_migration(request)
            if plan.kept.outputs:
                anew = f" with other values of {', '.join(plan.kept.changed)}" if plan.kept.changed else ""
                advise(f"stitch and translated store are there; only the audit is made anew{anew}", quiet=quiet)
            else:
                warn_of_plan(plan.fit, quiet=quiet)
            judged.offer_hold_out(plan.questions, opened, embedder, by_pool=reference == POOL, quiet=quiet)
            paid.agree(plan, progress=progress)
            stop_if_same("run", opened, plan.models[0].embedder, by_vectors=True, as_json=general.as_json)
            done = plan.run(cap_usd=paid.cap_usd, progress=progress)
    if finished is None:
        paid.finish()
        advise(wrap(choice_sentence(done.stitch.selection)), quiet=quiet)
        if general.verbose and not general.as_json:
            show(candidates_table(done.stitch.selection) + "\n")
            if learning.query_log is not None:
                show(options.log_sentence(done.stitch.manifest, by_vectors=old is not None) + "\n")
        code = show_report(done.report, Outputs(None, None, ci), general, page=output / PAGE)
    if not general.as_json:
        choice = finished.document["choice"] if finished is not None else choice_document(done.report)
        server = _on_server(opened, output / STORE, quiet)
        if code == 0 and server is not None:
            advise_next("translate", store_word(store), output / STITCH, "-o", server, quiet=quiet)
        elif code == 0 and open_store(output / STORE).info.kind == opened.info.kind:
            document = finished.document["verdict"] if finished is not None else None
            provisional = done.report.verdict.provisional if document is None else document["provisional"]
            advise_switch(store_word(store), output / STORE, provisional=provisional, quiet=quiet)
        else:
            step = choice["step"] if choice else None
            _advise_step(step, store, output, target, judged, learning.source_model, quiet)
    open_page(output / PAGE, opens=opens, quiet=quiet)
    return code


def _source_model(store: Store, spec: str | None, model: ModelOptions) -> Embedder | None:
    """The model that was named, or the one that the store says it was built with, where that can be had."""
    manifest = store.info.manifest
    recorded = manifest.model if manifest is not None else None
    if spec is None and (recorded is None or is_out_of_sight(recorded)):
        return None
    return load_model_of(store, spec, "--source-model", model.for_source())


def _on_server(old: Store, new: Path, quiet: bool) -> str | None:
    """Where the new store could lie beside an old one on a server, and say that it lies in files; None for others."""
    from migrate.stores import open_store

    location = old.successor("new")
    if location is not None:
        kind = open_store(new).info.kind
        advise(f"{old.info.kind} lies on a server: {new} is {kind} in files; `translate` writes there", quiet=quiet)
    return location


def _advise_step(
    step: str | None,
    store: str,
    output: Path,
    target: str,
    judged: QueryOptions,
    source_model: str | None,
    quiet: bool,
) -> None:
    """The command for the step that the report decides for, where there is one, out of what the run has left.

    Where the whole store is to be embedded, it keeps that, and says what a part of it would have been enough for.
    """
    from migrate.audit.options import Step
    from migrate.pipeline import STITCH, STORE

    new_model = model_words("--target", target)
    if step == Step.BACKFILL:
        better = free_path(output.with_name(f"{output.name}-full"))
        advise_next("backfill", output / STORE, "--from-cache", *new_model, "-o", better, quiet=quiet)
    if step != Step.EMBED:
        return
    source = model_words("--source-model", source_model) or (["--source-model", source_model] if source_model else [])
    advise_next(
        "audit", output / STORE,
        "--reference", BUILD, "--save-reference", free_path(output.with_name(f"{output.name}-reference")),
        *judged.words, "--source", store_word(store), *source,
        "--stitch", output / STITCH, *new_model, "--frontier",
        also=("split", "query_log", "price", "margin", "accept_margin", "seed"), quiet=quiet,
    )  # fmt: skip
