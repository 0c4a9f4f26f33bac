"""`lead-migrate carry`: directions and probes of the old space, in the new one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from migrate.cli.inputs import local_paths
from migrate.cli.progress import progress_bar
from migrate.cli.terminal import show_result
from migrate.datasets.records import read_labels
from migrate.errors import UsageError
from migrate.files import atomic_folder, refuse_output, write_json
from migrate.lab.carry.carry import carry, read_rows, write_rows
from migrate.lab.carry.report import carry_blocks, carry_document
from migrate.report.terminal import as_text
from migrate.stitch.persistence import load_stitch
from migrate.stores import open_store

if TYPE_CHECKING:
    from migrate.lab.carry.carry import Carried


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
    """Carry directions and probes into the new space."""
    if directions is None and probes is None:
        raise UsageError("nothing is named that is to be carried; give --directions or --probes a file")
    refuse_output(output, *local_paths(store, stitch, directions, probes, labels), force=force)
    opened = open_store(store, verify=True)
    dim = opened.info.dim
    fitted = load_stitch(stitch)
    with progress_bar() as progress:
        done = carry(
            opened,
            fitted,
            directions=read_rows(directions, dim) if directions else None,
            probes=read_rows(probes, dim, intercepts=True) if probes else None,
            labels=read_labels(labels) if labels else None,
            seed=seed,
            progress=progress,
        )
    _write(done, output, force=force)
    show_result(carry_document(done), lambda: as_text(carry_blocks(done)), as_json=as_json)
    return 1 if done.left_out else 0


def _write(done: Carried, output: Path, *, force: bool) -> None:
    """Write each kind that there is, as it was given, and its judgement."""
    with atomic_folder(output, force=force) as folder:
        for name, arrays in (("directions.npz", done.directions), ("probes.npz", done.probes)):
            if arrays:
                write_rows(folder / name, arrays)
        write_json(folder / "carry.json", carry_document(done))
