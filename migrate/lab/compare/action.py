"""`lead-migrate compare`: how alike the spaces of several stores are."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING

from migrate.cli.inputs import local_paths
from migrate.cli.options import Outputs
from migrate.cli.outputs import write_reports
from migrate.cli.progress import progress_bar
from migrate.cli.terminal import advise, show_result
from migrate.datasets.records import read_labels
from migrate.errors import UsageError
from migrate.files import atomic_file, atomic_folder, real_path, refuse_file, refuse_output, write_bytes
from migrate.lab.compare.compare import compare
from migrate.lab.compare.report import compare_document, csv_files, long_csv
from migrate.lab.compare.sections import compare_sections
from migrate.report.page import report_page
from migrate.report.terminal import report_text

if TYPE_CHECKING:
    from migrate.lab.compare.comparison import StoresComparison


def command(
    stores: tuple[str, ...],
    outputs: Outputs,
    csv: Path | None,
    sample: int,
    labels: Path | None,
    kind: tuple[str, ...],
    group: tuple[str, ...],
    seed: int,
    force: bool,
    as_json: bool,
) -> None:
    """Compare the spaces of two or more STOREs."""
    stores, positions = _with_groups(stores, group)
    _refuse_outputs(outputs, csv, local_paths(*stores, labels), force=force)
    labels_by_id = None
    if labels is not None:
        labels_by_id = read_labels(labels)
    # One store may be named by a link too
    paths = list(map(realpath, stores))
    repeated = next((store for number, store in enumerate(stores) if paths[number] in paths[:number]), None)
    if repeated is not None:
        advise(f"{repeated} is named twice: a store is compared with itself, which says nothing of a move")
    with progress_bar() as progress:
        comparison = compare(
            *stores, sample=sample, kind=kind, labels=labels_by_id, group=positions, seed=seed, progress=progress
        )
    document = compare_document(comparison)
    _write(comparison, csv, force=force)
    write_reports(outputs, document, lambda: report_page(compare_sections(comparison)), force=force)
    show_result(document, lambda: report_text(compare_sections(comparison)), as_json=as_json)


def _with_groups(stores: tuple[str, ...], groups: Sequence[str]) -> tuple[tuple[str, ...], dict[str, list[int]] | None]:
    """Return all stores, those that only groups name last, and the places of each group's."""
    named: dict[str, list[str]] = {}
    for group in groups:
        name, sign, members = group.partition("=")
        locations = [location for location in members.split(",") if location]
        if not sign or not name or not locations or name in named:
            raise UsageError(f"--group {group!r}: this is not a unique name with stores; write it as in old=a,b")
        named[name] = locations
    only_there = dict.fromkeys(member for members in named.values() for member in members if member not in stores)
    everything = (*stores, *only_there)
    positions = {name: [everything.index(location) for location in members] for name, members in named.items()}
    return everything, positions or None


def _refuse_outputs(outputs: Outputs, table: Path | None, inputs: Sequence[Path], *, force: bool) -> None:
    outputs.refuse(*inputs, endings=(".json", ".html"), force=force)
    if table is None:
        return
    # Several tables are several files in a folder
    if table.suffix == ".csv":
        refuse_file(table, *inputs, force=force)
    else:
        refuse_output(table, *inputs, force=force)
    figures = real_path(table)
    for path in outputs.report:
        page = real_path(path)
        if page == figures or page in figures.parents or figures in page.parents:
            raise UsageError(
                f"--report and --csv: {path} and {table} are one output, or one is in the other; choose another"
            )


def _write(comparison: StoresComparison, table: Path | None, *, force: bool) -> None:
    """Write the tables of figures, whole or not at all."""
    if table is not None and table.suffix == ".csv":
        with atomic_file(table, force=force) as unfinished:
            write_bytes(unfinished, long_csv(comparison).encode())
    elif table is not None:
        with atomic_folder(table, force=force) as folder:
            for name, content in csv_files(comparison):
                write_bytes(folder / f"{name}.csv", content.encode())
