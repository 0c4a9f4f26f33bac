"""`lead-migrate audit`: a translated store against a full re-embed.

What `audit` opens besides the translated store: the source, the bridge, the reference.

What `audit` reads for its further arms: the depths of two-stage, and what a frontier is tried with.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrate.cli import options
from migrate.cli.options import ModelOptions, Outlets, option, report_options
from migrate.cli.spending import Asked, SpendingOptions, asked_of_views, metered_views, spending_options
from migrate.cli.terminal import advise, progress_bar
from migrate.cli.unread import with_unread
from migrate.cli.verdict import asked_paths, load_asked, load_model_of, show_report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migrate.audit.query_set import QuerySet
    from migrate.cli.options import ModelOptions
    from migrate.embedders.base import Embedder
    from migrate.stitch.fitted import FittedStitch
    from migrate.stores.base import Store
    from migrate.vectors import Document, Progress, Query

BUILD = "build"


def open_source(
    source: Path | None, source_model: str | None, model: ModelOptions, *, needed: bool, quiet: bool
) -> tuple[Store | None, Embedder | None]:
    """The source store and its model, or why there is no arm `stay`; what else needs the store needs no model."""
    from migrate.stores import open_store

    if source is None:
        advise("no --source: the audit cannot say whether staying would be better", quiet=quiet)
        return None, None
    opened = open_store(source, verify=True)
    known = opened.info.manifest
    if needed and source_model is None and (known is None or known.model is None):
        advise("no --source-model: the audit cannot say whether staying would be better", quiet=quiet)
        return opened, None
    return opened, load_model_of(opened, source_model, "--source-model", model.for_source())


def open_bridge(path: Path, source: Store | None, embedder: Embedder) -> FittedStitch:
    """The stitch of the arm `bridge`, refused before anything is embedded if it cannot be used."""
    from migrate.audit.inputs import bridged_store
    from migrate.stitch.persistence import load_stitch

    fitted = load_stitch(path)
    bridged_store(fitted, source, embedder.identity)
    return fitted


def built_already(
    reference: str, keep: Path | None, translated: Store, embedder: Embedder, *, force: bool, restart: bool
) -> bool:
    """Whether an earlier run has built the reference in the folder `keep`, and broke off in the audit."""
    from migrate.embed import is_reembedded

    anew = reference != BUILD or force or restart
    return keep is not None and not anew and is_reembedded(translated, embedder, keep)


def texts_to_build(
    reference: str, keep: Path | None, translated: Store, *, is_kept: bool, restart: bool
) -> Callable[[], Iterable[Document]]:
    """What starts reading the documents that are embedded for the reference: all, or those that prove it."""
    from migrate.audit.reference import spot_documents
    from migrate.embed.reference import documents_left
    from migrate.stores import open_store

    if reference != BUILD:
        return lambda: spot_documents(open_store(Path(reference)))
    if is_kept:
        return tuple
    return translated.documents if keep is None else lambda: documents_left(translated, keep, restart=restart)


@contextmanager
def open_reference(
    reference: str,
    keep: Path | None,
    translated: Store,
    embedder: Embedder,
    progress: Progress,
    *,
    is_kept: bool,
    force: bool,
    restart: bool,
) -> Iterator[Store]:
    """The store to compare with: one that is there, or one that is embedded now and kept only if asked for."""
    from migrate.embed import reembed_store
    from migrate.stores import open_store

    if reference != BUILD:
        yield open_store(Path(reference), verify=True)
        return
    if keep is not None and is_kept:
        yield open_store(keep)
        return
    with tempfile.TemporaryDirectory() as aside:
        path = keep or Path(aside) / "reference"
        try:
            reembed_store(translated, embedder, path, force=force, restart=restart, progress=progress)
        except KeyboardInterrupt as error:
            if keep is None:
                error.__notes__ = []  # of parts that are done, in a folder that goes away now
            raise
        yield open_store(path)


@dataclass(frozen=True, slots=True)
class Trial:
    """Shares (0-1) and policies to try, the stitch to start from, and the queries of a log that choose documents.

    No policies stand for all that can be used.
    """

    shares: Sequence[float]
    fitted: FittedStitch
    log: Sequence[Query]
    policies: Sequence[str]

    @property
    def choosers(self) -> frozenset[str]:
        """The queries that chose documents, or are going to, as `migrate.selection.query_log` has them."""
        from migrate.selection.query_log import choosers_of, digests_of

        return choosers_of(self.fitted.manifest) | digests_of(self.log)


def read_depths(text: str) -> tuple[int, ...]:
    """The depths of the two-stage arms; none for `none`.

    Raises
    ------
    UsageError
        They are not numbers above 0.
    """
    from migrate.errors import UsageError

    if text.strip().lower() == "none":
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise UsageError(f"--two-stage: expected numbers of documents such as 50,200, or none, found {text!r}")
    return tuple(int(part) for part in parts)


def read_trial(
    shares: str | None, source: Path | None, stitch: Path | None, query_log: Path | None, policies: Sequence[str]
) -> Trial | None:
    """What a frontier is tried with; None where it is not asked for.

    Raises
    ------
    UsageError
        A share is none, an option is missing or means nothing without the others, or the stitch's confidence is not
        to be used and the policy of that name is asked for.
    StitchError, ManifestError, DatasetError, OutputError
        The stitch or the log cannot be read.
    """
    from migrate.datasets.records import read_query_log
    from migrate.errors import UsageError
    from migrate.reembed import Budget, require_confidence
    from migrate.reembed.plan import QUERY_LOG
    from migrate.selection.query_log import MOST_QUERIES
    from migrate.stitch.persistence import load_stitch

    if shares is None:
        for flag, value in (("--stitch", stitch), ("--query-log", query_log), ("--policy", policies)):
            if value:
                raise UsageError(f"{flag} goes with --frontier; add --frontier, or leave it out")
        return None
    if source is None or stitch is None:
        raise UsageError("--frontier: expected --source STORE and the --stitch fitted on it, found fewer; name both")
    budgets = [Budget.parse(part) for part in shares.split(",")]
    if any(budget.unit != "share" for budget in budgets):
        raise UsageError(f"--frontier: expected shares of the store such as 10%,30%, found {shares!r}")
    fitted = load_stitch(stitch)
    if "confidence" in policies:
        require_confidence(fitted)  # told before anything is spent
    log: Sequence[Query] = ()
    if query_log is not None and (not policies or QUERY_LOG in policies):
        log = read_query_log(query_log)[:MOST_QUERIES]
    return Trial([budget.amount for budget in budgets], fitted, log, policies)


def asked_queries(questions: QuerySet, trial: Trial | None) -> Sequence[Query]:
    """The queries that the target model is asked for; what is asked for again is in the cache by then."""
    return [*questions.queries, *(() if trial is None else trial.log)]


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
@options.queries
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
    beir: str | None,
    queries: str | None,
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
    from migrate.audit.frontier import FrontierInputs, find_frontier
    from migrate.audit.inputs import AuditInputs, AuditOptions
    from migrate.audit.query_set import independent
    from migrate.audit.reference import check_target, spot_documents
    from migrate.errors import UsageError
    from migrate.files import refuse_output
    from migrate.selection.query_log import choosers_of
    from migrate.stores import open_store

    depths = read_depths(two_stage)
    trial = read_trial(shares, source, stitch, query_log, policies)
    inputs = [Path(path) for path in (store, reference, source, stitch, query_log) if path is not None]
    inputs += asked_paths(beir, queries)
    if save_reference is not None:
        if reference != BUILD:
            raise UsageError("--save-reference goes with --reference build; leave it out")
        refuse_output(save_reference, *inputs, force=True)  # one that is there may be the one to go on with
    outlets.refuse(*inputs, force=force)  # told before anything is spent
    with progress_bar(quiet=quiet) as progress:
        translated = open_store(store, verify=True)
        questions = load_asked(
            beir, queries, translated, split=split, parent_field=parent_field, seed=seed, progress=progress
        )
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
        further = [Asked(old, lambda: spot_documents(opened) if opened else (), queries=questions.queries)]
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
            audit_options = AuditOptions(
                bm25=not no_bm25,
                two_stage=depths,
                slice_fields=slice_fields,
                price_usd_per_mtok=price,
                parent_field=parent_field,
                margin=margin,
                seed=seed,
            )
            found = audit_store(
                AuditInputs(translated, full, questions, embedder, source=opened, source_embedder=old, bridge=crossing),
                audit_options,
                progress=progress,
            )
            if trial is not None and opened is not None:
                budgets = find_frontier(
                    FrontierInputs(
                        opened,
                        trial.fitted,
                        full,
                        questions,
                        embedder,
                        log=trial.log,
                        stay=found.stay,
                        doubts=found.doubts,
                    ),
                    shares=trial.shares,
                    policies=trial.policies,
                    options=audit_options,
                    progress=progress,
                )
                found = found.with_frontier(budgets)
    paid.finish()
    return show_report(found, outlets, force=force, as_json=as_json)
