"""Turns the texts of documents into the views that text-aware stitches read.

Nothing is embedded and no network is needed, unless the user adds further embedding models.

Every view is additive over words: the features of a document are a weighted sum of the features of its words, so a
batch costs its distinct words, not its whole text. Early words weigh more (`DECAY`): embedding models give more weight
to the beginning of a text, where titles and topics are, than to its end.

    ngrams   character n-grams, hashed, times their inverse document frequency
    pieces   word pieces of the target's tokenizer, times their inverse document frequency
    tokens   the target's own vectors of these pieces, each of unit length, times the same
    words    the target's own vectors of the store's words, each embedded as a text of its own, times the same
    SPEC     the vectors of a further embedding model, such as a free local one where the target costs money
    topics   leading singular directions of `pieces`, or else of words, over the store (Deerwester et al. 1990)

`Words` are texts as weighted words, `ngram_counts` and `word_counts` hash them, and `Pieces` are the target model's
word pieces with its input vectors.
"""

from __future__ import annotations

import json
import unicodedata
import zlib
from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from migrate.embedders import Embedder, load_embedder
from migrate.embedders.abilities import TokenTable
from migrate.embedders.kinds import runs_code
from migrate.reading import expect, parse_json
from migrate.stitch.base import Arrays, Stitch
from migrate.stitch.kernel import leading_directions
from migrate.stitch.own_words import VIEW, WORDS_FILE, OwnWords
from migrate.stitch.text_features import DenseView, Matrix, Sparse, TermView, TextRows, View, WordView, unit_terms
from migrate.vectors import Document, Progress, Vectors, no_progress, unit_rows

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DECAY = 0.3
"""The i-th word of a document, from 0, weighs (1 + i)^-DECAY."""


_BUCKET_BITS = 16
BUCKETS = 1 << _BUCKET_BITS
"""Columns that n-grams and words are hashed into."""

_LONGEST_NGRAM = 5

_AT_ONCE = 2_048
"""Texts that frequencies are counted in at once."""

_MOST_TOPICS = 150

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: its product with a hash has bits of all of it at the top (Knuth 1973, 6.4)."""

_FNV_PRIME = np.uint64(0x100000001B3)
"""The multiplier of the hash FNV-1 of 64 bits."""

CORPUS_SIZE = 20_000
"""Documents that are enough to learn frequencies and topics from."""

TOKENIZER_FILE = "reader.tokenizer"
VIEWS_FILE = "reader.views"
READER_FILES = (TOKENIZER_FILE, VIEWS_FILE, WORDS_FILE)

_NO_LIMIT = -1
"""What the file has for a model that reads all of a text."""

REMEMBERED = 1 << 17
"""Words whose token ids are remembered, about 200 bytes each; the first ones, which are the frequent ones."""


@dataclass(frozen=True, eq=False)
class Words:
    """The words of m texts: `words` are the distinct ones, `flat` numbers them in order, text after text.

    `starts`, (m + 1,), is where each text begins in `flat`, and where the last one ends.
    """

    words: Sequence[str]
    flat: NDArray[np.int64]
    starts: NDArray[np.int64]

    def weights(self, lengths: NDArray[np.int64] | None = None, limit: int | None = None) -> Sparse:
        """Return the weight of each distinct word in each text, (m, w), float32.

        With a `limit`, a text ends with the word that brings it to so many tokens or more; `lengths`, (w,), is how
        many tokens a word has. A word is never cut: where scripts put no spaces, it may be all of the text.
        """
        from scipy.sparse import csr_array

        positions = np.arange(len(self.flat)) - np.repeat(self.starts[:-1], np.diff(self.starts))
        weights = ((1.0 + positions) ** -DECAY).astype(np.float32)
        if lengths is not None and limit is not None:
            weights[self._tokens_before(lengths) >= limit] = 0
        shape = (len(self.starts) - 1, len(self.words))
        matrix = csr_array((weights, self.flat, self.starts), shape=shape, copy=True)  # what follows works in place
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        return matrix

    def counts(self) -> Sparse:
        """Count each distinct word in each text, (m, w), float32."""
        from scipy.sparse import csr_array

        ones = np.ones(len(self.flat), dtype=np.float32)
        return csr_array((ones, self.flat, self.starts), shape=(len(self.starts) - 1, len(self.words)))

    def _tokens_before(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens of each text before each of its words."""
        running = np.cumsum(np.r_[0, lengths[self.flat]])
        return np.asarray(running[:-1] - np.repeat(running[self.starts[:-1]], np.diff(self.starts)))


