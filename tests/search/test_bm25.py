import numpy as np
import pytest
from rank_bm25 import BM25Okapi

from migrate.search.bm25 import bm25_run, words
from migrate.vectors import Document, Query

WORDS = [f"w{number}" for number in range(60)]


@pytest.fixture
def documents():
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(3, 30))) for _ in range(80)]
    return [Document(f"d{row:02}", text) for row, text in enumerate(texts)]


@pytest.fixture
def queries():
    rng = np.random.default_rng(1)
    return [Query(f"q{row}", " ".join(rng.choice(WORDS, size=3))) for row in range(20)]


def judge(documents, query):
    index = BM25Okapi([document.text.split() for document in documents])
    return dict(zip([document.id for document in documents], index.get_scores(query.text.split()), strict=True))


@pytest.mark.parametrize("depth", [5, 100])
def test_the_ranking_is_that_of_rank_bm25(depth, documents, queries):
    run = bm25_run(documents, queries, depth=depth)
    assert list(run.rankings) == [query.id for query in queries]
    for query in queries:
        scores = judge(documents, query)
        expected = sorted((doc for doc in scores if scores[doc] != 0), key=lambda doc: (-scores[doc], doc))
        assert run.rankings[query.id] == tuple(expected[:depth])


def test_a_document_ranks_by_its_best_chunk(documents, queries):
    run = bm25_run(documents, queries, key=lambda doc_id: doc_id[:2])
    for query in queries:
        best = {}
        for doc, score in judge(documents, query).items():
            best[doc[:2]] = max(score, best.get(doc[:2], 0))
        assert run.rankings[query.id] == tuple(sorted((d for d in best if best[d]), key=lambda d: (-best[d], d)))


def test_a_query_without_known_words_finds_nothing(documents):
    queries = [Query("unknown", "zebra"), Query("empty", ""), Query("signs", "?!")]
    assert set(bm25_run(documents, queries).rankings.values()) == {()}


@pytest.mark.parametrize("documents", [[], [Document("a", ""), Document("b", "...")]])
def test_a_corpus_without_words_answers_nothing(documents):
    assert bm25_run(documents, [Query("q", "word")]).rankings == {"q": ()}


def test_case_and_punctuation_do_not_matter(documents):
    plain, loud = (bm25_run(documents, [Query("q", text)]) for text in ("w1 w2", "W1, (W2)!"))
    assert plain == loud
    assert plain.rankings["q"]


def test_words_are_letters_digits_and_underscores():
    assert words("Ärger_1: it's 3.5€") == ["ärger_1", "it", "s", "3", "5"]


def test_a_word_of_half_the_documents_weighs_nothing_but_is_found_and_equal_texts_tie_by_doc_id():
    documents = [Document("b", "cat"), Document("a", "cat"), Document("c", "dog"), Document("d", "dog")]
    assert bm25_run(documents, [Query("q", "cat")]).rankings["q"] == ("a", "b")
