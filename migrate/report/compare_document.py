"""Compared stores as one JSON document and as tables of commas: the source of truth for every other form."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from migrate.similarity.comparison import StoresComparison
from migrate.similarity.measures import MEASURES, Measure

SCHEMA_VERSION = 1


def compare_document(found: StoresComparison) -> dict[str, Any]:
    """Every matrix, every spectrum and the facts of the stores, as values that JSON holds; no figure is null."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "compare",
        "documents": found.documents,
        "shared": found.shared,
        "seed": found.seed,
        "stores": [
            {**asdict(one), "dimension": _known(one.dimension), "two_nn": _known(one.two_nn)} for one in found.stores
        ],
        "measures": [_measure_document(measure, found) for measure in MEASURES],
        "stitches": [
            {"from": ends[0], "to": ends[1], **asdict(stitch)}
            for (a, b), pair in found.pairs.items()
            for ends, stitch in (((a, b), pair.forth), ((b, a), pair.back))
        ],
        "downstream": None if found.downstream is None else asdict(found.downstream),
        "notes": list(found.notes),
    }


def _measure_document(measure: Measure, found: StoresComparison) -> dict[str, Any]:
    facts = {name: getattr(measure, name) for name in ("key", "title", "meaning", "alike", "directed")}
    return {**facts, "matrix": [list(row) for row in measure.matrix(found)]}


def matrix_csv(measure: Measure, found: StoresComparison) -> str:
    """One matrix with the names of the stores: a row is from, a column to; empty where there is no figure."""
    names = [one.name for one in found.stores]
    rows = zip(names, measure.matrix(found), strict=True)
    return _csv([["from", *names], *([name, *map(_exact, values)] for name, values in rows)])


def long_csv(found: StoresComparison) -> str:
    """All matrices as one table: measure, from, to, value; without the values that are not there."""
    names = [one.name for one in found.stores]
    rows = [
        [measure.key, names[row], names[column], _exact(value)]
        for measure in MEASURES
        for row, values in enumerate(measure.matrix(found))
        for column, value in enumerate(values)
        if value is not None
    ]
    return _csv([["measure", "from", "to", "value"], *rows])


def _known(value: float) -> float | None:
    return value if isfinite(value) else None


def _exact(value: float | None) -> str:
    return "" if value is None else repr(float(value))


def _csv(rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
