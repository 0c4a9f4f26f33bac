import numpy as np
import pytest
from scipy.sparse import csr_array, issparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from tokenizers import Tokenizer

from migrate.embedders.abilities import TokenTable
from migrate.stitch.text_reader import TextReader, ngram_counts, split_words, word_counts

WITH_TABLE, WITHOUT_TABLE = {"ngrams", "pieces", "tokens", "topics"}, {"ngrams", "topics"}
ASKED = ["a dictionary of unknown wörds", "", "the the THE the", " \n", "raise TypeError if x is 3.5; 数据库", "😀 ..."]


@pytest.fixture(scope="module")
def table(minilm):
    """A tokenizer with vectors of no meaning."""
    vectors = np.random.default_rng(0).normal(size=(minilm.get_vocab_size(), 16)).astype(np.float32) + 1
    return TokenTable(minilm.to_str(), vectors, 40)


@pytest.fixture(scope="module")
def reader(texts, table):
    return TextReader.fit(texts, table)


@pytest.fixture(scope="module")
def plain(texts):
    return TextReader.fit(texts)


def dense(matrix):
    return matrix.toarray() if issparse(matrix) else matrix


def unit(rows):
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1)


def decayed(text):
    return [(word, (1 + place) ** -0.3) for place, word in enumerate(text.split())]


def smooth_idf(counts):
    return TfidfTransformer(smooth_idf=True).fit(counts).idf_


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2, 5, 8, 150])
def test_frequencies_are_those_of_scikit_learn(texts, n):
    """Without a table, topics are of words."""
    reader = TextReader.fit(texts[:n])
    words = [text.split() for text in texts[:n]]
    ngrams = csr_array(np.vstack([ngram_counts(some).sum(axis=0) for some in words]))
    np.testing.assert_allclose(reader.ngram_idf, smooth_idf(ngrams), rtol=1e-6)
    if n >= 8:
        counts = csr_array(np.vstack([word_counts(some).sum(axis=0) for some in words]))
        np.testing.assert_allclose(reader.term_idf, smooth_idf(counts), rtol=1e-6)


@pytest.mark.slow
def test_piece_frequencies_are_those_of_scikit_learn(reader, texts, table):
    tokenizer = Tokenizer.from_str(table.tokenizer)
    found = CountVectorizer(analyzer=lambda text: tokenizer.encode(text, add_special_tokens=False).ids).fit(texts)
    expected = smooth_idf(found.transform(texts))
    assert reader.pieces.kept.tolist() == sorted(found.vocabulary_)  # what the texts use, and nothing else
    for column, token in enumerate(reader.pieces.kept):
        assert reader.term_idf[column] == pytest.approx(expected[found.vocabulary_[token]], rel=1e-6)


def test_topics_without_a_table_are_of_the_weighted_sum_of_the_words(plain, texts):
    expected = np.zeros((1, len(plain.term_idf)))
    for word, weight in decayed(texts[0]):
        expected += weight * word_counts([word]).toarray() * plain.term_idf
    found = plain.read(texts[:1]).views["topics"].matrix()
    np.testing.assert_allclose(found, unit(unit(expected) @ plain.topics), atol=1e-5)


def test_ngrams_are_the_weighted_sum_of_the_words(plain, texts):
    for text in [*texts[:5], *ASKED]:
        expected = np.zeros(len(plain.ngram_idf))
        for word, weight in decayed(text):
            expected += weight * ngram_counts([word]).toarray()[0] * plain.ngram_idf
        found = dense(plain.read([text]).views["ngrams"].matrix())
        np.testing.assert_allclose(found, unit(expected[None]), atol=1e-6)


def test_tokens_are_the_weighted_sum_of_the_models_vectors(reader, texts, table):
    """As far as the model reads, each vector of unit length, times its inverse document frequency."""
    tokenizer = Tokenizer.from_str(table.tokenizer)
    idf = dict(zip(reader.pieces.kept.tolist(), reader.term_idf.tolist(), strict=True))
    for text in [*texts[:5], *ASKED]:
        expected, read = np.zeros(16), 0
        for word, weight in decayed(text):
            ids = tokenizer.encode(word, add_special_tokens=False).ids
            if read >= table.limit:
                break
            read += len(ids)
            for token in set(ids) & set(idf):
                expected += weight * ids.count(token) * idf[token] * unit(table.vectors[[token]].astype(float))[0]
        found = reader.read([text]).views["tokens"].matrix()
        np.testing.assert_allclose(found, unit(expected[None]), atol=1e-5)


