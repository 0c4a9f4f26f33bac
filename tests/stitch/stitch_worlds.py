"""Documents in which words have meanings, for stitches that read texts."""

from dataclasses import dataclass

import numpy as np
import pytest

from migrate.stitch.base import Pairing
from migrate.stitch.text_reader import TextReader
from migrate.vectors import unit_rows

_SYLLABLES = ["ka", "lo", "mi", "ren", "tu", "ves", "pol", "dra", "shi", "nor", "gam", "wex"]
_WORDS = [one + two for one in _SYLLABLES for two in _SYLLABLES]


@dataclass(frozen=True)
class World:
    """Documents whose words have meanings, and what two models make of them: `wordy` is what the words mean."""

    texts: list
    wordy: np.ndarray
    hidden: np.ndarray
    reader: TextReader

    def pairing(self, source, target):
        return Pairing(source, target, self.reader.read(self.texts))


@pytest.fixture(scope="session")
def make_world():
    """Make some documents of 12 words; `wordy` and `hidden`, (n, dim) of unit length, know nothing of each other."""

    def make(n, dim=12, seed=0):
        rng = np.random.default_rng(seed)
        meanings = np.random.default_rng(99).normal(size=(len(_WORDS), dim))
        # a document is about a few words, as texts are
        themes = rng.integers(len(_WORDS), size=(n, 4))
        chosen = np.take_along_axis(themes, rng.integers(4, size=(n, 12)), axis=1)
        texts = [" ".join(_WORDS[word] for word in row) for row in chosen]
        wordy = unit_rows(meanings[chosen].mean(axis=1).astype(np.float32))
        hidden = unit_rows(rng.normal(size=(n, dim)).astype(np.float32))
        return World(texts, wordy, hidden, TextReader.fit(texts))

    return make
