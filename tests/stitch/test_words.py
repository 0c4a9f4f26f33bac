import numpy as np
import pytest

from migrate.stitch.text_reader import split_words

TEXTS = ["to be or not to be", "", " \t\n", "or  else\u00a0be", "be"]


def judge_weights(texts, words, lengths=None, limit=None):
    """Word by word, (len(texts), len(words))."""
    found = np.zeros((len(texts), len(words)))
    for row, text in enumerate(texts):
        tokens = 0
        for place, word in enumerate(text.split()):
            if limit is not None and tokens >= limit:
                break
            found[row, words.index(word)] += (1 + place) ** -0.3
            tokens += 0 if lengths is None else lengths[words.index(word)]
    return found


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 5, 6, 7, 100, None])
def test_a_text_ends_where_the_model_reads_no_further(limit):
    words = split_words(TEXTS)
    lengths = np.array([1, 2, 3, 1, 0])
    for _ in range(2):  # nothing is changed by asking
        found = words.weights(lengths, limit)
        assert (found.dtype, found.shape) == (np.float32, (5, 5))
        np.testing.assert_allclose(found.toarray(), judge_weights(TEXTS, words.words, lengths, limit), rtol=1e-6)


@pytest.mark.parametrize("texts", [[], [""], ["", " "]])
def test_texts_without_words_have_no_weights(texts):
    words = split_words(texts)
    assert words.words == ()
    assert words.weights().shape == (len(texts), 0)
    assert words.weights(np.empty(0, dtype=np.int64), 5).shape == (len(texts), 0)
