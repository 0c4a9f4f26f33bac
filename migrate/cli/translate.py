"""`lead-migrate translate`: a store through a stitch, with or without a budget of true vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.cli.dry_run import models_for, stop_if_dry
from migrate.cli.inputs import load_model, refuse_missing
from migrate.cli.next_step import (
    JUDGED,
    advise_next,
    advise_switch,
    file_of,
    may_not_load,
    model_words,
    target_words,
)
from migrate.cli.options import ModelOptions
from migrate.cli.progress import progress_bar
from migrate.cli.spending import Spending, with_views
from migrate.cli.terminal import advise, show, show_json
from migrate.cli.verdict import refuse_recorded_code
from migrate.cost.spending import VIEW
from migrate.embedders import is_spec_of
from migrate.embedders.kinds import split_spec
from migrate.errors import UsageError
from migrate.files import command_ends
from migrate.report.terminal import wrap
from migrate.steps.base import Announce, RunContext, typed_name
from migrate.steps.translate import Translate
from migrate.steps.translate.choice import why_unsure
from migrate.steps.translate.dimensions import shorten_job
from migrate.steps.translate.job import output_for, refit_folder, refuse_outputs, translate_job
from migrate.stitch.persistence import load_stitch, stitch_folder
from migrate.stores import open_store

if TYPE_CHECKING:
    from migrate.cost.spending import PlannedModel
    from migrate.embedders.base import Embedder
    from migrate.manifest import ModelIdentity
    from migrate.steps.translate.choice import Choice
    from migrate.steps.translate.job import Translation
    from migrate.stitch.fitted import FittedStitch
    from migrate.stores.base import Store
    from migrate.vectors import Progress


@dataclass(frozen=True, slots=True)
class _Reporter:
    """Prints what a re-embedding is about to spend, and asks where that is too much."""

    paid: Spending
    fitted: FittedStitch
    policy: str | None
    folder: Path
    progress: Progress

    def announce(self) -> Announce:
        return Announce(self.log, self.choice, self.stitch)

    def log(self, target: PlannedModel) -> None:
        self.paid.agree_on([target], progress=self.progress)

    def choice(self, choice: Choice, target: PlannedModel) -> None:
        if self.policy is None and choice.policy == "random":
            advise(f"note: {why_unsure(self.fitted)}; the documents to embed are drawn at random")
        if target.meter is not None:
            self.paid.agree_on([target], progress=self.progress)
            return
        cost = choice.cost
        tokens = f"{cost.tokens:,} tokens"
        if not cost.is_exact:
            tokens = f"about {tokens}"
        by_log = ""
        if choice.from_log:
            by_log = f" ({choice.from_log:,} of them hits of the query log)"
        advise(f"to embed: {cost.documents:,} documents, {tokens}{by_log}; tokens are {choice.counted_by}")

    def stitch(self, refitted: FittedStitch) -> None:
        pairs = refitted.manifest.counts["pairs"]
        advise(f"{self.folder}: {refitted.stitch.spec}, fitted on {pairs:,} pairs")


def load_model_of_stitch(fitted: FittedStitch, folder: Path, spec: str | None, model: ModelOptions) -> Embedder:
    """The model that a stitch leads to, or the one that was named for it."""
    recorded = fitted.manifest.model
    file = None if recorded is None else file_of(recorded)
    if spec is None and (recorded is None or file is not None):
        missing = "its model" if recorded is None else f"where {file} is"
        raise UsageError(f"{folder}: the stitch does not say {missing}; name the model with --target SPEC")
    if recorded is None or not is_spec_of(spec, recorded):
        return load_model(model, str(spec), state=folder)
    if spec is None:
        refuse_recorded_code(recorded, folder, "--target")
    return load_model(model, str(spec or recorded.spec), recorded=recorded, state=folder)


def command(request: Translate, yes: bool, model: ModelOptions, dry_run: bool, as_json: bool) -> None:
    """Translate STORE by STITCH into a new store."""
    if request.to_dimensions is not None:
        _shorten(request, dry_run=dry_run, as_json=as_json)
        return
    paid = Spending(request.max_cost, is_agreed=yes)
    run_translation(request, paid, model, dry_run=dry_run, as_json=as_json)


@command_ends()
def _shorten(request: Translate, *, dry_run: bool, as_json: bool) -> None:
    """Cut the vectors of a store as it was typed."""
    request.check()
    store = str(request.store)
    refuse_missing(store)
    with progress_bar() as progress:
        opened = open_store(store, verify=True)
        job = shorten_job(request, opened, RunContext(progress=progress))
        if dry_run:
            job.check_source()
        written = request.output if request.into is None else job.output.display_name
        stop_if_dry(dry_run, reads=[store], writes=[written], embeds=job.remarks, as_json=as_json)
        if request.into is not None and (caution := job.output.caution(job.model.dim)) is not None:
            advise(f"note: {caution}")
        done = job.execute()
    if as_json:
        show_json(done, kind="translate")
        return
    _show(done, opened)
    _advise_audit(opened, opened.info.recorded_model, job.model, store, done.path, None, [store])


@command_ends()
def run_translation(request: Translate, paid: Spending, model: ModelOptions, *, dry_run: bool, as_json: bool) -> None:
    """Run a translation as it was typed, for `translate`, and for `reembed` with a share."""
    request.check()
    store = str(request.store)
    stitch = str(request.stitch)
    named = typed_name(request.target)
    refuse_missing(store, stitch, target=named)
    model = models_for(model, dry_run=dry_run)
    with progress_bar() as progress:
        opened = open_store(store, verify=True)
        folder = stitch_folder(stitch)
        fitted = with_views(load_stitch(stitch), model)
        output = output_for(request, opened, progress)
        refitted = None
        context = RunContext(progress=progress)
        if request.reembed is not None:
            refuse_outputs(request, output)
            refitted = refit_folder(request, output)
            announce = _Reporter(paid, fitted, request.policy, refitted, progress).announce()
            context = RunContext(progress=progress, announce=announce)
        target = None
        if named is not None or request.reembed is not None:
            target = load_model_of_stitch(fitted, folder, named, model)
        job = translate_job(request, opened, fitted, target, context)
        # Elsewhere the work finds that out before it writes anything, and a dry run does none
        if dry_run:
            job.check_source()
        written = request.output if request.into is None else output.display_name
        reads = [store, stitch, typed_name(request.query_log)]
        stop_if_dry(dry_run, reads=reads, writes=[written, refitted], job=job, as_json=as_json)
        # The target's texts are not chosen yet, and agreed to when they are
        paid.agree_on([planned for planned in job.models if planned.role == VIEW], progress=progress)
        if request.into is not None:
            caution = output.caution(fitted.dim)
            if caution is not None:
                advise(f"note: {caution}")
        job.cap.cap_usd = paid.cap_usd
        done = job.execute()
    paid.finish()
    if as_json:
        show_json(done, kind="translate")
        return
    _show(done, opened)
    if not advise_switch(store, opened, str(done.path)):
        models = (fitted.manifest.source_model, fitted.manifest.model)
        _advise_audit(opened, *models, store, done.path, named, [stitch, store])


def _advise_audit(
    source: Store,
    source_model: ModelIdentity | None,
    model: ModelIdentity | None,
    store: str,
    output: Path | str,
    target: str | None,
    beside: Sequence[str],
) -> None:
    """The audit as far as it is known here: with the source only where its model can be had from what it remembers.

    A model that is a file is looked for `beside` the stitch and the store.
    """
    arguments = target_words(model, target, beside=beside)
    source_words = _source_words(store, source.info.recorded_model, source_model)
    # A pool embeds texts as it goes
    reference = "pool" if source.info.has_texts else "build"
    advise_next("audit", output, "--reference", reference, "--judged", JUDGED, *source_words, *arguments)


def _source_words(
    store: str, recorded: ModelIdentity | None, model_of_stitch: ModelIdentity | None
) -> list[str | Path]:
    """`--source`, with `--source-model` where only the stitch says it; not of a model that an audit cannot load.

    `recorded` is the model in the store's own manifest.
    """
    model = recorded or model_of_stitch
    # What words tf-idf knows lies beside a store that names it, and nowhere else
    lacks_words = recorded is None and model is not None and split_spec(model.spec)[0] == "tfidf"
    if model is None or may_not_load(model) or lacks_words:
        # An audit loads the model that the source's own manifest names, or refuses the source
        return ["--source", store] if recorded is None else []
    words = model_words("--source-model", model.spec)
    if not words and recorded is None:
        words = ["--source-model", model.spec]
    return ["--source", store, *words]


def _show(done: Translation, store: Store) -> None:
    dims = f"dimension {done.source_dim} to {done.target_dim}"
    show(f"{done.path}: {done.count:,} vectors, {dims}, {done.n_true:,} of them true ones, in {done.wall_s:.1f} s")
    if done.index_recall is not None:
        caveat = ""
        # Of a coded source only what coding left is known, so its figure lacks what coding cost
        if not store.info.exact:
            caveat = " (over the vectors as read back, which leaves out what coding cost)"
        show(f"recall@10 of the new index against exact search: {done.index_recall:.3f}; no stitch changes that")
        show(f"recall@10 of the old one: {_figure(done.source_recall)}{caveat}")
    if done.outside is not None:
        show(wrap(done.outside.sentence))
    if done.distrust is not None:
        show(wrap(f"note: {done.distrust}"))
    if done.fallback is not None:
        show(wrap(f"note: {done.fallback.sentence}"))
    for remark in done.remarks:
        show(f"note: {remark}")


def _figure(recall: float | None) -> str:
    if recall is None:
        return "1.000 (exact)"
    return f"{recall:.3f}"
