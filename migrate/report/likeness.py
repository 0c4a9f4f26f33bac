"""How alike spaces are to that of the full re-embed: the measures of `compare`, inside an audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from migrate.report.compare import number
from migrate.similarity import Similarity
from migrate.similarity.measures import MEASURES


def likeness_rows(found: Mapping[str, Similarity]) -> list[list[str]]:
    """A head, and one row a measure: its name, what it says, and its figure for each space."""
    rows = [
        [measure.title, measure.meaning, *(number(measure.forth(one)) for one in found.values())]
        for measure in MEASURES
    ]
    return [["measure", "says", *found], *rows]


def likeness_document(found: Mapping[str, Similarity]) -> dict[str, Any]:
    """Every measure by its name, and the singular values of the stitch, for each space."""
    return {
        name: {
            "documents": one.documents,
            **{measure.key: measure.forth(one) for measure in MEASURES},
            "singular_values": one.forth.singular_values,
        }
        for name, one in found.items()
    }
