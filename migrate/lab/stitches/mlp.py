"""The stitches mlp:1 to mlp:7: a small neural network from the old vector to the new one.

`train` descends until the loss on held-out pairs stops falling. Training needs torch, translating does not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from migrate.stitch.affine import AffineMap
from migrate.stitch.base import Arrays, StretchableStitch, centred, check_pairs
from migrate.stitch.text_features import Matrix, TextRows
from migrate.vectors import Vectors

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from torch.nn import Sequential
    from torch.optim import Optimizer


class AffineLayer(NamedTuple):
    """An affine map: rows @ weights, (inputs, outputs), + biases, (outputs,)."""

    weights: NDArray[np.floating]
    biases: NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Training:
    """Settings of training: how long and how fast, and how to keep the network from overfitting.

    Attributes
    ----------
    steps, min_epochs : as many epochs as give `steps` steps, but at least `min_epochs`; the learning rate falls to zero
        over them along half a cosine
    patience : share of the epochs after which training stops if the held-out loss has not fallen
    batch_size : pairs in a step
    learning_rate : of Adam, for one layer of 384 inputs
    noise : standard deviation of Gaussian noise on the standardised inputs, drawn each step. For the squared error
        of one layer this is ridge regression with penalty n · noise² (Bishop 1995, Training with noise is equivalent to
        Tikhonov regularization)
    """

    steps: int = 1_500
    min_epochs: int = 40
    patience: float = 0.15
    batch_size: int = 64
    learning_rate: float = 3e-3
    noise: float = 0.15

    def epochs(self, pairs: int) -> int:
        """Epochs of the whole schedule for this number of training pairs."""
        return max(self.min_epochs, math.ceil(self.steps / math.ceil(pairs / self.batch_size)))


def held_out_count(pairs: int) -> int:
    """Return how many pairs decide when to stop; none where pairs are few."""
    # A tenth of fewer is a pair, which would stop the training by chance
    if pairs < 20:
        return 0
    return max(3, round(0.1 * pairs))


def new_network(widths: Sequence[int], generator: Generator) -> Sequential:
    """Return affine layers with rectifiers between them, near a linear map that loses nothing at any depth.

    The first weights have orthonormal rows or columns (Saxe, McClelland & Ganguli 2014), and the first biases put the
    bend of each rectifier 1.5 standard deviations below its mean input and take the shift back in the next layer.
    Rectifiers that start at their bend lose half of their input, which few pairs cannot repair; those that start far
    from it stay linear.
    """
    from torch import nn

    # the inputs have variance 1, spread over at most max(widths) neurons
    lift = 1.5 * math.sqrt(widths[0] / max(widths))
    lifts = [0.0, *[lift] * (len(widths) - 2), 0.0]
    layers: list[nn.Module] = []
    for (inputs, outputs), (lift_in, lift_out) in zip(pairwise(widths), pairwise(lifts), strict=True):
        layer = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")  # by no random numbers of others
        nn.init.orthogonal_(layer.weight, generator=generator)
        layer.bias.data = lift_out - lift_in * layer.weight.data.sum(1)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def new_optimizer(network: Sequential, settings: Training) -> Optimizer:
    """Return AdamW with a rate for each layer; weights decay (Loshchilov & Hutter 2019), biases do not.

    A rate falls with the inputs of a layer, and starts at no more than 0.03, so that one serves all widths (Yang et al.
    2022, Tensor Programs V). It is divided by the number of layers, whose changes add up in the output.
    """
    from torch.nn import Linear
    from torch.optim import AdamW

    layers = [layer for layer in network if isinstance(layer, Linear)]
    rate = settings.learning_rate
    groups = [{"params": [a.weight], "lr": min(3e-2, rate * 384 / a.in_features) / len(layers)} for a in layers]
    biases = {"params": [layer.bias for layer in layers], "lr": rate / len(layers), "weight_decay": 0.0}
    return AdamW([*groups, biases], weight_decay=0.01, fused=True)


def _loss(network: Sequential, x: Tensor, y: Tensor) -> Tensor:
    """Mean squared error plus one minus the mean cosine; `y` is centred and of unit variance."""
    from torch.nn import functional

    predicted = network(x)
    cosine = functional.cosine_similarity(predicted, y, dim=1).mean()
    return functional.mse_loss(predicted, y) + 1 - cosine


@dataclass(frozen=True)
class Trained:
    """Layers in the standardised spaces and the loss curve, as in `Mlp`; `held_out` are rows never trained on."""

    layers: Sequence[AffineLayer]
    curve: Vectors
    held_out: NDArray[np.int64]


def train(x: Vectors, y: Vectors, widths: Sequence[int], settings: Training) -> Trained:
    """Train a network of these widths on standardised pairs, (n, p) and (n, q); the same pairs, the same bytes.

    The weights of the best epoch by held-out loss are kept, those of the last where nothing is held out. Torch's own
    random numbers and settings are left as they were.
    """
    import torch

    with _quiet_torch(max(widths)):
        # One of its own, which leaves the random numbers of the program that calls alone
        generator = torch.Generator().manual_seed(0)
        order = torch.randperm(len(x), generator=generator)
        count = held_out_count(len(x))
        network = new_network(widths, generator)
        sides = (torch.tensor(x), torch.tensor(y))
        fit, held_out = ([side[rows] for side in sides] for rows in (order[count:], order[:count]))
        curve = _descend(network, fit, held_out, settings, generator)
        arrays = [parameter.detach().numpy().copy() for parameter in network.parameters()]
        layers = [AffineLayer(weights.T, biases) for weights, biases in zip(arrays[::2], arrays[1::2], strict=True)]
        return Trained(layers, curve, np.sort(order[:count].numpy()))


@contextmanager
def _quiet_torch(width: int) -> Iterator[None]:
    """Enable gradients, and use one thread for narrow layers, whose products are too small to gain from more."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(threads if width >= 1_024 else 1)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_num_threads(threads)


