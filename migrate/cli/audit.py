"""`lead-migrate audit`: a translated store against a full re-embed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrate.cli import options
from migrate.cli.next_step import advise_recommendation, model_words, typed_again, typed_model
from migrate.cli.options import (
    GeneralOptions,
    MarginOptions,
    ModelOptions,
    Outputs,
    QueryOptions,
    RunnerOptions,
    option,
    option_group,
    report_options,
)
from migrate.cli.pages import open_page, refuse_open
from migrate.cli.pages import opens as open_option
from migrate.cli.spending import SpendingOptions, spending_options, with_views
from migrate.cli.terminal import advise, progress_bar, show, show_json
from migrate.cli.unread import with_unread
from migrate.cli.verdict import EXIT_CODES, load_model_of, show_report
from migrate.files import free_path
from migrate.steps.base import QUERIES

if TYPE_CHECKING:
    from migrate.audit.downstream import DownstreamAudit
    from migrate.audit.inputs import AuditOptions, FrontierTrial, PoolReference
    from migrate.audit.places import Places
    from migrate.embedders.base import Embedder
    from migrate.stores.base import Store
    from migrate.vectors import Progress, Query

BUILD, POOL = "build", "pool"
TO_JUDGE = 300


def open_source(
    source: str | None, source_model: str | None, model: ModelOptions, *, quiet: bool
) -> tuple[Store | None, Embedder | None]:
    """The source store and its model, or why there is no arm `stay`; nothing else needs the model."""
    from migrate.stores import open_store

    if source is None:
        advise("no --source: the audit cannot say whether staying would be better", quiet=quiet)
        return None, None
    opened = open_store(source, verify=True)
    manifest = opened.info.manifest
    if source_model is None and (manifest is None or manifest.model is None):
        advise("no --source-model: the audit cannot say whether staying would be better", quiet=quiet)
        return opened, None
    return opened, load_model_of(opened, source_model, "--source-model", model.for_source())


def read_depths(text: str | None) -> tuple[int, ...] | None:
    """The depths of the two-stage arms; none for `none`, and None, the usual ones, where nothing is said.

    Raises
    ------
    UsageError
        They are not numbers above 0.
    """
    from migrate.errors import UsageError

    if text is None:
        return None
    if text.strip().lower() == "none":
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise UsageError(f"--two-stage: expected numbers of documents such as 50,200, or none, found {text!r}")
    return tuple(int(part) for part in parts)


def read_prefixes(text: str | None) -> tuple[int, ...]:
    """How many tokens each arm of first tokens embeds of a document; none where nothing is said.

    Raises
    ------
    UsageError
        They are not numbers above 0.
    """
    from migrate.errors import UsageError

    if text is None:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 and int(part) for part in parts):
        raise UsageError(
            f"--prefix: expected numbers of tokens above 0 such as 24,64, found {text!r}; a text to put before "
            "documents is --document-prefix"
        )
    return tuple(sorted({int(part) for part in parts}))


def read_trial(frontier: FrontierOptions, source: str | None, model: ModelOptions) -> FrontierTrial | None:
    """What a frontier is tried with; None where it is not asked for.

    Raises
    ------
    UsageError
        A share is none, an option is missing or means nothing without the others, or the stitch's confidence is not
        to be used and the policy of that name is asked for.
    StitchError, ManifestError, DatasetError, OutputError
        The stitch or the log cannot be read.
    """
    from migrate.audit.inputs import FrontierTrial
    from migrate.datasets.records import read_query_log
    from migrate.errors import UsageError
    from migrate.selection.query_log import MOST_QUERIES
    from migrate.steps.translate.choice import QUERY_LOG, Budget, require_confidence
    from migrate.stitch.persistence import load_stitch, stitch_folder

    stitch, policies, query_log = frontier.stitch, frontier.policies, frontier.query_log
    if frontier.shares is None:
        for flag, value in (("--stitch", stitch), ("--query-log", query_log), ("--policy", policies)):
            if value:
                raise UsageError(f"{flag} goes with --frontier; add --frontier, or leave it out")
        return None
    if source is None or stitch is None:
        raise UsageError("--frontier: expected --source STORE and the --stitch fitted on it, found fewer; name both")
    budgets = [Budget.parse(part) for part in frontier.shares.split(",")]
    if any(budget.unit != "share" for budget in budgets):
        raise UsageError(f"--frontier: expected shares of the store such as 10%,30%, found {frontier.shares!r}")
    loaded = load_stitch(stitch)
    fitted = with_views(loaded, stitch_folder(stitch), model)
    if "confidence" in policies:
        require_confidence(fitted)  # refused before anything is spent
    log: Sequence[Query] = ()
    if query_log is not None and (not policies or QUERY_LOG in policies):
        log = read_query_log(query_log)[:MOST_QUERIES]
    return FrontierTrial([budget.amount for budget in budgets], fitted, log, policies)


_REFERENCE_OPTIONS = (
    option(
        "--reference",
        default=POOL,
        metavar="STORE|build|pool",
        help="Full re-embed to compare with, `build` to embed every text now, or `pool` to embed no more than the "
        "verdict needs.",
    ),
    option(
        "--pool-depth",
        type=click.IntRange(min=10),
        metavar="N",
        help="Documents of STORE that `--reference pool` embeds for a query at most.  [default: 200]",
    ),
    option("--save-reference", type=options.PATH, help="Folder to keep what `--reference build` embeds."),
)
_SOURCE_OPTIONS = (
    option("--source", type=options.STORE, help="Store before the migration: adds the arm `stay`."),
    options.source_model,
    option(
        "--bridge",
        type=options.PATH,
        metavar="STITCH",
        help="Stitch of `fit --direction query`: adds the arm `bridge`, which asks --source with the new model's "
        "queries.",
    ),
)
_FRONTIER_OPTIONS = (
    option(
        "--frontier",
        "shares",
        is_flag=False,
        flag_value="10%,20%,30%,50%",
        metavar="10%,20%,...",
        help="Try what re-embedding these shares of --source would keep.  [without shares: 10, 20, 30 and 50 %]",
    ),
    option("--stitch", type=options.STITCH, help="Stitch that --frontier starts from, fitted on --source."),
    option(
        "--policy",
        "policies",
        multiple=True,
        type=click.Choice(["query-log", "confidence", "random"]),
        help="What --frontier chooses documents by; can be repeated. One alone, decided on beforehand, has narrower "
        "bounds.  [default: all that can be used]",
    ),
    options.query_log,
)
_ARM_OPTIONS = (
    option(
        "--two-stage",
        metavar="N,N|none",
        help="Adds an arm for each N: the store's first N for a query, embedded by the target model and ranked again. "
        "A pool goes as deep.  [default: 20, 50 and 200, as far as a pool goes by itself]",
    ),
    option(
        "--prefix",
        metavar="N,N",
        help="Adds an arm for each N: the first N tokens of every document, embedded by the target model.",
    ),
    option(
        "--no-bm25",
        is_flag=True,
        help="Leave the arms of words out of the report. That the full re-embed is not worse than BM25 is checked even "
        "so.",
    ),
    options.parent_field,
    options.slices,
    options.plan,
)


_TRAINED_OPTIONS = (
    option(
        "--labels",
        type=options.PATH,
        metavar="FILE",
        help="Labels of documents, as `compare` takes them: what is trained on the true vectors of --reference is "
        "judged on translated ones. With or without queries.",
    ),
    option(
        "--outside",
        type=options.PATH,
        metavar="FILE",
        help="Ids, one a line, of documents that do not belong among those with --labels: a detector is to find them.",
    ),
)


@dataclass(frozen=True, slots=True)
class TrainedOptions:
    """Documents to train on, and those that do not belong among them."""

    labels: Path | None
    outside: Path | None

    def audit(
        self, translated: Store, reference: str, asked: MarginOptions, *, seed: int, progress: Progress
    ) -> DownstreamAudit | None:
        """What trained models keep by a reference that is proven; None without labels.

        Raises
        ------
        DatasetError, StoreError, VectorError, OutputError
            As `audit_downstream`, `read_labels` and `read_ids`.
        """
        from migrate.audit.downstream import audit_downstream
        from migrate.datasets.records import read_ids, read_labels
        from migrate.stores import open_store

        if self.labels is None:
            return None
        kept = audit_downstream(
            translated,
            open_store(reference, verify=True),
            read_labels(self.labels),
            None,
            outside=() if self.outside is None else read_ids(self.outside),
            margin=asked.margin,
            seed=seed,
            progress=progress,
        )
        return replace(kept, margin_from=asked.origin)

    def refuse(self, reference: str) -> None:
        """Make sure, before anything is spent, that there is something to train on.

        Raises
        ------
        UsageError
            There are no labels to go with the rest, or the reference is no store.
        DatasetError, OutputError
            A file cannot be read.
        """
        from migrate.datasets.records import read_ids, read_labels
        from migrate.errors import UsageError

        if self.outside is not None and self.labels is None:
            raise UsageError("--outside goes with --labels; add --labels, or leave it out")
        if self.labels is not None and reference in (BUILD, POOL):
            raise UsageError(
                f"--labels: expected a full re-embed as --reference to train on, found {reference}; give a store, such "
                "as --save-reference keeps"
            )
        if self.labels is not None:
            read_labels(self.labels)
        if self.outside is not None:
            read_ids(self.outside)


@dataclass(frozen=True, slots=True)
class ReferenceOptions:
    """What the store is compared with."""

    reference: str
    pool_depth: int | None
    save_reference: Path | None

    @property
    def is_embedded(self) -> bool:
        """Whether documents are embedded now: all, or a pool."""
        return self.reference in (BUILD, POOL)

    def open(self, *, quiet: bool) -> Store | PoolReference | None:
        """What the store is compared with; None for a reference that is built."""
        from migrate.audit.inputs import POOL_DEPTH, PoolReference
        from migrate.stores import open_store

        if self.reference == POOL:
            return PoolReference(self.pool_depth or POOL_DEPTH, lambda step: advise(step.sentence, quiet=quiet))
        return None if self.reference == BUILD else open_store(self.reference, verify=True)

    def refuse(self, inputs: Sequence[Path]) -> None:
        """Make sure, before anything is spent, that the reference can be kept.

        Raises
        ------
        UsageError, OutputError
            It is none that is built, or would replace an input, or the folder may not be written to.
        """
        from migrate.errors import UsageError
        from migrate.files import refuse_output

        if self.pool_depth is not None and self.reference != POOL:
            raise UsageError("--pool-depth goes with --reference pool; leave it out")
        if self.save_reference is None:
            return
        if self.reference != BUILD:
            raise UsageError("--save-reference goes with --reference build; leave it out")
        refuse_output(self.save_reference, *inputs, force=True)  # one that is there may be the one to go on with


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The store before the migration, and what goes with it."""

    source: str | None
    source_model: str | None
    bridge: Path | None


