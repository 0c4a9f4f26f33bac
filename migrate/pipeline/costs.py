"""The estimate and the spending of each model of a run, for its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from migrate.audit_report.records import ModelSpending
from migrate.cost.estimate import Estimate
from migrate.cost.meter import MeteredEmbedder
from migrate.cost.rates import usd_of
from migrate.cost.spending import PlannedModel
from migrate.vectors import Progress, no_progress


@dataclass(frozen=True, eq=False)
class ModelCosts:
    """The meter of a model, its tokens before the run began, and the estimate of the run."""

    role: str
    meter: MeteredEmbedder
    tokens_before: int
    estimate: Estimate

    def spending(self) -> ModelSpending:
        """Return what was spent since the run began, beside the estimate."""
        tokens = self.meter.tokens - self.tokens_before
        return ModelSpending(
            model=self.meter.profile.spec,
            role=self.role,
            estimated_tokens=self.estimate.tokens,
            estimated_usd=self.estimate.usd,
            tokens=tokens,
            usd=usd_of(tokens, self.meter.price),
        )


def meter_tokens(models: Sequence[PlannedModel]) -> tuple[int, ...]:
    """Return the tokens that each model was asked for so far: several steps may share a meter."""
    return tuple(model.meter.tokens if model.meter is not None else 0 for model in models)


def costs_of(
    models: Sequence[PlannedModel], tokens_before: Sequence[int], *, progress: Progress = no_progress
) -> list[ModelCosts]:
    """Return the costs of the models that cost money. Nothing is embedded, but texts are counted.

    Called before the work begins: what it embeds is in the cache afterwards, where no estimate counts it.
    """
    costs = []
    for model, tokens in zip(models, tokens_before, strict=True):
        meter = model.meter
        estimate = model.estimate(progress=progress)
        if meter is not None and estimate is not None:
            costs.append(ModelCosts(model.role, meter, tokens, estimate))
    return costs
