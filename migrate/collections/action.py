"""`lead-migrate collections`: many collections of one place, by one stitch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from migrate.audit.step import Audit
from migrate.audit.verdict import FEWEST_DOCUMENTS
from migrate.cli.dry_run import models_for, stop_if_dry
from migrate.cli.inputs import load_model, local_paths
from migrate.cli.next_step import JUDGED, TARGET, advise_next, target_words
from migrate.cli.options import ModelOptions
from migrate.cli.progress import progress_bar
from migrate.cli.spending import Spending
from migrate.cli.terminal import advise, show, show_json
from migrate.cli.verdict import load_model_of, source_model_of, stop_if_same
from migrate.collections.auditing import (
    collections_document,
    plan_audits,
    run_audits,
    table_of,
    worst_exit_code,
    write_table,
)
from migrate.collections.fitting import open_fit, save_stitches
from migrate.collections.members import find_collections, output_beside
from migrate.collections.options import CollectionsOptions
from migrate.collections.switching import switch_collections
from migrate.collections.translating import load_stitches, new_location, translate_collections
from migrate.errors import UsageError
from migrate.files import free_path, refuse_output
from migrate.report.fit import fit_blocks
from migrate.report.sections import TextTable
from migrate.report.switch import switched_text
from migrate.report.terminal import as_text
from migrate.steps.base import RunContext
from migrate.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migrate.collections.auditing import AuditedCollection
    from migrate.collections.members import Collections


def inspect(store: str, as_json: bool) -> None:
    """List the collections that STORE means, and which are left out of a migration, and why."""
    collections = find_collections(store)
    if as_json:
        members = [{"name": it.name, "location": it.location, "vectors": it.store.info.count,
                    "dimension": it.store.info.dim} for it in collections.members]  # fmt: skip
        show_json({"collections": members, "left_out": collections.left_out}, kind="collections inspect")
        return
    rows = [(it.name, f"{it.store.info.count:,}", f"{it.store.info.dim:,}") for it in collections.members]
    show(as_text(TextTable([("collection", "vectors", "dimension"), *rows], text_columns={0})))
    for name, reason in collections.left_out.items():
        show(f"left out: {name}: {reason}")
    advise_next("collections fit", store, "--target", TARGET, "-o", free_path(Path("stitches")))


def fit(
    request: CollectionsOptions,
    output: Path,
    yes: bool,
    model: ModelOptions,
    force: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Learn one map from the vectors of all collections that STORE means."""
    paid = Spending(request.max_cost, is_agreed=yes)
    refuse_output(output, *local_paths(request.store.partition("#")[0]), force=force)
    model = models_for(model, dry_run=dry_run)
    with progress_bar() as progress:
        target = load_model(model, str(request.target), seed=request.seed)
        collections = find_collections(request.store)
        _tell(collections)
        small = [count for member in collections.members if (count := member.store.info.count) < FEWEST_DOCUMENTS]
        if small:
            few = f"fewer than {FEWEST_DOCUMENTS} documents, and are embedded whole: {sum(small):,}"
            advise(f"{len(small):,} of them have {few}")
        for member in collections.members:
            stop_if_same("collections fit", member.store, target, as_json=as_json)
        job = open_fit(request, collections, target, RunContext(progress=progress))
        stop_if_dry(dry_run, reads=[request.store], writes=[output], job=job, as_json=as_json)
        paid.agree(job, progress=progress)
        stitches = job.execute()
        save_stitches(stitches, collections, output, force=force)
    paid.finish()
    fitted = next(iter(stitches.values()))
    if as_json:
        content = {**fitted.selection.as_details(), "stitches": str(output), "collections": list(stitches)}
        show_json(content, kind="collections fit")
        return
    show(as_text(*fit_blocks(fitted.selection, bare=not collections.members[0].store.info.has_texts)))
    pairs = fitted.manifest.counts["pairs"]
    show(f"{output}: {fitted.stitch.spec}, fitted on {pairs:,} documents of {len(stitches):,} collections")
    translated = output_beside(request.store) or free_path(Path("translated"))
    advise_next("collections translate", request.store, output, "-o", translated)


