"""The whole path, from a store and a target model to a translated store and a verdict. Start reading here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from migrate.audit.audit import audit_store
from migrate.audit.inputs import AuditInputs, AuditOptions
from migrate.audit.query_set import QuerySet, independent
from migrate.audit.report import AuditReport
from migrate.audit.two_stage import DEPTHS
from migrate.audit.verdict import MARGIN
from migrate.checkpoint.folder import Configuration, Steps, look_at, open_steps
from migrate.embed import reembed_store
from migrate.embed.reference import documents_left
from migrate.embedders.base import Embedder
from migrate.files import atomic_file, canonical_json, write_bytes, write_json
from migrate.finished import RECORD, Finished, find_finished, note_finished
from migrate.fit import fit_stitch, require_texts
from migrate.report.document import audit_document
from migrate.report.html import audit_page
from migrate.selection import SAMPLE_SIZE, QueryLog, choose_strategy
from migrate.selection.query_log import choosers_of, digests_of
from migrate.stitch.fitted import FittedStitch
from migrate.stitch.persistence import load_stitch
from migrate.stitch.select import AUTO
from migrate.stores import open_store
from migrate.stores.base import Store
from migrate.stores.confidence import distrust, find_outside
from migrate.translate import Translation, translate_store
from migrate.vectors import Document, Progress, no_progress

STITCH, STORE, REFERENCE, REPORT, PAGE = "stitch", "store", "reference", "report.json", "report.html"
"""What `migrate` leaves in its folder."""


@dataclass(frozen=True, slots=True)
class Migration:
    """What came of the whole path."""

    stitch: FittedStitch
    translation: Translation
    report: AuditReport


def migrate(
    store: Store,
    embedder: Embedder,
    questions: QuerySet,
    folder: Path,
    *,
    source_embedder: Embedder | None = None,
    stitch: str | Sequence[str] = AUTO,
    size: int = SAMPLE_SIZE,
    strategy: str | None = None,
    query_log: QueryLog | None = None,
    price_usd_per_mtok: float | None = None,
    margin: float = MARGIN,
    seed: int = 0,
    force: bool = False,
    restart: bool = False,
    progress: Progress = no_progress,
) -> Migration:
    """Fit a stitch on a sample, translate the store, embed it in full for comparison, and audit.

    Leaves `stitch`, `store`, `reference`, `report.json` and `report.html` in `folder`, each complete or absent. A run
    that broke off is continued by the same call, unless `restart` discards it; of one that is finished `finished_run`
    says what came of it. Queries of the log do not judge.

    Raises
    ------
    InconclusiveError
        As `judging_questions`.
    LeadMigrateError
        As `fit_stitch`, `translate_store`, `reembed_store` and `audit_store`.
    """
    source_model = source_embedder.identity if source_embedder else None
    strategy = choose_strategy(strategy, has_log=query_log is not None)
    questions = judging_questions(questions, store, query_log)
    require_texts(store, embedder)
    configuration = _configuration(store, embedder, source_embedder, stitch, size, strategy, query_log, seed)
    outputs = (STITCH, STORE, REFERENCE, REPORT, PAGE, RECORD)
    with open_steps(folder, outputs, configuration, force=force, restart=restart) as steps:
        fitted = None
        if steps.known(STITCH) is None:
            fitted = fit_stitch(
                store,
                embedder,
                stitch=stitch,
                size=size,
                strategy=strategy,
                query_log=query_log,
                source_model=source_model,
                seed=seed,
                progress=progress,
            )
            fitted.save(folder / STITCH, force=steps.force)
            steps.note(STITCH)
        saved = load_stitch(folder / STITCH)
        translation = _translate(store, saved, steps, progress)
        if steps.known(REFERENCE) is None:
            reembed_store(
                store, embedder, folder / REFERENCE, force=steps.force, restart=steps.restart, progress=progress
            )
            steps.note(REFERENCE)
        inputs = AuditInputs(
            open_store(folder / STORE),
            open_store(folder / REFERENCE),
            questions,
            embedder,
            source=store if source_embedder else None,
            source_embedder=source_embedder,
        )
        options = AuditOptions(two_stage=DEPTHS, price_usd_per_mtok=price_usd_per_mtok, margin=margin, seed=seed)
        report = audit_store(inputs, options, progress=progress)
        with atomic_file(folder / REPORT, force=steps.force) as aside:
            write_json(aside, audit_document(report))
        with atomic_file(folder / PAGE, force=steps.force) as aside:
            write_bytes(aside, audit_page(report).encode())
        judged = _judged(configuration, questions, price_usd_per_mtok, margin)
        note_finished(folder, report, judged, {name: folder / name for name in (REPORT, PAGE)}, force=steps.force)
    return Migration(fitted or saved, translation, report)


def judging_questions(questions: QuerySet, store: Store, log: QueryLog | None) -> QuerySet:
    """The questions without those that `migrate` chooses documents by, or that chose documents of `store` before.

    Raises
    ------
    InconclusiveError
        Too few are left for a verdict.
    """
    return independent(questions, choosers_of(store.info.manifest) | digests_of(log.looked_up if log else ()))


def finished_run(
    store: Store,
    embedder: Embedder,
    questions: QuerySet,
    folder: Path,
    *,
    source_embedder: Embedder | None = None,
    stitch: str | Sequence[str] = AUTO,
    size: int = SAMPLE_SIZE,
    strategy: str | None = None,
    query_log: QueryLog | None = None,
    price_usd_per_mtok: float | None = None,
    margin: float = MARGIN,
    seed: int = 0,
) -> Finished | None:
    """What `migrate` said when it was called with the same arguments; None where it has not come to its end.

    Nothing is embedded for that.

    Raises
    ------
    UsageError
        It has come to its end in this folder with other arguments.
    InputError
        The record of it is damaged.
    """
    if not (folder / RECORD).is_file() or not all((folder / name).is_dir() for name in (STITCH, STORE, REFERENCE)):
        return None
    strategy = choose_strategy(strategy, has_log=query_log is not None)
    questions = judging_questions(questions, store, query_log)
    configuration = _configuration(store, embedder, source_embedder, stitch, size, strategy, query_log, seed)
    return find_finished(folder, folder / REPORT, _judged(configuration, questions, price_usd_per_mtok, margin))


def _configuration(
    store: Store,
    embedder: Embedder,
    source_embedder: Embedder | None,
    stitch: str | Sequence[str],
    size: int,
    strategy: str,
    query_log: QueryLog | None,
    seed: int,
) -> Configuration:
    """What a run that broke off must have in common with the one that goes on; costs no embedding."""
    if store.info.has_texts:
        embedder.fit(store.documents())
    options = {
        "stitch": [stitch] if isinstance(stitch, str) else list(stitch),
        "sample": size,
        "seed": seed,
        "model": embedder.cache_scope("document"),
        "strategy": strategy,
        "query log": query_log and query_log.digest(),
        "source model": source_embedder and source_embedder.cache_scope("query"),
    }
    return Configuration("run", store.snapshot().as_json(), options)


def _judged(configuration: Configuration, questions: QuerySet, price: float | None, margin: float) -> Configuration:
    """With what the verdict rests on besides."""
    asked = canonical_json([questions.name, [[query.id, query.text] for query in questions.queries], questions.qrels])
    digest = hashlib.sha256(asked.encode(errors="surrogatepass")).hexdigest()
    return replace(
        configuration, options={**configuration.options, "queries": digest, "price": price, "margin": margin}
    )


def texts_left(
    store: Store, draw: Callable[[], Iterable[Document]], folder: Path, *, restart: bool = False
) -> Iterator[Document]:
    """The documents that `migrate` would still have embedded in `folder`: the sample, as `draw` has it, and all.

    A document of the sample comes twice, as it is embedded twice by an embedder without a cache.
    """
    record = None if restart else look_at(folder)
    done = {name for name in record.steps if (folder / name).exists()} if record else set()
    if STITCH not in done:
        yield from draw()
    if REFERENCE not in done:
        yield from documents_left(store, folder / REFERENCE, restart=restart)


def _translate(store: Store, fitted: FittedStitch, steps: Steps, progress: Progress) -> Translation:
    """The translation, or what is known of it where an earlier run has made it."""
    path = steps.folder / STORE
    known = steps.known(STORE)
    if known is not None:
        made = open_store(path)
        seen = {"outside": find_outside(made), "distrust": distrust(made)}
        return Translation(path, **{**known, "remarks": tuple(known["remarks"]), **seen})
    done = translate_store(store, fitted, path, force=steps.force, restart=steps.restart, progress=progress)
    steps.note(STORE, {name: value for name, value in asdict(done).items() if name != "path"})
    return done