def split_words(texts: Sequence[str]) -> Words:
    """Divide texts at white space.

    >>> split_words(["to be or not to be"]).words
    ('to', 'be', 'or', 'not')
    """
    number_of: defaultdict[str, int] = defaultdict()
    # Each new word gets the next number, without a look-up and an insertion of its own
    number_of.default_factory = number_of.__len__
    rows = [[*map(number_of.__getitem__, text.split())] for text in texts]
    starts = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(starts[-1]))
    return Words(tuple(number_of), flat, starts)


def plain_words(words: Sequence[str]) -> Words:
    """Put words into lower case and cut them at punctuation and symbols, so that "Cells," and "cells" are the same.

    >>> plain_words(["So-called", "so"]).words
    ('so', 'called')
    """
    return split_words(_plain(words).split("\n")[: len(words)])


def ngram_counts(words: Sequence[str]) -> Sparse:
    """Count each n-gram of 2 to 5 characters in each word, (len(words), BUCKETS), float32.

    Words are put into lower case and cut at punctuation and symbols; the pieces get a space at either end, and
    n-grams do not cross it, as scikit-learn's `char_wb` has it. Weinberger et al. 2009, "Feature hashing".

    >>> int(ngram_counts(["Ab"]).sum())  # " a", "ab", "b ", " ab", "ab ", " ab "
    6
    """
    from scipy.sparse import coo_array

    codes = np.frombuffer(_plain(words).encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint64)
    ends = codes == ord("\n")
    word_of = np.cumsum(ends) - ends
    buckets = []
    owners = []
    for size, hashes, valid in _windows(codes):
        mixed = (hashes[valid] + np.uint64(size)) * _SPREAD
        buckets.append((mixed >> np.uint64(64 - _BUCKET_BITS)).astype(np.int32))
        owners.append(word_of[: len(hashes)][valid].astype(np.int32))
    rows = np.concatenate(owners)
    columns = np.concatenate(buckets)
    ones = np.ones(len(rows), dtype=np.float32)
    return coo_array((ones, (rows, columns)), shape=(len(words), BUCKETS)).tocsr()


def word_counts(words: Sequence[str]) -> Sparse:
    """Count each word, hashed, in each of `words` once they are cut as for n-grams, (len(words), BUCKETS).

    >>> word_counts(["so-called", "So"]).sum(axis=1).tolist()
    [2.0, 1.0]
    """
    from scipy.sparse import csr_array

    plain = plain_words(words)
    # Python's own hash is another in each process; texts of stores may have halves of surrogate pairs
    hashes = (zlib.crc32(word.encode("utf-8", "surrogatepass")) % BUCKETS for word in plain.words)
    columns = np.fromiter(hashes, dtype=np.int32, count=len(plain.words))[plain.flat]
    ones = np.ones(len(columns), dtype=np.float32)
    counts = csr_array((ones, columns, plain.starts), shape=(len(words), BUCKETS))
    counts.sum_duplicates()
    return counts


def _plain(words: Sequence[str]) -> str:
    """The words in lower case, without punctuation and symbols, each between spaces and closed by a line feed."""
    text = "".join(f" {word} \n" for word in words).lower()
    # Combining marks belong to their letters, in Devanagari for one; `\w` would leave them out.
    blank = {ord(c): " " for c in set(text) if c != "\n" and unicodedata.category(c)[0] in "PSZC"}
    return text.translate(blank)


def _windows(codes: NDArray[np.uint64]) -> list[tuple[int, NDArray[np.uint64], NDArray[np.bool_]]]:
    """For each n: the hash of the n characters from each place on, and whether they are an n-gram of one word."""
    ends = codes == ord("\n")
    spaces = codes == ord(" ")
    hashes = codes
    is_of_one_word = ~ends
    has_no_space_inside = np.ones(len(codes), dtype=bool)
    windows = []
    for size in range(2, _LONGEST_NGRAM + 1):
        count = max(len(codes) - size + 1, 0)  # no words, no characters
        hashes = hashes[:count] * _FNV_PRIME + codes[size - 1 :]
        is_of_one_word = is_of_one_word[:count] & ~ends[size - 1 :]
        has_no_space_inside = has_no_space_inside[:count]
        if size > 2:
            has_no_space_inside &= ~spaces[size - 2 : size - 2 + count]
        valid = is_of_one_word & has_no_space_inside
        if size == 2:  # the spaces of a word that was nothing but punctuation
            valid &= ~(spaces[:count] & spaces[size - 1 :])
        windows.append((size, hashes, valid))
    return windows