def translate(store: str, stitches: Path, output: str, force: bool, as_json: bool) -> None:
    """Translate each of the collections into a store of its own, by the output of `collections fit`."""
    collections = find_collections(store)
    _tell(collections)
    fitted = load_stitches(stitches, collections)
    done = []
    with progress_bar() as progress:
        for collection in translate_collections(collections, fitted, output, force=force, progress=progress):
            done.append(collection)
            if not as_json:
                show(collection.sentence)
    if as_json:
        show_json({"collections": done, "left_out": collections.left_out}, kind="collections translate")
        return
    if all(collection.is_all_true for collection in done):
        advise("nothing to judge: all vectors are true ones")
        advise_next("collections switch", store, output)
        return
    model = fitted[collections.members[0].name].manifest.model
    reports = free_path(Path("reports"))
    arguments = ["--source", store, "--judged", JUDGED, *target_words(model), "-o", reports]
    advise_next("collections audit", output, *arguments)


def audit(request: Audit, output: Path, yes: bool, model: ModelOptions, dry_run: bool, as_json: bool) -> int:
    """Judge each of the collections in STORE, the output of `collections translate`."""
    paid = Spending(request.max_cost, is_agreed=yes)
    request.check()
    if request.source is None:
        raise UsageError("the old collections are not named; give them with --source, with a *")
    new = str(request.store)
    collections = find_collections(str(request.source))
    _tell(collections)
    model = models_for(model, dry_run=dry_run)
    first = collections.members[0]
    # One stitch made all the new collections, so that the model of the first is that of all
    target = load_model_of(open_store(new_location(new, first)), cast("str | None", request.target), "--target", model)
    with progress_bar() as progress:
        source_model = source_model_of(first.store, cast("str | None", request.source_model), model)
        step = replace(request, target=target, source_model=source_model)
        context = RunContext(progress=progress)
        plan = plan_audits(step, collections, new, output, context)
        models = plan.models()
        stop_if_dry(dry_run, reads=[new, request.source], writes=[output], models=models, as_json=as_json)
        # One question for all audits, and one cap below
        paid.agree_on(models, progress=progress)
        context.cap.cap_usd = paid.cap_usd
        rows = list(plan.done.values())
        for row in run_audits(plan):
            advise(f"{row.name}: {row.outcome}")
            rows.append(row)
    paid.finish()
    write_table(output, rows, collections.left_out)
    if as_json:
        show_json(collections_document(rows, collections.left_out))
    else:
        show(as_text(table_of(rows, collections.left_out)), verdict=True)
        show(f"reports: {output}")
        _advise_switch(collections, rows, new, output)
    return worst_exit_code(rows)


def _advise_switch(collections: Collections, rows: Sequence[AuditedCollection], new: str, reports: Path) -> None:
    """Print the switch of collections that are all SAFE, or what to do about those that are not."""
    arguments = ["collections switch", collections.pattern, new]
    unsafe = [row for row in rows if row.exit_code]
    if unsafe:
        advise(f"{len(unsafe):,} are not SAFE: the table says why, and the report of each what helps")
        advise("for all of them, `collections fit` with a larger --sample helps, and the same commands again")
    elif any(row.provisional for row in rows):
        advise("provisional, as nothing is judged: judged queries (--judged) make it final; to switch as it is:")
        advise_next(*arguments, "--unproven")
    else:
        advise_next(*arguments, "--reports", reports)


def switch(old: str, new: str, reports: Path | None, unproven: bool, as_json: bool) -> None:
    """Let the collections in NEW, the output of `collections translate`, answer for those of OLD."""
    collections = find_collections(old)
    _tell(collections)
    done = list(switch_collections(collections, new, reports, unproven=unproven))
    if as_json:
        show_json({"switched": done}, kind="collections switch")
        return
    for collection in done:
        show(switched_text(collection, collection.old))


def _tell(collections: Collections) -> None:
    """Say how many collections are moved, and which are not, for each reason once."""
    advise(f"{len(collections.members):,} collections, {collections.count:,} vectors")
    for reason in dict.fromkeys(collections.left_out.values()):
        names = [name for name, why in collections.left_out.items() if why == reason]
        advise(f"left out, {reason}: {', '.join(names)}")
