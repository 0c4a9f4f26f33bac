"""The stitches mlp:1 to mlp:7: layers of neurons between the old vector and the new one. Translates without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np

from migrate.stitch.base import Arrays, Matrix, Stitch, centred, check_pairs
from migrate.stitch.mlp_network import Layer, Training
from migrate.stitch.mlp_training import train
from migrate.stitch.text_rows import TextRows
from migrate.vectors import Vectors

MAX_LAYERS = 7
_ROWS = 4_096


class Mlp(Stitch):
    """A multilayer perceptron: `layers` affine maps with a rectifier between each two, as wide as the wider space.

    The family of LEAD (Culp & Hernandez 2024, github.com/GatlenCulp/embedding_translation,
    owler_fork/owlergpt/commands/pokemon.py): one linear layer, which it calls affine, or two to seven layers, hidden
    widths max(p, q), ReLU between the layers and none after the last. LEAD trains for a fixed number of epochs on the
    squared error alone; what differs here stands in `Training`.

    Both sides are centred and divided by one number each, the root mean square of all columns together: a column of
    little spread stays one, and a constant column stays zero. The fitted layers have this folded into them.

    Where there are fewer than 20 pairs none is held out: training runs through its whole schedule, and the curve has
    no third column. Even two pairs give a map, though hardly a good one.

    Parameters
    ----------
    layers
        1 to 7.
    seed
        Of the held-out pairs, the first weights, the order of the pairs and the noise.
    training
        How it is trained.

    Attributes
    ----------
    layers_ : weights, (inputs, outputs), and biases, (outputs,), of each layer; float32
    loss_curve_ : (epochs, 3) float32; a row is the epoch from 1, the mean loss while it trained, and the held-out loss
    """

    kind: ClassVar[str] = "mlp"
    layers_: Sequence[Layer]
    loss_curve_: Vectors

    def __init__(self, layers: int, *, seed: int = 0, training: Training | None = None) -> None:
        self.layers = layers
        self.seed = seed
        self.training = training or Training()

    @property
    def spec(self) -> str:
        """`mlp:LAYERS`."""
        return f"{self.kind}:{self.layers}"

    def fit(self, source: Vectors, target: Vectors, texts: TextRows | None = None) -> Self:
        """Standardise both sides, train, and fold means and scales into the first and the last layer."""
        check_pairs(source, target)
        x, x_mean, x_scale = _standardised(source)
        y, y_mean, y_scale = _standardised(target)
        widths = [x.shape[1], *[max(x.shape[1], y.shape[1])] * (self.layers - 1), y.shape[1]]
        trained = train(x, y, widths, self.training, seed=self.seed)
        layers = _before(_after(trained.layers, y_mean, y_scale), x_mean, x_scale)
        self.layers_ = [Layer(np.ascontiguousarray(w, np.float32), b.astype(np.float32)) for w, b in layers]
        self.loss_curve_ = trained.curve
        return self

    def transform(self, vectors: Vectors, texts: TextRows | None = None) -> Vectors:
        """Layer after layer, in parts of at most 4,096 rows."""
        # Parts of nearly equal size: the products of a few rows alone may differ in the last bit.
        parts = np.array_split(vectors, max(1, -(-len(vectors) // _ROWS)))
        return np.concatenate([self._forward(part) for part in parts])

    def _forward(self, rows: Vectors) -> Vectors:
        for index, (weights, biases) in enumerate(self.layers_):
            if index:
                np.maximum(rows, 0, out=rows)
            rows = np.matmul(rows, weights)
            rows += biases
        return rows

    def arrays(self) -> Arrays:
        """Weights, (inputs, outputs), and biases, (outputs,), of each layer, and the loss curve."""
        weights = {f"weights.{index}": layer.weights for index, layer in enumerate(self.layers_)}
        biases = {f"biases.{index}": layer.biases for index, layer in enumerate(self.layers_)}
        return {**weights, **biases, "loss_curve": self.loss_curve_}

    def restore(self, arrays: Arrays) -> Self:
        """Take back the layers and the loss curve."""
        self.layers_ = [Layer(arrays[f"weights.{i}"], arrays[f"biases.{i}"]) for i in range(self.layers)]
        self.loss_curve_ = arrays["loss_curve"]
        return self

    def facts(self) -> dict[str, float]:
        """Layers, epochs that were trained, and the best held-out loss where pairs were held out."""
        if not hasattr(self, "loss_curve_"):
            return {}
        facts = {"layers": float(self.layers), "epochs": float(len(self.loss_curve_))}
        held_out = self.loss_curve_[:, 2:]
        return {**facts, "held_out_loss": float(held_out.min())} if held_out.size else facts


def _standardised(vectors: Vectors) -> tuple[Vectors, Matrix, float]:
    """Rows of (n, d) centred and divided by the root mean square of all their entries; the mean, (d,); the divisor."""
    rows, mean = centred(vectors)
    scale = float(np.sqrt(np.square(rows).mean())) or 1.0
    return (rows / scale).astype(np.float32), mean, scale


def _before(layers: Sequence[Layer], mean: Matrix, scale: float) -> list[Layer]:
    """The same map for rows that are not yet standardised."""
    weights = layers[0].weights / np.float64(scale)
    return [Layer(weights, layers[0].biases - mean @ weights), *layers[1:]]


def _after(layers: Sequence[Layer], mean: Matrix, scale: float) -> list[Layer]:
    """The same map with its output brought back from the standardised space."""
    weights, biases = layers[-1]
    return [*layers[:-1], Layer(weights * np.float64(scale), biases * scale + mean)]
