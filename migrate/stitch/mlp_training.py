"""How an mlp stitch is trained: gradient descent with torch until held-out pairs get no better."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from migrate.stitch.mlp_network import Layer, Network, Training
from migrate.vectors import Vectors

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

_WIDE = 1_024
_EPSILON = 1e-4


@dataclass(frozen=True)
class Trained:
    """Layers in the standardised spaces and the loss curve, as in `Mlp`; `held_out` are rows never trained on."""

    layers: Sequence[Layer]
    curve: Vectors
    held_out: NDArray[np.int64]


def train(x: Vectors, y: Vectors, widths: Sequence[int], settings: Training, *, seed: int = 0) -> Trained:
    """Train a network of these widths on standardised pairs, (n, p) and (n, q); same seed, same bytes.

    The weights of the best epoch by held-out loss are kept, those of the last where nothing is held out. Torch's own
    random numbers and settings are left as they were.
    """
    import torch

    with _quiet_torch(max(widths)):
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(x), generator=generator)
        count = settings.held_out_count(len(x))
        network = Network(widths, settings, generator)
        pairs = _Pairs(torch.tensor(x), torch.tensor(y))
        curve = _descend(network, pairs.take(order[count:]), pairs.take(order[:count]))
        return Trained(network.layers(), curve, np.sort(order[:count].numpy()))


@contextmanager
def _quiet_torch(width: int) -> Iterator[None]:
    """Gradients, whatever the caller has set; one thread for narrow layers, whose products do not repay a second."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(threads if width >= _WIDE else 1)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class _Pairs:
    """Both sides of some pairs, (n, p) and (n, q)."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Tensor) -> _Pairs:
        """Some of them."""
        return _Pairs(self.x[rows], self.y[rows])


def _descend(network: Network, fit: _Pairs, held_out: _Pairs) -> Vectors:
    """Train until the held-out loss stops falling, leave the best state in the network, and tell the loss curve."""
    from torch.optim.lr_scheduler import CosineAnnealingLR

    epochs = network.settings.epochs(len(fit))
    patience = max(1, round(network.settings.patience * epochs))
    optimizer = network.optimizer()
    schedule = CosineAnnealingLR(optimizer, epochs)
    curve: list[tuple[float, ...]] = []
    best, best_epoch, kept = math.inf, 0, network.state()
    for epoch in range(1, epochs + 1):
        losses = [_epoch(network, optimizer, fit), *_judge(network, held_out)]
        schedule.step()
        if not all(map(math.isfinite, losses)):
            break
        curve.append((epoch, *losses))
        if losses[-1] < best - _EPSILON or not len(held_out):
            best, best_epoch, kept = losses[-1], epoch, network.state()
        if epoch - best_epoch >= patience:
            break
    network.load(kept)
    return np.array(curve, dtype=np.float32).reshape(len(curve), 3 if len(held_out) else 2)


def _epoch(network: Network, optimizer: Optimizer, pairs: _Pairs) -> float:
    """One pass over the training pairs in a fresh order; the mean loss on the way."""
    import torch

    total = 0.0
    order = torch.randperm(len(pairs), generator=network.generator)
    for rows in torch.split(order, network.settings.batch_size):
        optimizer.zero_grad()
        loss = network.loss(network.noisy(pairs.x[rows]), pairs.y[rows])
        torch.autograd.backward(loss)
        optimizer.step()
        total += float(loss.detach()) * len(rows)
    return total / len(pairs)


def _judge(network: Network, held_out: _Pairs) -> Sequence[float]:
    """The loss on held-out pairs, where there are any."""
    import torch

    with torch.no_grad():
        return [float(network.loss(held_out.x, held_out.y))] if len(held_out) else []
