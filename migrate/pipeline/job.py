"""The work of a run: what an earlier one has left, a fit, a translation, a reference, an audit and its report."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate.audit.inputs import AGAIN
from migrate.audit.places import Places, places_of
from migrate.audit.pool import expected_documents
from migrate.audit.query_set import QuerySet, independent
from migrate.audit.report import AuditReport
from migrate.audit.results import TRANSLATED, check_plan
from migrate.audit.step import POOL, Audit
from migrate.cost.spending import SOURCE_MODEL, PlannedModel
from migrate.embed import reembed_store
from migrate.embed.corpus import AGAIN as EMBEDDED_AGAIN
from migrate.embed.reference import documents_left
from migrate.embedders.base import Embedder
from migrate.embedders.kinds import runs_code, split_spec
from migrate.embedders.prefix import first_of
from migrate.files import atomic_file, canonical_json, free_path, write_bytes, write_json
from migrate.finished import RECORD, Finished, Kept, RunConfiguration, find_finished, find_kept, note_finished
from migrate.report.document import audit_document
from migrate.report.html import audit_page
from migrate.selection import QueryLog, choose_strategy
from migrate.selection.choosers import choosers_of, digests_of
from migrate.steps.opening import log_of, model_of
from migrate.steps.translate import Translate
from migrate.steps.translate.job import Translation
from migrate.stitch.fitted import FittedStitch
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.confidence import distrust, find_outside
from migrate.stores.content import content_of
from migrate.vectors import Document, Progress
from migrate.work.jobs import Configuration
from migrate.work.outputs import State, Steps, open_steps

if TYPE_CHECKING:
    from migrate.pipeline import Run

STITCH, STORE, REFERENCE, REPORT, PAGE = "stitch", "store", "reference", "report.json", "report.html"
"""Names of what a run leaves in its folder."""


@dataclass(frozen=True, slots=True)
class Migration:
    """What came of the whole path."""

    stitch: FittedStitch
    translation: Translation
    report: AuditReport


def source_embedder(step: Run) -> Embedder | None:
    """Return the model of the store: the one that is named, or its own if that is at hand, and no code to be run."""
    named, manifest = step.source_model, step.source.info.manifest
    if named is None:
        known = manifest.model if manifest else None
        if known is None or runs_code(known.spec):
            return None
        kind, name = split_spec(known.spec)
        if kind == "file" and not Path(name).is_file():
            return None
    model = model_of(step.source, named, "source_model") if named is None or isinstance(named, str) else named
    return step.cap.meter(model)


def questions(step: Run) -> QuerySet:
    """Return the queries that judge, without choosers, and without those that are held out."""
    query_set = step.load_queries(step.source)
    log = _log_of(step)
    choosing = digests_of(log.looked_up if log else ())
    return independent(query_set, choosers_of(step.source.info.manifest) | choosing)


def configuration(step: Run) -> RunConfiguration:
    """Return what a run that broke off must have in common with the one that goes on, and what its audit rests on.

    The audit can be another for the same translated store.
    """
    store, embedder, log = step.source, step.embedder, _log_of(step)
    source_scope = step.source_embedder.cache_scope("query") if step.source_embedder else None
    if store.info.has_texts:
        embedder.fit(store.documents())
    options = {
        "stitch": list(step.fit.specs),
        "sample": step.sample,
        "seed": step.seed,
        "model": embedder.cache_scope("document"),
        "strategy": choose_strategy(step.strategy, has_log=log is not None),
        "query log": log and log.digest(),
        "source model": source_scope if log else None,
    }
    if step.prefix is not None:  # runs from before there was one go on
        options["prefix"] = step.prefix
    judges = step.questions
    asked_for: list[Any] = [judges.name, [[query.id, query.text] for query in judges.queries], judges.qrels]
    if judges.group_field is not None:
        asked_for.append([judges.group_of(query) for query in judges.queries])
    audit = {
        "queries": hashlib.sha256(canonical_json(asked_for).encode(errors="surrogatepass")).hexdigest(),
        "price": step.price,
        "margin": step.margin,
        "reference": "pool 200" if step.is_pooled else "build",
        "source model": source_scope,
    }
    if step.plan != TRANSLATED:
        audit["plan"] = step.plan
    if step.margin_from:  # the verdict names it; runs from before it was known go on
        audit["margin from"] = step.margin_from
    return RunConfiguration(Configuration("run", store.snapshot().as_json(), options), audit)


def find_finished_run(step: Run) -> Finished | None:
    """Return what the same run said before; None where it has not come to its end, or only the audit was another.

    Raises
    ------
    UsageError
        A run of another store or with another stitch has come to its end in this folder.
    InputError
        The record of it is damaged.
    """
    folder, outputs = step.folder, (STITCH, STORE) if step.is_pooled else (STITCH, STORE, REFERENCE)
    if not (folder / RECORD).is_file() or not all((folder / name).is_dir() for name in outputs):
        return None
    return find_finished(folder, folder / REPORT, step.made_from)


def find_kept_outputs(step: Run) -> Kept:
    """Return stitch and stores of a finished run, after making sure that the plan can be."""
    check_plan(step.plan, step.source.info.count)
    return Kept() if step.force else find_kept(step.folder, step.made_from, (STITCH, STORE, REPORT, PAGE))


def models(step: Run) -> tuple[PlannedModel, ...]:
    """Return the models that are asked, each with what is left to embed."""
    judges = step.questions.queries
    again = AGAIN + (0 if step.is_pooled else EMBEDDED_AGAIN)
    kept, fit = step.kept, step.fit.inputs  # what cannot be done is refused before anything is counted

    def texts_left() -> Iterator[Document]:
        """Yield the sample, and all documents or about those of a pool, without what an earlier run has done.

        A document of the sample comes twice, as it is embedded twice by an embedder without a cache. First tokens are
        counted for all documents, though it may turn out that the stitch does not read them.
        """
        store, folder = step.source, step.folder
        state = None if step.restart else State.read(folder)
        names = state.steps if state and state.steps else kept.outputs
        done = {name for name in names if (folder / name).exists()}
        if STITCH not in done:
            yield from step.fit.expected_documents()
        if STORE not in done and step.prefix is not None:
            yield from first_of(store.documents(), step.embedder.profile.counter, step.prefix)
        if step.is_pooled:
            arms = 1 if step.source_embedder is None else 2
            yield from expected_documents(store, step.questions, arms, seed=step.seed)
        elif REFERENCE not in done:
            yield from documents_left(store, folder / REFERENCE, restart=step.restart)

    target = PlannedModel(step.embedder, step.cap, documents=texts_left, queries=judges, again=again)
    if step.source_embedder is None:
        return (target,)
    log = fit.log.looked_up if fit.log else ()
    return (target, PlannedModel(step.source_embedder, step.cap, SOURCE_MODEL, queries=[*log, *judges]))


def run(step: Run, documents_per_s: float | None) -> Migration:
    """Fit a stitch on a sample, translate the store, embed it in full for comparison if need be, and audit."""
    store, folder, force = step.source, step.folder, step.force
    kept, made_from = step.kept.outputs, step.made_from
    outputs = (STITCH, STORE, REFERENCE, REPORT, PAGE, RECORD)
    with open_steps(folder, outputs, made_from.work, kept=kept, force=force, restart=step.restart) as steps:
        fitted = None
        if steps.known(STITCH) is None:
            fitted = step.fit.execute()
            fitted.save(folder / STITCH, force=steps.force)
            steps.note(STITCH)
        saved = load_stitch(folder / STITCH).with_base(step.embedder)
        translation = _translate(store, saved, steps, step.progress)
        if not step.is_pooled and steps.known(REFERENCE) is None:
            reembed_store(
                store,
                step.embedder,
                folder / REFERENCE,
                force=steps.force,
                restart=steps.restart,
                progress=step.progress,
            )
            steps.note(REFERENCE)
        report = replace(_audit(step), documents_per_s=documents_per_s)
        with atomic_file(folder / REPORT, force=steps.force) as aside:
            write_json(aside, audit_document(report))
        with atomic_file(folder / PAGE, force=steps.force) as aside:
            write_bytes(aside, audit_page(report).encode())
        made = {name: facts for name in (STITCH, STORE, REFERENCE) if (facts := steps.known(name)) is not None}
        note_finished(folder, report, made_from, {**made, REPORT: {}, PAGE: {}}, page=folder / PAGE, force=steps.force)
    return Migration(fitted or saved, translation, report)


def known_places(step: Run) -> Places:
    """Return what is read and left, as the next command names it."""
    store, folder, places = step.source, step.folder, step.places or Places()
    return replace(
        places,
        source=store.info.location,
        translated=str(folder / STORE),
        stitch=str(folder / STITCH),
        full=places.full or store.successor("full") or str(free_path(folder.with_name(f"{folder.name}-full"))),
        target=places.target or ("--target", step.embedder.identity.spec),
        report=str(folder / REPORT),
        has_texts=store.info.has_texts,
    )


def _log_of(step: Run) -> QueryLog | None:
    return None if step.query_log is None else QueryLog(log_of(step.query_log), step.source_embedder)


def _audit(step: Run) -> AuditReport:
    audit = Audit(
        open_store(step.folder / STORE),
        POOL if step.is_pooled else open_store(step.folder / REFERENCE),
        beir=step.questions,
        target=step.embedder,
        source=step.source if step.source_embedder else None,
        source_model=step.source_embedder,
        plan=step.plan,
        margin=step.margin,
        margin_from=step.margin_from,
        price=step.price,
        seed=step.seed,
        announce=step.announce,
        progress=step.progress,
        cap=step.cap,
    )
    report = audit.execute()
    found = places_of(audit.translated, step.source, step.embedder)
    places = replace(known_places(step), can_switch=found.can_switch, can_serve=found.can_serve, server=found.server)
    report = replace(report, places=places)
    if "source" in report.stores:
        return report
    return replace(report, stores={**report.stores, "source": content_of(step.source)})


def _translate(store: Store, fitted: FittedStitch, steps: Steps, progress: Progress) -> Translation:
    """Return the translation, or what is known of it where an earlier run has made it."""
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