def test_the_limit_of_the_model_is_that_of_all_views(texts, table):
    text = " ".join(f"cat{number}" for number in range(200))
    reader = TextReader.fit([*texts[:20], text], table)
    whole, head = (reader.read([some]).views for some in (text, " ".join(text.split()[:100])))
    for name in WITH_TABLE:
        np.testing.assert_array_equal(dense(whole[name].matrix()), dense(head[name].matrix()))
    assert not np.allclose(*(dense(reader.read([some]).views["ngrams"].matrix()) for some in (text, text[:40])))


def test_a_text_of_one_endless_word_is_read(reader):
    """Chinese and Thai put no spaces, so that one word may be longer than the model reads."""
    views = reader.read(["数据库" * 200]).views
    assert len(Tokenizer.from_str(reader.pieces.cutter.content).encode("数据库" * 200).ids) > reader.pieces.limit
    assert np.linalg.norm(dense(views["ngrams"].matrix())) == pytest.approx(1, abs=1e-6)


def test_topics_are_the_leading_directions(texts, reader):
    terms = dense(reader.read(texts).views["pieces"].matrix()).astype(float)
    basis = np.linalg.svd(terms, full_matrices=False)[2][:10]
    np.testing.assert_allclose(reader.topics.T @ reader.topics, np.eye(reader.topics.shape[1]), atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(basis @ reader.topics, axis=1), 1, atol=0.01)
    found = reader.read(ASKED).views
    expected = unit(dense(found["pieces"].matrix()).astype(float) @ reader.topics)
    np.testing.assert_allclose(found["topics"].matrix(), expected, atol=1e-5)


@pytest.mark.parametrize("block", [2_048, 4])
@pytest.mark.parametrize("which", ["reader", "plain"])
def test_a_view_is_its_matrix(which, block, request, monkeypatch):
    monkeypatch.setattr("migrate.stitch.text_features._BLOCK", block)
    whole, rows, rng = request.getfixturevalue(which).read(ASKED), np.array([4, 0, 0, 1]), np.random.default_rng(0)
    some = whole.take(rows)
    assert (len(whole), len(some)) == (len(ASKED), 4)
    for name, view in whole.views.items():
        matrix = dense(view.matrix()).astype(float)
        table = rng.normal(size=(matrix.shape[1], 5)).astype(np.float32)
        np.testing.assert_allclose(view.dot(table), matrix @ table, atol=1e-4)
        np.testing.assert_allclose(view.squares(), np.square(matrix).sum(axis=1), atol=1e-5)
        np.testing.assert_allclose(whole.gram(name), matrix @ matrix.T, atol=1e-5)
        assert whole.gram(name) is whole.gram(name), "products are kept"
        np.testing.assert_allclose(dense(some.views[name].matrix()), matrix[rows], atol=1e-6)
        np.testing.assert_array_equal(some.views[name].squares(), view.squares()[rows])
        np.testing.assert_allclose(some.gram(name), matrix[rows] @ matrix[rows].T, atol=1e-5)


@pytest.mark.parametrize("limit", [None, 0, 40])
def test_the_limit_is_put_away_too(texts, table, limit):
    learned = TextReader.fit(texts[:5], TokenTable(table.tokenizer, table.vectors, limit))
    assert TextReader.restore(learned.arrays(), learned.state()).pieces.limit == limit


@pytest.mark.parametrize("with_table", [False, True])
@pytest.mark.parametrize("n", [1, 2, 5, 8, 9])
def test_a_few_documents_are_enough(texts, table, n, with_table):
    some = [text[:60] for text in texts[:n]]
    views = TextReader.fit(some, table if with_table else None).read([*some, "", "something else"]).views
    assert ("topics" in views) == (n >= 8)
    for view in views.values():
        norms = np.linalg.norm(dense(view.matrix()), axis=1)
        np.testing.assert_allclose(norms[:n], 1, atol=1e-5)
        assert norms[n] == 0


@pytest.mark.parametrize("text", ["", " ", "...", "the same"])
@pytest.mark.parametrize("with_table", [False, True])
def test_documents_that_say_nothing_new_are_no_failure(table, text, with_table):
    views = TextReader.fit([text] * 12, table if with_table else None).read([text, "word", ""]).views
    for view in views.values():
        rows = dense(view.matrix())
        assert np.isfinite(rows).all()
        assert not rows[2].any()


SHORT = ["to be or not to be", "", " \t\n", "or  else\u00a0be", "be"]


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
    words = split_words(SHORT)
    lengths = np.array([1, 2, 3, 1, 0])
    for _ in range(2):  # nothing is changed by asking
        found = words.weights(lengths, limit)
        assert (found.dtype, found.shape) == (np.float32, (5, 5))
        np.testing.assert_allclose(found.toarray(), judge_weights(SHORT, words.words, lengths, limit), rtol=1e-6)
