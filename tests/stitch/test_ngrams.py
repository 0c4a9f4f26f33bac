import unicodedata
import zlib

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

from migrate.stitch.text_reader import BUCKETS, ngram_counts, word_counts

ENGLISH = "The cat's owner, Dr. O'Neil (aged 51), paid $3.50 - or 4 % more - at http://shop.example/a_b?c=d today"
SCRIPTS = [
    "हिन्दी",  # vowel signs and a virama, which are marks and no letters
    "कार्यक्रम",
    "数据库",
    "東京タワー",
    "한국어",
    "שָׁלוֹם",
    "العربية",
    "ไทย",
    "ΟΔΥΣΣΕΥΣ",  # the last letter in lower case is another one
    "İstanbul",  # longer in lower case
    "Straße",
    "e\u0301te\u0301",
    "naïve",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢",  # beyond the basic plane
    "a😀b",
    "😀😃",
    "a\u200db",
    "half\ud800pair",
    "x\x00y",
    "１２３",
]


def random_words(seed, count=120):
    """Words of up to 12 characters out of letters, digits, punctuation, marks and symbols of several scripts."""
    rng = np.random.default_rng(seed)
    alphabet = list("abcXYZ019.,-_'ßİΣσéñ中文א😀\u093f\u094d\u00ad\u0301")
    return ["".join(rng.choice(alphabet, size=rng.integers(1, 13))) for _ in range(count)]


def judge_bucket(ngram):
    """The bucket of an n-gram, by numbers without a bound: saved stitches hold buckets, so they may never change."""
    value = 0
    for character in ngram:
        value = (value * 0x100000001B3 + ord(character)) % 2**64
    return ((value + len(ngram)) * 0x9E3779B97F4A7C15 % 2**64) >> 48


def judge_counts(words):
    """Bucket by word, from the n-grams that scikit-learn finds where only letters, marks and numbers are left."""
    plain = ["".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in word.lower()) for word in words]
    analyze = CountVectorizer(analyzer="char_wb", ngram_range=(2, 5), lowercase=False).build_analyzer()
    found = np.zeros((len(words), BUCKETS), dtype=np.float32)
    for row, word in enumerate(plain):
        for ngram in analyze(word):
            found[row, judge_bucket(ngram)] += 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [ENGLISH.split(), SCRIPTS, ["", "...", "\u200b", *("abcdef"[:n] for n in range(1, 7))], random_words(0), []],
    ids=["english", "scripts", "lengths", "random", "none"],
)
def test_counts_are_those_of_scikit_learn(words):
    found = ngram_counts(words)
    assert found.dtype == np.float32
    assert found.shape == (len(words), BUCKETS)
    np.testing.assert_array_equal(found.toarray(), judge_counts(words))


@pytest.mark.parametrize("words", [ENGLISH.split(), SCRIPTS, random_words(0), ["", "..."], []])
def test_words_are_counted_as_they_are_cut_for_ngrams(words):
    """By the CRC of their UTF-8, which may never change either."""
    expected = np.zeros((len(words), BUCKETS), dtype=np.float32)
    for row, word in enumerate(words):
        for part in "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in word.lower()).split():
            expected[row, zlib.crc32(part.encode()) % BUCKETS] += 1
    found = word_counts(words)
    assert (found.dtype, found.shape) == (np.float32, (len(words), BUCKETS))
    np.testing.assert_array_equal(found.toarray(), expected)
