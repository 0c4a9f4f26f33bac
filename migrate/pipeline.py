"""The whole path, from a store and a target model to a translated store and a verdict. Start reading here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from migrate.audit.places import Places, places_of
from migrate.audit.pool import PoolStep, expected_documents
from migrate.audit.query_set import QuerySet, independent
from migrate.audit.report import AuditReport
from migrate.audit.results import TRANSLATED, check_plan
from migrate.audit.step import AGAIN, POOL, Audit
from migrate.audit.verdict import MARGIN
from migrate.cost.meter import SpendingCap
from migrate.cost.spending import SOURCE_MODEL, PlannedModel, SpendingPlan
from migrate.embed import reembed_store
from migrate.embed.corpus import AGAIN as EMBEDDED_AGAIN
from migrate.embed.reference import documents_left
from migrate.embedders.base import Embedder
from migrate.embedders.prefix import first_of
from migrate.files import atomic_file, canonical_json, free_path, write_bytes, write_json
from migrate.finished import RECORD, Finished, Kept, RunConfiguration, find_finished, find_kept, note_finished
from migrate.fit import FitOptions, FitPlan, plan_fit
from migrate.report.document import audit_document
from migrate.report.html import audit_page
from migrate.selection import SAMPLE_SIZE, QueryLog, choose_strategy
from migrate.selection.choosers import choosers_of, digests_of
from migrate.steps.translate import Translate
from migrate.steps.translate.job import Translation
from migrate.stitch.fitted import FittedStitch
from migrate.stitch.persistence import load_stitch
from migrate.stitch.select import AUTO
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.confidence import distrust, find_outside
from migrate.stores.content import content_of
from migrate.vectors import Document, Progress, no_progress
from migrate.work.jobs import Configuration
from migrate.work.outputs import State, Steps, open_steps

STITCH, STORE, REFERENCE, REPORT, PAGE = "stitch", "store", "reference", "report.json", "report.html"
"""What `migrate` leaves in its folder."""

BUILT = "build"


@dataclass(frozen=True, slots=True)
class Migration:
    """What came of the whole path."""

    stitch: FittedStitch
    translation: Translation
    report: AuditReport


@dataclass(frozen=True, slots=True)
class MigrationRequest:
    """What is migrated, to what, and how it is judged.

    Attributes
    ----------
    store, embedder
        The store, and the target model.
    questions
        Queries and judgements. Those of the query log do not judge.
    folder
        Where `stitch`, `store`, `report.json` and `report.html` are left, and `reference` if one is built; each
        complete or absent.
    source_embedder
        The model of the store: for the arm `stay`.
    stitch, size, strategy, query_log, prefix
        As in `migrate.fit.FitOptions`.
    price_usd_per_mtok
        US dollars per million tokens of the target model; by default the registry's.
    margin
        The retention, 0-1, that must be kept.
    margin_from
        Where the margin is from, such as the name of a file; empty where it was named for this run.
    plan
        The arm that the outcome is of, the translated store or another that could serve, such as `two-stage-20`.
    places
        How the next command names the target model, and this run; what else it names is known here.
    pool
        Whether the translated store is audited by a pool; else every document is embedded for a reference.
    announce
        Called with each step of the pool, before its documents are embedded.
    force
        Replace outputs that are there.
    restart
        Discard what an unfinished run has left.
    """

    store: Store
    embedder: Embedder
    questions: QuerySet
    folder: Path
    source_embedder: Embedder | None = None
    stitch: str | Sequence[str] = AUTO
    size: int = SAMPLE_SIZE
    strategy: str | None = None
    query_log: QueryLog | None = None
    prefix: int | None = None
    price_usd_per_mtok: float | None = None
    margin: float = MARGIN
    margin_from: str = ""
    plan: str = TRANSLATED
    places: Places = Places()  # noqa: RUF009 - frozen, and without state
    pool: bool = True
    announce: Callable[[PoolStep], None] | None = None
    seed: int = 0
    force: bool = False
    restart: bool = False

    @property
    def judging(self) -> QuerySet:
        """The questions without those that documents are chosen by, or that chose documents of the store before.

        Raises
        ------
        InconclusiveError
            Too few are left for a verdict.
        """
        choosing = digests_of(self.query_log.looked_up if self.query_log else ())
        return independent(self.questions, choosers_of(self.store.info.manifest) | choosing)

    @property
    def builds_reference(self) -> bool:
        """Whether every document is embedded to compare with."""
        return not self.pool

    @property
    def outputs(self) -> tuple[str, ...]:
        """The folders that a finished run leaves."""
        return (STITCH, STORE, REFERENCE) if self.builds_reference else (STITCH, STORE)

    @property
    def fit_options(self) -> FitOptions:
        """What is fitted."""
        source_model = self.source_embedder.identity if self.source_embedder else None
        return FitOptions(
            stitch=self.stitch,
            size=self.size,
            strategy=choose_strategy(self.strategy, has_log=self.query_log is not None),
            query_log=self.query_log,
            source_model=source_model,
            prefix=self.prefix,
            seed=self.seed,
        )

    @property
    def configuration(self) -> Configuration:
        """What a run that broke off must have in common with the one that goes on; costs no embedding."""
        if self.store.info.has_texts:
            self.embedder.fit(self.store.documents())
        options = {
            "stitch": [self.stitch] if isinstance(self.stitch, str) else list(self.stitch),
            "sample": self.size,
            "seed": self.seed,
            "model": self.embedder.cache_scope("document"),
            "strategy": choose_strategy(self.strategy, has_log=self.query_log is not None),
            "query log": self.query_log and self.query_log.digest(),
            "source model": self._source_scope if self.query_log else None,
        }
        if self.prefix is not None:  # runs from before there was one go on
            options["prefix"] = self.prefix
        return Configuration("run", self.store.snapshot().as_json(), options)

    @property
    def _source_scope(self) -> str | None:
        return self.source_embedder.cache_scope("query") if self.source_embedder else None

    @property
    def known_places(self) -> Places:
        """What is read and left, as the next command names it."""
        store, folder = self.store, self.folder
        return replace(
            self.places,
            source=store.info.location,
            translated=str(folder / STORE),
            stitch=str(folder / STITCH),
            full=self.places.full or store.successor("full") or str(free_path(folder.with_name(f"{folder.name}-full"))),
            target=self.places.target or ("--target", self.embedder.identity.spec),
            report=str(folder / REPORT),
            has_texts=store.info.has_texts,
        )

    @property
    def made_from(self) -> RunConfiguration:
        """The configuration, and what the audit rests on besides: it can be another for the same translated store."""
        questions = self.judging
        asked_for: list[Any] = [
            questions.name,
            [[query.id, query.text] for query in questions.queries],
            questions.qrels,
        ]
        if questions.group_field is not None:
            asked_for.append([questions.group_of(query) for query in questions.queries])
        asked = canonical_json(asked_for)
        digest = hashlib.sha256(asked.encode(errors="surrogatepass")).hexdigest()
        audit = {
            "queries": digest,
            "price": self.price_usd_per_mtok,
            "margin": self.margin,
            "reference": "pool 200" if self.pool else BUILT,
            "source model": self._source_scope,
        }
        if self.plan != TRANSLATED:
            audit["plan"] = self.plan
        if self.margin_from:  # the verdict names it; runs from before it was known go on
            audit["margin from"] = self.margin_from
        return RunConfiguration(self.configuration, audit)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MigrationPlan(SpendingPlan[Migration]):
    """A migration that is still to be done, or to be finished; the models of `request` have meters in them.

    `kept` are stitch and stores of a finished run in the same folder, which only another audit is made of.
    `documents_per_s` is how fast the target model embeds, for the report; None where that was not measured.
    """

    request: MigrationRequest
    questions: QuerySet
    fit: FitPlan
    kept: Kept = field(default_factory=Kept)
    documents_per_s: float | None = None

    @cached_property
    def models(self) -> tuple[PlannedModel, ...]:
        """The target, for the sample, all documents and the queries; the source model, for the query log and these."""
        request, queries = self.request, self.questions.queries
        again = AGAIN + (EMBEDDED_AGAIN if request.builds_reference else 0)
        target = PlannedModel(request.embedder, self.cap, documents=self._texts_left, queries=queries, again=again)
        if request.source_embedder is None:
            return (target,)
        log = request.query_log.looked_up if request.query_log else ()
        return (target, PlannedModel(request.source_embedder, self.cap, SOURCE_MODEL, queries=[*log, *queries]))

    def _texts_left(self) -> Iterator[Document]:
        """The sample, and all documents or about those of a pool, without what an earlier run has done.

        A document of the sample comes twice, as it is embedded twice by an embedder without a cache. First tokens are
        counted for all documents, though it may turn out that the stitch does not read them.
        """
        request = self.request
        folder, restart = self.request.folder, self.request.restart
        state = None if restart else State.read(folder)
        steps = state.steps if state and state.steps else self.kept.outputs
        done = {name for name in steps if (folder / name).exists()}
        if STITCH not in done:
            yield from self.fit.expected_documents()
        if STORE not in done and request.prefix is not None:
            yield from first_of(request.store.documents(), request.embedder.profile.counter, request.prefix)
        if not request.builds_reference:
            arms = 1 if request.source_embedder is None else 2
            yield from expected_documents(request.store, self.questions, arms, seed=request.seed)
        elif REFERENCE not in done:
            yield from documents_left(request.store, folder / REFERENCE, restart=restart)

    def execute(self, progress: Progress) -> Migration:
        """Fit a stitch on a sample, translate the store, embed it in full for comparison if need be, and audit."""
        request, store, folder = self.request, self.request.store, self.request.folder
        made_from = request.made_from
        outputs, kept = (STITCH, STORE, REFERENCE, REPORT, PAGE, RECORD), self.kept.outputs
        with open_steps(
            folder, outputs, made_from.work, kept=kept, force=request.force, restart=request.restart
        ) as steps:
            fitted = None
            if steps.known(STITCH) is None:
                fitted = self.fit.execute(progress)
                fitted.save(folder / STITCH, force=steps.force)
                steps.note(STITCH)
            saved = load_stitch(folder / STITCH).with_base(request.embedder)
            translation = _translate(store, saved, steps, progress)
            if request.builds_reference and steps.known(REFERENCE) is None:
                reembed_store(
                    store,
                    request.embedder,
                    folder / REFERENCE,
                    force=steps.force,
                    restart=steps.restart,
                    progress=progress,
                )
                steps.note(REFERENCE)
            report = self._audit(progress)
            with atomic_file(folder / REPORT, force=steps.force) as aside:
                write_json(aside, audit_document(report))
            with atomic_file(folder / PAGE, force=steps.force) as aside:
                write_bytes(aside, audit_page(report).encode())
            made = {name: facts for name in (STITCH, STORE, REFERENCE) if (facts := steps.known(name)) is not None}
            note_finished(
                folder, report, made_from, {**made, REPORT: {}, PAGE: {}}, page=folder / PAGE, force=steps.force
            )
        return Migration(fitted or saved, translation, report)

    def _audit(self, progress: Progress) -> AuditReport:
        request = self.request
        built = request.folder / REFERENCE
        audit = Audit(
            open_store(request.folder / STORE),
            POOL if request.pool else open_store(built),
            beir=self.questions,
            target=request.embedder,
            source=request.store if request.source_embedder else None,
            source_model=request.source_embedder,
            plan=request.plan,
            margin=request.margin,
            margin_from=request.margin_from,
            price=request.price_usd_per_mtok,
            seed=request.seed,
            cap=self.cap,
            announce=request.announce,
            progress=progress,
        )
        report = audit.execute()
        found = places_of(audit.translated, request.store, request.embedder)
        places = replace(
            request.known_places, can_switch=found.can_switch, can_serve=found.can_serve, server=found.server
        )
        report = replace(report, places=places, documents_per_s=self.documents_per_s)
        if "source" in report.stores:
            return report
        return replace(report, stores={**report.stores, "source": content_of(request.store)})


def plan_migration(request: MigrationRequest) -> MigrationPlan:
    """Plan to fit a stitch on a sample, translate the store, and audit it by a pool or against a full re-embed.

    Nothing is embedded. A run that broke off is continued, unless `restart` discards it, and what it has done is not
    counted; of one that is finished `finished_run` says what came of it, and another audit takes over its stores.

    Raises
    ------
    InconclusiveError
        Too few queries would be left for a verdict, without those of the query log.
    UsageError
        A run of another store or with another stitch has come to its end in this folder.
    LeadMigrateError
        As `plan_fit`.
    """
    check_plan(request.plan, request.store.info.count)
    cap, questions = SpendingCap(), request.judging
    source, log = request.source_embedder, request.query_log
    metered = replace(
        request,
        embedder=cap.meter(request.embedder, request.price_usd_per_mtok),
        source_embedder=source and cap.meter(source),
        query_log=replace(log, embedder=cap.meter(log.embedder)) if log and log.embedder else log,
    )
    fit = plan_fit(metered.store, metered.embedder, metered.fit_options, cap=cap)
    kept = Kept() if request.force else find_kept(request.folder, request.made_from, (STITCH, STORE, REPORT, PAGE))
    return MigrationPlan(request=metered, questions=questions, fit=fit, kept=kept, cap=cap)


def migrate(request: MigrationRequest, *, progress: Progress = no_progress) -> Migration:
    """Plan a migration, and run it without a cap.

    Raises
    ------
    LeadMigrateError
        As `plan_migration`, `fit_stitch`, `Translate`, `reembed_store` and `audit_store`.
    """
    return plan_migration(request).run(progress=progress)


def finished_run(request: MigrationRequest) -> Finished | None:
    """What `migrate` said when it was called with the same request; None where it has not come to its end.

    Nothing is embedded for that. None too where only the audit was another.

    Raises
    ------
    UsageError
        A run of another store or with another stitch has come to its end in this folder.
    InputError
        The record of it is damaged.
    """
    folder = request.folder
    if not (folder / RECORD).is_file() or not all((folder / name).is_dir() for name in request.outputs):
        return None
    return find_finished(folder, folder / REPORT, request.made_from)


def _translate(store: Store, fitted: FittedStitch, steps: Steps, progress: Progress) -> Translation:
    """The translation, or what is known of it where an earlier run has made it."""
    path = steps.folder / STORE
    known = steps.known(STORE)
    if known is not None:
        made = open_store(path, verify=True)
        seen = {"outside": find_outside(made), "distrust": distrust(made)}
        return Translation(path, **{**known, "remarks": tuple(known["remarks"]), **seen})
    step = Translate(store, fitted, path, force=steps.force, restart=steps.restart, progress=progress)
    done = step.execute()
    steps.note(STORE, {name: value for name, value in asdict(done).items() if name != "path"})
    return done
