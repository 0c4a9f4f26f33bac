"""`lead-migrate reembed`: a store with the new model, all of it or a share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from migrate.check.rows import read_rows
from migrate.cli.dry_run import models_for, stop_if_dry
from migrate.cli.inputs import load_model, local_paths
from migrate.cli.next_step import JUDGED, OLD, advise_next, advise_switch, judged_words, warn_of_place
from migrate.cli.options import ModelOptions
from migrate.cli.progress import progress_bar
from migrate.cli.spending import Spending
from migrate.cli.terminal import advise, show, show_json
from migrate.cli.translate import run_translation
from migrate.cli.unread import warn_of_store
from migrate.cli.verdict import load_model_of, refuse_recorded_code, stop_if_same
from migrate.embedders import is_spec_of
from migrate.embedders.cache import cache_of
from migrate.errors import UsageError
from migrate.files import command_ends, refuse_overlap
from migrate.selection.model_match import ASKED_AGAIN, needs_proof
from migrate.steps.base import RunContext, typed_name
from migrate.steps.reembed import Reembed
from migrate.steps.reembed.fill import count_true
from migrate.steps.reembed.job import FillJob, reembed_job
from migrate.steps.reembed.mend import mend_job
from migrate.stores import open_store
from migrate.stores.registry import output_of

if TYPE_CHECKING:
    from migrate.embed import Embedding
    from migrate.stores.base import Store


def command(request: Reembed, yes: bool, model: ModelOptions, dry_run: bool, as_json: bool) -> None:
    """Embed every text of STORE with another model."""
    paid = Spending(request.max_cost, is_agreed=yes)
    request.check()
    if request.rows is not None:
        _embed_rows(request, paid, model, dry_run=dry_run, as_json=as_json)
    elif request.from_cache:
        fill_from_cache(request, model, dry_run=dry_run, as_json=as_json)
    elif request.share is None:
        _embed_all(request, paid, model, dry_run=dry_run, as_json=as_json)
    else:
        run_translation(request.of_share(), paid, model, dry_run=dry_run, as_json=as_json)


@command_ends()
def _embed_all(request: Reembed, paid: Spending, model: ModelOptions, *, dry_run: bool, as_json: bool) -> None:
    store = str(request.store)
    output = str(request.output)
    refuse_overlap(output_of(output).path, *local_paths(store))
    model = models_for(model, dry_run=dry_run)
    with progress_bar() as progress:
        opened = open_store(store, verify=True)
        warn_of_place(opened, output_of(output).path)
        # Each text is asked for once, so a file for the answers would only cost disk
        loaded = load_model(model, str(request.target), seed=request.seed, asks_again=False)
        stop_if_same("reembed", opened, loaded, as_json=as_json)
        job = reembed_job(request, opened, loaded, RunContext(progress=progress))
        warn_of_store(opened, job.embedder, seed=request.seed)
        stop_if_dry(dry_run, reads=[store], writes=[output], job=job, as_json=as_json)
        paid.agree(job, progress=progress)
        # Again, now that it may cost something: without a manifest only embedding some texts tells
        stop_if_same("reembed", opened, job.embedder, paid=paid, as_json=as_json)
        done = job.execute()
    paid.finish()
    show_reembedded(done, store, opened, output_of(output).location, as_json=as_json)


@command_ends()
def _embed_rows(request: Reembed, paid: Spending, model: ModelOptions, *, dry_run: bool, as_json: bool) -> None:
    """Embed the documents of a file anew."""
    store = str(request.store)
    rows = Path(str(request.rows))
    model = models_for(model, dry_run=dry_run)
    with progress_bar() as progress:
        others = read_rows(rows)
        opened = open_store(store, verify=True)
        warn_of_place(opened, output_of(request.output).path)
        spec = typed_name(request.target)
        recorded = others.model if is_spec_of(spec, others.model) else None
        if spec is None:
            refuse_recorded_code(others.model, rows, "--target")
        loaded = load_model(model, spec or others.model.spec, recorded=recorded, state=opened.folder, asks_again=False)
        job = mend_job(request, opened, others, loaded, RunContext(progress=progress))
        stop_if_dry(dry_run, reads=[store, rows], writes=[request.output], job=job, as_json=as_json)
        paid.agree(job, progress=progress)
        done = job.execute()
    paid.finish()
    if as_json:
        show_json(_content(done), kind="reembed")
        return
    show(f"{done.path}: {done.count:,} vectors, {len(others.ids):,} of them embedded anew, the others as they were")
    for remark in done.remarks:
        show(f"note: {remark}")
    advise_switch(store, opened, output_of(request.output).location)


def _content(done: Embedding) -> dict[str, object]:
    return {"path": str(done.path), "count": done.count, "dimension": done.dim, "remarks": list(done.remarks)}


def show_reembedded(done: Embedding, store: str, opened: Store, new: str, *, as_json: bool) -> None:
    """Print what a full re-embed has made, and what comes next; `store` is the old one as typed, `new` the location."""
    if as_json:
        show_json(_content(done), kind="reembed")
        return
    show(f"{done.path}: {done.count:,} vectors of dimension {done.dim}, all of them true ones")
    for remark in done.remarks:
        show(f"note: {remark}")
    if not advise_switch(store, opened, new):
        advise_next("audit", new, "--reference", "pool", "--source", store, *judged_words(), also=("target",))


@command_ends()
def fill_from_cache(request: Reembed, model: ModelOptions, *, dry_run: bool, as_json: bool) -> None:
    """Write a store with what the embedding cache has of it, for `backfill` and for `reembed --from-cache`."""
    store = str(request.store)
    request.check()
    with progress_bar() as progress:
        opened = open_store(store, verify=True)
        output = output_of(request.output)
        refuse_overlap(output.path, *local_paths(store))
        embedder = load_model_of(opened, typed_name(request.target), "--target", model)
        if model.cache_file is None or cache_of(embedder) is None:
            why = "as they cost nothing to have again"
            if model.cache_file is None:
                why = "as --cache none asks"
            raise UsageError(
                f"{store}: the vectors of the model are not cached, {why}; embed them with "
                f"`reembed {store} --target {embedder.profile.spec} -o {request.output}`"
            )
        if dry_run:
            output.require_free(force=request.force)
            n_true, n_before = count_true(opened, embedder, progress=progress)
            embeds = [f"{n_true:,} of {opened.info.count:,} vectors would be true ones, where {n_before:,} are"]
            if needs_proof(embedder):
                embeds.append(f"to embed: up to {2 * ASKED_AGAIN} texts again, to prove the model")
            reads = [store, model.cache_file]
            stop_if_dry(dry_run, reads=reads, writes=[request.output], embeds=embeds, as_json=as_json)
        context = RunContext(progress=progress)
        done = FillJob(options=request, context=context, models=(), source=opened, embedder=embedder).execute()
    if as_json:
        counts = {"count": done.count, "true": done.n_true, "true before": done.n_before, "left": done.n_left}
        show_json({"path": done.path, **counts}, kind="backfill")
        return
    show(
        f"{done.path}: {done.n_true:,} of {done.count:,} vectors are true ones ({done.n_before:,} before), "
        f"{done.n_left:,} are still translated"
    )
    if done.n_choosers and done.n_left:
        advise(
            f"{done.n_choosers:,} queries chose some of these vectors and do not judge them: audit by others, such as "
            "those of --hold-out, another split, or --queries",
        )
    new = str(done.path)
    if not advise_switch(OLD, None, new):
        advise_next("audit", new, "--reference", "pool", "--judged", JUDGED, also=("target",))