@dataclass(frozen=True, slots=True)
class FrontierOptions:
    """What a frontier is tried with."""

    shares: str | None
    stitch: Path | str | None
    policies: tuple[str, ...]
    query_log: Path | None


@dataclass(frozen=True, slots=True)
class ArmOptions:
    """Which arms there are, and how they are judged."""

    two_stage: str | None
    prefix: str | None
    no_bm25: bool
    parent_field: str
    slice_fields: tuple[str, ...]
    plan: str

    def audit_options(self, asked: MarginOptions, price: float | None, seed: int) -> AuditOptions:
        """As the library takes them.

        Raises
        ------
        UsageError
            The depths are not numbers above 0, or there is no plan of the name.
        """
        from migrate.audit.inputs import AuditOptions
        from migrate.audit.report import two_stage_depths

        depths, planned = read_depths(self.two_stage), two_stage_depths(self.plan)
        return AuditOptions(
            bm25=not self.no_bm25,
            two_stage=(*(depths or ()), *planned) if planned else depths,
            slice_fields=self.slice_fields,
            price_usd_per_mtok=price,
            parent_field=self.parent_field,
            margin=asked.margin,
            margin_from=asked.origin,
            seed=seed,
            plan=self.plan,
        )


@options.command(
    "audit",
    "A verdict on a translated store.",
    example="lead-migrate audit new-store --reference build --beir my-beir --source my-store",
)
@click.argument("store", type=options.STORE)
@option_group(ReferenceOptions, "against", *_REFERENCE_OPTIONS)
@options.query_options
@option("--target", metavar="SPEC", help="Model to embed the queries with.  [default: the store's own]")
@option_group(SourceOptions, "before", *_SOURCE_OPTIONS, section="Before the migration")
@option_group(ArmOptions, "arms", *_ARM_OPTIONS, section="Arms and verdict")
@options.margin_options
@option_group(TrainedOptions, "trained", *_TRAINED_OPTIONS, section="What was trained")
@option_group(FrontierOptions, "frontier", *_FRONTIER_OPTIONS, section="Frontier")
@option(
    "--judge-next",
    type=options.PATH,
    metavar="FILE",
    section=QUERIES,
    help=f"Write up to {TO_JUDGE} queries of --queries FILE with documents to grade, drawn so that few judgements "
    "settle much. Replace each null by a grade, 0 for not relevant, and give the file back with --beir.",
)
@options.price
@spending_options
@options.model_options
@options.runner_options
@report_options
@open_option
@options.general_options(options.seed, options.force, options.restart, options.as_json, options.verbose, options.quiet)
def command(
    store: str,
    against: ReferenceOptions,
    judged: QueryOptions,
    target: str | None,
    before: SourceOptions,
    arms: ArmOptions,
    asked: MarginOptions,
    trained: TrainedOptions,
    frontier: FrontierOptions,
    judge_next: Path | None,
    price: float | None,
    spending: SpendingOptions,
    model: ModelOptions,
    running: RunnerOptions,
    outputs: Outputs,
    opens: bool,
    general: GeneralOptions,
) -> int:
    """Judge a translated STORE: SAFE (exit 0), NOT SAFE (1) or INCONCLUSIVE (3), with the numbers behind it.

    With --reference pool, it embeds a small part of the documents, and more only until the verdict is settled or
    --max-cost is reached; what is SAFE by judged queries then is SAFE against a full re-embed.

    With --labels, classifiers trained on the reference's vectors, and with --outside a detector, are judged on
    translated ones; the exit code is that of the worse finding. Without queries, that is all that is judged.

    With --frontier, it also says what re-embedding a part of --source would keep, and the cheapest budget that is SAFE.
    """
    from migrate.audit.inputs import AuditRequest
    from migrate.audit.judging import write_unjudged
    from migrate.audit.places import places_of
    from migrate.audit.plan import plan_audit
    from migrate.audit.verdict import Outcome
    from migrate.embedders.elsewhere import elsewhere
    from migrate.embedders.prefix import whole_embedder
    from migrate.files import atomic_file, refuse_file
    from migrate.report.document import recommendation_document
    from migrate.stitch.persistence import load_stitch
    from migrate.stores import open_store

    trained.refuse(against.reference)
    if trained.labels is not None and not judged.are_named:
        load = partial(load_model_of, spec=target, flag="--target", options=model)
        return _by_labels(store, against.reference, trained, asked, load, price, spending, outputs, general)
    judged.require(by_pool=against.reference == POOL)
    quiet, runner = general.quiet, running.open()
    audit_options = replace(arms.audit_options(asked, price, general.seed), judge_next=TO_JUDGE if judge_next else 0)
    prefixes = read_prefixes(arms.prefix)
    trial = read_trial(frontier, before.source, model)
    read = (store, against.reference, judged.location, before.source, frontier.stitch, frontier.query_log)
    paths = options.local_paths(*read, trained.labels, trained.outside)
    against.refuse(paths)
    outputs.refuse(*paths, force=general.force)  # refused before anything is spent
    refuse_open(outputs.html, opens=opens)
    if judge_next is not None:
        refuse_file(judge_next, *paths, force=general.force)
    with progress_bar(quiet=quiet) as progress:
        translated = open_store(store, verify=True)
        questions = judged.load(
            translated, parent_field=audit_options.parent_field, seed=general.seed, progress=progress
        )
        paid = spending.open(quiet=quiet)
        embedder = elsewhere(whole_embedder(load_model_of(translated, target, "--target", model)), runner)
        source, old = open_source(before.source, before.source_model, model, quiet=quiet)
        request = AuditRequest(
            translated,
            questions,
            embedder,
            reference=against.open(quiet=quiet),
            save_reference=against.save_reference,
            source=source,
            source_embedder=old,
            bridge=None if before.bridge is None else load_stitch(before.bridge),
            prefixes=prefixes,
            trial=trial,
            options=audit_options,
            force=general.force,
            restart=general.restart,
        )
        plan = plan_audit(request)
        judged.offer_hold_out(plan.query_set, translated, embedder, by_pool=against.reference == POOL, quiet=quiet)
        if against.is_embedded:
            judging = with_unread(plan.query_set, translated, embedder, seed=general.seed, quiet=quiet)
            plan = replace(plan, query_set=judging)
        places = _places(places_of(translated, source, embedder), embedder, target, frontier, outputs)
        if against.reference == POOL and places.has_texts:
            words = [places.source or store, *places.target, "-o", places.full]
            deal = paid.weigh(plan, translated, "the audit", words, seed=general.seed)
            plan = replace(plan, documents_per_s=None if deal is None else deal.documents_per_s)
        if against.is_embedded or prefixes or any(model.meter is not None for model in plan.models):
            paid.agree(plan, progress=progress)
        report = plan.run(cap_usd=paid.cap_usd, progress=progress)
        kept = trained.audit(translated, against.reference, asked, seed=general.seed, progress=progress)
        report = replace(report, downstream=kept)
    paid.finish()
    if judge_next is not None:
        with atomic_file(judge_next, force=general.force) as aside:
            write_unjudged(aside, report.unjudged)
        advise(
            f"{judge_next}: grade the documents of its {len(report.unjudged):,} queries from the first on, as many as "
            "you decide on beforehand: replace each null by a whole number, 0 for not relevant; then audit again with "
            f"--beir {judge_next}",
            quiet=quiet,
        )
    elif (
        report.verdict.outcome is Outcome.INCONCLUSIVE and not report.verdict.doubts and plan.query_set.chances is None
    ):
        advise(
            "to settle it with few judgements, let the audit draw what to judge: --queries LOG --judge-next FILE",
            quiet=quiet,
        )
    report = replace(report, places=places)
    code = show_report(report, outputs, general, page=outputs.html)
    if not general.as_json:
        advise_recommendation(recommendation_document(report), quiet=quiet)
    open_page(outputs.html, opens=opens, quiet=quiet)
    return code