@dataclass(frozen=True, eq=False, slots=True)
class WordCutter:
    """A tokenizer that cuts texts word by word.

    Attributes
    ----------
    content : as the tokenizers library writes it, JSON
    lead : the beginning of a word that makes it be cut as it is inside a text: byte-level tokenizers want the space
    remembered : the token ids of up to `REMEMBERED` words, int32, so that a word is cut once, not in every batch
    """

    content: str
    model: Tokenizer = field(repr=False)
    lead: str
    remembered: dict[str, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, content: str) -> Self:
        """Read a tokenizer; ValueError where it is none."""
        from tokenizers import Tokenizer

        try:
            model = Tokenizer.from_str(content)
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"the tokenizer cannot be read: {error}") from error
        # Asked of the tokenizer itself: the type of its parts does not say how it treats a space
        first, word, spaced, both = _encode(model, ["a", "b", " b", "a b"])
        keeps_spaces = both == first + spaced and both != first + word
        lead = " " if keeps_spaces else ""
        return cls(content, model, lead)

    def token_ids(self, words: Sequence[str]) -> list[bytes]:
        """The token ids of each word, int32."""
        remembered = self.remembered
        unread = [word for word in words if word not in remembered]
        encoded = _encode(self.model, [self.lead + word for word in unread])
        # As bytes: lists of numbers would take several times the memory
        new = {word: array("i", ids).tobytes() for word, ids in zip(unread, encoded, strict=True)}
        rows = [remembered[word] if word in remembered else new[word] for word in words]
        remembered.update(islice(new.items(), max(REMEMBERED - len(remembered), 0)))
        return rows


def _encode(model: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """The token ids of texts, without special ones."""
    return [encoding.ids for encoding in model.encode_batch_fast(list(texts), add_special_tokens=False)]


@dataclass(frozen=True, eq=False, slots=True)
class Pieces:
    """The pieces that a store's texts use, out of a model's vocabulary.

    Attributes
    ----------
    cutter : the model's tokenizer
    kept : (t,) int32, ascending: the token ids that the texts use
    vectors : (t, d) float32, unit rows: the model's input vectors of these, or what it makes of each of them alone
    limit : tokens of a text that the model reads, None where it reads all
    """

    cutter: WordCutter
    kept: NDArray[np.int32]
    vectors: Vectors
    limit: int | None

    @classmethod
    def of(cls, table: TokenTable) -> Pieces:
        """The whole vocabulary of a model."""
        ids = np.arange(len(table.vectors), dtype=np.int32)
        return cls(WordCutter.of(table.tokenizer), ids, unit_rows(table.vectors), table.limit)

    def only(self, used: NDArray[np.bool_]) -> Pieces:
        """Return the pieces that are used, (t,)."""
        return Pieces(self.cutter, self.kept[used], self.vectors[used], self.limit)

    def counts(self, words: Sequence[str]) -> tuple[Sparse, NDArray[np.int64]]:
        """Count each kept piece in each word, (w, t), and how many tokens a word has, (w,)."""
        from scipy.sparse import coo_array

        rows = self.cutter.token_ids(words)
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)) // np.dtype(np.int32).itemsize
        ids = np.frombuffer(b"".join(rows), dtype=np.int32)
        positions = np.searchsorted(self.kept, ids).clip(max=max(len(self.kept) - 1, 0))
        is_kept = np.zeros(len(ids), dtype=bool)
        if len(self.kept):
            is_kept = self.kept[positions] == ids
        owners = np.repeat(np.arange(len(rows), dtype=np.int32), lengths)[is_kept]
        ones = np.ones(len(owners), dtype=np.float32)
        shape = (len(words), len(self.kept))
        return coo_array((ones, (owners, positions[is_kept])), shape=shape).tocsr(), lengths


