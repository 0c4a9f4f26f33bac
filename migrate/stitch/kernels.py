"""The kernels of some documents in all views, each brought to spread 1, so that weights mean something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from migrate.stitch.base import Matrix
from migrate.stitch.kernel import combined, spread
from migrate.stitch.parts import GaussianPart, Part, gaussian
from migrate.stitch.text_rows import TextRows, View, gram
from migrate.stitch.weighing import Weighing

VECTOR = "vector"


@dataclass(frozen=True, eq=False)
class Kernels:
    """Views of n documents, what each kernel is divided by, and the Gram matrices, (n, n), where they were asked for.

    `width` is that of a Gaussian kernel over the old vectors, None where they enter linearly.
    """

    views: Mapping[str, View]
    scales: Mapping[str, float]
    width: float | None
    grams: Mapping[str, Matrix] = field(default_factory=dict)

    def total(self, weighing: Weighing) -> Matrix:
        """The weighted sum of the Gram matrices."""
        weights = {name: weight for name, weight in weighing.weights.items() if name in self.grams}
        return combined([self.grams[name] for name in weights], list(weights.values()))

    def parts(self, weighing: Weighing) -> list[Part]:
        """The views that have a weight, with these documents to predict from."""
        known = [(name, weight) for name, weight in weighing.weights.items() if name in self.scales]
        return [self._part(name, weight * self.scales[name]) for name, weight in known]

    def _part(self, name: str, scale: float) -> Part:
        rows = self.views[name].matrix()
        if name == VECTOR and self.width is not None:
            return GaussianPart(name, rows, scale, self.width)
        return Part(name, rows, scale)


def measure(views: Mapping[str, View], texts: TextRows | None, is_gaussian: bool) -> Kernels:
    """The kernels between documents, through a Gaussian one over the old vectors where that is wanted."""
    grams, width = {}, None
    for name, view in views.items():
        if texts is not None and name in texts.views:
            grams[name] = texts.gram(name)
        elif is_gaussian:
            rows = np.asarray(view.matrix())
            # the mean squared distance of two unit rows
            width = max(2 * float(1 - np.square(rows.mean(axis=0, dtype=np.float64)).sum()), 1e-6)
            grams[name] = gaussian(rows, rows, width).astype(np.float64)
        else:
            grams[name] = gram(view.matrix())
    scales = {name: 1 / spread(matrix) for name, matrix in grams.items()}
    return Kernels(views, scales, width, {name: matrix * scales[name] for name, matrix in grams.items()})
