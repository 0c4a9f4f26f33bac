"""What is known of quality: nothing before a fit, the fit's own interval after it, a frontier after an audit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrate.errors import InputError, OutputError, StitchError
from migrate.files import describe_os_error, is_endless
from migrate.stitch.loading import load_stitch
from migrate.stores.base import Store

NOTHING = "nothing yet"
REFERENCE = "the reference itself"
SAFE = "SAFE"
_Z = 1.96


@dataclass(frozen=True, slots=True)
class KnownPoint:
    """What was measured with so many `documents` re-embedded.

    `policy` is that of a frontier, None for the held-out figures of a fit. `estimate`, `lower` and `upper` (95 %) are
    of `measure`, shares (0-1), a bound None where there is none; `outcome` is the audit's.
    """

    documents: int
    measure: str
    estimate: float
    lower: float | None
    upper: float | None
    policy: str | None = None
    outcome: str | None = None
    is_cheapest_safe: bool = False

    @property
    def sentence(self) -> str:
        """The figure in a few words."""
        low, high = ("?" if bound is None else f"{bound:.3f}" for bound in (self.lower, self.upper))
        by = "" if self.policy is None else f", {self.outcome} by {self.policy}"
        return f"{self.measure} {self.estimate:.3f} ({low}..{high}){by}"


def read_stitch_quality(folder: Path, store: Store, spec: str) -> KnownPoint:
    """The held-out overlap@10 of a stitch, with its 95 % bounds.

    Raises
    ------
    StitchError
        It was fitted on another store, or leads to another model.
    """
    fitted = load_stitch(folder)
    difference = store.fingerprint().difference(fitted.manifest.details.get("fingerprint", {}))
    if difference is not None:
        raise StitchError(
            f"{folder}: expected a stitch fitted on {store.info.path}, found one of another store ({difference}); "
            "leave it out"
        )
    model = fitted.manifest.model
    if model is not None and spec.startswith("openai:") and model.spec != spec:
        raise StitchError(f"{folder}: expected a stitch to {spec}, found one to {model.spec}; name that with --target")
    scores = fitted.selection.best.scores
    span = _Z * scores.overlap_error
    estimate = scores.overlap_at_10
    pairs = int(fitted.manifest.counts["pairs"])
    return KnownPoint(pairs, "held-out overlap@10", estimate, max(estimate - span, 0), min(estimate + span, 1))


def read_frontier(path: Path, count: int) -> tuple[KnownPoint, ...]:
    """The points of an audit's frontier, over a store of `count` documents.

    Raises
    ------
    InputError
        The file is no report of an audit with a frontier, or of another store.
    OutputError
        It cannot be read.
    """
    frontier = _read_report(path).get("frontier")
    if not isinstance(frontier, dict):
        raise InputError(f"{path}: expected the report of an audit with --frontier, found none; run audit with it")
    if frontier.get("documents") != count:
        found = f"one of {frontier['documents']}" if "documents" in frontier else "one that does not say"
        raise InputError(
            f"{path}: expected the frontier of a store of {count:,} documents, found {found}; give the report of this "
            "store"
        )
    try:
        best = frontier["cheapest_safe"]
        return tuple(_point(facts, best) for facts in frontier["points"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: expected the points of a frontier, found others ({error}); audit again") from error


def _read_report(path: Path) -> dict[str, Any]:
    if is_endless(path):
        raise InputError(f"{path}: expected the JSON report of an audit, found a pipe or a device; write it to a file")
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise OutputError(f"cannot read {path}: {describe_os_error(error)}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{path}: expected the JSON report of an audit, found something else; check the path"
        ) from error
    return found if isinstance(found, dict) else {}


def _point(facts: dict[str, Any], best: dict[str, Any] | None) -> KnownPoint:
    bounds = facts["retention"]
    same = best is not None and (best["policy"], best["documents"]) == (facts["policy"], facts["documents"])
    return KnownPoint(
        int(facts["documents"]),
        "retention",
        float(bounds["estimate"]),
        bounds["lower"],
        bounds["upper"],
        str(facts["policy"]),
        str(facts["outcome"]),
        same,
    )
