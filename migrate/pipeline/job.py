"""The work of a run: what an earlier one has left, a fit, a translation, a reference, an audit and its report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from migrate.audit.arms import own_arms
from migrate.audit.audit import AuditJob, run_audit
from migrate.audit.document import report_of
from migrate.audit.document_queries import refuse_queries
from migrate.audit.inputs import AGAIN, refuse_documents_found
from migrate.audit.locations import Locations, locations_of
from migrate.audit.options import BUILD, POOL
from migrate.audit.pool import expected_count, expected_documents
from migrate.audit.query_set import QuerySet, independent
from migrate.audit.result import AuditResult
from migrate.audit.results import TRANSLATED, check_plan, rerank_depths
from migrate.audit.step import Audit
from migrate.audit.verdict import FEWEST_DOCUMENTS
from migrate.audit_report.records import ReportedMigration
from migrate.audit_report.report import AuditReport
from migrate.cost.spending import SOURCE_MODEL, PlannedModel
from migrate.embed import reembed_store
from migrate.embed.corpus import AGAIN as EMBEDDED_AGAIN
from migrate.embed.reference import documents_left
from migrate.embedders.base import Embedder
from migrate.facts import as_plain
from migrate.files import atomic_file, free_path, sha256_json, write_bytes, write_json
from migrate.finished import RECORD, Kept, find_finished, find_kept, note_finished
from migrate.pipeline.costs import ModelCosts, costs_of, meter_tokens
from migrate.pipeline.options import RunOptions
from migrate.report.audit_sections import audit_sections
from migrate.report.page import report_page
from migrate.selection import QueryLog, choose_strategy
from migrate.selection.choosers import choosers_of, digests_of
from migrate.selection.model_match import ASKED_AGAIN
from migrate.steps.base import Job, RunContext, step_like
from migrate.steps.fit import Fit
from migrate.steps.fit.inputs import inputs_of as fit_inputs_of
from migrate.steps.fit.inputs import require_texts
from migrate.steps.fit.job import FitJob, fit_job
from migrate.steps.fit.job import expected_documents as expected_sample
from migrate.steps.fit.words import ROLE as WORDS
from migrate.steps.opening import log_of, model_at, source_model_of, store_of
from migrate.steps.reembed import Reembed
from migrate.steps.reembed.job import ReembedJob, reembed_job
from migrate.steps.translate import Translate
from migrate.steps.translate.job import Translation
from migrate.stitch.fitted import FittedStitch
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.confidence import distrust, find_outside
from migrate.stores.content import content_of
from migrate.stores.switching import successor_of
from migrate.vectors import Document
from migrate.work.jobs import Configuration
from migrate.work.outputs import RunState, open_steps, refuse_existing_steps

AUTO = "auto"
"""In the place of a reference: a pool, unless that would be all documents."""

STITCH = "stitch"
STORE = "store"
REFERENCE = "reference"
REPORT = "report.json"
PAGE = "report.html"
FULL = "full"
"""Name of a full re-embed that is made instead; a translation of the same store can be made beside it later."""
OUTPUTS = (STITCH, STORE, REFERENCE, REPORT, PAGE, RECORD)
"""Names of what a run leaves in its folder."""


@dataclass(frozen=True, slots=True)
class Migration:
    """The result of a run: what it leaves, and the `result` that its report is of."""

    stitch: FittedStitch
    translation: Translation
    report: AuditReport
    result: AuditResult = field(repr=False)


@dataclass(frozen=True, eq=False)
class RunInputs:
    """The store and the models of a run, which spend under the cap, and the queries that choose documents.

    `source_embedder` is the model of the store, for the arm `stay`: the one that is named, or its own if that is at
    hand.
    """

    options: RunOptions
    context: RunContext
    store: Store
    embedder: Embedder
    source_embedder: Embedder | None
    log: QueryLog | None

    @property
    def n_arms(self) -> int:
        """The number of arms that a pool has the first documents of."""
        if self.source_embedder is None:
            return 1
        return 2


def open_run(options: RunOptions, context: RunContext) -> RunJob | ReembedJob:
    """Open what a run names, as it is by itself. Nothing is embedded."""
    store = store_of(options.store, verify=True)
    old = source_model_of(store, options.source_model)
    inputs = inputs_of(options, store, model_at(options.target), old, context)
    # Before the queries are read: where there is nothing to judge, none are needed
    if needs_no_queries(inputs):
        return full_job(inputs)
    questions = judging_queries(inputs, options.load_queries(store, progress=context.progress))
    if would_embed_all(inputs, questions):
        return full_job(inputs)
    return run_job(inputs, questions)


def inputs_of(
    options: RunOptions,
    store: Store,
    target: Embedder,
    old: Embedder | None,
    context: RunContext,
) -> RunInputs:
    """Return what is open of a run, with meters in the models; `old` is the model of the store."""
    source_embedder = None
    if old is not None:
        source_embedder = context.cap.meter(old)
    log = None
    if options.query_log is not None:
        log = QueryLog(log_of(options.query_log), source_embedder)
    embedder = context.cap.meter(target, options.price)
    return RunInputs(options, context, store, embedder, source_embedder, log)


def judging_queries(inputs: RunInputs, query_set: QuerySet) -> QuerySet:
    """Return the queries that judge: without those that choose documents, or did so before."""
    choosers = choosers_of(inputs.store.info.manifest)
    if inputs.log is not None:
        choosers |= digests_of(inputs.log.looked_up)
    return independent(query_set, choosers)


def is_pooled(options: RunOptions) -> bool:
    """Return whether the translated store is audited by a pool; else every document is embedded for a reference."""
    return options.reference != "build"


def _may_be_full(options: RunOptions) -> bool:
    """Return whether a full re-embed may be made instead; not where an earlier run has left something that goes on."""
    if options.reference != AUTO:
        return False
    if options.restart:
        return True
    # What an earlier run has left goes on as it began, whatever would be chosen now
    is_finished = not options.force and (options.folder / RECORD).is_file()
    return RunState.read(options.folder) is None and not is_finished


def needs_no_queries(inputs: RunInputs) -> bool:
    """Return whether there is nothing to judge, whatever the queries: all is in the sample, or nothing can be SAFE."""
    count = inputs.store.info.count
    return (inputs.options.sample >= count or count < FEWEST_DOCUMENTS) and _may_be_full(inputs.options)


def would_embed_all(inputs: RunInputs, questions: QuerySet) -> bool:
    """Return whether fit and audit would embed every document."""
    if not _may_be_full(inputs.options):
        return False
    count = inputs.store.info.count
    stages = rerank_depths(inputs.options.plan) or None
    n_pool = expected_count(count, questions, inputs.n_arms, stages=stages, ranked=inputs.options.ranked_queries)
    # Both are drawn at random: a document is in neither with the product of both chances
    n_outside_sample = count - inputs.options.sample
    n_outside_pool = count - n_pool
    # Less than one document is to be expected
    return n_outside_sample * n_outside_pool < count


def full_job(inputs: RunInputs) -> ReembedJob:
    """Return the full re-embed that is made where nothing would be left to judge."""
    require_texts(inputs.store, inputs.embedder)
    # A log chooses documents, and here all of them are embedded
    full = step_like(Reembed, inputs.options, output=inputs.options.folder / FULL, query_log=None)
    return reembed_job(full, inputs.store, inputs.embedder, inputs.context)


def why_full(store: Store) -> str:
    """Return the reason that there is nothing to judge, in words."""
    count = store.info.count
    if count < FEWEST_DOCUMENTS:
        return f"{count:,} documents are too few to find anything SAFE, which takes {FEWEST_DOCUMENTS}"
    return f"fit and audit would embed all {count:,} documents"


def configuration_of(inputs: RunInputs, questions: QuerySet) -> Configuration:
    """Return what a run that goes on has in common with the one that broke off, and the inputs of its audit.

    The audit can be another for the same translated store. Costs no embedding.
    """
    options = inputs.options
    embedder = inputs.embedder
    log_digest = None
    source_scope = None
    source_of_log = None
    if inputs.source_embedder is not None:
        source_scope = inputs.source_embedder.cache_scope("query")
    if inputs.log is not None:
        log_digest = inputs.log.digest()
        source_of_log = source_scope
    # A model that is made from the texts, such as tfidf, has no identity before it has read them
    if inputs.store.info.has_texts:
        embedder.fit(inputs.store.documents())
    fit_options = {
        "stitch": list(step_like(Fit, options).specs),
        "sample": options.sample,
        "seed": options.seed,
        "model": embedder.cache_scope("document"),
        "strategy": choose_strategy(options.strategy, has_log=inputs.log is not None),
        "query log": log_digest,
        "source model": source_of_log,
    }
    reference = "build"
    if is_pooled(options):
        reference = "pool 200"
    requested: list[Any] = [questions.name, [[query.id, query.text] for query in questions.queries], questions.qrels]
    if questions.group_field is not None:
        requested.append([questions.group_of(query) for query in questions.queries])
    audit = {
        "queries": sha256_json(requested),
        "price": options.price,
        "margin": options.margin,
        "reference": reference,
        "source model": source_scope,
    }
    # Left out where it is the usual one, as configurations of earlier runs have no plan
    if options.plan != TRANSLATED:
        audit["plan"] = options.plan
    if options.ranked_queries is not None:
        audit["ranked queries"] = options.ranked_queries
    # The verdict names it; left out where nobody has set it, so that runs from before it was known go on
    margin_from = inputs.context.margin_from
    if margin_from:
        audit["margin from"] = margin_from
    return Configuration("run", inputs.store.snapshot().as_json(), fit_options, audit)


def finished_run(options: RunOptions, made_from: Configuration, store: Store) -> AuditReport | None:
    """Return the result of the same run before; None where it has not come to its end, or is to be done again.

    Raises UsageError: a run of another store or with another stitch has come to its end in this folder. InputError: the
    record of it is damaged.
    """
    folder = options.folder
    outputs = [STITCH, STORE]
    if not is_pooled(options):
        outputs.append(REFERENCE)
    if options.force or options.restart or not (folder / RECORD).is_file():
        return None
    if not all((folder / name).is_dir() for name in outputs):
        return None
    return find_finished(folder, folder / REPORT, made_from, store)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunJob(Job[Migration]):
    """A run whose store and models are open, and what earlier runs have left in its folder.

    Attributes
    ----------
    judges
        The queries that judge, of which enough are no documents, as far as that shows before anything is embedded.
    made_from
        The inputs that the same run has in common with this one.
    earlier
        Stitch and stores of a finished run in the same folder, which only another audit is made of.
    fit
        The fit that it begins with; None where its stitch is there.
    locations
        The stores and files that are read and left, as the next command names them.
    tokens_before
        The tokens that each of `models` was asked for before this run.
    """

    options: RunOptions
    inputs: RunInputs
    judges: QuerySet
    made_from: Configuration
    earlier: Kept
    fit: FitJob | None
    locations: Locations
    tokens_before: tuple[int, ...]

    def execute(self, documents_per_s: float | None = None) -> Migration:
        """Do all that is not done yet; `documents_per_s` is how fast the target embeds, for the report."""
        options = self.options
        folder = options.folder
        is_continued = self._is_continued()
        costs = costs_of(self.models, self.tokens_before, progress=self.context.progress)
        opened = open_steps(
            folder,
            OUTPUTS,
            self.made_from,
            kept_details=self.earlier.outputs,
            force=options.force,
            restart=options.restart,
        )
        with opened as (steps, force):
            fitted = self._fitted(steps, force=force)
            # A run that goes on finds the stitch in the folder, so this one translates by what lies there too
            saved = load_stitch(folder / STITCH)
            translation = self._translated(steps, saved, force=force)
            if not is_pooled(options) and steps.finished(REFERENCE) is None:
                self._embed_reference(force=force)
                steps.note(REFERENCE)
            # Always anew, as the audit may be another one of the same stores; the cache has what it embeds
            result = replace(self._audit(), documents_per_s=documents_per_s)
            report = self._with_migration(report_of(result), costs, is_continued=is_continued)
            with atomic_file(folder / REPORT, force=force) as temporary:
                write_json(temporary, report.document)
            with atomic_file(folder / PAGE, force=force) as temporary:
                write_bytes(temporary, report_page(audit_sections(report)).encode())
            outputs: dict[str, Mapping[str, Any]] = {}
            for name in (STITCH, STORE, REFERENCE):
                output_facts = steps.finished(name)
                if output_facts is not None:
                    outputs[name] = output_facts
            # Last: the record says that everything else is there
            note_finished(folder, self.made_from, {**outputs, REPORT: {}, PAGE: {}}, force=force)
        return Migration(fitted or saved, translation, report, result)

    def _is_continued(self) -> bool:
        """Return whether an earlier run has left some of the work, which this one does not pay for again."""
        if self.earlier.outputs:
            return True
        return not self.options.restart and RunState.read(self.options.folder) is not None

    def _with_migration(self, report: AuditReport, costs: Iterable[ModelCosts], *, is_continued: bool) -> AuditReport:
        """Return the report with the store that was moved, and what that cost."""
        migration = ReportedMigration(
            source=self.inputs.store.info.location,
            is_continued=is_continued,
            spending=tuple(cost.spending() for cost in costs),
        )
        return AuditReport.of({**report.document, "migration": as_plain(migration)})

    def _fitted(self, steps: RunState, *, force: bool) -> FittedStitch | None:
        """Fit and save the stitch; None where an earlier run has left it."""
        if steps.finished(STITCH) is not None:
            return None
        fit = self.fit or _open_fit(self.inputs)
        fitted = fit.execute()
        fitted.save(self.options.folder / STITCH, force=force)
        steps.note(STITCH)
        return fitted

    def _translated(self, steps: RunState, saved: FittedStitch, *, force: bool) -> Translation:
        """Translate the store, or return what an earlier run has noted of its translation."""
        options = self.options
        path = options.folder / STORE
        recorded = steps.finished(STORE)
        if recorded is None:
            step = Translate(self.inputs.store, saved, path, force=force, restart=options.restart)
            translation = step.open(RunContext(progress=self.context.progress)).execute()
            # The path is that of the run's folder, wherever that lies by then
            steps.note(STORE, {name: value for name, value in asdict(translation).items() if name != "path"})
            return translation
        translated = open_store(path, verify=True)
        noted = {**recorded, "remarks": tuple(recorded["remarks"])}
        observed = {"outside": find_outside(translated), "distrust": distrust(translated)}
        return Translation(path, **{**noted, **observed})

    def _embed_reference(self, *, force: bool) -> None:
        """Embed every document into the reference, once the queries are known to be able to judge by it."""
        options = self.options
        audit = self._audit_of(BUILD)
        # Queries are cheap beside a full re-embed that they could not judge
        refuse_documents_found(audit.inputs)
        reembed_store(
            self.inputs.store,
            self.inputs.embedder,
            options.folder / REFERENCE,
            force=force,
            restart=options.restart,
            progress=self.context.progress,
        )

    def _audit_of(self, reference: Store | str) -> AuditJob:
        """Open the audit of the translated store."""
        options = self.options
        inputs = self.inputs
        source = None
        if inputs.source_embedder is not None:
            source = inputs.store
        audit = Audit(
            open_store(options.folder / STORE),
            reference,
            judged=self.judges,
            target=inputs.embedder,
            source=source,
            source_model=inputs.source_embedder,
            plan=options.plan,
            ranked_queries=options.ranked_queries,
            margin=options.margin,
            price=options.price,
            seed=options.seed,
        )
        return audit.open(self.context)

    def _audit(self) -> AuditResult:
        inputs = self.inputs
        reference: Store | str = POOL
        if not is_pooled(self.options):
            reference = open_store(self.options.folder / REFERENCE)
        audit = self._audit_of(reference)
        result = run_audit(audit.inputs)
        opened = locations_of(audit.inputs.translated, inputs.store, inputs.embedder, inputs.source_embedder)
        locations = replace(
            self.locations,
            can_switch=opened.can_switch,
            can_serve=opened.can_serve,
            server=opened.server,
            old_model=opened.old_model,
        )
        stores = result.stores
        if "source" not in stores:
            stores = {**stores, "source": content_of(inputs.store)}
        return replace(result, locations=locations, stores=stores)


def run_job(inputs: RunInputs, questions: QuerySet, locations: Locations | None = None) -> RunJob:
    """Return the run of what is open, after making sure that it can be done. Nothing is embedded.

    `locations` are those that the next command names.
    """
    options = inputs.options
    made_from = configuration_of(inputs, questions)
    earlier = _checked_earlier(inputs, made_from)
    # Judged by their words, before the first request
    refuse_queries(questions, inputs.store)
    names: Iterable[str] = earlier.outputs
    if not options.restart:
        state = RunState.read(options.folder)
        if state is not None and state.steps:
            names = state.steps
    done = {name for name in names if (options.folder / name).exists()}
    fit = None
    if STITCH not in done:
        fit = _open_fit(inputs)
    # What cannot be done is refused before anything is counted
    refuse_existing_steps(options.folder, OUTPUTS, kept=earlier.outputs, force=options.force)
    models = _planned(inputs, questions, fit, done)
    return RunJob(
        options=options,
        context=inputs.context,
        models=models,
        inputs=inputs,
        judges=questions,
        made_from=made_from,
        earlier=earlier,
        fit=fit,
        locations=_locations(inputs, locations or Locations()),
        tokens_before=meter_tokens(models),
    )


def _checked_earlier(inputs: RunInputs, made_from: Configuration) -> Kept:
    """Return what of a finished run serves this audit, after making sure that there is an arm of its plan."""
    options = inputs.options
    own_names: tuple[str, ...] | None = ()
    if own_arms():
        # They are known once the translated store is open
        own_names = None
    has_old_model = inputs.source_embedder is not None
    check_plan(options.plan, inputs.store.info.count, own_names, has_old_model=has_old_model, has_bridge=False)
    if options.force:
        return Kept()
    return find_kept(options.folder, made_from, (STITCH, STORE, REPORT, PAGE), inputs.store)


def _open_fit(inputs: RunInputs) -> FitJob:
    """Open the fit that a run begins with."""
    log = None
    if inputs.log is not None:
        log = inputs.log.queries
    step = step_like(Fit, inputs.options, query_log=log)
    return fit_job(
        step, fit_inputs_of(step, inputs.store, inputs.embedder, inputs.source_embedder, None, inputs.context)
    )


def _planned(inputs: RunInputs, judges: QuerySet, fit: FitJob | None, done: Set[str]) -> tuple[PlannedModel, ...]:
    """Return the models that are asked, each with what is left to embed."""
    source = inputs.source_embedder
    options = inputs.options
    # Of the fit and of the audit, and of a reference where one is made
    n_past_cache = ASKED_AGAIN + AGAIN
    if not is_pooled(options):
        n_past_cache += EMBEDDED_AGAIN
    documents = partial(_texts_left, inputs, judges, fit, done)
    cap = inputs.context.cap
    target = PlannedModel(inputs.embedder, cap, documents=documents, queries=judges.queries, again=n_past_cache)
    models = [target]
    if fit is not None:
        models += [model for model in fit.models if model.role == WORDS]
    if source is None:
        return tuple(models)
    queries = list(judges.queries)
    if inputs.log is not None:
        queries = [*inputs.log.looked_up, *judges.queries]
    return (*models, PlannedModel(source, cap, SOURCE_MODEL, queries=queries))


def _texts_left(inputs: RunInputs, judges: QuerySet, fit: FitJob | None, done: Set[str]) -> Iterator[Document]:
    """Yield the sample, and all documents or about those of a pool, without what an earlier run has done.

    A document of the sample comes twice, as it is embedded twice by an embedder without a cache.
    """
    options = inputs.options
    if fit is not None:
        yield from expected_sample(fit.options, fit.inputs, fit.sample)
    if is_pooled(options):
        yield from expected_documents(
            inputs.store,
            judges,
            inputs.n_arms,
            stages=rerank_depths(options.plan) or None,
            ranked=options.ranked_queries,
            seed=options.seed,
        )
    elif REFERENCE not in done:
        yield from documents_left(inputs.store, options.folder / REFERENCE, restart=options.restart)


def _locations(inputs: RunInputs, named: Locations) -> Locations:
    """Return the stores and files that are read and left, as the next command names them."""
    store = inputs.store
    folder = inputs.options.folder
    full = named.full or successor_of(store, "full")
    if not full:
        full = str(free_path(folder.with_name(f"{folder.name}-full")))
    return replace(
        named,
        source=store.info.location,
        translated=str(folder / STORE),
        stitch=str(folder / STITCH),
        full=full,
        target=named.target or ("--target", inputs.embedder.identity.spec),
        report=str(folder / REPORT),
        has_texts=store.info.has_texts,
    )
