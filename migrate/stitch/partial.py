"""What true vectors for a part of a store should keep: held-out predictions with some of them put right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from migrate.stitch.base import Prediction
from migrate.stitch.confidence import Confidence
from migrate.stitch.scores import Neighbours
from migrate.vectors import Vectors

SHARES = (0.1, 0.25, 0.5, 0.75)
DEPTH = 50
"""Documents that two stages rank by true vectors."""


@dataclass(frozen=True, slots=True)
class PartialCurve:
    """Held-out overlap@10, `overlap[i]`, where a share (0-1) `shares[i]` of the documents has true vectors.

    These are the ones of the least confidence (`by_confidence`), as a translation chooses them, or, where confidence
    tells nothing, any. The first share is 0, the last 1, where everything is true. `two_stage` is the overlap where the
    best `DEPTH` of each query are ranked by their true vectors.
    """

    shares: tuple[float, ...]
    overlap: tuple[float, ...]
    by_confidence: bool
    two_stage: float

    @classmethod
    def measure(
        cls, prediction: Prediction, truth: Vectors, neighbours: Neighbours, confidence: Confidence, *, seed: int = 0
    ) -> Self:
        """Put a part of the predictions right, (n, q), by their true vectors, (n, q), and search among them."""
        predicted, true = prediction.vectors, truth
        order = np.random.default_rng(seed).permutation(len(true))
        if confidence.is_usable:
            order = np.argsort(confidence.of(prediction), kind="stable")
        overlap = [float(neighbours.overlap(predicted).mean())]
        for share in SHARES:
            mixed, rows = predicted.copy(), order[: round(share * len(true))]
            mixed[rows] = true[rows]
            overlap.append(float(neighbours.overlap(mixed).mean()))
        found = float(neighbours.overlap(predicted, depth=DEPTH).mean())
        return cls((0.0, *SHARES, 1.0), (*overlap, 1.0), confidence.is_usable, found)

    def at(self, share: float) -> float:
        """The overlap with true vectors for a share (0-1), on straight lines between those measured."""
        return float(np.interp(share, self.shares, self.overlap))
