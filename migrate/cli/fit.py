"""`lead-migrate fit`: a sample, re-embedded, to a stitch."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate.cli.dry_run import models_for, stop_if_dry
from migrate.cli.inputs import load_model, local_paths, refuse_missing
from migrate.cli.next_step import advise_next, migration_of, model_words, name_of, note_file, place_of_full, typed_model
from migrate.cli.options import ModelOptions
from migrate.cli.progress import progress_bar
from migrate.cli.spending import Spending
from migrate.cli.terminal import advise, show, show_json
from migrate.cli.unread import count_unread_of_sample, warn_of_store
from migrate.cli.verdict import stop_if_same, warn_of_few
from migrate.errors import InputError
from migrate.files import already_exists, free_path, output_lock, refuse_output
from migrate.manifest import MANIFEST_NAME, artefact_kind
from migrate.report.fit import WITHOUT_TEXTS, doubts, fit_blocks
from migrate.report.terminal import as_text
from migrate.steps.base import RunContext, typed_name
from migrate.steps.fit import Fit
from migrate.steps.fit.inputs import inputs_of, load_views
from migrate.steps.fit.job import fit_job, request_of
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store
from migrate.stores.switching import successor_of
from migrate.work.remote import refuse_url

if TYPE_CHECKING:
    from migrate.cost.unread import Unread
    from migrate.manifest import Manifest
    from migrate.steps.fit.inputs import FitInputs
    from migrate.steps.fit.job import FitJob
    from migrate.stitch.fitted import Direction, FittedStitch
    from migrate.stores.base import Store


def command(
    request: Fit, output: Path | str, yes: bool, model: ModelOptions, force: bool, dry_run: bool, as_json: bool
) -> None:
    """Learn a map from STORE's vectors to another model's."""
    paid = Spending(request.max_cost, is_agreed=yes)
    store = str(request.store)
    target = str(request.target)
    seed = request.seed
    log = typed_name(request.query_log)
    refuse_missing(store, log, target=target)
    # Refused before anything is spent; whether a stitch is the one of this very fit shows once the inputs are open
    is_there = not force and isinstance(output, Path) and artefact_kind(output) == "stitch"
    if isinstance(output, Path):
        refuse_output(output, *local_paths(store, log), force=force or is_there)
    else:
        refuse_url(output, MANIFEST_NAME, force=force)
    model = models_for(model, dry_run=dry_run)
    with progress_bar() as progress:
        opened = open_store(store, verify=True)
        embedder = load_model(model, target, seed=seed)
        stop_if_same("fit", opened, embedder, as_json=as_json)
        old = None
        if request.source_model is not None:
            old = load_model(model.for_source(), str(request.source_model), state=opened.folder)
        load_view = partial(load_model, model.for_source())
        views = load_views(list(request.view), load_view) if request.view else None
        inputs = inputs_of(request, opened, embedder, old, views, RunContext(progress=progress))
        finished = _finished(request, inputs, output) if is_there else None
        job = fit_job(request, inputs)
        unread = {
            "store": warn_of_store(opened, embedder, seed=seed),
            "sample": count_unread_of_sample(job),
        }
        for view in inputs.views.values():
            warn_of_store(opened, view, seed=seed)
        is_bare = request.direction == "document" and not opened.info.has_texts
        if finished is not None:
            advise("this fit is done already; its stitch is left as it is")
            stop_if_dry(dry_run, reads=[store, output], writes=[], as_json=as_json)
        else:
            _announce(job, store, target, paid)
            stop_if_dry(dry_run, reads=[store, log], writes=[output], job=job, as_json=as_json)
            paid.agree(job, progress=progress)
            stop_if_same("fit", opened, inputs.embedder, paid=paid, as_json=as_json)
        fitted = finished or _fit(job, output, paid, force=force)
    if fitted.manifest.model is not None:
        note_file(fitted.manifest.model, target)
    if as_json:
        content = _fit_document(fitted, output, request.direction, unread, bare=is_bare)
        # How long each candidate took is not kept
        if finished is not None:
            content["candidates"] = [{**row, "fit_s": None} for row in content["candidates"]]
        show_json(content, kind="fit")
        return
    _show(fitted, output, opened.info.count, bare=is_bare, is_new=finished is None)
    if inputs.log is not None:
        show(_log_sentence(fitted.manifest, by_vectors=old is not None))
    if request.direction == "query":
        bridge = shlex.join(["--source", store, "--bridge", str(output)])
        advise(f"an audit of a translated store sets this beside it with {bridge}")
        return
    _advise_translate(store, target, opened, output)


def _advise_translate(store: str, target: str, opened: Store, output: Path | str) -> None:
    """Print the translation by a stitch, to where a settings file has it if the stitch is that of the file."""
    migration = migration_of(store, target)
    if migration is not None and migration.stitch == str(output):
        advise_next("translate")
        return
    stitch_path = output if isinstance(output, Path) else Path("stitch")
    translated = successor_of(opened, "translated") or free_path(stitch_path.with_name(f"{name_of(opened)}-translated"))
    arguments = [store, output, "-o", translated, *model_words("--target", target)]
    advise_next("translate", *arguments)


def _announce(job: FitJob, store: str, target: str, paid: Spending) -> None:
    """Say what a full re-embed instead would take, where there is anything to weigh."""
    opened = job.inputs.store
    if job.options.direction != "document" or not opened.info.has_texts:
        return
    full = str(place_of_full(store, target, opened))
    reembed_words = [store, "--target", target, *typed_model(), "-o", full]
    if not warn_of_few(opened, reembed_words):
        paid.weigh(job, opened, "the fit", reembed_words, is_proven=False, seed=job.options.seed)


def _fit(job: FitJob, output: Path | str, paid: Spending, *, force: bool) -> FittedStitch:
    """Fit a stitch, and keep it."""
    fitted = job.execute()
    fitted.save(output, force=force)
    paid.finish()
    return fitted


def _finished(request: Fit, inputs: FitInputs, output: Path | str) -> FittedStitch:
    """Return the stitch that the same fit has left before; a UsageError where it is of another one."""
    # A stitch that cannot be read is not the one of this fit, and is in the way like any other file
    with suppress(InputError):
        fitted = load_stitch(output)
        if inputs.store.info.has_texts:
            # Before its identity is asked for: a model that is made from the texts, such as tfidf, has none yet
            inputs.embedder.fit(inputs.store.documents())
        if fitted.manifest.stitch.request == request_of(request, inputs):
            with output_lock(Path(output)):  # one that a killed run has left goes with it
                return fitted
    raise already_exists(output)


def _fit_document(
    fitted: FittedStitch, output: Path | str, direction: Direction, unread: dict[str, Unread | None], *, bare: bool
) -> dict[str, Any]:
    use = fitted.fallback_use()
    confidence = fitted.selection.confidence
    content = {**fitted.selection.as_details(), "stitch": str(output), "direction": direction}
    content["fallback"] = None if use is None else asdict(use)
    content["over_limit"] = {name: None if counted is None else counted.figures for name, counted in unread.items()}
    content["without_texts"] = WITHOUT_TEXTS if bare else None
    content["doubts"] = doubts(fitted.selection)
    if fitted.selection.curve is not None and not fitted.selection.curve.is_known:
        content["curve"] |= {"gain": None, "low": None, "high": None}
    if fitted.selection.is_too_small:
        content["confidence"] = None
        for row in content["candidates"]:
            row["scores"] |= {"overlap_at_10": None, "overlap_error": None}
    elif confidence is not None:
        content["confidence"] = {**asdict(confidence), "usable": confidence.is_usable}
    return content


def _show(fitted: FittedStitch, output: Path | str, count: int, *, bare: bool, is_new: bool) -> None:
    if is_new:
        show(as_text(*fit_blocks(fitted.selection, bare=bare)))
    pairs = fitted.manifest.counts["pairs"]
    fallback = ""
    if fitted.fallback is not None:
        fallback = f" ({fitted.fallback.stitch.spec} for a store without texts)"
    show(f"{output}: {fitted.stitch.spec}{fallback}, fitted on {pairs:,} of {count:,} documents")


def _log_sentence(stitch: Manifest, *, by_vectors: bool) -> str:
    """Say how much of a stitch's sample the log has chosen, and by what."""
    from_log = (stitch.stitch.sample or {})["from query log"]
    pairs = stitch.counts["pairs"]
    by = "old vectors and words" if by_vectors else "words only, as no source model was named"
    sentence = f"sample: {from_log:,} of {pairs:,} documents are near the top for the query log, by {by}"
    if from_log < pairs:
        sentence += "; the others are random"
    return sentence