def _descend(
    network: Sequential, fit: Sequence[Tensor], held_out: Sequence[Tensor], settings: Training, generator: Generator
) -> Vectors:
    """Train until the held-out loss stops falling, leave the best state in the network, and return the loss curve."""
    import torch
    from torch.optim.lr_scheduler import CosineAnnealingLR

    epochs = settings.epochs(len(fit[0]))
    n_held_out = len(held_out[0])
    optimizer = new_optimizer(network, settings)
    schedule = CosineAnnealingLR(optimizer, epochs)
    curve: list[tuple[float, ...]] = []
    best_loss = math.inf
    best_epoch = 0
    best_state = deepcopy(network.state_dict())
    for epoch in range(1, epochs + 1):
        total = 0.0
        for rows in torch.split(torch.randperm(len(fit[0]), generator=generator), settings.batch_size):
            x, y = (side[rows] for side in fit)
            optimizer.zero_grad()
            loss = _loss(network, x + settings.noise * torch.randn(x.shape, generator=generator, dtype=x.dtype), y)
            torch.autograd.backward(loss)
            optimizer.step()
            total += float(loss.detach()) * len(rows)
        losses = [total / len(fit[0])]
        if n_held_out:
            with torch.no_grad():
                losses.append(float(_loss(network, *held_out)))
        schedule.step()
        # What has diverged comes back no more
        if not all(map(math.isfinite, losses)):
            break
        curve.append((epoch, *losses))
        if losses[-1] < best_loss - 1e-4 or not n_held_out:
            best_loss = losses[-1]
            best_epoch = epoch
            best_state = deepcopy(network.state_dict())
        if epoch - best_epoch >= max(1, round(settings.patience * epochs)):
            break
    network.load_state_dict(best_state)
    # Named, as an empty curve has columns too
    columns = 3 if n_held_out else 2
    return np.array(curve, dtype=np.float32).reshape(len(curve), columns)


