"""`lead-migrate audit`: a translated store against a full re-embed."""

from __future__ import annotations

from pathlib import Path

import click

from migrate.cli import options
from migrate.cli.audit_inputs import (
    BUILD,
    built_already,
    open_bridge,
    open_reference,
    open_source,
    texts_to_build,
)
from migrate.cli.frontier import asked_queries, read_depths, read_trial
from migrate.cli.options import ModelOptions, option
from migrate.cli.outlets import Outlets, report_options
from migrate.cli.spending import Asked, SpendingOptions, spending_options
from migrate.cli.terminal import progress_bar
from migrate.cli.unread import with_unread
from migrate.cli.verdict import load_model_of, load_questions, show_report
from migrate.cli.views import asked_of_views, metered_views


@options.command(
    "audit",
    "A verdict on a translated store.",
    example="lead-migrate audit new-store --reference build --beir my-beir --source my-store",
)
@click.argument("store", type=options.PATH)
@option(
    "--reference",
    required=True,
    metavar="STORE|build",
    help="Full re-embed to compare with, or `build` to embed every text now.",
)
@option("--save-reference", type=options.PATH, help="Folder to keep what `--reference build` embeds.")
@options.beir
@options.split
@option("--target", metavar="SPEC", help="Model to embed the queries with.  [default: the store's own]")
@option("--source", type=options.PATH, help="Store before the migration: adds the arm `stay`.")
@options.source_model
@option(
    "--bridge",
    type=options.PATH,
    metavar="STITCH",
    help="Stitch of `fit --direction query`: adds the arm `bridge`, which asks --source with the new model's queries.",
)
@option(
    "--two-stage",
    metavar="N,N|none",
    default="50,200",
    help="Adds an arm for each N: the store's first N for a query, embedded by the target model and ranked anew.",
)
@option(
    "--frontier",
    "shares",
    is_flag=False,
    flag_value="10%,20%,30%,50%",
    metavar="10%,20%,...",
    help="Try what re-embedding these shares of --source would keep.  [without shares: 10, 20, 30 and 50 %]",
)
@option("--stitch", type=options.PATH, help="Stitch that --frontier starts from, fitted on --source.")
@option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(["query-log", "confidence", "random"]),
    help="What --frontier chooses documents by; can be repeated. One alone, decided on beforehand, has narrower "
    "bounds.  [default: all that can be used]",
)
@options.query_log
@options.price
@option("--no-bm25", is_flag=True, help="Leave out the lexical arm.")
@options.parent_field
@options.margin
@spending_options
@options.model_options
@options.seed
@options.force
@options.restart
@options.slices
@report_options
@options.as_json
@options.quiet
def command(
    store: Path,
    reference: str,
    save_reference: Path | None,
    beir: str,
    split: str,
    target: str | None,
    source: Path | None,
    source_model: str | None,
    bridge: Path | None,
    two_stage: str,
    shares: str | None,
    stitch: Path | None,
    policies: tuple[str, ...],
    query_log: Path | None,
    price: float | None,
    no_bm25: bool,
    parent_field: str,
    margin: float,
    spending: SpendingOptions,
    model: ModelOptions,
    seed: int,
    force: bool,
    restart: bool,
    slice_fields: tuple[str, ...],
    outlets: Outlets,
    as_json: bool,
    quiet: bool,
) -> int:
    """Judge a translated STORE: SAFE (exit 0), NOT SAFE (1) or INCONCLUSIVE (3), with the numbers behind it.

    With --frontier, it also says what re-embedding a part of --source would keep, and the cheapest budget that is SAFE.
    """
    from dataclasses import replace

    from migrate.audit.audit import audit_store
    from migrate.audit.frontier import frontier
    from migrate.audit.independence import independent
    from migrate.audit.reference import check_target
    from migrate.errors import UsageError
    from migrate.files import refuse_output
    from migrate.sample.choosers import choosers_of
    from migrate.stores import open_store

    depths = read_depths(two_stage)
    trial = read_trial(shares, source, stitch, query_log, policies)
    inputs = [Path(path) for path in (store, reference, beir, source, stitch, query_log) if path is not None]
    if save_reference is not None:
        if reference != BUILD:
            raise UsageError("--save-reference goes with --reference build; leave it out")
        refuse_output(save_reference, *inputs, force=True)  # one that is there may be the one to go on with
    outlets.refuse(*inputs, force=force)  # told before anything is spent
    with progress_bar(quiet=quiet) as progress:
        translated = open_store(store, verify=True)
        questions = load_questions(beir, split, progress)
        paid = spending.watch(load_model_of(translated, target, "--target", model), price=price, quiet=quiet)
        embedder = paid.embedder
        check_target(translated, embedder)  # before a reference is built
        is_kept = built_already(reference, save_reference, translated, embedder, force=force, restart=restart)
        opened, old = open_source(
            source, source_model, model, needed=bridge is not None or trial is not None, quiet=quiet
        )
        old = None if old is None else paid.also(old, "source model")
        crossing = None if bridge is None else open_bridge(bridge, opened, embedder)
        choosers = choosers_of(translated.info.manifest, crossing.manifest if crossing else None)
        # told before anything is spent
        questions = independent(questions, choosers | (trial.choosers if trial else frozenset()))
        further = [Asked(old, queries=questions.queries)]
        if trial is not None and opened is not None:
            trial = replace(trial, fitted=metered_views(trial.fitted, paid, model))
            has_texts = opened.info.has_texts
            further += asked_of_views(trial.fitted, paid, opened.documents, has_texts=has_texts)
        if reference == BUILD:
            questions = with_unread(questions, translated, embedder, seed=seed, quiet=quiet)
        if reference == BUILD or paid.is_paid:
            paid.agree(
                texts_to_build(reference, save_reference, translated, is_kept=is_kept, restart=restart),
                queries=asked_queries(questions, trial),
                further=further,
                progress=progress,
            )
        with open_reference(
            reference, save_reference, translated, embedder, progress, is_kept=is_kept, force=force, restart=restart
        ) as full:
            found = audit_store(
                translated,
                full,
                questions,
                embedder,
                source=opened,
                source_embedder=old,
                bridge=crossing,
                bm25=not no_bm25,
                two_stage=depths,
                slice_fields=slice_fields,
                price_usd_per_mtok=price,
                parent_field=parent_field,
                margin=margin,
                seed=seed,
                progress=progress,
            )
            if trial is not None and opened is not None:
                tried = frontier(
                    opened,
                    trial.fitted,
                    full,
                    questions,
                    embedder,
                    log=trial.log,
                    shares=trial.shares,
                    policies=trial.policies,
                    stay=found.stay,
                    doubts=found.doubts,
                    parent_field=parent_field,
                    price_usd_per_mtok=price,
                    margin=margin,
                    seed=seed,
                    progress=progress,
                )
                found = found.with_frontier(tried)
    paid.finish()
    return show_report(found, outlets, force=force, as_json=as_json)
