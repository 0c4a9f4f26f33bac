"""`lead-migrate reembed`: a store with the new model, all of it or a share."""

from __future__ import annotations

from dataclasses import replace

from migrate.cli import options
from migrate.cli.next_step import JUDGED, advise_next, advise_switch, warn_of_place
from migrate.cli.options import GeneralOptions, ModelOptions, RunnerOptions
from migrate.cli.same import stop_if_same
from migrate.cli.spending import SpendingOptions
from migrate.cli.steps import step_options
from migrate.cli.terminal import progress_bar, show, show_json
from migrate.cli.translate import run_translation
from migrate.cli.unread import warn_of_store
from migrate.steps.reembed import Reembed


@options.command("reembed", example="lead-migrate reembed my-store --target tfidf:64 -o new-store")
@step_options(Reembed)
@options.model_options
@options.runner_options
@options.general_options(options.as_json, options.quiet)
def command(
    asked: Reembed, spending: SpendingOptions, model: ModelOptions, running: RunnerOptions, general: GeneralOptions
) -> None:
    """Embed every text of STORE with the target model into a new store: same kind, ids, order, texts and metric.

    What the embedding cache has is not embedded again. The same command goes on where one broke off. Every vector is
    the model's own then, so that `switch` takes the new store without an audit.

    An output KIND:LOCATION is a store of that kind, such as faiss:FOLDER or pgvector:postgresql://HOST/DB#TABLE.

    With --share only a part is embedded, the documents that matter most, and a stitch translates the others.
    """
    asked.check()
    if asked.part is None:
        _embed_all(asked, spending, model, running, general)
    else:
        run_translation(asked.part, spending, model, running, general)


def _embed_all(
    asked: Reembed, spending: SpendingOptions, model: ModelOptions, running: RunnerOptions, general: GeneralOptions
) -> None:
    from migrate.files import refuse_overlap
    from migrate.stores import open_store
    from migrate.stores.registry import output_of

    quiet, store, output = general.quiet, str(asked.store), str(asked.output)
    runner = running.open()
    refuse_overlap(output_of(output).path, *options.local_paths(store))
    with progress_bar(quiet=quiet) as progress:
        opened = open_store(store, verify=True)
        warn_of_place(opened, output_of(output).path, quiet=quiet)
        paid, loaded = spending.open(quiet=quiet), model.load(str(asked.target), seed=asked.seed, asks_again=False)
        stop_if_same("reembed", opened, loaded, as_json=general.as_json)
        plan = replace(asked, store=opened, target=loaded, runner=runner, progress=progress).whole
        warn_of_store(opened, plan.embedder, seed=asked.seed, quiet=quiet)
        paid.agree(plan, progress=progress)
        stop_if_same("reembed", opened, plan.embedder, paid=paid, as_json=general.as_json)
        done = plan.execute(progress)
    paid.finish()
    if general.as_json:
        facts = {"path": str(done.path), "count": done.count, "dimension": done.dim, "remarks": list(done.remarks)}
        show_json(facts, kind="reembed")
        return
    show(f"{done.path}: {done.count:,} vectors of dimension {done.dim}, all of them true ones")
    for remark in done.remarks:
        show(f"note: {remark}")
    new = output_of(output).location
    if not advise_switch(store, opened, new, quiet=quiet):
        advise_next("audit", new, "--reference", "pool", "--source", store, "--beir", JUDGED, quiet=quiet)