class Mlp(StretchableStitch):
    """A multilayer perceptron: 1 to 7 affine `layers` with a rectifier between each two, as wide as the wider space.

    The family of LEAD (Culp & Hernandez 2024, github.com/GatlenCulp/embedding_translation,
    owler_fork/owlergpt/commands/pokemon.py), which trains for a fixed number of epochs on the squared error alone;
    `Training` lists what differs here. Both sides are centred and divided by one number each, the root mean square of
    all columns together, which the fitted layers have folded into them. Of fewer than 20 pairs none is held out:
    training runs through its whole schedule.

    Attributes
    ----------
    layers_ : weights, (inputs, outputs), and biases, (outputs,), of each layer; float32
    loss_curve_ : (epochs, 2 or 3) float32: the epoch from 1, the mean loss while it trained, the held-out loss if any
    """

    kind: ClassVar[str] = "mlp"
    options: ClassVar[Sequence[str]] = ("mlp:1 to mlp:7",)
    cost: ClassVar[int] = 6
    layers_: Sequence[AffineLayer]
    loss_curve_: Vectors

    @classmethod
    def from_option(cls, option: str | None) -> Self | None:
        """`mlp:LAYERS`; there is none without a number."""
        if option is None or option not in map(str, range(1, 8)):
            return None
        return cls(int(option))

    def __init__(self, layers: int, *, training: Training | None = None) -> None:
        self.layers = layers
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
        trained = train(x, y, widths, self.training)
        layers = list(trained.layers)
        weights, biases = layers[-1]
        # NumPy's own float of 64 bits, by which the product is computed in double precision and rounded once
        layers[-1] = AffineLayer(weights * np.float64(y_scale), biases * y_scale + y_mean)
        weights, biases = layers[0]
        weights = weights / np.float64(x_scale)
        layers[0] = AffineLayer(weights, biases - x_mean @ weights)
        self.layers_ = [AffineLayer(np.ascontiguousarray(w, np.float32), b.astype(np.float32)) for w, b in layers]
        self.loss_curve_ = trained.curve
        return self

    def transform(self, vectors: Vectors, texts: TextRows | None = None) -> Vectors:
        """Layer after layer, in parts of at most 4,096 rows."""
        # Parts of nearly equal size: the products of a few rows alone may differ in the last bit.
        batches = np.array_split(vectors, max(1, -(-len(vectors) // 4_096)))
        return np.concatenate([_forward(batch, self.layers_) for batch in batches])

    def stretch(self, spread: AffineMap) -> Self:
        """Multiply the last layer."""
        last = self.layers_[-1]
        weights = (last.weights @ spread.matrix).astype(np.float32)
        self.layers_ = [*self.layers_[:-1], AffineLayer(weights, spread.of(last.biases).astype(np.float32))]
        return self

    def arrays(self) -> Arrays:
        """Weights, (inputs, outputs), and biases, (outputs,), of each layer, and the loss curve."""
        weights = {f"weights.{index}": layer.weights for index, layer in enumerate(self.layers_)}
        biases = {f"biases.{index}": layer.biases for index, layer in enumerate(self.layers_)}
        return {**weights, **biases, "loss_curve": self.loss_curve_}

    def restore(self, arrays: Arrays) -> Self:
        """Take back the layers and the loss curve."""
        self.layers_ = [AffineLayer(arrays[f"weights.{i}"], arrays[f"biases.{i}"]) for i in range(self.layers)]
        self.loss_curve_ = arrays["loss_curve"]
        return self

    def affine_layers(self) -> Sequence[AffineMap]:
        """Return weights and biases of each layer."""
        return [AffineMap(layer.weights.astype(np.float64), layer.biases.astype(np.float64)) for layer in self.layers_]

    def kind_facts(self) -> dict[str, float]:
        """Layers, epochs that were trained, and the best held-out loss where pairs were held out."""
        if not hasattr(self, "loss_curve_"):
            return {}
        figures = {"layers": float(self.layers), "epochs": float(len(self.loss_curve_))}
        held_out = self.loss_curve_[:, 2:]
        if held_out.size:
            figures["held_out_loss"] = float(held_out.min())
        return figures


def _forward(rows: Vectors, layers: Sequence[AffineLayer]) -> Vectors:
    """Rows through layers, with rectified outputs between them."""
    for index, layer in enumerate(layers):
        if index:
            rows = rows.clip(0)
        rows = rows @ layer.weights
        # In place: the product is nobody else's
        rows += layer.biases
    return rows


def _standardised(vectors: Vectors) -> tuple[Vectors, Matrix, float]:
    """Rows of (n, d) centred and divided by the root mean square of all their entries; the mean, (d,); the divisor."""
    rows, mean = centred(vectors)
    scale = float(np.sqrt(np.square(rows).mean())) or 1.0
    return (rows / scale).astype(np.float32), mean, scale
