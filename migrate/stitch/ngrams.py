"""Character n-grams of words, hashed, many words at once: any language, no vocabulary, no network."""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from migrate.stitch.text_rows import Sparse

BUCKETS = 1 << 16
SHORTEST, LONGEST = 2, 5

_FACTOR = np.uint64(0x100000001B3)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(64 - 16)
_END, _SPACE = ord("\n"), ord(" ")


def ngram_counts(words: Sequence[str]) -> Sparse:
    """How often each n-gram of 2 to 5 characters stands in each word, (len(words), BUCKETS), float32.

    Words are put into lower case and cut at punctuation and symbols; the pieces get a space at either end, and
    n-grams do not cross it, as scikit-learn's `char_wb` has it. Weinberger et al. 2009, "Feature hashing".

    >>> int(ngram_counts(["Ab"]).sum())  # " a", "ab", "b ", " ab", "ab ", " ab "
    6
    """
    from scipy.sparse import coo_array

    codes = _code_points(words)
    word_of = np.cumsum(codes == _END) - (codes == _END)
    buckets, owners = [], []
    for size, hashes, valid in _windows(codes):
        mixed = (hashes[valid] + np.uint64(size)) * _SPREAD
        buckets.append((mixed >> _SHIFT).astype(np.int32))
        owners.append(word_of[: len(hashes)][valid].astype(np.int32))
    rows, columns = np.concatenate(owners), np.concatenate(buckets)
    ones = np.ones(len(rows), dtype=np.float32)
    return coo_array((ones, (rows, columns)), shape=(len(words), BUCKETS)).tocsr()


def word_counts(words: Sequence[str]) -> Sparse:
    """How often each word, hashed, stands in each of `words` once they are cut as for n-grams, (len(words), BUCKETS).

    >>> word_counts(["so-called", "So"]).sum(axis=1).tolist()
    [2.0, 1.0]
    """
    from scipy.sparse import coo_array

    cut = [line.split() for line in _plain(words).split("\n")[: len(words)]]
    rows = np.repeat(np.arange(len(words), dtype=np.int32), [len(line) for line in cut])
    hashes = (zlib.crc32(word.encode("utf-8", "surrogatepass")) % BUCKETS for line in cut for word in line)
    columns = np.fromiter(hashes, dtype=np.int32, count=len(rows))
    ones = np.ones(len(rows), dtype=np.float32)
    return coo_array((ones, (rows, columns)), shape=(len(words), BUCKETS)).tocsr()


def _plain(words: Sequence[str]) -> str:
    """The words in lower case, without punctuation and symbols, each between spaces and closed by a line feed."""
    text = "".join(f" {word} \n" for word in words).lower()
    # Combining marks belong to their letters, in Devanagari for one; `\w` would leave them out.
    blank = {ord(c): " " for c in set(text) if c != "\n" and unicodedata.category(c)[0] in "PSZC"}
    return text.translate(blank)


def _code_points(words: Sequence[str]) -> NDArray[np.uint64]:
    """`_plain`, as numbers of characters."""
    return np.frombuffer(_plain(words).encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint64)


def _windows(codes: NDArray[np.uint64]) -> list[tuple[int, NDArray[np.uint64], NDArray[np.bool_]]]:
    """For each n: the hash of the n characters from each place on, and whether they are an n-gram of one word."""
    ends, spaces = codes == _END, codes == _SPACE
    hashes, whole, inner = codes, ~ends, np.ones(len(codes), dtype=bool)
    found = []
    for size in range(2, LONGEST + 1):
        count = max(len(codes) - size + 1, 0)  # no words, no characters
        hashes = hashes[:count] * _FACTOR + codes[size - 1 :]
        whole = whole[:count] & ~ends[size - 1 :]
        # spaces stand at the ends only
        inner = inner[:count] & ~spaces[size - 2 : size - 2 + count] if size > 2 else inner[:count]
        found.append((size, hashes, whole & inner & ~(spaces[:count] & spaces[size - 1 :] & (size == 2))))
    return found
