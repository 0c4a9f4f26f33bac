"""Reports of audits that are read back: whatever reads one holds what it says against its own numbers first.

A report is a file that people copy, edit and cut. Its SAFE lets stores trade names, so that it has to follow from the
bounds beside it by the rule of `migrate.outcome`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf, isfinite
from pathlib import Path
from typing import Any, Final, Literal

from migrate.audit_report.names import AGREEMENT, TRANSLATED
from migrate.display import AUDIT_SCHEMA
from migrate.errors import InputError
from migrate.outcome import FEWEST_DOCUMENTS, FEWEST_QUERIES, Bounds, Outcome, decide_within
from migrate.reading import expect, read_table

# null stands for a bound without limit, as JSON has no infinite numbers
_BOUNDS: Final = {"estimate": float | None, "lower": float, "upper": float | None}
_VERDICT: Final = {
    "outcome": Outcome,
    "sentence": str,
    "provisional": bool,
    "measured": Literal["retention", "agreement@10"],
    "safe_from": float,
    "not_safe_below": float,
    "margin": float,
    "gain_over_stay": Mapping[str, Any] | None,
    "queries": int,
    "groups": int,
}
_SHAPE: Final = {
    "verdict": _VERDICT,
    "dataset": {"documents": int},
    "family": Mapping[str, Mapping[str, Any]],
    "plan": {"name": str, "outcome": Outcome},
    "reference": Mapping[str, Any] | None,
    "stores": Mapping[str, Any],
}


def read_audit(source: object, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the report of an audit, from the file that `source` names, or else the `document` that is it.

    Raises
    ------
    OSError
        The file cannot be read.
    MalformedError
        This is no report of an audit.
    InputError
        It is one of another version, or its own numbers do not bear what it says.
    """
    if document is None:
        document = read_table(Path(str(source)))
    report = dict(document)
    expect(report, {"kind": Literal["audit"], "schema_version": int})
    # Before the shape: a report of another version has another, and the remedy is another
    if report["schema_version"] != AUDIT_SCHEMA:
        raise InputError(
            f"{source}: this report has schema version {report['schema_version']}, and this version of lead-migrate "
            f"reads {AUDIT_SCHEMA}; audit it again with --report FILE"
        )
    expect(report, _SHAPE)
    why = next(_contradictions(report), None)
    if why is not None:
        raise InputError(
            f"{source}: this report says {report['plan']['outcome']}, which its own numbers do not bear ({why}), as "
            "where it was edited or damaged; audit it again with --report FILE"
        )
    return report


def _contradictions(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield why the verdict on the store, and that on the plan, do not follow from the numbers beside them."""
    verdict = report["verdict"]
    plan = report["plan"]
    measured = verdict["measured"]
    expect(verdict, {measured: _BOUNDS})
    yield from _impossible(verdict)
    yield from _not_borne(verdict["outcome"], verdict[measured], report)
    # The store alone has its bounds in the verdict; those of the family hold for several arms at once
    if plan["name"] == TRANSLATED:
        if plan["outcome"] != verdict["outcome"]:
            yield f"the verdict is {verdict['outcome']}"
        return
    expect(report["family"], {plan["name"]: _BOUNDS})
    yield from _not_borne(plan["outcome"], report["family"][plan["name"]], report, is_alone=False)


def _impossible(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Yield what no audit leaves: limits that do not go together, more groups than queries."""
    margin = verdict["margin"]
    safe_from = verdict["safe_from"]
    not_safe_below = verdict["not_safe_below"]
    if not 0 < margin <= 1:  # also of no number
        yield f"a margin of {margin}"
    if not 0 <= not_safe_below <= safe_from <= 1 or safe_from < margin:
        yield f"SAFE from {safe_from} and NOT SAFE below {not_safe_below} by a margin of {margin}"
    # `switch` refuses what is provisional: an edited flag would let it take agreement for judged quality
    if verdict["provisional"] != (verdict["measured"] == AGREEMENT):
        yield f"it rests on {verdict['measured']}"
    if not 0 <= verdict["groups"] <= verdict["queries"]:
        yield f"{verdict['groups']:,} groups of {verdict['queries']:,} queries"


def _not_borne(
    outcome: str, bounds: Mapping[str, Any], report: Mapping[str, Any], *, is_alone: bool = True
) -> Iterator[str]:
    """Yield why bounds are none, or do not show an outcome; what is INCONCLUSIVE may be so for any doubt."""
    verdict = report["verdict"]
    lower, upper = _span(bounds)
    estimate = lower if bounds["estimate"] is None else bounds["estimate"]
    if not (isfinite(lower) and 0 <= lower <= estimate <= upper):
        yield f"{estimate} between the bounds {lower} and {upper}"
    # Nothing is decided by it, and any doubt can lead to it, whatever the numbers are
    if outcome == Outcome.INCONCLUSIVE:
        return
    if verdict["groups"] < FEWEST_QUERIES:
        yield f"{verdict['groups']:,} independent queries, where a verdict needs {FEWEST_QUERIES}"
    # By the function that the audit decides with: a second rule here could part from it
    limits = {name: verdict[name] for name in ("safe_from", "not_safe_below")}
    shown = decide_within(Bounds(estimate, lower, upper), **limits)
    # Against staying the translated store alone is tested, not the other arms
    is_worse = is_alone and _is_worse_than_stay(verdict)
    if outcome == Outcome.NOT_SAFE:
        if shown is not Outcome.NOT_SAFE and not is_worse:
            yield f"an upper bound of {upper}, where NOT SAFE is below {verdict['not_safe_below']}"
        return
    if shown is not Outcome.SAFE:
        yield f"a lower bound of {lower}, where SAFE needs {verdict['safe_from']}"
    if is_worse:
        yield "it answers worse than the old store"
    if report["dataset"]["documents"] < FEWEST_DOCUMENTS:
        yield f"{report['dataset']['documents']:,} documents, where SAFE needs {FEWEST_DOCUMENTS}"
    if (report["reference"] or {}).get("doubts"):
        yield "it has doubts"


def _is_worse_than_stay(verdict: Mapping[str, Any]) -> bool:
    gain = verdict["gain_over_stay"]
    if gain is None:
        return False
    expect(gain, {"upper": float | None})
    return not _span({"lower": 0.0, **gain})[1] >= 0  # also what is no number


def _span(bounds: Mapping[str, Any]) -> tuple[float, float]:
    """Return a lower and an upper bound; one without limit is null in JSON."""
    return bounds["lower"], inf if bounds["upper"] is None else bounds["upper"]
