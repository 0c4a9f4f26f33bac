"""`lead-migrate compare`: how alike the spaces of several stores are."""

from __future__ import annotations

import click

from migrate.cli import options
from migrate.steps.base import FORCE_REPORTS

_force = options.declared("force", {**FORCE_REPORTS, "help": "Replace the files of --report and --csv if they exist."})


@options.command(
    "compare",
    "Compare the spaces of stores.",
    example="lead-migrate compare my-store translated --report spaces.html",
)
@click.argument("stores", nargs=-1, type=options.STORE, metavar="STORE STORE...")
@options.report_options
@options.option(
    "--csv",
    type=options.PATH,
    metavar="FILE.csv|FOLDER",
    help="Table of all figures to write, or a folder for a matrix of each measure.",
)
@options.option(
    "--sample",
    type=click.IntRange(min=10),
    default=10_000,
    help="Documents to compare at most, drawn at random from those that all stores have.",
)
@options.option(
    "--labels",
    type=options.PATH,
    metavar="FILE",
    help="Labels of documents to train classifiers on: JSONL with id and label, or two columns.",
)
@options.option(
    "--kind",
    "kind",
    multiple=True,
    default=["ridge"],
    metavar="KIND",
    help="Kind of stitch: ridge, ols, procrustes, lowrank, lowrank:RANK, kernel, mlp:1 to mlp:7. Repeated: each of "
    "these.",
)
@options.option(
    "--group",
    multiple=True,
    metavar="NAME=STORE,STORE",
    help="Stores that belong together, such as the layers of a model in their order; can be repeated. They "
    "need not be named before.",
)
@options.seed
@_force
@options.as_json
@options.progress
@options.done_by("migrate.lab.compare.action:command")
def command() -> None:
    """Compare the spaces of two or more STOREs.

    They are compared over the documents that all of them have, matched by id. CKA, its angle, neighbours shared and
    their order, cosines of pairs, local geometry and intrinsic dimension say how alike two spaces are. R², errors, the
    stitching penalty (the share of true neighbours that is missed), spectrum and bias say what a stitch (--kind) makes
    of one in the other, both ways, and of each store in itself, on documents that it was not fitted on; beside them
    stand the target's mean, a random Gaussian, and the vectors as they are. With --labels, a linear probe and kNN
    trained on the first store's vectors classify those of the others. With --group, repeated, measures within groups of
    stores are set against those between them.
    """
