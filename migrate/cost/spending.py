"""Plan, then run: what a step will embed with which models, what that costs, and the cap that it runs under.

A step that spends money is a `SpendingPlan`. Making one embeds nothing; `estimate` counts what the models will be asked
for; `run` does the work, and stops before the batch that would cost more than the cap.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

from migrate.cost.estimate import CostEstimate, dollars, estimate_cost
from migrate.cost.meter import MeteredEmbedder, SpendingCap
from migrate.embedders.base import Embedder
from migrate.errors import SpendingError
from migrate.vectors import Progress, Text, no_progress

Result = TypeVar("Result")

TARGET, SOURCE_MODEL, VIEW = "target", "source model", "view"
"""What a model of a plan is for."""


@dataclass(frozen=True, eq=False)
class PlannedModel:
    """A model of a plan, and the texts that it will be asked for.

    Attributes
    ----------
    embedder
        The model as the run uses it, with a meter of `cap` in it where it costs money or may do so.
    role
        What it is for: `TARGET`, `SOURCE_MODEL` or `VIEW`.
    documents
        Starts reading the documents that it embeds, those in the cache among them.
    queries
        The queries that it embeds.
    again
        How many texts it embeds again at most, past the cache, to prove that it is what it was.
    known
        Further texts that it embeds again, as other vectors of them are known than those in the cache.
    """

    embedder: Embedder
    cap: SpendingCap
    role: str = TARGET
    documents: Callable[[], Iterable[Text]] = tuple
    queries: Sequence[Text] = ()
    again: int = 0
    known: Callable[[], Sequence[Text]] = tuple
    _estimates: list[CostEstimate] = field(default_factory=list, init=False, repr=False)

    @property
    def meter(self) -> MeteredEmbedder | None:
        """What counts its tokens; None where it costs no money."""
        return self.cap.meter_of(self.embedder)

    @property
    def name(self) -> str:
        """The model and its role, for a person; empty for the target."""
        return "" if self.role == TARGET else f"{self.embedder.profile.spec} ({self.role})"

    def estimate(self, *, progress: Progress = no_progress) -> CostEstimate | None:
        """What it will cost, counted once; None where it costs no money."""
        meter = self.meter
        if meter is not None and not self._estimates:
            profile = self.embedder.profile.at_price(meter.price)
            self._estimates.append(
                estimate_cost(
                    self.documents(),
                    self.queries,
                    self.embedder,
                    profile,
                    progress,
                    model=self.name,
                    again=self.again,
                    known=self.known(),
                )
            )
        return self._estimates[0] if self._estimates else None


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    """What a plan will cost, by model; models that cost no money are left out."""

    models: tuple[CostEstimate, ...]

    @property
    def tokens(self) -> int:
        """Tokens of all models."""
        return sum(model.tokens for model in self.models)

    @property
    def usd(self) -> float:
        """US dollars of all models; one without a known price counts nothing."""
        return sum(model.usd or 0 for model in self.models)

    @property
    def minutes(self) -> float | None:
        """Minutes of all models, one after the other; None where a rate is not known."""
        minutes = [model.minutes for model in self.models]
        return None if None in minutes else sum(filter(None, minutes))

    @property
    def sentence(self) -> str:
        """A line for each model."""
        return "\n".join(model.sentence for model in self.models) or "to embed: nothing that costs money"


def refuse_beyond(max_cost: float, estimate: PlanEstimate) -> None:
    """Make sure that an estimate is within a limit.

    Raises
    ------
    SpendingError
        It is not; nothing was spent.
    """
    if estimate.usd > max_cost:
        raise SpendingError(
            f"expected to cost at most {dollars(max_cost)} (max_cost), found {dollars(estimate.usd)}; nothing was "
            "spent, raise max_cost to go on"
        )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SpendingPlan(ABC, Generic[Result]):
    """A step that is not done yet: its models, what they will be asked for, and the cap that they share."""

    cap: SpendingCap = field(default_factory=SpendingCap)

    def __repr__(self) -> str:
        models = (f"{model.role} {model.embedder.profile.spec}" for model in self.models)
        return f"<{type(self).__name__}: {', '.join(models) or 'nothing to embed'}>"

    @cached_property
    @abstractmethod
    def models(self) -> tuple[PlannedModel, ...]:
        """The models of the step, each with the texts that are still to be embedded."""

    @abstractmethod
    def execute(self, progress: Progress) -> Result:
        """Do the work under the cap as it is now, which other plans may share."""

    def estimate(self, *, progress: Progress = no_progress) -> PlanEstimate:
        """Count and price what the models that cost money will be asked for. Nothing is embedded.

        Counted once: after a run it still says what was expected before.
        """
        estimates = [model.estimate(progress=progress) for model in self.models]
        return PlanEstimate(tuple(estimate for estimate in estimates if estimate is not None))

    def run(self, *, cap_usd: float | None = None, progress: Progress = no_progress) -> Result:
        """Do it, spending at most `cap_usd` US dollars on all models together; None for no cap.

        What was spent in earlier runs of this plan counts.

        Raises
        ------
        SpendingError
            What comes next would cost more than what is left of the cap; it was not sent. What was paid for is in the
            cache, where there is one.
        """
        self.cap.cap_usd = cap_usd
        return self.execute(progress)

    def run_within(self, max_cost: float | None, *, progress: Progress = no_progress) -> Result:
        """As `run`, after making sure that the estimate is within the cap, so that no money is lost half-way.

        Raises
        ------
        SpendingError
            It is not, and nothing was spent; or it was too low, as `run`.
        """
        if max_cost is not None:
            refuse_beyond(max_cost, self.estimate(progress=progress))
        return self.run(cap_usd=max_cost, progress=progress)
