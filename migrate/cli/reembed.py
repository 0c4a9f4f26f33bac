"""`lead-migrate reembed`: a store with the new model, all of it or a share."""

from __future__ import annotations

from pathlib import Path

import click

from migrate.cli import options
from migrate.cli.next_step import JUDGED, advise_next, advise_switch, warn_of_place
from migrate.cli.options import GeneralOptions, ModelOptions, RunnerOptions, option, option_group
from migrate.cli.same import stop_if_same
from migrate.cli.spending import SpendingOptions, spending_options
from migrate.cli.terminal import progress_bar, show, show_json
from migrate.cli.translate import ReembedOptions, policy, run_translation, save_stitch
from migrate.cli.unread import warn_of_store

_SHARE = (
    option(
        "--share",
        "reembed",
        metavar="30%|5000|$20|300000tok",
        help="Embed so much of the store, the sample of --stitch included, and let the stitch, fitted again on all of "
        "it, translate the rest.",
    ),
    option("--stitch", type=options.STITCH, metavar="STITCH", help="Stitch for the rest, fitted on STORE."),
    policy,
    options.query_log,
    save_stitch,
)


@options.command(
    "reembed", "A store with the new model.", example="lead-migrate reembed my-store --target tfidf:64 -o new-store"
)
@click.argument("store", type=options.STORE)
@options.target
@options.store_output
@option_group(ReembedOptions, "part", *_SHARE, section="A share")
@options.price
@spending_options
@options.model_options
@options.runner_options
@options.general_options(options.seed, options.force, options.restart, options.as_json, options.quiet)
def command(
    store: str,
    output: str,
    stitch: Path | str | None,
    part: ReembedOptions,
    spending: SpendingOptions,
    model: ModelOptions,
    running: RunnerOptions,
    general: GeneralOptions,
) -> None:
    """Embed every text of STORE with the target model into a new store: same kind, ids, order, texts and metric.

    What the embedding cache has is not embedded again. The same command goes on where one broke off. Every vector is
    the model's own then, so that `switch` takes the new store without an audit.

    An output KIND:LOCATION is a store of that kind, such as faiss:FOLDER or pgvector:postgresql://HOST/DB#TABLE.

    With --share only a part is embedded, the documents that matter most, and a stitch translates the others.
    """
    from migrate.errors import UsageError

    if part.reembed is not None and stitch is None:
        fit = f"lead-migrate fit {store} --target {part.target} -o STITCH"
        raise UsageError(f"--share {part.reembed}: expected a --stitch for the rest, found none; fit one: {fit}")
    if stitch is None:
        part.check_alone("--share")
        _embed_all(store, output, part, spending, model, running, general)
        return
    if part.reembed is None:
        raise UsageError("--stitch translates what --share leaves; add --share 30%, or leave it out to embed all")
    run_translation(store, stitch, output, part, spending, model, running, general)


def _embed_all(
    store: str,
    output: str,
    part: ReembedOptions,
    spending: SpendingOptions,
    model: ModelOptions,
    running: RunnerOptions,
    general: GeneralOptions,
) -> None:
    from migrate.embed import plan_reembed
    from migrate.embedders.elsewhere import elsewhere
    from migrate.files import refuse_overlap
    from migrate.stores import open_store
    from migrate.stores.registry import output_of

    quiet, runner = general.quiet, running.open()
    refuse_overlap(output_of(output).path, *options.local_paths(store))
    with progress_bar(quiet=quiet) as progress:
        opened = open_store(store, verify=True)
        warn_of_place(opened, output_of(output).path, quiet=quiet)
        paid, loaded = spending.open(quiet=quiet), model.load(str(part.target), seed=general.seed, asks_again=False)
        stop_if_same("reembed", opened, loaded, as_json=general.as_json)
        embedder = elsewhere(loaded, runner)
        plan = plan_reembed(
            opened,
            embedder,
            output,
            price_usd_per_mtok=part.price,
            force=general.force,
            restart=general.restart,
        )
        warn_of_store(opened, embedder, seed=general.seed, quiet=quiet)
        paid.agree(plan, progress=progress)
        stop_if_same("reembed", opened, plan.embedder, paid=paid, as_json=general.as_json)
        done = plan.run(cap_usd=paid.cap_usd, progress=progress)
    paid.finish()
    if general.as_json:
        facts = {"path": str(done.path), "count": done.count, "dimension": done.dim, "remarks": list(done.remarks)}
        show_json({"schema_version": 1, "kind": "reembed", **facts})
        return
    show(f"{done.path}: {done.count:,} vectors of dimension {done.dim}, all of them true ones")
    for remark in done.remarks:
        show(f"note: {remark}")
    new = output_of(output).location
    if not advise_switch(store, opened, new, quiet=quiet):
        advise_next("audit", new, "--reference", "pool", "--source", store, "--beir", JUDGED, quiet=quiet)