def _places(
    known: Places,
    embedder: Embedder,
    target: str | None,
    frontier: FrontierOptions,
    outputs: Outputs,
) -> Places:
    """How the next command names what was audited, as it was typed here or is noted in the store."""
    from migrate.embedders import special_options
    from migrate.report.check import flags_of

    typed, spec = typed_model(), target or embedder.identity.spec
    said = {word.partition("=")[0] for word in typed}
    named = [word for word in flags_of(special_options(embedder.identity)) if word.partition("=")[0] not in said]
    kept = free_path(Path("report.json"))
    return replace(
        known,
        stitch=None if frontier.stitch is None else str(frontier.stitch),
        target=("--target", spec, *named, *typed),
        model=(*map(str, model_words("--target", target)), *typed),
        report=None if outputs.report is None else str(outputs.report),
        again=(*typed_again(), f"--report={kept}"),
    )


def _by_labels(
    store: str,
    reference: str,
    trained: TrainedOptions,
    asked: MarginOptions,
    load: Callable[[Store], Embedder],
    price: float | None,
    spending: SpendingOptions,
    outputs: Outputs,
    general: GeneralOptions,
) -> int:
    """What trained models keep, where no queries are asked: the model embeds what proves the reference."""
    from migrate.audit.downstream import plan_downstream
    from migrate.datasets.records import read_ids, read_labels
    from migrate.embedders.prefix import whole_embedder
    from migrate.errors import UsageError
    from migrate.files import atomic_file, write_json
    from migrate.report.downstream import downstream_document, downstream_text
    from migrate.report.suite import downstream_suite
    from migrate.stores import open_store

    assert trained.labels is not None  # noqa: S101 - whoever calls has seen them
    if outputs.html is not None:
        raise UsageError("--html: the page is one of queries; add --beir or --queries, or leave it out")
    outputs.refuse(*options.local_paths(store, reference, trained.labels, trained.outside), force=general.force)
    with progress_bar(quiet=general.quiet) as progress:
        translated = open_store(store, verify=True)
        paid = spending.open(quiet=general.quiet)
        plan = plan_downstream(
            translated,
            open_store(reference, verify=True),
            read_labels(trained.labels),
            whole_embedder(load(translated)),
            price_usd_per_mtok=price,
            outside=() if trained.outside is None else read_ids(trained.outside),
            margin=asked.margin,
            seed=general.seed,
        )
        if any(model.meter is not None for model in plan.models):
            paid.agree(plan, progress=progress)
        kept = replace(plan.run(cap_usd=paid.cap_usd, progress=progress), margin_from=asked.origin)
    paid.finish()
    if general.as_json:
        show_json(downstream_document(kept))
    else:
        show(downstream_text(kept))
    if outputs.report is not None:
        with atomic_file(outputs.report, force=general.force) as aside:
            write_json(aside, downstream_document(kept))
    outputs.ci.leave(downstream_suite(kept, store), force=general.force)
    return EXIT_CODES[kept.outcome.value]
