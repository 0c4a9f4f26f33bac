"""The stitches kernel and kernel+text: the old vector through a Gaussian kernel alone."""

from __future__ import annotations

from typing import ClassVar

from migrate.stitch.kernel_ridge import VECTOR, Additive


class Kernel(Additive):
    """The old vector through a Gaussian kernel."""

    kind: ClassVar[str] = "kernel"
    cost: ClassVar[int] = 7
    gaussians: ClassVar[frozenset[str]] = frozenset({VECTOR})


class KernelText(Additive):
    """The old vector through a Gaussian kernel, and the texts."""

    kind: ClassVar[str] = "kernel+text"
    cost: ClassVar[int] = 10
    gaussians: ClassVar[frozenset[str]] = frozenset({VECTOR})
    reads_texts: ClassVar[bool] = True