@dataclass(frozen=True, eq=False)
class TextReader:
    """The knowledge from the store's texts, and from the target model where it is local.

    Attributes
    ----------
    ngram_idf : (BUCKETS,) float32
    term_idf : (t,) float32, of the pieces, or of hashed words where there are none
    topics : (t, k) float32, from these terms to topics; empty for a store of few documents
    pieces : the tokenizer and the vectors of the target, None where it is not local
    models : further embedding models by their specs
    vocabulary : words of the store that the target has embedded, None for none
    """

    ngram_idf: Vectors
    term_idf: Vectors
    topics: Vectors
    pieces: Pieces | None = None
    models: Mapping[str, Embedder] = field(default_factory=dict)
    vocabulary: OwnWords | None = None

    @classmethod
    def fit(
        cls,
        texts: Sequence[str],
        table: TokenTable | None = None,
        *,
        models: Mapping[str, Embedder] | None = None,
        seed: int = 0,
    ) -> Self:
        """Learn from texts, which should be drawn from all over the store; `CORPUS_SIZE` of them are enough."""
        pieces = None
        n_terms = BUCKETS
        if table is not None:
            pieces = Pieces.of(table)
            n_terms = len(pieces.kept)
        ngrams = np.zeros(BUCKETS)
        terms = np.zeros(n_terms)
        blocks = []
        for start in range(0, len(texts), _AT_ONCE):
            words = split_words(texts[start : start + _AT_ONCE])
            plain = plain_words(words.words)
            weights, counts = _terms(words, pieces)
            every = words.weights()
            ngrams += _document_frequency(every @ plain.counts(), ngram_counts(plain.words))
            terms += _document_frequency(every, counts)
            blocks.append((weights, counts))
        if pieces is not None:
            # A vocabulary has tens of thousands of pieces, of which a store's texts use a part
            used = terms > 0
            pieces = pieces.only(used)
            terms = terms[used]
            blocks = [(weights, counts[:, used]) for weights, counts in blocks]
        ngram_idf = inverse_frequency(ngrams, len(texts))
        term_idf = inverse_frequency(terms, len(texts))
        topics = _find_topics([weights @ _times(counts, term_idf) for weights, counts in blocks], len(texts), seed)
        return cls(ngram_idf, term_idf, topics, pieces, models or {})

    def with_outputs(self, table: TokenTable, *, progress: Progress = no_progress) -> Self:
        """The reader with what the model makes of each piece alone in the place of its input vectors, where it can.

        Less their mean: the special tokens around a piece are in all of them. So does model2vec begin (Tulkens & van
        Dongen 2024, "Model2Vec: Fast State-of-the-Art Static Embeddings").
        """
        if self.pieces is None or table.outputs is None or not len(self.pieces.kept):
            return self
        vectors = table.outputs(self.pieces.kept, progress)
        return replace(self, pieces=replace(self.pieces, vectors=unit_rows(vectors - vectors.mean(axis=0))))

    def for_stitch(self, stitch: Stitch) -> Self:
        """The reader with those of its models and words alone that a fitted stitch reads; others are not asked then."""
        models = {spec: it for spec, it in self.models.items() if view_of(spec) in stitch.views}
        return replace(self, models=models, vocabulary=self.vocabulary if VIEW in stitch.views else None)

    def with_models(self, models: Mapping[str, Embedder]) -> Self:
        """The reader with these in the place of its own models, as far as they are the same by their specs."""
        return replace(self, models={spec: models.get(spec, model) for spec, model in self.models.items()})

    def read(self, texts: Sequence[str]) -> TextRows:
        """The views of some texts."""
        words = split_words(texts)
        plain = plain_words(words.words)
        weights, counts = _terms(words, self.pieces)
        ngrams = _times(ngram_counts(plain.words), self.ngram_idf)
        terms = weights @ _times(counts, self.term_idf)
        views: dict[str, View] = {"ngrams": WordView(weights @ plain.counts(), ngrams)}
        if self.pieces is not None:
            views["pieces"] = TermView(terms)
            views["tokens"] = TermView(terms, self.pieces.vectors)
        if self.vocabulary is not None:
            views[VIEW] = self.vocabulary.view(weights @ plain.counts(), plain.words)
        if self.topics.size:
            views["topics"] = TermView(terms, self.topics)
        views |= {view_of(spec): DenseView(_embed(model, texts)) for spec, model in self.models.items()}
        return TextRows(views)

    def arrays(self) -> Arrays:
        """Return the arrays that were learned: all but the tokenizer."""
        arrays: dict[str, NDArray[Any]] = {}
        arrays |= {"ngram_idf": self.ngram_idf, "term_idf": self.term_idf, "topics": self.topics}
        if self.pieces is not None:
            limit = _NO_LIMIT if self.pieces.limit is None else self.pieces.limit
            arrays |= {"pieces.kept": self.pieces.kept, "pieces.vectors": self.pieces.vectors}
            arrays["pieces.limit"] = np.array([limit], dtype=np.int32)
        if self.vocabulary is not None:
            arrays |= self.vocabulary.arrays()
        return arrays

    def state(self) -> Mapping[str, bytes]:
        """Tokenizer and further models as files to save with the arrays, if there are any."""
        files = {}
        if self.pieces is not None:
            files[TOKENIZER_FILE] = self.pieces.cutter.content.encode()
        if self.models:
            files[VIEWS_FILE] = json.dumps(list(self.models)).encode()
        if self.vocabulary is not None:
            files |= self.vocabulary.state()
        return files

    @classmethod
    def restore(cls, arrays: Arrays, state: Mapping[str, bytes]) -> Self:
        """Restore the reader from what `arrays` and `state` returned."""
        pieces = None
        if "pieces.kept" in arrays:
            saved_limit = int(arrays["pieces.limit"][0])
            limit = None if saved_limit < 0 else saved_limit
            cutter = WordCutter.of(state[TOKENIZER_FILE].decode())
            pieces = Pieces(cutter, arrays["pieces.kept"], arrays["pieces.vectors"], limit)
        specs = expect({"views": parse_json(state.get(VIEWS_FILE, b"[]"))}, {"views": list[str]})["views"]
        # A stitch may come from somebody else, and loading it must run nothing of theirs
        if any(map(runs_code, specs)):
            raise ValueError("a view would run code of its own")
        models = {spec: load_embedder(spec) for spec in specs}
        vocabulary = OwnWords.restore(arrays, state)
        reader = cls(arrays["ngram_idf"], arrays["term_idf"], arrays["topics"], pieces, models, vocabulary)
        reader._check()
        return reader

    def _check(self) -> None:
        """Make sure that the arrays fit together."""
        terms = BUCKETS
        if self.pieces is not None:
            terms = len(self.pieces.kept)
        fits = self.ngram_idf.shape == (BUCKETS,) and self.term_idf.shape == (terms,)
        fits = fits and self.topics.ndim == 2 and len(self.topics) in (0, terms)
        if self.pieces is not None:
            fits = fits and len(self.pieces.vectors) == terms
        if not fits or not all(np.isfinite(array).all() for array in self.arrays().values()):
            raise ValueError("frequencies, pieces and topics do not fit together or are not finite")


