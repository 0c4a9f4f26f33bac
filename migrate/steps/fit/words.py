"""The store's own words, embedded by the target as short texts, for the view `words` of the texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import numpy as np

from migrate.embedders.base import Embedder
from migrate.embedders.cache import with_choosers
from migrate.embedders.profile import Profile
from migrate.selection import random_order
from migrate.stitch.own_words import OwnWords
from migrate.stitch.text_reader import CORPUS_SIZE, TextReader, inverse_frequency, plain_words, split_words
from migrate.stores.base import Store
from migrate.vectors import Document, Progress, Vectors, no_progress

ROLE: Final = "words of the store"
"""What the target is asked for, in an estimate."""

FEWEST_PAIRS: Final = 500
"""Pairs from which on words are embedded: held-out documents of fewer do not tell what they add."""

_SHARE: Final = 0.2
"""Tokens of the words at most, as a share of the sample's: of short documents many words would cost more than these."""

_FEWEST_DOCUMENTS: Final = 3
"""Documents that have a word which is embedded: words of two documents cost as much, and added nothing."""

_LONGEST: Final = 40
"""Characters of a word; longer ones are addresses and the like."""

_AT_ONCE: Final = 2_048
"""Texts whose words are counted at once."""


@dataclass(frozen=True, slots=True, eq=False)
class StoreWords:
    """Words of a store as texts to embed, the most frequent first, with their inverse document frequency, (t,)."""

    texts: Sequence[Document]
    idf: Vectors

    def __len__(self) -> int:
        return len(self.texts)

    def first(self, count: int) -> StoreWords:
        """Return the most frequent of the words."""
        return StoreWords(self.texts[:count], self.idf[:count])

    def read_by(self, reader: TextReader, embedder: Embedder, *, progress: Progress = no_progress) -> TextReader:
        """Embed the words, and return the reader with them."""
        # What a store holds chose them, not a query
        vectors = with_choosers(embedder, frozenset()).embed_documents(self.texts, progress=progress)
        vocabulary = [text.text for text in self.texts]
        return replace(reader, vocabulary=OwnWords.of(vocabulary, self.idf, vectors))

    def cost_in_pairs(self, profile: Profile, sample: Sequence[Document]) -> float:
        """Return how many documents like those of the sample have as many tokens."""
        return float(profile.read(self.texts).sum() / profile.read(sample).mean())


def store_words(store: Store, sample: Sequence[Document], profile: Profile, most: int, *, seed: int = 0) -> StoreWords:
    """Return up to `most` words of a store, of no more than a fifth of the sample's tokens; none for a small sample."""
    if len(sample) < FEWEST_PAIRS:
        return frequent_words((), 0)
    rows = random_order(store, seed)[:CORPUS_SIZE]
    vocabulary = frequent_words((document.text for document in store.documents(rows)), most)
    tokens = np.cumsum(profile.read(vocabulary.texts))
    return vocabulary.first(int(np.searchsorted(tokens, _SHARE * profile.read(sample).sum(), side="right")))


def frequent_words(texts: Iterable[str], most: int) -> StoreWords:
    """Return the words that are in the most texts, up to `most`, the most frequent first."""
    frequency: dict[str, int] = {}
    n_texts = 0
    remaining = iter(texts)
    while block := list(islice(remaining, _AT_ONCE)):
        _add_frequencies(frequency, block)
        n_texts += len(block)
    shared = [word for word, count in frequency.items() if count >= _FEWEST_DOCUMENTS and len(word) <= _LONGEST]
    # By the alphabet where as many texts have them, so that the order of texts does not count
    vocabulary = sorted(shared, key=lambda word: (-frequency[word], word))[:most]
    counts = np.array([frequency[word] for word in vocabulary], dtype=np.float64)
    documents = [Document(f"word {number}", word) for number, word in enumerate(vocabulary)]
    return StoreWords(documents, inverse_frequency(counts, n_texts))


def _add_frequencies(frequency: dict[str, int], texts: Sequence[str]) -> None:
    """Add in how many of the texts each word is."""
    split = split_words(texts)
    plain = plain_words(split.words)
    occurrences = split.counts() @ plain.counts()
    occurrences.sum_duplicates()
    counts = np.bincount(occurrences.indices, minlength=len(plain.words))
    for word, count in zip(plain.words, counts.tolist(), strict=True):
        frequency[word] = frequency.get(word, 0) + count
