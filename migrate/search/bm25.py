"""BM25 over texts: ranking by words alone, without an embedding."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from migrate.hashes import Hashes, HashIndex, grown, hashes_of
from migrate.search.runs import DEPTH, BestDocuments, Rankings
from migrate.vectors import Query

if TYPE_CHECKING:
    from rank_bm25 import BM25Okapi

_MOST_TEXTS = 16_384
_MOST_WORDS = 1 << 20
"""A block of texts ends where it has so many of them, or of words."""

_COUNTS_AT_ONCE = 1 << 16
"""Numbers of texts that become Python's integers at a time."""


def split_words(text: str) -> list[str]:
    """Return lower-cased runs of letters, digits and underscores.

    >>> split_words("BM25, said Robertson.")
    ['bm25', 'said', 'robertson']
    """
    return re.findall(r"\w+", text.lower())


def bm25_run(
    texts: Iterable[str], queries: Sequence[Query], *, names_of: Callable[[range], Sequence[str]], depth: int = DEPTH
) -> Rankings:
    """Rank by Okapi BM25 (rank-bm25's defaults, k1 = 1.5, b = 0.75); a document sharing no word is not ranked.

    Texts are read once and not kept. `names_of` says which documents a range of them are of; a document ranks by the
    best of its texts.
    """
    words_of = [split_words(query.text) for query in queries]
    corpus = _Corpus(texts, dict.fromkeys(chain.from_iterable(words_of)))
    best = [BestDocuments((), np.empty(0)) for _ in queries]
    # rank-bm25 divides by the mean length
    if corpus.words:
        index = corpus.index()
        terms_of = [[corpus.number_of[word] for word in query_words] for query_words in words_of]
        for rows, postings in corpus.blocks:
            block = _Block.of(postings, index, list(corpus.number_of), names_of(rows))
            best = [block.joined(documents, terms, depth) for documents, terms in zip(best, terms_of, strict=True)]
    return Rankings({query.id: tuple(documents.keys) for query, documents in zip(queries, best, strict=True)})


@dataclass(frozen=True, slots=True)
class _Postings:
    """The words of queries in a block of texts: each of the `terms`, (p,), comes so many `times`, (p,), in a text.

    `lengths`, (n,), are those of the texts in words, and `widths`, (n,), how many of the postings each text has.
    """

    lengths: NDArray[Any]
    widths: NDArray[Any]
    terms: NDArray[Any]
    times: NDArray[Any]