def view_of(spec: str) -> str:
    """The name of the view that the model of this spec gives."""
    return f"model {spec}"


def _embed(model: Embedder, texts: Sequence[str]) -> Vectors:
    """Unit vectors of the texts, (m, d); of a blank one, which no model embeds, zeros."""
    rows = [row for row, text in enumerate(texts) if text.strip()]
    if not rows:
        # Nothing to embed, so the model need not be loaded for its dimension
        return np.zeros((len(texts), model.quick_identity().dim), dtype=np.float32)
    vectors = np.zeros((len(texts), model.identity.dim), dtype=np.float32)
    vectors[rows] = model.embed_documents([Document(str(row), texts[row]) for row in rows])
    return unit_rows(vectors)


def _terms(words: Words, pieces: Pieces | None) -> tuple[Sparse, Sparse]:
    """Return the weights of words as far as the target reads, (m, w), and the terms in them, (w, t)."""
    if pieces is None:
        return words.weights(), word_counts(words.words)
    counts, lengths = pieces.counts(words.words)
    return words.weights(lengths, pieces.limit), counts


def _find_topics(blocks: Sequence[Sparse], n: int, seed: int) -> Vectors:
    """From terms to topics, (t, k), for the terms of `n` texts in parts; empty where they are few."""
    from scipy.sparse import vstack

    k = 0
    if blocks:
        k = min(_MOST_TOPICS, n // 4, blocks[0].shape[1])  # from fewer than four texts a topic would be a text
    if k < 2:
        return np.empty((0, 0), dtype=np.float32)
    terms = vstack([unit_terms(block) for block in blocks], format="csr")
    topics = np.zeros((terms.shape[1], k), dtype=np.float32)
    used = np.unique(terms.indices)
    if used.size:
        directions, _ = leading_directions(terms[:, used], k, rounds=4, seed=seed)
        # Fewer directions than topics come out where the texts have fewer terms in common; the others stay 0
        topics[used, : directions.shape[1]] = directions
    return topics


def _document_frequency(weights: Sparse, counts: Sparse) -> NDArray[np.int64]:
    """Count the texts in which terms occur, (t,), by the words of texts, (m, w), and the terms of words, (w, t)."""
    terms = weights @ counts
    return np.bincount(terms.indices, minlength=terms.shape[1])


def inverse_frequency(frequency: Matrix, n: int) -> Vectors:
    """Smoothed inverse document frequency as scikit-learn's TfidfTransformer has it: ln((1 + n) / (1 + df)) + 1."""
    return (np.log((1 + n) / (1 + frequency)) + 1).astype(np.float32)


def _times(counts: Sparse, factors: Vectors) -> Sparse:
    scaled = counts.copy()
    scaled.data *= factors[scaled.indices]
    return scaled
