"""Tokens without a tokenizer: a weight for every word, letter, digit and mark, learned from texts of many kinds.

The weights are a non-negative least-squares fit (Lawson & Hanson 1974) of relative errors, each kind of text counting
as much as any other, to what two tokenizers say of: SciFact, NFCorpus, docstrings and sources of Python's library,
seven LangChain stores, package descriptions, JSON, and manual pages in Japanese, Chinese, Russian and eight languages
of Latin script. `benchmarks/cost.py` prints how far the estimate is off on texts of a reader's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from migrate.cost.tokens import Counts, TokenCounter

_LOWER, _UPPER, _DIGIT, _BLANK, _LINE, _MARK, _TWO, _THREE, _FURTHER = range(9)
_FOREIGN_SHARE = 0.1
"""Share of the characters outside ASCII from which a text passes for one in another language than English."""


def _byte_classes() -> NDArray[np.uint8]:
    """The class of each of the 256 bytes of UTF-8; a character beyond ASCII counts by its first byte."""
    classes = np.full(256, _MARK, dtype=np.uint8)
    classes[:33] = _BLANK
    classes[ord("\n")] = _LINE
    classes[ord("a") : ord("z") + 1] = _LOWER
    classes[ord("A") : ord("Z") + 1] = _UPPER
    classes[ord("0") : ord("9") + 1] = _DIGIT
    classes[0x80:0xC0] = _FURTHER
    classes[0xC0:0xE0] = _TWO
    classes[0xE0:] = _THREE
    return classes


_CLASSES = _byte_classes()


@dataclass(frozen=True, slots=True)
class Weights:
    """Tokens for each feature of `features`, in its order, and what they were learned from.

    `error` is the largest error of a total on a kind of English text or code, `foreign_error` on one in Japanese,
    Chinese or an accented Latin script, each time by weights that were fitted without that kind.
    """

    tokenizer: str
    values: tuple[float, ...]
    error: float
    foreign_error: float


WORD_PIECES = Weights("BERT's word pieces", (0.739, 0.091, 0, 0.538, 1.029, 0, 0.44, 0.974, 0.954), 0.05, 0.18)
"""Learned from the tokenizer of all-MiniLM-L6-v2."""

BYTE_PAIRS = Weights("cl100k_base", (0.892, 0.051, 0.094, 0.809, 0.524, 0.78, 0.82, 0.451, 1.066), 0.11, 0.16)
"""Learned from tiktoken's encoding of OpenAI's embedding models."""


def features(texts: Sequence[str]) -> NDArray[np.float64]:
    """What the weights are of, (n, 9), for n texts.

    Runs of ASCII letters, ASCII letters, capitals, digits, other ASCII marks, runs of blanks inside a line, line ends,
    characters of two bytes in UTF-8, characters of three or four.
    """
    parts = [text.encode(errors="surrogatepass") for text in texts]
    classes = _CLASSES[np.frombuffer(b"\n".join([*parts, b""]), dtype=np.uint8)]
    before = np.concatenate([[_LINE], classes[:-1]])
    before_that = np.concatenate([[_LINE, _LINE], classes[:-2]])[: len(classes)]
    letter = classes <= _UPPER
    inner = (classes == _BLANK) & (before == _BLANK) & (before_that != _BLANK) & (before_that != _LINE)
    marked = [letter & (before > _UPPER), letter, inner]
    marked += [classes == one for one in (_UPPER, _DIGIT, _MARK, _LINE, _TWO, _THREE)]
    starts = np.cumsum([0, *(len(part) + 1 for part in parts)])[:-1]
    words, letters, runs, upper, digits, marks, lines, two, three = (_sums(one, starts) for one in marked)
    return np.column_stack([words, letters, upper, digits, marks, runs, lines - 1, two, three])  # each got a line end


def _sums(marked: NDArray[np.bool_], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """How many are marked in each text."""
    return np.add.reduceat(marked, starts, dtype=np.float64) if len(starts) else np.empty(0)


class EstimateCounter(TokenCounter):
    """Estimates tokens from letters, digits and marks. What it says of its error depends on the texts it has seen."""

    def __init__(self, weights: Weights, *, special: int = 0) -> None:
        self.weights = weights
        self.special = special
        self.source = f"estimated by letters, digits and marks, as {weights.tokenizer} would count"
        self._seen = np.zeros(len(weights.values))

    def count(self, texts: Sequence[str]) -> Counts:
        """Tokens of each text, rounded up, at least one."""
        found = features(texts)
        self._seen += found.sum(axis=0)
        tokens: Counts = np.ceil(found @ np.array(self.weights.values) - 1e-9).astype(np.int64)
        return tokens.clip(min=1) + self.special

    @property
    def error(self) -> float:  # type: ignore[override]
        """The measured error for texts of this kind."""
        _, letters, _, digits, marks, _, _, two, three = self._seen
        foreign = two + three > _FOREIGN_SHARE * max(letters + digits + marks + two + three, 1)
        return self.weights.foreign_error if foreign else self.weights.error
