"""A frontier as plain text that fits 100 columns, and as JSON."""

from __future__ import annotations

from typing import Any

from migrate.audit.points import Frontier, Point
from migrate.report.plain import as_plain
from migrate.report.terminal import folded, table


def frontier_text(frontier: Frontier) -> str:
    """One line a budget: policy, share, documents, money, retention with its bounds, verdict; the cheapest last."""
    priced = any(point.price_usd is not None for point in frontier.points)
    head = ["re-embed by", "share", "documents", "tokens", *(["usd"] if priced else [])]
    rows = [_row(point, priced=priced) for point in frontier.points]
    notes = [folded(f"note: {note}") for note in frontier.notes]
    measure = f"retention of {frontier.measure} with a part of the {frontier.count:,} documents re-embedded"
    found = table(
        [[*head, "retention", f"{100 * frontier.points[0].verdict.confidence:.3g} % bounds", "verdict"], *rows]
    )
    return "\n".join([measure, "", found, "", *notes, folded(frontier.sentence)])


def _row(point: Point, *, priced: bool) -> list[str]:
    bounds = point.verdict.retention
    price = "-" if point.price_usd is None else f"{point.price_usd:,.4f}"
    return [
        point.policy,
        f"{point.share:.1%}",
        f"{point.documents:,}",
        f"{point.tokens:,}",
        *([price] if priced else []),
        f"{bounds.estimate:.3f}",
        f"{bounds.lower:.3f}..{bounds.upper:.3f}",
        point.verdict.outcome.value,
    ]


def frontier_document(frontier: Frontier) -> dict[str, Any]:
    """Every point, and the cheapest that is SAFE."""
    best = frontier.cheapest_safe
    return {
        "measure": frontier.measure,
        "documents": frontier.count,
        "points": [_point_document(point) for point in frontier.points],
        "cheapest_safe": None if best is None else _point_document(best),
        "sentence": frontier.sentence,
        "notes": list(frontier.notes),
    }


def _point_document(point: Point) -> dict[str, Any]:
    return {
        "policy": point.policy,
        "share": point.share,
        "documents": point.documents,
        "tokens": point.tokens,
        "price_usd": point.price_usd,
        "outcome": point.verdict.outcome.value,
        "retention": as_plain(point.verdict.retention),
        "worse_than_stay": point.verdict.worse_than_stay,
    }
