"""An audit report and a candidate table as plain text that fits 100 columns."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from migrate.audit.model import Arm, AuditReport, Comparison
from migrate.audit.verdict import Bounds
from migrate.stitch.select import Selection

WIDTH = 100
"""Columns of a terminal that everything fits into."""

_MANY_QUERIES = 10_000
_MEASURES = ("nDCG@10", "recall@100", "MRR@10", "overlap@1", "overlap@10", "overlap@100")
_HEADS = ("nDCG@10", "R@100", "MRR@10", "ov@1", "ov@10", "ov@100")


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell, the first to the left, the others to the right.

    >>> print(table([["arm", "score"], ["stay", "0.5"]]))
    arm   score
    stay    0.5
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = (
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def candidates_table(selection: Selection) -> str:
    """The stitches as they were judged on held-out pairs; the chosen one is marked, controls stand last."""
    head = ["stitch", "cosine", "MSE", "R²", "overlap@10", "fit s"]
    rows = [
        [
            f"{'*' if row.stitch == selection.chosen and not row.is_control else ' '} {row.stitch}"
            + (" (control)" if row.is_control else ""),
            f"{row.scores.cosine:.3f}",
            f"{row.scores.mse:.6f}",
            f"{row.scores.r2:.3f}",
            f"{row.scores.overlap_at_10:.3f}",
            f"{row.fit_s:.2f}",
        ]
        for row in selection.candidates
    ]
    return table([["  " + head[0], *head[1:]], *rows])


def audit_table(report: AuditReport) -> str:
    """One line an arm: measures, retention with its bounds, queries won, tied and lost."""
    shown = [(m, h) for m, h in zip(_MEASURES, _HEADS, strict=True) if any(m in arm.scores for arm in report.arms)]
    head = ["arm", *(name for _, name in shown), "retention", "95 % bounds", "win/tie/loss"]
    rows = [_arm_row(arm, [measure for measure, _ in shown], report.comparisons.get(arm.name)) for arm in report.arms]
    return table([head, *rows])


def _arm_row(arm: Arm, measures: Sequence[str], comparison: Comparison | None) -> list[str]:
    means = [arm.mean(measure) for measure in measures]
    row = [arm.name, *("-" if mean is None else f"{mean:.3f}" for mean in means)]
    if comparison is None:
        return [*row, "", "", ""]
    return [*row, f"{comparison.retention.estimate:.3f}", _span(comparison.retention), _record(comparison)]


def _record(comparison: Comparison) -> str:
    """Queries won, tied and lost; as percentages where the counts would not fit."""
    counts = (comparison.wins, comparison.ties, comparison.losses)
    if sum(counts) < _MANY_QUERIES:
        return "/".join(map(str, counts))
    return "/".join(f"{100 * count / sum(counts):.0f}%" for count in counts)


def _span(bounds: Bounds) -> str:
    return f"{bounds.lower:.3f}..{bounds.upper:.3f}"


def audit_text(report: AuditReport) -> str:
    """The arms, what they were asked, and the verdict last, where a terminal leaves it in sight."""
    verdict = report.verdict
    stars = " (provisional: nothing is judged, so this rests on overlap@10)" if verdict.provisional else ""
    sentences = [f"note: {note}" for note in report.notes]
    gain = verdict.gain_over_stay
    if gain is not None:
        span = f"95 % bounds {gain.lower:+.3f} to {gain.upper:+.3f}"
        sentences.append(f"against staying: {gain.estimate:+.3f} {report.measure}, {span}")
    sentences.append(f"{verdict.outcome}{stars}: {verdict.sentence}")
    asked = f"{report.dataset}: {verdict.n_queries:,} queries, {report.n_documents:,} documents"
    return "\n".join([asked, "", audit_table(report), "", *map(folded, sentences)])


def folded(sentence: str) -> str:
    """A sentence in lines that fit, the later ones indented."""
    return fill(sentence, WIDTH, subsequent_indent="  ")
