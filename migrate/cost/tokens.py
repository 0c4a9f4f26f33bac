"""What every way of counting tokens offers, and how it says where its figures come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
"""Tokens of each of n texts, (n,)."""


def whole(text: str) -> str:
    """The text without halves of surrogate pairs, which no tokenizer takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class TokenCounter(ABC):
    """Counts the tokens of texts as the model that will embed them does, or as nearly as can be known here.

    `source` says in words what counts; `error` is how far a total may be off, as a share (0-1) of it, 0 for the model's
    own tokenizer. `special` is how many tokens of each text the model adds itself; they are in every count.
    """

    source: str
    error: float = 0.0
    special: int = 0

    @abstractmethod
    def count(self, texts: Sequence[str]) -> Counts:
        """Tokens of each text, none of them cut off."""

    @property
    def exact(self) -> bool:
        """Whether the counts are the model's own."""
        return self.error == 0

    @property
    def sentence(self) -> str:
        """Where the figures come from, and how far they may be off."""
        return self.source if self.exact else f"{self.source}; a total may be {self.error:.0%} off"
