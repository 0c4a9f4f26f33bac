"""Words of the store, with the vectors that the target makes of each, as a view of texts."""

import numpy as np
import pytest

from migrate.stitch.own_words import OwnWords
from migrate.stitch.text_reader import DECAY, TextReader

TEXTS = ["Cells of the so-called spleen", "the spleen, the liver", "nothing known here"]


@pytest.fixture
def words():
    rng = np.random.default_rng(0)
    names = ["cells", "liver", "so", "spleen", "the"]
    return OwnWords.of(names, np.arange(1, 6, dtype=np.float32), rng.normal(size=(5, 7)).astype(np.float32) + 3)


@pytest.fixture
def reader(words):
    plain = TextReader.fit(TEXTS)
    return TextReader(plain.ngram_idf, plain.term_idf, plain.topics, vocabulary=words)


def test_a_text_is_the_sum_of_what_the_target_makes_of_its_words(reader, words):
    number_of = {word: number for number, word in enumerate(words.vocabulary)}
    # By hand: lower case, cut at punctuation, a word in two parts is at one position
    found = [
        [("cells", 0), ("the", 2), ("so", 3), ("spleen", 4)],
        [("the", 0), ("spleen", 1), ("the", 2), ("liver", 3)],
    ]
    expected = np.zeros((3, 7))
    for row, occurrences in enumerate(found):
        for word, position in occurrences:
            number = number_of[word]
            expected[row] += (1 + position) ** -DECAY * words.idf[number] * words.vectors[number]
    expected[:2] /= np.linalg.norm(expected[:2], axis=1)[:, None]
    view = reader.read(TEXTS).views["words"]
    np.testing.assert_allclose(view.matrix(), expected, atol=1e-6)
    np.testing.assert_array_equal(view.squares() > 0, [True, True, False])


def test_what_all_words_have_in_common_is_left_out(words):
    np.testing.assert_allclose(np.linalg.norm(words.vectors, axis=1), 1, atol=1e-6)
    # All were drawn around 3
    assert np.abs(words.vectors.mean(axis=0)).max() < 0.3


def test_it_is_restored_from_what_was_saved(reader):
    restored = TextReader.restore(reader.arrays(), reader.state())
    assert list(restored.vocabulary.vocabulary) == list(reader.vocabulary.vocabulary)
    ours, theirs = (each.read(TEXTS).views["words"].matrix() for each in (reader, restored))
    np.testing.assert_array_equal(ours, theirs)


def test_words_that_do_not_fit_their_vectors_are_refused(reader):
    state = {**reader.state(), "reader.words": b"cells\nliver"}
    with pytest.raises(ValueError, match="words of the store"):
        TextReader.restore(reader.arrays(), state)
