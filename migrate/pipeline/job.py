"""The work of a run: what an earlier one has left, a fit, a translation, a reference, an audit and its report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from migrate.audit.arms import own_arms
from migrate.audit.audit import run_audit
from migrate.audit.document import report_of
from migrate.audit.document_queries import refuse_queries
from migrate.audit.inputs import AGAIN, refuse_documents_found
from migrate.audit.locations import Locations, locations_of
from migrate.audit.options import BUILD, POOL
from migrate.audit.pool import expected_count, expected_documents
from migrate.audit.query_set import QuerySet, independent
from migrate.audit.result import AuditResult
from migrate.audit.results import TRANSLATED, check_plan
from migrate.audit.step import Audit
from migrate.audit.verdict import FEWEST_DOCUMENTS
from migrate.audited.report import AuditReport
from migrate.cost.spending import SOURCE_MODEL, PlannedModel
from migrate.embed import reembed_store
from migrate.embed.corpus import AGAIN as EMBEDDED_AGAIN
from migrate.embed.reference import documents_left
from migrate.embedders.again import ASKED_AGAIN
from migrate.embedders.base import Embedder
from migrate.embedders.kinds import runs_code, split_spec
from migrate.files import atomic_file, free_path, sha256_json, write_bytes, write_json
from migrate.finished import RECORD, Kept, find_finished, find_kept, note_finished
from migrate.pipeline.options import RunOptions
from migrate.report.audit_sections import audit_sections
from migrate.report.page import report_page
from migrate.selection import QueryLog, choose_strategy
from migrate.selection.choosers import choosers_of, digests_of
from migrate.steps.base import step_like
from migrate.steps.fit import Fit
from migrate.steps.fit.inputs import require_texts
from migrate.steps.opening import log_of, model_at, model_of, store_of
from migrate.steps.reembed import Reembed
from migrate.steps.translate import Translate
from migrate.steps.translate.job import Translation
from migrate.stitch.fitted import FittedStitch
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.confidence import distrust, find_outside
from migrate.stores.content import content_of
from migrate.vectors import Document
from migrate.work.jobs import Configuration
from migrate.work.outputs import RunState, open_steps, refuse_existing_steps

AUTO = "auto"
"""In the place of a reference: a pool, unless that would be all documents."""

STITCH, STORE, REFERENCE, REPORT, PAGE = "stitch", "store", "reference", "report.json", "report.html"
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
class RunJob:
    """The store and the models of a run, opened when they are needed, and what earlier runs have left in its folder."""

    request: RunOptions

    @cached_property
    def store(self) -> Store:
        """The store, opened."""
        return store_of(self.request.store, verify=True)

    @cached_property
    def embedder(self) -> Embedder:
        """The target model, which spends under the cap."""
        return self.request.cap.meter(model_at(self.request.target), self.request.price)

    @cached_property
    def source_embedder(self) -> Embedder | None:
        """The model of the store, for the arm `stay`: the one that is named, or its own if that is at hand."""
        named, manifest = self.request.source_model, self.store.info.manifest
        if named is None:
            recorded = manifest.model if manifest else None
            if recorded is None or runs_code(recorded.spec):
                return None
            kind, name = split_spec(recorded.spec)
            if kind == "file" and not Path(name).is_file():
                return None
        model = model_of(self.store, named, "source_model") if named is None or isinstance(named, str) else named
        return self.request.cap.meter(model)

    @cached_property
    def log(self) -> QueryLog | None:
        """The queries that choose documents."""
        log = self.request.query_log
        return None if log is None else QueryLog(log_of(log), self.source_embedder)

    @cached_property
    def questions(self) -> QuerySet:
        """The queries that judge: without those that are held out, or that choose documents, or did so before."""
        query_set = self.request.load_queries(self.store)
        choosing = digests_of(self.log.looked_up if self.log else ())
        return independent(query_set, choosers_of(self.store.info.manifest) | choosing)

    @cached_property
    def fit(self) -> Fit:
        """The fit that it begins with."""
        return step_like(Fit, self.request, store=self.store, target=self.embedder, source_model=self.source_embedder)

    @cached_property
    def judges(self) -> QuerySet:
        """The questions, of which enough are no documents, as far as that shows before anything is embedded."""
        refuse_queries(self.questions, self.store)
        return self.questions

    @property
    def is_pooled(self) -> bool:
        """True where the translated store is audited by a pool; else every document is embedded for a reference."""
        return self.request.reference != "build"

    @property
    def _arms(self) -> int:
        """The number of arms that the pool has the first documents of."""
        return 1 if self.source_embedder is None else 2

    @property
    def _is_begun(self) -> bool:
        """True where an earlier run has left something here that goes on, or is finished, as it was."""
        request = self.request
        if request.restart:
            return False
        return RunState.read(request.folder) is not None or (not request.force and (request.folder / RECORD).is_file())

    @property
    def needs_no_queries(self) -> bool:
        """True where there is nothing to judge, whatever the queries: all is in the sample, or nothing can be SAFE."""
        request, count = self.request, self.store.info.count
        is_small = request.sample >= count or count < FEWEST_DOCUMENTS
        return request.reference == AUTO and is_small and not self._is_begun

    @cached_property
    def full(self) -> Reembed | None:
        """The full re-embed that is made instead where nothing would be left to judge; None where there is."""
        request, count = self.request, self.store.info.count
        if request.reference != AUTO or self._is_begun:
            return None
        if not self.needs_no_queries:
            n_pool = expected_count(count, self.questions, self._arms)
            # both are drawn at random, so one or more are left
            if (count - request.sample) * (count - n_pool) >= count:
                return None
        require_texts(self.store, self.embedder)
        return step_like(Reembed, request, store=self.store, output=request.folder / FULL, query_log=None)

    @property
    def why_full(self) -> str:
        """The reason that there is nothing to judge, in words."""
        count = self.store.info.count
        if count < FEWEST_DOCUMENTS:
            return f"{count:,} documents are too few to find anything SAFE, which takes {FEWEST_DOCUMENTS}"
        return f"fit and audit would embed all {count:,} documents"

    @cached_property
    def made_from(self) -> Configuration:
        """The inputs that a run that goes on has in common with the one that broke off, and those of its audit.

        The audit can be another for the same translated store. Costs no embedding.
        """
        request, embedder, source = self.request, self.embedder, self.source_embedder
        source_scope = source.cache_scope("query") if source else None
        if self.store.info.has_texts:
            embedder.fit(self.store.documents())
        options = {
            "stitch": list(self.fit.specs),
            "sample": request.sample,
            "seed": request.seed,
            "model": embedder.cache_scope("document"),
            "strategy": choose_strategy(request.strategy, has_log=self.log is not None),
            "query log": self.log and self.log.digest(),
            "source model": source_scope if self.log else None,
        }
        judges = self.questions
        asked_for: list[Any] = [judges.name, [[query.id, query.text] for query in judges.queries], judges.qrels]
        if judges.group_field is not None:
            asked_for.append([judges.group_of(query) for query in judges.queries])
        audit = {
            "queries": sha256_json(asked_for),
            "price": request.price,
            "margin": request.margin,
            "reference": "pool 200" if self.is_pooled else "build",
            "source model": source_scope,
        }
        if request.plan != TRANSLATED:
            audit["plan"] = request.plan
        if request.margin_from:  # the verdict names it; runs from before it was known go on
            audit["margin from"] = request.margin_from
        return Configuration("run", self.store.snapshot().as_json(), options, audit)

    @cached_property
    def finished(self) -> AuditReport | None:
        """The result of the same run before; None where it has not come to its end, or is to be done again.

        Raises UsageError: a run of another store or with another stitch has come to its end in this folder. InputError:
        the record of it is damaged.
        """
        folder, outputs = self.request.folder, (STITCH, STORE) if self.is_pooled else (STITCH, STORE, REFERENCE)
        if self.request.force or self.request.restart or not (folder / RECORD).is_file():
            return None
        if not all((folder / name).is_dir() for name in outputs):
            return None
        return find_finished(folder, folder / REPORT, self.made_from)

    @cached_property
    def earlier(self) -> Kept:
        """Stitch and stores of a finished run in the same folder, which only another audit is made of."""
        has_old_model = self.source_embedder is not None
        own_names = None if own_arms() else ()
        check_plan(self.request.plan, self.store.info.count, own_names, has_old_model=has_old_model, has_bridge=False)
        if self.request.force:
            return Kept()
        return find_kept(self.request.folder, self.made_from, (STITCH, STORE, REPORT, PAGE))

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The models that are asked, each with what is left to embed."""
        judges, source, cap = self.judges.queries, self.source_embedder, self.request.cap
        texts_again = ASKED_AGAIN + AGAIN + (0 if self.is_pooled else EMBEDDED_AGAIN)
        fit = self.fit.inputs
        # What cannot be done is refused before anything is counted
        refuse_existing_steps(self.request.folder, OUTPUTS, kept=self.earlier.outputs, force=self.request.force)
        target = PlannedModel(self.embedder, cap, documents=self._texts_left, queries=judges, again=texts_again)
        if source is None:
            return (target,)
        log = fit.log.looked_up if fit.log else ()
        return (target, PlannedModel(source, cap, SOURCE_MODEL, queries=[*log, *judges]))

    def _texts_left(self) -> Iterator[Document]:
        """Yield the sample, and all documents or about those of a pool, without what an earlier run has done.

        A document of the sample comes twice, as it is embedded twice by an embedder without a cache.
        """
        request, store, folder = self.request, self.store, self.request.folder
        state = None if request.restart else RunState.read(folder)
        names = state.steps if state and state.steps else self.earlier.outputs
        done = {name for name in names if (folder / name).exists()}
        if STITCH not in done:
            yield from self.fit.expected_documents()
        if self.is_pooled:
            yield from expected_documents(store, self.questions, self._arms, seed=request.seed)
        elif REFERENCE not in done:
            yield from documents_left(store, folder / REFERENCE, restart=request.restart)

    def run(self, documents_per_s: float | None) -> Migration:
        """Fit a stitch on a sample, translate the store, embed it in full for comparison if need be, and audit."""
        request = self.request
        folder = request.folder
        made_from = self.made_from
        kept_outputs = self.earlier.outputs
        fitted, restart, progress = None, request.restart, request.progress
        _ = self.judges  # before anything is embedded
        opened = open_steps(folder, OUTPUTS, made_from, kept_details=kept_outputs, force=request.force, restart=restart)
        with opened as (steps, force):
            if steps.finished(STITCH) is None:
                fitted = self.fit.execute()
                fitted.save(folder / STITCH, force=force)
                steps.note(STITCH)
            saved = load_stitch(folder / STITCH)
            recorded = steps.finished(STORE)
            if recorded is None:
                translate = Translate(
                    self.store, saved, folder / STORE, force=force, restart=restart, progress=progress
                )
                translation = translate.execute()
                steps.note(STORE, {name: value for name, value in asdict(translation).items() if name != "path"})
            else:
                translated = open_store(folder / STORE, verify=True)
                observations = {"outside": find_outside(translated), "distrust": distrust(translated)}
                translation = Translation(
                    folder / STORE, **{**recorded, "remarks": tuple(recorded["remarks"]), **observations}
                )
            if not self.is_pooled and steps.finished(REFERENCE) is None:
                output = folder / REFERENCE
                audit = self._audit_of(BUILD)
                refuse_documents_found(audit, audit.inputs)
                reembed_store(self.store, self.embedder, output, force=force, restart=restart, progress=progress)
                steps.note(REFERENCE)
            result = replace(self._audit(), documents_per_s=documents_per_s)
            report = report_of(result)
            with atomic_file(folder / REPORT, force=force) as temporary:
                write_json(temporary, report.document)
            with atomic_file(folder / PAGE, force=force) as temporary:
                write_bytes(temporary, report_page(audit_sections(report)).encode())
            made_here = {
                name: output_facts
                for name in (STITCH, STORE, REFERENCE)
                if (output_facts := steps.finished(name)) is not None
            }
            finished_outputs = {**made_here, REPORT: {}, PAGE: {}}
            note_finished(folder, made_from, finished_outputs, force=force)
        return Migration(fitted or saved, translation, report, result)

    @property
    def locations(self) -> Locations:
        """The stores and files that are read and left, as the next command names them."""
        store, folder, locations = self.store, self.request.folder, self.request.locations or Locations()
        return replace(
            locations,
            source=store.info.location,
            translated=str(folder / STORE),
            stitch=str(folder / STITCH),
            full=locations.full or store.successor("full") or str(free_path(folder.with_name(f"{folder.name}-full"))),
            target=locations.target or ("--target", self.embedder.identity.spec),
            report=str(folder / REPORT),
            has_texts=store.info.has_texts,
        )

    def _audit_of(self, reference: Store | str) -> Audit:
        """Return the audit of the translated store."""
        request = self.request
        return Audit(
            open_store(request.folder / STORE),
            reference,
            judged=self.questions,
            target=self.embedder,
            source=self.store if self.source_embedder else None,
            source_model=self.source_embedder,
            plan=request.plan,
            margin=request.margin,
            margin_from=request.margin_from,
            price=request.price,
            seed=request.seed,
            announce=request.announce,
            progress=request.progress,
            cap=request.cap,
        )

    def _audit(self) -> AuditResult:
        audit = self._audit_of(POOL if self.is_pooled else open_store(self.request.folder / REFERENCE))
        result = run_audit(audit, audit.inputs)
        locations = locations_of(audit.inputs.translated, self.store, self.embedder, self.source_embedder)
        places = replace(
            self.locations,
            can_switch=locations.can_switch,
            can_serve=locations.can_serve,
            server=locations.server,
            old_model=locations.old_model,
        )
        stores = {"source": content_of(self.store)} if "source" not in result.stores else {}
        return replace(result, locations=places, stores={**result.stores, **stores})