class _Corpus:
    """Texts that are read once, as BM25 needs them: their lengths, and how often they have the words of queries.

    Of other words there is a hash and the number of texts that have it.
    """

    def __init__(self, texts: Iterable[str], query_words: Iterable[str]) -> None:
        self.number_of = {word: number for number, word in enumerate(query_words)}
        self.blocks: list[tuple[range, _Postings]] = []
        self.count = self.words = 0
        self._terms = HashIndex()
        self._vocabulary = HashIndex()
        self._terms.number(hashes_of(self.number_of))
        self._texts_with = np.zeros(0, np.uint32)
        for hashes, lengths in _hashed(texts):
            self._add(hashes, lengths)

    def _add(self, hashes: Hashes, lengths: NDArray[np.int64]) -> None:
        rows = np.repeat(np.arange(len(lengths)), lengths)
        numbers = self._vocabulary.number(hashes)
        size = len(self._vocabulary)
        # A pair of a text and a word is one number, as numbers are sorted faster than pairs
        words_of_texts = np.unique(rows * size + numbers) % size
        different, n_texts = np.unique(words_of_texts, return_counts=True)
        self._texts_with = grown(self._texts_with, size)
        self._texts_with[different] += n_texts.astype(np.uint32)
        terms = self._terms.find(hashes)
        count = max(len(self.number_of), 1)
        is_term = terms >= 0
        pairs, times = np.unique(rows[is_term] * count + terms[is_term], return_counts=True)
        widths = np.bincount(pairs // count, minlength=len(lengths))
        postings = _Postings(*map(_narrow, (lengths, widths, pairs % count, times)))
        self.blocks.append((range(self.count, self.count + len(lengths)), postings))
        self.count += len(lengths)
        self.words += len(hashes)

    def items(self) -> Iterator[tuple[str | int, int]]:
        """Yield in how many texts each word is, in the order in which they first came; others by their number."""
        word_of = dict(zip(self._vocabulary.find(hashes_of(self.number_of)).tolist(), self.number_of, strict=True))
        texts_with = self._texts_with[: len(self._vocabulary)]
        for start in range(0, len(texts_with), _COUNTS_AT_ONCE):
            counts = texts_with[start : start + _COUNTS_AT_ONCE].tolist()
            yield from ((word_of.get(number, number), count) for number, count in enumerate(counts, start))

    def index(self) -> BM25Okapi:
        """Return rank-bm25's index of the texts without what it has of each; there is a word in some."""
        from rank_bm25 import BM25Okapi

        class CorpusIndex(BM25Okapi):  # type: ignore[misc]
            def _initialize(self, corpus: _Corpus) -> _Corpus:
                self.corpus_size = corpus.count
                self.avgdl = corpus.words / corpus.count
                self.idf = _TermWeights(len(corpus._vocabulary))
                # rank-bm25 makes the weights of words from its items
                return corpus

        index = CorpusIndex(self)
        # Both are large, and only the weights are needed from here on
        self._vocabulary = HashIndex()
        self._texts_with = np.zeros(0, np.uint32)
        return index


class _TermWeights(dict[str | int, float]):
    """The weights of the words of queries; those of all others, of `count` words, are forgotten."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __setitem__(self, word: str | int, weight: float) -> None:
        if isinstance(word, str):
            super().__setitem__(word, weight)


@dataclass(frozen=True, eq=False)
class _Block:
    """A block of texts, of documents with these `names`; term i adds `weights` to `rows[ends[i]:ends[i + 1]]`.

    `repeated` is how many of the texts are of a document that another one of the block is of.
    """

    names: Sequence[str]
    repeated: int
    ends: list[int]
    rows: NDArray[np.int64]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, postings: _Postings, index: BM25Okapi, query_words: Sequence[str], names: Sequence[str]) -> _Block:
        """Return a block by the arithmetic of rank-bm25, step by step, so that the scores are the same."""
        lengths = index.k1 * (1 - index.b + index.b * postings.lengths.astype(np.int64) / index.avgdl)
        order = np.argsort(postings.terms, kind="stable")
        rows = np.repeat(np.arange(len(lengths)), postings.widths)[order]
        terms = postings.terms[order].astype(np.int64)
        times = postings.times[order].astype(np.int64)
        idf = np.array([index.idf.get(word, 0.0) for word in query_words])
        weights = idf[terms] * (times * (index.k1 + 1) / (times + lengths[rows]))
        ends = np.searchsorted(terms, np.arange(len(query_words) + 1)).tolist()
        return cls(names, len(names) - len(set(names)), ends, rows, weights)

    def joined(self, best: BestDocuments, terms: Sequence[int], depth: int) -> BestDocuments:
        """Return the best documents so far and of this block, by the terms of a query, in its order."""
        scores = np.zeros(len(self.names))
        is_hit = np.zeros(len(self.names), dtype=bool)
        for term in terms:
            span = slice(self.ends[term], self.ends[term + 1])
            rows = self.rows[span]
            scores[rows] += self.weights[span]
            is_hit[rows] = True  # by a word that weighs nothing, too
        hits = np.flatnonzero(is_hit)
        if len(best.keys) == depth:
            hits = hits[scores[hits] >= best.scores[-1]]
        count = depth + self.repeated
        # The others cannot be among the best, and would be named and sorted for nothing
        if len(hits) > count:
            hits = hits[scores[hits] >= np.partition(scores[hits], -count)[-count]]
        return best.joined([self.names[row] for row in hits.tolist()], scores[hits], depth)


def _hashed(texts: Iterable[str]) -> Iterator[tuple[Hashes, NDArray[np.int64]]]:
    """Yield the hashes of all words of a block of texts, and how many each text has."""
    hashes = array("q")
    lengths = array("q")
    for text in texts:
        text_words = split_words(text)
        hashes.extend(map(hash, text_words))
        lengths.append(len(text_words))
        if len(lengths) == _MOST_TEXTS or len(hashes) >= _MOST_WORDS:
            yield np.array(hashes, np.int64), np.array(lengths, np.int64)
            hashes = array("q")
            lengths = array("q")
    if lengths:
        yield np.array(hashes, np.int64), np.array(lengths, np.int64)


def _narrow(numbers: NDArray[np.int64]) -> NDArray[Any]:
    """Return the same numbers, none below 0, in the smallest type that holds them."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))
