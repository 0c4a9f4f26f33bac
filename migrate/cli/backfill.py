"""`lead-migrate backfill`: true vectors out of the embedding cache into a translated store."""

from __future__ import annotations

import click

from migrate.cli import options
from migrate.cli.next_step import JUDGED, OLD, advise_next, advise_switch
from migrate.cli.options import ModelOptions, option
from migrate.cli.terminal import advise, progress_bar, show, show_json
from migrate.cli.verdict import load_model_of


@options.command(
    "backfill",
    "True vectors from the cache into a store.",
    example="lead-migrate backfill new-store --from-cache -o better-store",
)
@click.argument("store", type=options.STORE)
@options.store_output
@option("--from-cache", is_flag=True, help="Take what the embedding cache has of the store's texts.")
@option("--target", metavar="SPEC", help="Model whose cache it is.  [default: the store's own]")
@options.model_options
@options.force
@options.restart
@options.as_json
@options.quiet
def command(
    store: str,
    output: str,
    from_cache: bool,
    target: str | None,
    model: ModelOptions,
    force: bool,
    restart: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write a translated STORE to a new folder, with the true vector of every text that was embedded since.

    What two-stage search, or any other run with the same model, has left in the cache is used. Nothing is embedded but
    for a few texts of the cache, by which a model behind an API proves that it still is the one whose vectors they are.
    """
    from migrate.backfill import backfill_store
    from migrate.errors import UsageError
    from migrate.files import refuse_overlap
    from migrate.stores import open_store
    from migrate.stores.registry import output_of

    if not from_cache:
        raise UsageError("expected --from-cache, found no other place to take vectors from; add it")
    refuse_overlap(output_of(output).path, *options.local_paths(store))
    with progress_bar(quiet=quiet) as progress:
        opened = open_store(store, verify=True)
        embedder = load_model_of(opened, target, "--target", model)
        if model.no_cache or not embedder.is_cached:
            why = "as --no-cache asks" if model.no_cache else "as they cost nothing to have again"
            raise UsageError(f"{store}: expected a model whose vectors are cached, found one whose are not, {why}")
        done = backfill_store(opened, embedder, output, force=force, restart=restart, progress=progress)
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
            "those of --hold-out, another --split, or --queries",
            quiet=quiet,
        )
    new = str(done.path)
    if not advise_switch(OLD, None, new, quiet=quiet):
        advise_next("audit", new, "--reference", "pool", "--beir", JUDGED, also=("target",), quiet=quiet)
