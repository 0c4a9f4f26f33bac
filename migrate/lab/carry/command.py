"""`lead-migrate carry`: directions and probes of the old space, in the new one."""

from __future__ import annotations

import click

from migrate.cli import options


@options.command(
    "carry",
    "Carry directions and probes into the new space.",
    example="lead-migrate carry my-store my-stitch --directions concepts.npz -o carried",
)
@click.argument("store", type=options.STORE)
@click.argument("stitch", type=options.STITCH)
@options.option(
    "--directions",
    type=options.PATH,
    metavar="FILE.npz",
    help="Differences of vectors, such as concepts or steering vectors: arrays of a vector, or of one a row.",
)
@options.option(
    "--probes",
    type=options.PATH,
    metavar="FILE.npz",
    help="Weights that score a vector, such as `coef_` of a linear classifier; NAME.intercept has what is added.",
)
@options.option(
    "--labels",
    type=options.PATH,
    metavar="FILE",
    help="Labels of documents, as `compare` takes them: a direction or probe named like a label is judged by it.",
)
@options.output
@options.seed
@options.force
@options.as_json
@options.progress
@options.done_by("migrate.lab.carry.action:command")
def command() -> None:
    """Carry directions and probes into the new space.

    They were found in the old space of STORE, and go by the way of its STITCH. A direction goes through a linear map
    that is fitted on the stitch's sample, a probe through the map back, transposed. Each is judged on documents of the
    sample that its map was not fitted on. What may be no better than chance, or is worse than what the labels of the
    sample alone would teach, is left out, and the exit code is 1.
    """
