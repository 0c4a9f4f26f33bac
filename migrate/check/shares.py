"""What a sample says of the share of a store that disagrees."""

from __future__ import annotations

from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Share:
    """A share between bounds, all from 0 to 1. With nothing seen `upper` is the largest share that could be missed."""

    estimate: float
    lower: float
    upper: float


def share_of(seen: int, sampled: int, population: int) -> Share:
    """The share of a population of which `seen` of `sampled` random members were seen; n >= 1.

    Bounds are those of Clopper and Pearson (Biometrika 26, 1934, 404-413): two-sided 95 %, one-sided where none or all
    were seen, so that 0 of n gives 1 - 0.05^(1/n), about 3/n. A sample of everything has no bounds to either side.

    >>> round(share_of(0, 32, 10_000).upper, 3)
    0.089
    """
    estimate = seen / sampled
    if sampled >= population:
        return Share(estimate, estimate, estimate)
    from scipy.special import betaincinv

    tail = 1 - CONFIDENCE if seen in (0, sampled) else (1 - CONFIDENCE) / 2
    lower = float(betaincinv(seen, sampled - seen + 1, tail)) if seen else 0.0
    upper = float(betaincinv(seen + 1, sampled - seen, 1 - tail)) if seen < sampled else 1.0
    return Share(estimate, lower, upper)
