"""Where a migration hurts, as plain text that fits 100 columns: the worst of it; all of it is in JSON and HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import floor, log10

from migrate.audit.arms import FULL, TRANSLATED
from migrate.audit.calibration import Calibration
from migrate.audit.hubness import Hubness
from migrate.audit.hurt import Hurt
from migrate.audit.regressions import Regression
from migrate.audit.slices import Slice
from migrate.report.terminal import WIDTH, table, telling

_QUERIES, _SLICES = 3, 3
_FEWEST = 10
METRICS = {"ip": "inner product, at least", "l2": "squared distance, at most"}
"""What a score is, and how it passes a threshold."""


def hurt_text(hurt: Hurt, measure: str) -> str:
    """The queries and the kinds of queries that lose most, how thresholds move, how hubs grow."""
    parts = [
        _regressions(hurt.regressions[:_QUERIES], measure),
        _slices(hurt.slices),
        f"{calibration_title(hurt.calibration)}\n{table(calibration_rows(hurt.calibration))}"
        if hurt.calibration
        else "",
        "\n".join(map(_hubs, hurt.hubness)),
    ]
    return "\n\n".join(filter(None, parts))


def _regressions(worst: tuple[Regression, ...], measure: str) -> str:
    if not worst:
        return ""
    return "\n".join([f"queries that lose most {measure}", *(line for one in worst for line in _regression(one))])


def _regression(one: Regression) -> Iterator[str]:
    yield _cut(f"  {one.query_id}: {one.text}")
    yield f"    {one.scores[FULL]:.3f} -> {one.scores[TRANSLATED]:.3f}"
    for name, hits in one.hits.items():
        found = "; ".join(f"{hit.doc_id}{'' if not hit.grade else ' (relevant)'} {hit.text}" for hit in hits[:1])
        yield _cut(f"    {name} finds {found or 'nothing'}")


def _cut(line: str) -> str:
    line = " ".join(line.split()) if line.strip() == line else line
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def _slices(slices: tuple[Slice, ...]) -> str:
    """The kinds of queries that keep least, of those with enough queries to speak of."""
    enough = sorted(
        (one for one in telling_slices(slices) if one.queries >= _FEWEST), key=lambda one: one.retention.estimate
    )
    if not enough:
        return ""
    rows = [
        [
            _cut(f"{one.by}: {one.value}")[:60],
            f"{one.queries}",
            f"{one.full:.3f}",
            f"{one.translated:.3f}",
            f"{one.retention.estimate:.3f}",
        ]
        for one in enough[:_SLICES]
    ]
    return table([["kinds of queries that keep least", "queries", "full", "translated", "retention"], *rows])


def telling_slices(slices: Sequence[Slice]) -> list[Slice]:
    """Those of kinds that tell queries apart: what holds for all of them is the verdict's to say."""
    times = Counter(one.by for one in slices)
    return [one for one in slices if times[one.by] > 1]


def calibration_title(found: Calibration) -> str:
    """What the thresholds are."""
    old, new = (METRICS[metric] for metric in found.metrics)
    return f"similarity thresholds, old ({old}) and new ({new})"


def _decimals(values: list[float]) -> int:
    """As many as tell values apart that lie close together, four at least.

    >>> _decimals([0.2, 0.7]), _decimals([0.999991, 0.999998])
    (4, 7)
    """
    spread = max(values) - min(values)
    return 4 if spread <= 0 else min(max(4, 1 - floor(log10(spread))), 9)


def calibration_rows(found: Calibration) -> list[list[str]]:
    """One row a threshold: old, the share of hits that passes it, new for as many, new for as precise ones."""
    head = ["old", "hits that pass", "new", "new, for the same precision"]
    rows = [
        [
            f"{one.old:.{_decimals([other.old for other in found.thresholds])}f}",
            f"{one.pass_rate:.0%}",
            f"{one.same_pass_rate:.4f}",
            "-" if one.same_precision is None else f"{one.same_precision:.4f}",
        ]
        for one in found.thresholds
    ]
    return telling([head, *rows])


def _hubs(found: Hubness) -> str:
    return (
        f"hubs, {found.arm}: skewness {found.skewness:.2f}, one document is near {found.largest} of "
        f"{found.documents:,}, {found.orphans:.0%} are near none"
    )
