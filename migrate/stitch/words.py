"""Texts as weighted words: what white space divides, the early ones heavier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.stitch.text_rows import Sparse

DECAY = 0.3
"""The i-th word of a document, from 0, weighs (1 + i)^-DECAY."""


@dataclass(frozen=True, eq=False)
class Words:
    """The words of m texts: `words` are the distinct ones, `flat` says which of them stand where, text after text.

    `starts`, (m + 1,), is where each text begins in `flat`, and where the last one ends.
    """

    words: Sequence[str]
    flat: NDArray[np.int64]
    starts: NDArray[np.int64]

    def weights(self, lengths: NDArray[np.int64] | None = None, limit: int | None = None) -> Sparse:
        """How much of each distinct word each text has, (m, w), float32.

        With a `limit`, a text ends with the word that brings it to so many tokens or more; `lengths`, (w,), is how
        many tokens a word has. A word is never cut: where scripts put no spaces, it may be all of the text.
        """
        from scipy.sparse import csr_array

        places = np.arange(len(self.flat)) - np.repeat(self.starts[:-1], np.diff(self.starts))
        weights = ((1.0 + places) ** -DECAY).astype(np.float32)
        if lengths is not None and limit is not None:
            weights[self._tokens_before(lengths) >= limit] = 0
        shape = (len(self.starts) - 1, len(self.words))
        found = csr_array((weights, self.flat, self.starts), shape=shape, copy=True)  # what follows works in place
        found.sum_duplicates()
        found.eliminate_zeros()
        return found

    def _tokens_before(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens of each text before each of its words."""
        running = np.cumsum(np.r_[0, lengths[self.flat]])
        return np.asarray(running[:-1] - np.repeat(running[self.starts[:-1]], np.diff(self.starts)))


def split_words(texts: Sequence[str]) -> Words:
    """Divide texts at white space.

    >>> split_words(["to be or not to be"]).words
    ('to', 'be', 'or', 'not')
    """
    known: dict[str, int] = {}
    rows = [[known.setdefault(word, len(known)) for word in text.split()] for text in texts]
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    flat = np.fromiter((word for row in rows for word in row), dtype=np.int64, count=int(starts[-1]))
    return Words(tuple(known), flat, starts)
