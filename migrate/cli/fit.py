"""`lead-migrate fit`: a sample, re-embedded, to a stitch."""

from __future__ import annotations

from pathlib import Path

import click

from migrate.cli import options
from migrate.cli.options import ModelOptions
from migrate.cli.terminal import advise, progress_bar, show, show_json


@options.command(
    "fit",
    "A small sample, re-embedded, to a stitch.",
    example="lead-migrate fit my-store --target openai:text-embedding-3-small -o my-stitch",
)
@click.argument("store", type=options.PATH)
@options.target
@options.output
@options.stitch
@options.sample
@options.source_model
@options.model_options
@options.seed
@options.force
@options.as_json
@options.quiet
def command(
    store: Path,
    target: str,
    output: Path,
    stitch: str,
    size: int,
    source_model: str | None,
    model: ModelOptions,
    seed: int,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Embed a sample of STORE with the target model, and learn the map from the old vectors to the new ones.

    Prints the candidates as they do on documents held out of the fit. The stitch keeps the embedded sample, so those
    documents get their true vectors.
    """
    from dataclasses import asdict, replace

    from migrate.files import refuse_existing, refuse_overlap
    from migrate.fit import fit_stitch
    from migrate.report.terminal import candidates_table
    from migrate.stores import open_store

    refuse_overlap(output, store)
    refuse_existing(output, force=force)  # told before anything is spent
    with progress_bar(quiet=quiet) as progress:
        opened = open_store(store)
        source = model.for_source().load(source_model, state=opened.folder).identity if source_model else None
        fitted = fit_stitch(
            opened,
            model.load(target, seed=seed),
            stitch=stitch,
            size=size,
            source_model=source,
            seed=seed,
            progress=progress,
        )
        fitted.save(output, force=force)
    if as_json:
        facts = asdict(replace(fitted.selection, stitch=None))
        show_json({**facts, "schema_version": 1, "kind": "fit", "stitch": str(output)})
        return
    show(candidates_table(fitted.selection))
    pairs = fitted.manifest.counts["pairs"]
    show(f"{output}: {fitted.stitch.spec}, fitted on {pairs:,} of {opened.info.count:,} documents")
    advise(f"next: lead-migrate translate {store} {output} -o NEW_STORE", quiet=quiet)
