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
@options.quiet
@options.done_by("migrate.cli.fit:command")
def fit() -> None:
    """Learn a map from STORE's vectors to another model's.

    A sample is embedded with the target model. Prints how each candidate does on held-out documents. The stitch keeps
    the embedded sample, so those documents get their true vectors.

    A store without texts can be fitted with a target of file:VECTORS.npz, whose vectors are found by id; the old
    vectors are then all that the stitch reads.

    The same command again, with its stitch in place, is done.

    With `--direction query` the map is learned the other way round, so that STORE as it is can be asked by the target
    model: by the arm `bridge` of an audit, or in an app by migrate.langchain.TranslatedEmbeddings.
    """
