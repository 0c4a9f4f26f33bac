"""The quality of a migration, as far as it is known: by a fit's own figures after it, then by an audit's.

A fit measures on held-out pairs of its sample. From these, its learning curve and the share of the store that will have
true vectors comes what to expect of a plan: inside the sample, where ten neighbours are farther apart than in the
store. Only an audit says what that means for queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from migrate.cost.count import CacheLookup
from migrate.embedders.kinds import split_spec
from migrate.errors import InputError, OutputError, StitchError
from migrate.files import describe_os_error
from migrate.reading import MalformedError, expect, read_table
from migrate.stitch.fitted import FittedStitch
from migrate.stitch.select import Selection
from migrate.stores.base import Store
from migrate.vectors import Document, Text

EXPECTED = "expected overlap@10"


@dataclass(frozen=True, slots=True)
class KnownPoint:
    """A measurement with so many `documents` re-embedded.

    `estimate`, `lower` and `upper` (95 %) are of `measure`, shares (0-1), a bound None where there is none.
    """

    documents: int
    measure: str
    estimate: float
    lower: float | None
    upper: float | None

    @property
    def sentence(self) -> str:
        """The figure in a few words."""
        factor, decimals, unit = (100, 1, " %") if self.measure == "retention" else (1, 3, "")
        estimate, low, high = (
            "?" if share is None else f"{factor * share:.{decimals}f}"
            for share in (self.estimate, self.lower, self.upper)
        )
        span = "" if self.lower is None and self.upper is None else f" ({low}-{high}{unit})"
        return f"{self.measure} {estimate}{unit}{span}"


@dataclass(frozen=True, slots=True)
class StitchQuality:
    """The figures of a fit for the stitch that it made of some `pairs`.

    `sample` are the ids of the documents that are paid for.
    """

    pairs: int
    selection: Selection
    sample: frozenset[str] = field(default=frozenset(), repr=False)

    def expected(self, documents: int, store: int) -> KnownPoint | None:
        """Return what to expect of true vectors for `documents` of those of a `store`, the sample among them.

        None where the fit says nothing: of a stitch that was saved before it noted what true vectors keep, of fewer
        documents than it has, or where its sample is too small or its stitch no better than chance.
        """
        partial = self.selection.partial
        if partial is None or documents < self.pairs or not self.selection.is_told:
            return None
        share, best = min(documents / max(store, 1), 1.0), self.selection.best.scores
        if share == 1:
            return KnownPoint(documents, EXPECTED, 1.0, None, None)
        more = documents - self.pairs
        gain, low, high = self._gain(more)
        remainder, estimate = 1 - share, partial.at(share)
        span = best.overlap_half_width
        bounds = (estimate + remainder * (min(low, gain) - span), estimate + remainder * (max(high, gain) + span))
        lower, upper = (min(max(bound, 0.0), 1.0) for bound in bounds)
        curve = self.selection.curve
        is_bounded = more <= 0 or (curve is not None and curve.is_known)
        expected = min(estimate + remainder * gain, 1.0)
        return KnownPoint(documents, EXPECTED, expected, lower, upper if is_bounded else None)

    def fewest(self, quality: float, store: int) -> int | None:
        """Return the fewest documents with true vectors of which `quality` may be expected; None where unknown."""
        low, high = self.pairs - 1, store
        if self.expected(store, store) is None:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            point = self.expected(middle, store)
            low, high = (low, middle) if point is not None and point.estimate >= quality else (middle, high)
        return high

    def two_stage(self) -> KnownPoint | None:
        """Return what to expect where the best translated documents of each query are ranked by true vectors."""
        partial = self.selection.partial
        is_told = partial is not None and self.selection.is_told
        return (
            None if partial is None or not is_told else KnownPoint(self.pairs, EXPECTED, partial.two_stage, None, None)
        )

    def texts_of(self, store: Store) -> Iterator[Document]:
        """Yield the documents of the sample."""
        return (document for document in store.documents() if document.id in self.sample)

    def paid(self, lookup: CacheLookup | None) -> CacheLookup:
        """Return a lookup of texts that are paid for: those of the sample, and what `lookup` finds."""

        def is_paid(texts: Sequence[Text]) -> list[bool]:
            in_sample = [text.id in self.sample for text in texts]
            return (
                in_sample
                if lookup is None
                else [sampled or cached for sampled, cached in zip(in_sample, lookup(texts), strict=True)]
            )

        return is_paid

    def _gain(self, more: int) -> tuple[float, float, float]:
        """Return what so many more pairs should add to translated vectors."""
        curve = self.selection.curve
        return (0.0, 0.0, 0.0) if curve is None or more <= 0 else curve.gain_of(self.pairs, more)


def stitch_quality(fitted: FittedStitch, store: Store, spec: str, *, source: str = "stitch") -> StitchQuality:
    """Return the figures of the fit of a stitch; `source` names it in errors.

    Raises StitchError: it was fitted on another store, or leads to another model.
    """
    difference = store.snapshot().difference(fitted.manifest.stitch.fitted_on)
    if difference is not None:
        raise StitchError(
            f"{source}: the stitch was not fitted on {store.info.location}, but on another store ({difference}); leave "
            "it out"
        )
    model = fitted.manifest.model
    if model is not None and split_spec(spec)[0] == "openai" and model.spec != spec:
        raise StitchError(f"{source}: the stitch leads to {model.spec}, not to {spec}; use --target {model.spec}")
    return StitchQuality(
        fitted.manifest.counts.get("pairs", len(fitted.sample.ids)), fitted.selection, frozenset(fitted.sample.row_of)
    )


def read_stay(path: Path) -> KnownPoint | None:
    """Read what an audit's report says of staying with the old model; None where it does not.

    Raises InputError: the file is no JSON, or not that of an audit. OutputError: it cannot be read.
    """
    report = _read_report(path)
    if not report.get("verdict") or not report.get("options"):
        raise InputError(f"{path}: this is not the report of an audit; name one that `audit --report` wrote")
    try:
        expect(report, {"verdict": {"measured": str}, "options": list[Mapping[str, Any]]})
        measured = report["verdict"]["measured"]
        for option in report["options"]:
            if option.get("name") == "stay" and option.get(measured) is not None:
                return KnownPoint(0, measured, *_bounds(option, measured))
    except MalformedError as error:
        raise InputError(f"{path}: the options of the audit cannot be read ({error}); audit again") from error
    return None


def _read_report(path: Path) -> dict[str, Any]:
    try:
        report = read_table(path)
    except OSError as error:
        raise OutputError(f"cannot read {path}: {describe_os_error(error)}; check the path") from error
    except MalformedError as error:
        raise InputError(f"{path}: this is not the JSON report of an audit ({error}); check the path") from error
    return report


def _bounds(point: Mapping[str, Any], measured: str) -> tuple[float, float | None, float | None]:
    """Return estimate, lower and upper bound."""
    bounds = expect(point, {measured: {"estimate": float, "lower": float | None, "upper": float | None}})[measured]
    return bounds["estimate"], bounds["lower"], bounds["upper"]
