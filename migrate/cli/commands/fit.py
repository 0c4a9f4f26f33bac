"""`lead-migrate fit`: a sample, re-embedded, to a stitch."""

from __future__ import annotations

from migrate.cli import options
from migrate.steps.fit import Fit


@options.command(
    "fit",
    example="lead-migrate fit my-store --target openai:text-embedding-3-small -o my-stitch",
)
@options.stitch_output
@options.record(Fit)
@options.agreed
@options.model_options
@options.force
@options.dry_run
@options.as_json
@options.progress
@options.done_by("migrate.cli.fit:command")
def fit() -> None:
    """Learn a map from STORE's vectors to another model's.

    Embeds a sample with the target model, and prints how each candidate does on held-out documents. The stitch keeps
    the embedded sample, so those documents get their true vectors.

    A store without texts needs the target file:VECTORS.npz, whose vectors are found by id; the stitch then reads only
    the old vectors.

    If the stitch is there already, the same command has nothing to do.

    With `--direction query` the map goes the other way, from new queries to old vectors, so that you can query STORE as
    it is with the target model: in the arm `bridge` of an audit, or in a program with
    migrate.langchain.TranslatedEmbeddings.
    """
