"""Audits of many collections: one estimate and one cap, a report for each, one table, and the worst exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from migrate.audit.step import Audit
from migrate.audit.verdict import FEWEST_DOCUMENTS
from migrate.audit_report import read_audit
from migrate.cli.verdict import EXIT_CODES
from migrate.collections.members import Collection, Collections
from migrate.collections.translating import new_location
from migrate.cost.spending import PlannedModel
from migrate.errors import InconclusiveError, InputError
from migrate.facts import document
from migrate.files import atomic_file, sha256_json, write_bytes, write_json
from migrate.reading import MalformedError, read_table
from migrate.report.audit_sections import audit_sections
from migrate.report.page import report_page
from migrate.report.sections import Report, TextTable
from migrate.steps.base import RunContext
from migrate.stores import open_store
from migrate.stores.all_true import is_all_true
from migrate.stores.base import Store
from migrate.stores.content import content_of, is_content

if TYPE_CHECKING:
    from migrate.audit.audit import AuditJob
    from migrate.audit.query_set import QuerySet
    from migrate.audit_report.report import AuditReport
    from migrate.vectors import Progress, Text

JSON, PAGE = "report.json", "report.html"
"""The files of a report: in the folder of each collection, and of the table of all."""

_INPUTS = "audited.json"
"""Digests of what each report is of, by the name of its collection, so that it is not made again."""

_WORST_LAST: Final = (0, 3, 1, 4)
"""Exit codes of a collection: SAFE, INCONCLUSIVE, NOT SAFE, and inputs that cannot be audited."""


@dataclass(frozen=True, slots=True)
class AuditedCollection:
    """The verdict on a collection: its outcome, or what kept it from one, and its report if there is one."""

    name: str
    documents: int
    outcome: str
    sentence: str
    exit_code: int
    report: str | None = None
    earlier: bool = False
    provisional: bool = False


@dataclass(frozen=True)
class PlannedAudit:
    """An audit of a collection that is to be made, and a digest of what it is of."""

    member: Collection
    job: AuditJob
    digest: str


@dataclass(frozen=True)
class AuditPlan:
    """The audits that are still to be made, and what needs none."""

    folder: Path
    planned: Sequence[PlannedAudit]
    done: Mapping[str, AuditedCollection]

    def models(self) -> list[PlannedModel]:
        """Return the models of all audits, each once, with all that they are asked for."""
        merged: dict[str, list[PlannedModel]] = {}
        for audit in self.planned:
            for model in audit.job.models:
                merged.setdefault(model.role, []).append(model)
        return [_together(models) for models in merged.values()]


def plan_audits(request: Audit, collections: Collections, new: str, folder: Path, context: RunContext) -> AuditPlan:
    """Open the new stores, and find which audits are still to be made; nothing is embedded.

    `request` has the models, loaded, and the queries. What an earlier run has audited, with the same stores and
    queries, is read from its report.
    """
    earlier_digests: Mapping[str, str] = {}
    if not request.force:
        earlier_digests = _read_digests(folder)
    planned = []
    done = {}
    for member in collections.members:
        translated = open_store(new_location(new, member), verify=True)
        alone = _without_audit(member, translated)
        if alone is not None:
            done[member.name] = alone
            continue
        try:
            queries = _queries_for(request, member, translated, context.progress)
            step = replace(request, store=translated, source=member.store, judged=queries, queries=None)
            digest = _digest_of(step, member.store, translated, queries)
            recorded = None
            if earlier_digests.get(member.name) == digest:
                recorded = _recorded(folder / member.file_name, member, translated)
            if recorded is not None:
                done[member.name] = recorded
                continue
            # Too few queries, or others' documents, are told before anything is paid for
            job = step.open(context)
        except (InconclusiveError, InputError) as error:
            done[member.name] = _failed(member, error)
            continue
        planned.append(PlannedAudit(member, job, digest))
    return AuditPlan(folder, planned, done)


def run_audits(plan: AuditPlan) -> Iterator[AuditedCollection]:
    """Audit one collection after the other; the report of each is written as soon as it is there."""
    digests = _read_digests(plan.folder)
    for audit in plan.planned:
        member = audit.member
        try:
            report = audit.job.execute()
        except (InconclusiveError, InputError) as error:
            yield _failed(member, error)
            continue
        folder = plan.folder / member.file_name
        _write_report(folder, report)
        # After each audit: a run that is killed has the finished ones behind it
        digests[member.name] = audit.digest
        with atomic_file(plan.folder / _INPUTS, force=True) as unfinished:
            write_json(unfinished, digests)
        yield _row(member, report.document, folder, earlier=False)


def _together(models: Sequence[PlannedModel]) -> PlannedModel:
    """Return a model with the documents of several audits, and with each of their queries once."""
    queries: dict[str, Text] = {query.text: query for model in models for query in model.queries}
    return PlannedModel(
        models[0].embedder,
        models[0].cap,
        models[0].role,
        documents=lambda: chain.from_iterable(model.documents() for model in models),
        queries=list(queries.values()),
        # Each audit lets the model prove itself
        again=sum(model.again for model in models),
    )


def _without_audit(member: Collection, translated: Store) -> AuditedCollection | None:
    """Return the verdict on a collection that needs no audit, or cannot be found SAFE by one; else None."""
    count = member.store.info.count
    if is_all_true(translated):
        return AuditedCollection(member.name, count, "SAFE", "nothing to judge: all vectors are true ones", 0)
    # `fit` embeds all of these but blank texts
    if count < FEWEST_DOCUMENTS:
        sentence = (
            f"{count:,} documents are too few to find anything SAFE, which takes {FEWEST_DOCUMENTS}, and not all have "
            "true vectors, as some texts are blank: let `reembed` embed them"
        )
        return AuditedCollection(member.name, count, "INCONCLUSIVE", sentence, InconclusiveError.exit_code)
    return None


def _queries_for(request: Audit, member: Collection, translated: Store, progress: Progress) -> QuerySet:
    """Return the queries of a collection: of judged ones those with a relevant document in it, else all.

    A document is called by its id, or NAME#ID where two collections have that id.
    """
    query_set = request.load_queries(translated, parent_field=request.parent_field, progress=progress)
    if query_set.qrels is None:
        return query_set
    own_ids = set(member.store.ids(range(member.store.info.count)))
    # Judgements name a document so where two collections use its id
    prefix = f"{member.name}#"
    qrels = {}
    for query_id, grades in query_set.qrels.items():
        present = {doc_id.removeprefix(prefix): grade for doc_id, grade in grades.items()}
        relevant = {doc_id: grade for doc_id, grade in present.items() if doc_id in own_ids}
        if any(grade > 0 for grade in relevant.values()):
            qrels[query_id] = relevant
    if not qrels:
        raise InconclusiveError(f"{member.location}: no judged query has a relevant document in this collection")
    queries = [query for query in query_set.queries if query.id in qrels]
    return replace(query_set, queries=queries, qrels=qrels)


def _digest_of(step: Audit, old: Store, new: Store, queries: QuerySet) -> str:
    return sha256_json(
        {
            "stores": [old.snapshot().fingerprint, new.snapshot().fingerprint],
            "queries": [[query.id, query.text] for query in queries.queries],
            "qrels": queries.qrels,
            # Whatever else changes what an audit finds belongs here, or an old report would stand for a new question
            "options": [
                step.margin,
                step.plan,
                str(step.reference),
                step.seed,
                step.two_stage,
                step.search_effort,
                step.ranked_queries,
                step.group_field,
                step.parent_field,
                list(step.slice),
            ],
        }
    )


def _read_digests(folder: Path) -> dict[str, Any]:
    """Return what each collection was audited by; nothing where that cannot be read, so that all are audited again."""
    try:
        return read_table(folder / _INPUTS)
    except (OSError, MalformedError):
        return {}


def _recorded(folder: Path, member: Collection, translated: Store) -> AuditedCollection | None:
    """Return what the report of an earlier run says; None where it is gone, or is not what was written."""
    if not (folder / JSON).is_file() or not (folder / PAGE).is_file():
        return None
    try:
        report = read_audit(folder / JSON)
    except (OSError, MalformedError, InputError):
        return None
    # The store may have been translated again since
    if not is_content(report["stores"].get("translated"), content_of(translated), translated):
        return None
    return _row(member, report, folder, earlier=True)


def _row(member: Collection, report: Mapping[str, Any], folder: Path, *, earlier: bool) -> AuditedCollection:
    outcome = report["plan"]["outcome"]
    return AuditedCollection(
        member.name,
        member.store.info.count,
        str(outcome),
        report["verdict"]["sentence"],
        EXIT_CODES[str(outcome)],
        str(folder / PAGE),
        earlier,
        bool(report["verdict"]["provisional"]),
    )


def _failed(member: Collection, error: InconclusiveError | InputError) -> AuditedCollection:
    outcome = "INCONCLUSIVE" if isinstance(error, InconclusiveError) else "not audited"
    return AuditedCollection(member.name, member.store.info.count, outcome, str(error), error.exit_code)


def _write_report(folder: Path, report: AuditReport) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / PAGE, force=True) as unfinished:
        write_bytes(unfinished, report_page(audit_sections(report)).encode())
    with atomic_file(folder / JSON, force=True) as unfinished:
        write_json(unfinished, report.document)


def worst_exit_code(rows: Sequence[AuditedCollection]) -> int:
    """Return the worst exit code of some collections."""
    # Not the greatest number: INCONCLUSIVE is 3, and NOT SAFE, which is worse, is 1
    return max((row.exit_code for row in rows), key=_WORST_LAST.index)


def table_of(rows: Sequence[AuditedCollection], left_out: Mapping[str, str]) -> TextTable:
    """Return the verdicts, the worst first, with what is left out at the end."""
    ordered = sorted(rows, key=lambda row: (-_WORST_LAST.index(row.exit_code), row.name))
    lines = [(row.name, f"{row.documents:,}", row.outcome, row.sentence) for row in ordered]
    lines += [(name, "", "left out", reason) for name, reason in left_out.items()]
    return TextTable([("collection", "documents", "verdict", "why"), *lines], text_columns={0, 2, 3})


def collections_document(rows: Sequence[AuditedCollection], left_out: Mapping[str, str]) -> dict[str, Any]:
    """Return the verdicts as one JSON document."""
    return document("collections audit", {"collections": list(rows), "left_out": left_out})


def write_table(folder: Path, rows: Sequence[AuditedCollection], left_out: Mapping[str, str]) -> None:
    """Write the table of all collections, as a page and as JSON."""
    counts = {
        outcome: sum(row.outcome == outcome for row in rows) for outcome in dict.fromkeys(r.outcome for r in rows)
    }
    lead = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items())
    page = report_page(Report("Audit", f"{len(rows):,} collections", lead, {"Collections": table_of(rows, left_out)}))
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / PAGE, force=True) as unfinished:
        write_bytes(unfinished, page.encode())
    with atomic_file(folder / JSON, force=True) as unfinished:
        write_json(unfinished, collections_document(rows, left_out))
