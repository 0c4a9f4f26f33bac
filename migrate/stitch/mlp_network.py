"""The network of an mlp stitch: how it starts, how it is trained, what it loses. Needs torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from torch.optim import Optimizer


class Layer(NamedTuple):
    """An affine map: rows @ weights, (inputs, outputs), + biases, (outputs,)."""

    weights: NDArray[np.floating]
    biases: NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Training:
    """How long and how fast to train, and what keeps the network from learning the pairs by heart.

    Attributes
    ----------
    steps, min_epochs : as many epochs as give this many steps, and at least so many; the learning rate falls to zero
        over them along half a cosine
    patience : share of the epochs after which training stops if the held-out loss has not fallen
    batch_size : pairs in a step
    learning_rate, reference_width : of Adam, for one layer of `reference_width` inputs. The rate falls with the inputs
        of a layer, and starts at no more than 0.03, so that one rate serves all widths (Yang et al. 2022, Tensor
        Programs V). It is divided by the number of layers, whose changes add up in the output
    weight_decay : decoupled (Loshchilov & Hutter 2019), on weights only
    noise : standard deviation of Gaussian noise on the standardised inputs, drawn anew each step. For the squared error
        of one layer this is ridge regression with penalty n · noise² (Bishop 1995, Training with noise is equivalent to
        Tikhonov regularization)
    bend : how far from the mean of its input, in standard deviations, a rectifier bends at the start
    held_out, min_pairs : share of the pairs that decide when to stop, at least 3; none where pairs are fewer than
        `min_pairs`
    """

    steps: int = 1_500
    min_epochs: int = 40
    patience: float = 0.15
    batch_size: int = 64
    learning_rate: float = 3e-3
    reference_width: int = 384
    weight_decay: float = 0.01
    noise: float = 0.15
    bend: float = 1.5
    held_out: float = 0.1
    min_pairs: int = 20

    def epochs(self, pairs: int) -> int:
        """Epochs of the whole schedule for so many training pairs."""
        return max(self.min_epochs, math.ceil(self.steps / math.ceil(pairs / self.batch_size)))

    def rate(self, inputs: int) -> float:
        """Learning rate of weights with so many inputs, before it is divided by the number of layers."""
        return min(3e-2, self.learning_rate * self.reference_width / inputs)

    def held_out_count(self, pairs: int) -> int:
        """How many pairs are held out."""
        return max(3, round(self.held_out * pairs)) if pairs >= self.min_pairs else 0


class Network:
    """Weights, biases and what is needed to change them.

    The first weights have orthonormal rows or columns (Saxe, McClelland & Ganguli 2014), and the first biases put the
    bend of each rectifier `bend` standard deviations below its mean input and take the shift back in the next layer.
    So any depth starts near a linear map that loses nothing. Rectifiers that start at their bend lose half of what
    comes in, which few pairs cannot make good; those that start far from it never bend.
    """

    def __init__(self, widths: Sequence[int], settings: Training, generator: Generator) -> None:
        self.settings = settings
        self.generator = generator
        self.weights = [self._orthogonal(*shape) for shape in pairwise(widths)]
        # The inputs have variance 1, and so many of them are spread over so many neurons.
        lift = settings.bend * math.sqrt(widths[0] / max(widths))
        lifts = [0.0, *[lift] * (len(self.weights) - 1), 0.0]
        shifts = zip(self.weights, pairwise(lifts), strict=True)
        self.biases = [after - before * w.sum(1) for w, (before, after) in shifts]
        self.tensors = [tensor.requires_grad_() for tensor in (*self.weights, *self.biases)]

    def _orthogonal(self, inputs: int, outputs: int) -> Tensor:
        import torch

        empty = torch.empty(outputs, inputs, dtype=torch.float32)
        return torch.nn.init.orthogonal_(empty, generator=self.generator)

    def optimizer(self) -> Optimizer:
        """AdamW with a rate for each layer."""
        from torch.optim import AdamW

        s, depth = self.settings, len(self.weights)
        groups = [{"params": [w], "lr": s.rate(w.shape[1]) / depth} for w in self.weights]
        biases = {"params": self.biases, "lr": s.learning_rate / depth, "weight_decay": 0.0}
        return AdamW([*groups, biases], weight_decay=s.weight_decay, fused=True)

    def noisy(self, x: Tensor) -> Tensor:
        """The inputs with fresh noise."""
        import torch

        return x + self.settings.noise * torch.randn(x.shape, generator=self.generator, dtype=x.dtype)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean squared error plus one minus the mean cosine; `y` is centred and of unit variance."""
        from torch.nn import functional

        for index, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = functional.linear(functional.relu(x) if index else x, weights, biases)
        cosine = functional.cosine_similarity(x, y, dim=1).mean()
        return functional.mse_loss(x, y) + 1 - cosine

    def layers(self) -> list[Layer]:
        """The weights and biases as they are now, as numpy holds them."""
        arrays = [tensor.detach().numpy().copy() for tensor in (*self.weights, *self.biases)]
        count = len(self.weights)
        return [Layer(w.T, b) for w, b in zip(arrays[:count], arrays[count:], strict=True)]

    def state(self) -> list[Tensor]:
        """A copy of all that is learned."""
        return [tensor.detach().clone() for tensor in self.tensors]

    def load(self, state: Sequence[Tensor]) -> None:
        """Take back what `state` gave."""
        for tensor, kept in zip(self.tensors, state, strict=True):
            tensor.data.copy_(kept)
