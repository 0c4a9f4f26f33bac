"""`lead-migrate translate`: a store through a stitch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrate.cli import options
from migrate.cli.next_step import JUDGED, advise_next, is_out_of_sight, may_not_load, model_words
from migrate.cli.options import ModelOptions, option
from migrate.cli.reembedding import ReembedOptions, reembed_options, refitted
from migrate.cli.spending import SpendingOptions, spending_options
from migrate.cli.terminal import advise, progress_bar, show, show_json

if TYPE_CHECKING:
    from migrate.manifest import Manifest, ModelIdentity
    from migrate.stitch.fitted import FittedStitch
    from migrate.stores.base import Store
    from migrate.translate import Translation


@options.command(
    "translate", "A store through a stitch.", example="lead-migrate translate my-store my-stitch -o new-store"
)
@click.argument("store", type=options.PATH)
@click.argument("stitch", type=options.PATH)
@options.output
@option(
    "--any-store", is_flag=True, help="Allow a store that the stitch was not fitted on, such as one that has grown."
)
@reembed_options
@spending_options
@options.model_options
@options.seed
@options.force
@options.restart
@options.as_json
@options.quiet
def command(
    store: Path,
    stitch: Path,
    output: Path,
    any_store: bool,
    reembedding: ReembedOptions,
    spending: SpendingOptions,
    model: ModelOptions,
    seed: int,
    force: bool,
    restart: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write STORE, translated by STITCH, to a new folder: same kind of store, same ids, texts and metric.

    With --reembed, the documents that matter most get their true vectors, and the stitch learns from them.
    """
    from dataclasses import asdict

    from migrate.errors import UsageError
    from migrate.files import refuse_overlap
    from migrate.stores import open_store
    from migrate.translate import translate_store

    refuse_overlap(output, store, stitch)
    if any_store and reembedding.reembed is not None:
        raise UsageError("--reembed needs the store that the stitch was fitted on; leave out --any-store, or fit anew")
    with progress_bar(quiet=quiet) as progress:
        opened = open_store(store, verify=True)
        paid = spending.open(quiet=quiet)
        fitted = refitted(
            reembedding,
            paid,
            opened,
            stitch,
            output,
            model,
            seed=seed,
            force=force,
            restart=restart,
            quiet=quiet,
            progress=progress,
        )
        done = translate_store(
            opened, fitted, output, any_store=any_store, force=force, restart=restart, progress=progress
        )
    paid.finish()
    if as_json:
        show_json({"schema_version": 1, "kind": "translate", **asdict(done), "path": str(done.path)})
        return
    _show(done, opened, output)
    _advise_audit(opened, fitted, store, output, reembedding.target, quiet=quiet)


def _advise_audit(
    source: Store, fitted: FittedStitch, store: Path, output: Path, target: str | None, *, quiet: bool
) -> None:
    """The audit as far as it is known here: with the source only where its model can be had from what it remembers."""
    model = fitted.manifest.model
    words = model_words("--target", target or (None if model is None else model.spec))
    if is_out_of_sight(model) and not words and model is not None:
        where = f"{model.spec.removeprefix('file:')} is not in this folder"
        advise(f"next: audit {output}; name its model with --target file:PATH, as {where}", quiet=quiet)
        return
    known = source.info.manifest
    recorded = known.model if known is not None and known.model is not None else fitted.manifest.source_model
    words = ["--reference", "build", "--beir", JUDGED, *_source_words(store, recorded, known), *words]
    advise_next("audit", output, *words, quiet=quiet)


def _source_words(store: Path, recorded: ModelIdentity | None, known: Manifest | None) -> list[str | Path]:
    """`--source`, with `--source-model` where only the stitch says it; nothing where an audit could not load that."""
    own = known is not None and known.model is not None
    if recorded is None or may_not_load(recorded) or (recorded.spec.startswith("tfidf:") and not own):
        return []
    placed = model_words("--source-model", recorded.spec)
    return ["--source", store, *(placed or ([] if own else ["--source-model", recorded.spec]))]


def _show(done: Translation, store: Store, output: Path) -> None:
    from migrate.report.terminal import folded

    dims = f"dimension {done.source_dim} to {done.target_dim}"
    show(f"{output}: {done.count:,} vectors, {dims}, {done.n_true:,} of them true ones, in {done.wall_s:.1f} s")
    if done.index_recall is not None:
        # of a coded source only what coding left is known, so its figure lacks what coding cost
        before = "" if store.info.exact else " (over the vectors as read back, which leaves out what coding cost)"
        show(f"recall@10 of the new index against exact search: {done.index_recall:.3f}; no stitch changes that")
        show(f"recall@10 of the old one: {_figure(done.source_recall)}{before}")
    if done.outside is not None:
        show(folded(done.outside.sentence))
    if done.distrust is not None:
        show(folded(f"note: {done.distrust}"))
    if done.fallback is not None:
        show(folded(f"note: {done.fallback.sentence}"))
    for remark in done.remarks:
        show(f"note: {remark}")


def _figure(recall: float | None) -> str:
    return "1.000 (exact)" if recall is None else f"{recall:.3f}"
