"""The four-character codes that FAISS files begin with, and the numbers of its metrics."""

from __future__ import annotations

from typing import Final

from migrate.stores.base import Metric

METRICS: Final[dict[int, Metric]] = {0: "ip", 1: "l2"}
METRIC_NUMBERS: Final[dict[Metric, int]] = {name: number for number, name in METRICS.items()}

BINARY: Final = frozenset(["IBxF", "IBwF", "IBFf", "IBHf", "IBHc", "IBMp", "IBM2", "IBHh", "IBHm"])
"""Indexes of bits."""

_CODES: Final = frozenset(
    [
        "IxF2",
        "IxFI",
        "IxFl",
        "IxFP",
        "IxMp",
        "IxM2",
        "IxSQ",
        "IxPq",
        "IxPo",
        "IxPQ",
        "IxHe",
        "IxPT",
        "IxRF",
        "IxRq",
        "IxRQ",
        "IxLS",
        "IxPR",
        "IxPL",
        "Ix2L",
        "IxLa",
        "Ixrq",
        "Ixrr",
        "IxEe",
        "IHNf",
        "IHNp",
        "IHNs",
        "IHN2",
        "IHc2",
        "IHNc",
        "IHfP",
        "IHNr",
        "INSf",
        "INSp",
        "INSs",
        "INNf",
        "IPfs",
        "IwFl",
        "IwPf",
        "IwPQ",
        "IwQR",
        "IwSq",
        "IwFd",
        "IwSh",
        "IwIQ",
        "IwLS",
        "IwRQ",
        "IwPL",
        "IwPR",
        "Iwrq",
        "Iwrf",
        "Iwrr",
        "Iwrn",
        "IwP2",
        "IwEe",
        "IVLf",
        "IVRf",
        "IvFl",
        "IvPQ",
        "IvSQ",
        "ILfs",
        "IRfs",
        "IRMf",
        "IRMh",
        "Irfn",
        "ImRQ",
        "Imiq",
    ]
)


def is_known(code: str) -> bool:
    """Return whether a FAISS file can begin with these four characters."""
    return code in _CODES or code in BINARY
