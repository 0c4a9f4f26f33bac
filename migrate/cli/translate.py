"""`lead-migrate translate`: a store through a stitch, with or without a budget of true vectors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrate.cli import options
from migrate.cli.next_step import (
    JUDGED,
    advise_next,
    advise_switch,
    file_of,
    is_out_of_sight,
    may_not_load,
    model_words,
)
from migrate.cli.options import GeneralOptions, ModelOptions, RunnerOptions, option, option_group
from migrate.cli.spending import Spending, SpendingOptions, spending_options, with_views
from migrate.cli.terminal import advise, progress_bar, show, show_json
from migrate.cli.unread import warn_of_sample
from migrate.cli.verdict import refuse_recorded_code

if TYPE_CHECKING:
    from migrate.cost.spending import PlannedModel
    from migrate.embedders.base import Embedder
    from migrate.manifest import Manifest, ModelIdentity
    from migrate.reembed import Announce, Choice, Reembedding, RefitPlan, TranslatePlan
    from migrate.stitch.fitted import FittedStitch
    from migrate.stores.base import Store
    from migrate.stores.outputs import Output
    from migrate.translate import Translation
    from migrate.vectors import Progress

policy = option(
    "--policy",
    type=click.Choice(["query-log", "confidence", "random"]),
    help="Which documents are embedded first.  [default: query-log where there is one, else confidence, or random "
    "where that is not to be used]",
)
save_stitch = option(
    "--save-stitch", type=options.PATH, help="Folder for the stitch fitted again.  [default: OUTPUT.stitch]"
)
_OPTIONS = (
    option(
        "--reembed",
        metavar="10%|5000|$20|300000tok",
        help="Embed so much of the store for real, the sample included, and fit the stitch again on all of it.",
    ),
    policy,
    options.query_log,
    save_stitch,
    option("--target", metavar="SPEC", help="Model to re-embed with.  [default: the stitch's own]"),
    options.price,
)


@dataclass(frozen=True, slots=True)
class ReembedOptions:
    """As they were given."""

    reembed: str | None
    policy: str | None
    query_log: Path | None
    save_stitch: Path | None
    target: str | None
    price: float | None

    def check_alone(self, flag: str = "--reembed") -> None:
        """Make sure that nothing but the option for the budget itself is missing.

        Raises
        ------
        UsageError
            There is an option that means nothing without it.
        """
        from migrate.errors import UsageError

        dependent = {name: getattr(self, name) for name in ("policy", "query_log", "save_stitch")}
        for name, value in dependent.items():
            if value is not None:
                raise UsageError(f"--{name.replace('_', '-')} goes with {flag}; add {flag} 10%, or leave it out")

    def folder(self, output: Output) -> Path:
        """Where the stitch goes that is fitted again."""
        return self.save_stitch or output.beside("stitch")

    def request(self, seed: int) -> Reembedding:
        """The budget, and how it is spent.

        Raises
        ------
        UsageError
            The budget cannot be read.
        DatasetError, OutputError
            The query log cannot be read.
        """
        from migrate.datasets.records import read_query_log
        from migrate.reembed import Budget, Reembedding

        budget = Budget.parse(str(self.reembed))
        log = () if self.query_log is None else read_query_log(self.query_log)
        return Reembedding(budget, self.policy, log, self.price, seed)


reembed_options = option_group(ReembedOptions, "reembedding", *_OPTIONS, section="Re-embedding")
"""Adds the options of `ReembedOptions`."""


def plan_budget(
    reembedding: ReembedOptions,
    store: Store,
    fitted: FittedStitch,
    stitch: Path,
    output: Output,
    model: ModelOptions,
    general: GeneralOptions,
    announce: Announce,
) -> RefitPlan | None:
    """The stitch that is to come of the budget; None where there is no budget. `stitch` is the one before."""
    from migrate.files import refuse_output, refuse_overlap
    from migrate.reembed import plan_refit

    if reembedding.reembed is None:
        reembedding.check_alone()
        return None
    folder = reembedding.folder(output)
    read = options.local_paths(store.info.location, stitch)
    refuse_overlap(folder, *read, output.path)
    refuse_output(output.path, *read, force=general.force)  # refused before anything is spent
    output.refuse_existing(force=general.force)
    request = reembedding.request(general.seed)
    target = load_model_of_stitch(fitted, stitch, reembedding.target, model)
    return plan_refit(store, fitted, target, request, folder, force=general.force, announce=announce)


@dataclass(frozen=True, slots=True)
class _Reporter:
    """Prints what a re-embedding is about to spend, and asks where that is too much."""

    paid: Spending
    fitted: FittedStitch
    policy: str | None
    folder: Path
    progress: Progress

    def announce(self) -> Announce:
        from migrate.reembed import Announce

        return Announce(self.log, self.choice, self.stitch)

    def log(self, target: PlannedModel) -> None:
        self.paid.agree_on([target], progress=self.progress)

    def choice(self, choice: Choice, target: PlannedModel) -> None:
        from migrate.reembed import why_unsure

        quiet = self.paid.quiet
        warn_of_sample(lambda: choice.sample.documents, target.embedder, quiet=quiet)
        if self.policy is None and choice.policy == "random":
            advise(f"note: {why_unsure(self.fitted)}; the documents to embed are drawn at random", quiet=quiet)
        if target.meter is not None:
            self.paid.agree_on([target], progress=self.progress)
            return
        by_log = f" ({choice.from_log:,} of them hits of the query log)" if choice.from_log else ""
        advise(f"to embed: {choice.cost.sentence}{by_log}; tokens are {choice.counted_by}", quiet=quiet)

    def stitch(self, refitted: FittedStitch) -> None:
        pairs = refitted.manifest.counts["pairs"]
        advise(f"{self.folder}: {refitted.stitch.spec}, fitted on {pairs:,} pairs", quiet=self.paid.quiet)


def load_model_of_stitch(fitted: FittedStitch, folder: Path, spec: str | None, model: ModelOptions) -> Embedder:
    """The model that a stitch leads to, or the one that was named for it.

    Raises
    ------
    UsageError
        The stitch does not say its model, or names a file of vectors, whose place it does not know.
    """
    from migrate.errors import UsageError

    recorded = fitted.manifest.model
    file = None if recorded is None else file_of(recorded)
    if spec is None and (recorded is None or file is not None):
        what = "its model" if recorded is None else f"where {file} is"
        raise UsageError(f"{folder}: expected a stitch that says {what}, found none; name the model with --target SPEC")
    if recorded is None or spec not in (None, recorded.spec):
        return model.load(str(spec), state=folder)
    if spec is None:
        refuse_recorded_code(recorded, folder, "--target")
    return model.as_recorded(recorded).load(recorded.spec, state=folder)


@options.command(
    "translate", "A store through a stitch.", example="lead-migrate translate my-store my-stitch -o new-store"
)
@click.argument("store", type=options.STORE)
@click.argument("stitch", type=options.STITCH)
@options.store_output
@option(
    "--any-store", is_flag=True, help="Allow a store that the stitch was not fitted on, such as one that has grown."
)
@reembed_options
@spending_options
@options.model_options
@options.runner_options
@options.general_options(options.seed, options.force, options.restart, options.as_json, options.quiet)
def command(
    store: str,
    stitch: Path | str,
    output: str,
    any_store: bool,
    reembedding: ReembedOptions,
    spending: SpendingOptions,
    model: ModelOptions,
    running: RunnerOptions,
    general: GeneralOptions,
) -> None:
    """Write STORE, translated by STITCH, to a new folder: same kind of store, same ids, texts and metric.

    An output KIND:LOCATION is a store of that kind, such as faiss:FOLDER or pgvector:postgresql://HOST/DB#TABLE.

    With --reembed, the documents that matter most get their true vectors, and the stitch learns from them.
    """
    run_translation(store, stitch, output, reembedding, spending, model, running, general, any_store=any_store)


def run_translation(
    store: str,
    stitch: Path | str,
    output: str,
    reembedding: ReembedOptions,
    spending: SpendingOptions,
    model: ModelOptions,
    running: RunnerOptions,
    general: GeneralOptions,
    *,
    any_store: bool = False,
) -> None:
    """What `translate` does, and `reembed` with a share; `output` is a folder, or `KIND:LOCATION`."""
    from dataclasses import asdict

    from migrate.errors import UsageError
    from migrate.files import refuse_overlap
    from migrate.reembed import plan_translate
    from migrate.stitch.persistence import load_stitch, stitch_folder
    from migrate.stores import open_store
    from migrate.stores.registry import output_of

    place = output_of(output)
    refuse_overlap(place.path, *options.local_paths(store, stitch))
    if any_store and reembedding.reembed is not None:
        raise UsageError("--reembed needs the store that the stitch was fitted on; leave out --any-store, or fit again")
    quiet, runner = general.quiet, running.open()
    with progress_bar(quiet=quiet) as progress:
        opened = open_store(store, verify=True)
        paid = spending.open(quiet=quiet)
        loaded, folder = load_stitch(stitch), stitch_folder(stitch)
        fitted = with_views(loaded, folder, model)
        reporter = _Reporter(paid, fitted, reembedding.policy, reembedding.folder(place), progress)
        refit = plan_budget(reembedding, opened, fitted, folder, place, model, general, reporter.announce())
        plan = plan_translate(
            opened,
            fitted,
            output,
            refit=refit,
            price_usd_per_mtok=reembedding.price,
            any_store=any_store,
            runner=runner,
            force=general.force,
            restart=general.restart,
        )
        paid.agree_on(plan.views, progress=progress)  # the target's texts are not chosen yet
        if fitted.first_tokens is not None and opened.info.has_texts:
            _say_first_tokens(fitted, plan, quiet=quiet)
        done = plan.run(cap_usd=paid.cap_usd, progress=progress)
    paid.finish()
    if general.as_json:
        show_json({"schema_version": 1, "kind": "translate", **asdict(done), "path": str(done.path)})
        return
    _show(done, opened)
    if not advise_switch(store, opened, str(done.path), quiet=quiet):
        _advise_audit(opened, fitted, store, done.path, reembedding.target, quiet=quiet)


def _say_first_tokens(fitted: FittedStitch, plan: TranslatePlan, *, quiet: bool) -> None:
    """Say that all texts are embedded where no estimate does, as the model costs no money."""
    if all(view.meter is None for view in plan.views):
        advise(
            f"to embed: the first {fitted.first_tokens} tokens of every text, without those in the cache; the model "
            "costs no money",
            quiet=quiet,
        )


def _advise_audit(
    source: Store, fitted: FittedStitch, store: str, output: Path | str, target: str | None, *, quiet: bool
) -> None:
    """The audit as far as it is known here: with the source only where its model can be had from what it remembers."""
    model = fitted.manifest.model
    words = model_words("--target", target or (None if model is None else model.spec))
    if is_out_of_sight(model) and not words and model is not None:
        advise(f"file:PATH: where {file_of(model)} is, which is not in this folder", quiet=quiet)
        words = ["--target", "file:PATH"]
    manifest = source.info.manifest
    recorded = manifest.model if manifest is not None and manifest.model is not None else fitted.manifest.source_model
    by = "pool" if source.info.has_texts else "build"
    words = ["--reference", by, "--beir", JUDGED, *_source_words(store, recorded, manifest), *words]
    advise_next("audit", output, *words, quiet=quiet)


def _source_words(store: str, recorded: ModelIdentity | None, manifest: Manifest | None) -> list[str | Path]:
    """`--source`, with `--source-model` where only the stitch says it; not of a model that an audit cannot load."""
    from migrate.embedders.kinds import split_spec

    has_model = manifest is not None and manifest.model is not None
    if recorded is None or may_not_load(recorded) or (split_spec(recorded.spec)[0] == "tfidf" and not has_model):
        return [] if has_model else ["--source", store]
    placed = model_words("--source-model", recorded.spec)
    return ["--source", store, *(placed or ([] if has_model else ["--source-model", recorded.spec]))]


def _show(done: Translation, store: Store) -> None:
    from migrate.report.terminal import wrap

    dims = f"dimension {done.source_dim} to {done.target_dim}"
    show(f"{done.path}: {done.count:,} vectors, {dims}, {done.n_true:,} of them true ones, in {done.wall_s:.1f} s")
    if done.index_recall is not None:
        # of a coded source only what coding left is known, so its figure lacks what coding cost
        before = "" if store.info.exact else " (over the vectors as read back, which leaves out what coding cost)"
        show(f"recall@10 of the new index against exact search: {done.index_recall:.3f}; no stitch changes that")
        show(f"recall@10 of the old one: {_figure(done.source_recall)}{before}")
    if done.outside is not None:
        show(wrap(done.outside.sentence))
    if done.distrust is not None:
        show(wrap(f"note: {done.distrust}"))
    if done.fallback is not None:
        show(wrap(f"note: {done.fallback.sentence}"))
    for remark in done.remarks:
        show(f"note: {remark}")


def _figure(recall: float | None) -> str:
    return "1.000 (exact)" if recall is None else f"{recall:.3f}"
