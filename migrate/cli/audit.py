"""`lead-migrate audit`: a translated store against a full re-embed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrate.cli import options
from migrate.cli.frontier import read_depths, read_trial
from migrate.cli.options import ModelOptions, option
from migrate.cli.spending import SpendingOptions, spending_options
from migrate.cli.terminal import advise, progress_bar
from migrate.cli.verdict import load_model_of, load_questions, show_report

if TYPE_CHECKING:
    from migrate.embedders.base import Embedder
    from migrate.stitch.fitted import FittedStitch
    from migrate.stores.base import Store
    from migrate.vectors import Progress

_BUILD = "build"


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
@option("--report", type=options.PATH, help="File to write the JSON report to.")
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
    report: Path | None,
    as_json: bool,
    quiet: bool,
) -> int:
    """Judge a translated STORE: SAFE (exit 0), NOT SAFE (1) or INCONCLUSIVE (3), with the numbers behind it.

    With --frontier, it also says what re-embedding a part of --source would keep, and the cheapest budget that is SAFE.
    """
    from migrate.audit.audit import audit_store
    from migrate.audit.frontier import frontier
    from migrate.files import refuse_existing, refuse_overlap
    from migrate.stores import open_store

    depths = read_depths(two_stage)
    trial = read_trial(shares, source, stitch, query_log)
    inputs = [Path(path) for path in (store, reference, beir, source, stitch, query_log) if path is not None]
    if save_reference is not None:
        refuse_overlap(save_reference, *inputs)
    if report is not None:
        refuse_overlap(report, *inputs)
        refuse_existing(report, force=force)  # told before anything is spent
    with progress_bar(quiet=quiet) as progress:
        translated = open_store(store)
        questions = load_questions(beir, split, progress)
        paid = spending.watch(load_model_of(translated, target, "--target", model), price=price, quiet=quiet)
        embedder = paid.embedder
        opened, old = _stay(source, source_model, model, needed=bridge is not None or trial is not None, quiet=quiet)
        crossing = None if bridge is None else _bridge(bridge, opened, embedder)
        if reference == _BUILD:
            paid.agree(translated.documents, queries=questions.queries, progress=progress)
        with _reference(
            reference, save_reference, translated, embedder, progress, force=force, restart=restart
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
                price_usd_per_mtok=price,
                parent_field=parent_field,
                margin=margin,
                seed=seed,
                progress=progress,
            )
            tried = None
            if trial is not None and opened is not None:
                tried = frontier(
                    opened,
                    trial.fitted,
                    full,
                    questions,
                    embedder,
                    log=trial.log,
                    shares=trial.shares,
                    stay=found.stay,
                    parent_field=parent_field,
                    price_usd_per_mtok=price,
                    margin=margin,
                    seed=seed,
                    progress=progress,
                )
    paid.finish()
    return show_report(found, report, tried, force=force, as_json=as_json)


def _stay(
    source: Path | None, source_model: str | None, model: ModelOptions, *, needed: bool, quiet: bool
) -> tuple[Store | None, Embedder | None]:
    """The source store and its model, or why there is no arm `stay`; what else needs the store needs no model."""
    from migrate.stores import open_store

    if source is None:
        advise("no --source: the audit cannot say whether staying would be better", quiet=quiet)
        return None, None
    opened = open_store(source)
    known = opened.info.manifest
    if needed and source_model is None and (known is None or known.model is None):
        advise("no --source-model: the audit cannot say whether staying would be better", quiet=quiet)
        return opened, None
    return opened, load_model_of(opened, source_model, "--source-model", model.for_source())


def _bridge(path: Path, source: Store | None, embedder: Embedder) -> FittedStitch:
    """The stitch of the arm `bridge`, refused before anything is embedded if it cannot be used."""
    from migrate.audit.bridge import bridged_store
    from migrate.stitch.fitted import load_stitch

    fitted = load_stitch(path)
    bridged_store(fitted, source, embedder.identity)
    return fitted


@contextmanager
def _reference(
    reference: str,
    keep: Path | None,
    translated: Store,
    embedder: Embedder,
    progress: Progress,
    *,
    force: bool,
    restart: bool,
) -> Iterator[Store]:
    """The store to compare with: one that is there, or one that is embedded now and kept only if asked for."""
    from migrate.embed import is_reembedded, reembed_store
    from migrate.stores import open_store

    if reference != _BUILD:
        yield open_store(Path(reference))
        return
    if keep is not None and not (force or restart) and is_reembedded(translated, embedder, keep):
        # An earlier run came that far, and broke off in the audit.
        yield open_store(keep)
        return
    with tempfile.TemporaryDirectory() as aside:
        path = keep or Path(aside) / "reference"
        reembed_store(translated, embedder, path, force=force, restart=restart, progress=progress)
        yield open_store(path)
