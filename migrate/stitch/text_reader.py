"""Turns the texts of documents into the views that text-aware stitches read. Embeds nothing, needs no network.

Every view is additive over words: what it sees in a document is a weighted sum of what it sees in the words, so a
batch costs its distinct words, not its text. Early words weigh more, see `migrate.stitch.words`: embedding models
give the beginning of a text, where titles and topics stand, more weight than the end.

    ngrams   character n-grams, hashed, times their inverse document frequency
    pieces   word pieces of the target's tokenizer, times their inverse document frequency
    tokens   the target's own input vectors of these pieces, each of unit length, times the same
    topics   leading singular directions of `pieces`, or else of words, over the store (Deerwester et al. 1990)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from migrate.embedders.base import TokenTable
from migrate.stitch.base import Arrays
from migrate.stitch.ngrams import BUCKETS, ngram_counts, word_counts
from migrate.stitch.pieces import Pieces
from migrate.stitch.text_rows import Sparse, TextRows, View, WordView
from migrate.stitch.words import Words, split_words
from migrate.vectors import Vectors

CORPUS_SIZE = 20_000
"""How many documents are enough to learn frequencies and topics from."""

N_TOPICS = 150

NGRAMS, PIECES, TOKENS, TOPICS = "ngrams", "pieces", "tokens", "topics"

TOKENIZER_FILE = "reader.tokenizer"

_BLOCK = 2_048


@dataclass(frozen=True, eq=False)
class TextReader:
    """What was learned from the store's texts, and from the target model where it is local.

    Attributes
    ----------
    ngram_idf : (BUCKETS,) float32
    term_idf : (t,) float32, of the pieces, or of hashed words where there are none
    topics : (t, k) float32, from these terms to topics; empty for a store of few documents
    pieces : the tokenizer and the vectors of the target, None where it is not local
    """

    ngram_idf: Vectors
    term_idf: Vectors
    topics: Vectors
    pieces: Pieces | None = None

    @classmethod
    def fit(cls, texts: Sequence[str], table: TokenTable | None = None, *, seed: int = 0) -> Self:
        """Learn from texts, which should be drawn from all over the store; `CORPUS_SIZE` of them are enough."""
        pieces = None
        if table is None:
            frequency = _document_frequency(texts, word_counts)
        else:
            every = Pieces.of(table)
            frequency = _document_frequency(texts, lambda words: every.counts(words)[0])
            pieces, frequency = every.only(frequency > 0), frequency[frequency > 0]
        ngram_idf = _inverse(_document_frequency(texts, ngram_counts), len(texts))
        term_idf = _inverse(frequency, len(texts))
        plain = cls(ngram_idf, term_idf, np.empty((0, 0), dtype=np.float32), pieces)
        return replace(plain, topics=plain._find_topics(texts, seed))

    def _find_topics(self, texts: Sequence[str], seed: int) -> Vectors:
        from scipy.sparse import vstack
        from sklearn.utils.extmath import randomized_svd

        k = min(N_TOPICS, len(texts) // 4, len(self.term_idf))
        if k < 2:
            return self.topics
        parts = [WordView(*self._read_terms(split_words(part))).matrix() for part in _blocks(texts)]
        directions = randomized_svd(vstack(parts, format="csr"), k, n_iter=4, random_state=seed)[2]
        return np.ascontiguousarray(directions.T, dtype=np.float32)

    def read(self, texts: Sequence[str]) -> TextRows:
        """The views of some texts."""
        words = split_words(texts)
        weights, terms = self._read_terms(words)
        views: dict[str, View] = {NGRAMS: WordView(weights, _times(ngram_counts(words.words), self.ngram_idf))}
        if self.pieces is not None:
            views[PIECES] = WordView(weights, terms)
            views[TOKENS] = WordView(weights, terms, self.pieces.vectors)
        if self.topics.size:
            views[TOPICS] = WordView(weights, terms, self.topics)
        return TextRows(views)

    def _read_terms(self, words: Words) -> tuple[Sparse, Sparse]:
        """What the words weigh as far as the target reads, (m, w), and the terms in them, (w, t)."""
        if self.pieces is None:
            return words.weights(), _times(word_counts(words.words), self.term_idf)
        counts, lengths = self.pieces.counts(words.words)
        return words.weights(lengths, self.pieces.limit), _times(counts, self.term_idf)

    def arrays(self) -> Arrays:
        """What was learned, but for the tokenizer."""
        found: dict[str, NDArray[Any]] = {}
        found |= {"ngram_idf": self.ngram_idf, "term_idf": self.term_idf, "topics": self.topics}
        if self.pieces is not None:
            limit = -1 if self.pieces.limit is None else self.pieces.limit
            found |= {"pieces.kept": self.pieces.kept, "pieces.vectors": self.pieces.vectors}
            found["pieces.limit"] = np.array([limit], dtype=np.int32)
        return found

    def state(self) -> Mapping[str, bytes]:
        """The tokenizer, as a file to save beside the arrays; nothing where there is none."""
        return {} if self.pieces is None else {TOKENIZER_FILE: self.pieces.tokenizer.encode()}

    @classmethod
    def restore(cls, arrays: Arrays, state: Mapping[str, bytes]) -> Self:
        """Take back what `arrays` and `state` gave.

        Raises
        ------
        KeyError, IndexError, ValueError
            An array or the tokenizer is missing, or they do not fit together.
        """
        pieces = None
        if "pieces.kept" in arrays:
            limit = int(arrays["pieces.limit"][0])
            tokenizer = state[TOKENIZER_FILE].decode()
            pieces = Pieces(tokenizer, arrays["pieces.kept"], arrays["pieces.vectors"], None if limit < 0 else limit)
        found = cls(arrays["ngram_idf"], arrays["term_idf"], arrays["topics"], pieces)
        found._check()
        return found

    def _check(self) -> None:
        """Make sure that the arrays fit together."""
        terms, vectors = (
            (BUCKETS, BUCKETS) if self.pieces is None else (len(self.pieces.kept), len(self.pieces.vectors))
        )
        shapes = (self.ngram_idf.shape, self.term_idf.shape, vectors, self.topics.ndim)
        good = shapes == ((BUCKETS,), (terms,), terms, 2) and len(self.topics) in (0, terms)
        if not good or not all(np.isfinite(array).all() for array in self.arrays().values()):
            raise ValueError("expected frequencies, pieces and topics of the same terms, all finite, found others")


def _blocks(texts: Sequence[str]) -> list[Sequence[str]]:
    return [texts[start : start + _BLOCK] for start in range(0, len(texts), _BLOCK)]


def _document_frequency(texts: Sequence[str], count: Callable[[Sequence[str]], Sparse]) -> Vectors:
    """In how many texts each term stands, (t,); `count` gives the terms of words, (w, t)."""
    parts = []
    for words in map(split_words, _blocks(texts)):
        found = words.weights() @ count(words.words)
        parts.append(np.bincount(found.indices, minlength=found.shape[1]))
    return np.asarray(np.sum(parts, axis=0), dtype=np.float32)


def _inverse(frequency: Vectors, n: int) -> Vectors:
    """Smoothed inverse document frequency as scikit-learn's TfidfTransformer has it: ln((1 + n) / (1 + df)) + 1."""
    return (np.log((1 + n) / (1 + frequency.astype(np.float64))) + 1).astype(np.float32)


def _times(counts: Sparse, factors: Vectors) -> Sparse:
    scaled = counts.copy()
    scaled.data *= factors[scaled.indices]
    return scaled
