"""Carried directions and probes, and their worth in the new space, for people and as JSON."""

from __future__ import annotations

from typing import Any

from migrate.facts import document
from migrate.lab.carry.carry import INTERCEPT, Carried
from migrate.lab.carry.judge import Judgement
from migrate.lab.labels.roc import Bounded
from migrate.report.sections import Block, Listed, TextTable
from migrate.report.terminal import filled_columns


def carry_blocks(done: Carried) -> list[Block]:
    """Return how many were carried, a table of the worth of each, and why some are left out."""
    head = ["", "cosine", "at least", "AUC before", "AUC after", "at least ", "from labels alone"]
    note = None
    if any(row.judged_by == "decisions" for row in done.judgements):
        note = "without labels of its name, a probe is judged by its own decisions in the old space"
    refused = [f"left out: {row.name}: {row.refused}" for row in done.judgements if row.refused]
    table = TextTable(filled_columns([head, *map(_cells, done.judgements)]))
    return [_sentence(done), table, note, Listed(refused)]


def _sentence(done: Carried) -> str:
    kinds = (("direction", done.directions), ("probe", done.probes))
    counts = []
    for kind, carried in kinds:
        arrays = {row.array for row in done.judgements if row.kind == kind}
        if arrays:
            n_carried = sum(not name.endswith(INTERCEPT) for name in carried)
            noun = kind if len(arrays) == 1 else f"{kind}s"
            counts.append(f"{n_carried} of {len(arrays)} {noun}")
    return f"carried {' and '.join(counts)}, by the {done.pairs:,} documents of the stitch's sample"


def _cells(row: Judgement) -> list[str]:
    mark = "  " if row.refused is None else "x "
    return [
        f"{mark}{row.name}",
        *_bounded(row.cosine),
        _figure(row.before),
        *_bounded(row.after),
        _figure(row.refit),
    ]


def _bounded(value: Bounded | None) -> list[str]:
    if value is None:
        return ["-", "-"]
    return [f"{value.estimate:.3f}", f"{value.lower:.3f}"]


def _figure(value: Bounded | None) -> str:
    if value is None:
        return "-"
    return f"{value.estimate:.3f}"


def carry_document(done: Carried) -> dict[str, Any]:
    """Return the same as JSON."""
    content = {
        "pairs": done.pairs,
        "carried": {"directions": sorted(done.directions), "probes": sorted(done.probes)},
        "left_out": done.left_out,
        "judgements": done.judgements,
    }
    return document("carry", content)
