"""`lead-migrate carry`: directions and probes of the old space, in the new one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrate.cli import options
from migrate.cli.options import option
from migrate.cli.terminal import progress_bar, show_result
from migrate.errors import UsageError
from migrate.files import atomic_folder, refuse_output, write_json

if TYPE_CHECKING:
    from migrate.lab.carry.carry import Carried


@options.command(
    "carry",
    "Carry directions and probes into the new space.",
    example="lead-migrate carry my-store my-stitch --directions concepts.npz -o carried",
)
@click.argument("store", type=options.STORE)
@click.argument("stitch", type=options.STITCH)
@option(
    "--directions",
    type=options.PATH,
    metavar="FILE.npz",
    help="Differences of vectors, such as concepts or steering vectors: arrays of a vector, or of one a row.",
)
@option(
    "--probes",
    type=options.PATH,
    metavar="FILE.npz",
    help="Weights that score a vector, such as `coef_` of a linear classifier; NAME.intercept has what is added.",
)
@option(
    "--labels",
    type=options.PATH,
    metavar="FILE",
    help="Labels of documents, as `compare` takes them: a direction or probe named like a label is judged by it.",
)
@options.output
@options.seed
@options.force
@options.as_json
@options.quiet
def command(
    store: str,
    stitch: Path | str,
    directions: Path | None,
    probes: Path | None,
    labels: Path | None,
    output: Path,
    seed: int,
    force: bool,
    as_json: bool,
) -> int:
    """Carry directions and probes into the new space.

    They were found in the old space of STORE, and go by the way of its STITCH. A direction goes through a linear map
    that is fitted on the stitch's sample, a probe through the map back, transposed. Each is judged on documents of the
    sample that its map was not fitted on. What may be no better than chance, or is worse than what the labels of the
    sample alone would teach, is left out, and the exit code is 1.
    """
    from migrate.datasets.records import read_labels
    from migrate.lab.carry.carry import carry, read_rows
    from migrate.lab.carry.report import carry_blocks, carry_document
    from migrate.report.terminal import as_text
    from migrate.stitch.persistence import load_stitch
    from migrate.stores import open_store

    if directions is None and probes is None:
        raise UsageError("nothing is named that is to be carried; give --directions or --probes a file")
    refuse_output(output, *options.local_paths(store, stitch, directions, probes, labels), force=force)
    opened, fitted = open_store(store, verify=True), load_stitch(stitch)
    with progress_bar() as progress:
        done = carry(
            opened,
            fitted,
            directions=None if directions is None else read_rows(directions, opened.info.dim),
            probes=None if probes is None else read_rows(probes, opened.info.dim, intercepts=True),
            labels=None if labels is None else read_labels(labels),
            seed=seed,
            progress=progress,
        )
    _write(done, output, force=force)
    show_result(carry_document(done), lambda: as_text(carry_blocks(done)), as_json=as_json)
    return 1 if done.left_out else 0


def _write(done: Carried, output: Path, *, force: bool) -> None:
    """Write each kind that there is, as it was given, and its judgement."""
    from migrate.lab.carry.carry import write_rows
    from migrate.lab.carry.report import carry_document

    with atomic_folder(output, force=force) as folder:
        for name, arrays in (("directions.npz", done.directions), ("probes.npz", done.probes)):
            if arrays:
                write_rows(folder / name, arrays)
        write_json(folder / "carry.json", carry_document(done))
