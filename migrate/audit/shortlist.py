"""The models that a store may move to, side by side: what `choose` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from migrate.display import data_frame, notebook_html

if TYPE_CHECKING:
    from pandas import DataFrame

    from migrate.audit.report import AuditReport
    from migrate.audit.verdict import Bounds
    from migrate.embedders import ModelFacts
    from migrate.embedders.profile import Profile
    from migrate.stores.base import StoreInfo


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that a store may move to.

    Attributes
    ----------
    name : the model as it was named
    profile, entry : what is known of it before it is loaded, and in the registry, None where it is not there
    report : the audit of the store that was translated for it
    quality : nDCG@10 of a full re-embed, None where nothing is judged
    gain : by how much that is more than staying scores, query by query, None where one of them is not known
    tokens, usd, minutes : of a full re-embed, None where unknown
    dim : of the new store
    """

    name: str
    profile: Profile
    entry: ModelFacts | None
    report: AuditReport
    quality: Bounds | None
    gain: Bounds | None
    tokens: float | None
    usd: float | None
    minutes: float | None
    dim: int

    @property
    def is_better(self) -> bool:
        """True where a full re-embed by it is significantly better than staying."""
        return self.gain is not None and self.report.verdict.has_enough and self.gain.lower > 0

    @property
    def is_worse(self) -> bool:
        """True where a full re-embed by it is significantly worse than staying."""
        return self.gain is not None and self.report.verdict.has_enough and self.gain.upper < 0


@dataclass(frozen=True, slots=True)
class Shortlist:
    """The candidates for a store, in the order in which they were named.

    `old` are the registry's facts of the store's model, None where it is not there; `stay` is its nDCG@10, None where
    it cannot be asked or nothing is judged. `confidence` is that of the bounds of a candidate: all of them together
    hold with 95 %.
    """

    store: StoreInfo
    old_model: str | None
    old: ModelFacts | None
    stay: Bounds | None
    dataset: str
    measure: str
    queries: str
    confidence: float
    candidates: tuple[Candidate, ...]

    def __repr__(self) -> str:
        return f"<Shortlist for {self.store.location}: {', '.join(it.name for it in self.candidates)}>"

    def _repr_html_(self) -> str | None:
        return notebook_html(self)

    @property
    def best(self) -> Candidate | None:
        """The candidate with the highest quality among those that are better than staying; None where none is."""
        better = [candidate for candidate in self.candidates if candidate.is_better and candidate.quality is not None]
        return max(better, key=lambda candidate: candidate.quality.estimate if candidate.quality else 0, default=None)

    def to_pandas(self) -> DataFrame:
        """One row a candidate; needs pandas.

        Raises UsageError: it is not installed.
        """
        return data_frame([_row(candidate) for candidate in self.candidates])


def _row(candidate: Candidate) -> dict[str, Any]:
    retention = candidate.report.verdict.retention
    bounds = {"quality": candidate.quality, "gain": candidate.gain, candidate.report.verdict.measured: retention}
    figures = {
        name if side == "estimate" else f"{name}_{side}": getattr(value, side)
        for name, value in bounds.items()
        if value is not None
        for side in ("estimate", "lower", "upper")
    }
    costs = {name: getattr(candidate, name) for name in ("tokens", "usd", "minutes", "dim")}
    return {"target": candidate.name, **figures, "outcome": candidate.report.outcome.value, **costs}
