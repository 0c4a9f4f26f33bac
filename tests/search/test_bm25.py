import numpy as np
import pytest
from rank_bm25 import BM25Okapi

from migrate.search import bm25
from migrate.search.bm25 import bm25_run, split_words
from migrate.vectors import Query

WORDS = [f"w{number}" for number in range(60)]


@pytest.fixture
def texts():
    """Two words are in more than half of the texts: rank-bm25 gives these a weight of their own."""
    rng = np.random.default_rng(0)
    rare = [" ".join(rng.choice(WORDS, size=rng.integers(3, 30))) for _ in range(80)]
    return [f"{text} {'the of' if row % 10 else ''} {'the ' * (row % 3)}" for row, text in enumerate(rare)]


@pytest.fixture
def queries():
    rng = np.random.default_rng(1)
    return [Query(f"q{row}", " ".join(rng.choice([*WORDS, "the", "of", "w1 the w1"], size=4))) for row in range(40)]


def run(texts, queries, names=None, **options):
    names = [f"d{row:02}" for row in range(len(texts))] if names is None else names
    return bm25_run(iter(texts), queries, names_of=lambda rows: names[rows.start : rows.stop], **options).rankings


def judge(texts, query):
    """The scores of rank-bm25 itself, and which texts have a word of the query."""
    index, asked = BM25Okapi([text.split() for text in texts]), query.text.split()
    return index.get_scores(asked), np.array([bool({*asked} & {*text.split()}) for text in texts])


@pytest.mark.parametrize("depth", [5, 100])
@pytest.mark.parametrize("block", [1, 7, 80])
def test_the_ranking_is_that_of_rank_bm25(depth, block, texts, queries, monkeypatch):
    monkeypatch.setattr(bm25, "_MOST_TEXTS", block)
    rankings = run(texts, queries, depth=depth)
    assert list(rankings) == [query.id for query in queries]
    for query in queries:
        scores, is_hit = judge(texts, query)
        expected = sorted(np.flatnonzero(is_hit), key=lambda row: (-scores[row], row))
        assert rankings[query.id] == tuple(f"d{row:02}" for row in expected[:depth])


@pytest.mark.parametrize("most", [1, 40, 10_000])
def test_scores_are_those_of_rank_bm25_to_the_last_bit(most, texts, queries, monkeypatch):
    monkeypatch.setattr(bm25, "_MOST_WORDS", most)
    corpus = bm25._Corpus(texts, [*WORDS, "the", "of"])
    index, found = corpus.index(), np.zeros((len(queries), len(texts)))
    for rows, postings in corpus.blocks:
        names = [str(row) for row in rows]
        block = bm25._Block.of(postings, index, list(corpus.number_of), names)
        for number, query in enumerate(queries):
            terms = [corpus.number_of[word] for word in split_words(query.text)]
            best = block.joined(bm25.BestDocuments((), np.empty(0)), terms, len(texts))
            found[number, [int(name) for name in best.keys]] = best.scores
    assert (found == [judge(texts, query)[0] for query in queries]).all()


@pytest.mark.parametrize("block", [3, 80])
def test_a_document_ranks_by_its_best_chunk(block, texts, queries, monkeypatch):
    monkeypatch.setattr(bm25, "_MOST_TEXTS", block)
    names = [f"d{row % 8}" for row in range(len(texts))]
    for depth in (3, 8):
        rankings = run(texts, queries, names, depth=depth)
        for query in queries:
            best = {}
            for name, score, is_hit in zip(names, *judge(texts, query), strict=True):
                if is_hit:
                    best[name] = max(score, best.get(name, -np.inf))
            assert rankings[query.id] == tuple(sorted(best, key=lambda name: (-best[name], name))[:depth])


def test_a_query_without_known_words_finds_nothing(texts):
    queries = [Query("unknown", "zebra"), Query("empty", ""), Query("signs", "?!")]
    assert set(run(texts, queries).values()) == {()}


@pytest.mark.parametrize("texts", [[], ["", "..."]])
def test_a_corpus_without_words_answers_nothing(texts):
    assert run(texts, [Query("q", "word")]) == {"q": ()}


def test_case_and_punctuation_do_not_matter(texts):
    plain, loud = (run(texts, [Query("q", text)]) for text in ("w1 w2", "W1, (W2)!"))
    assert plain == loud
    assert plain["q"]


def test_words_are_letters_digits_and_underscores():
    assert split_words("Ärger_1: it's 3.5€") == ["ärger_1", "it", "s", "3", "5"]


@pytest.mark.parametrize("block", [1, 3, 4])
def test_a_word_of_half_the_documents_weighs_nothing_but_is_found_and_equal_texts_tie_by_doc_id(block, monkeypatch):
    monkeypatch.setattr(bm25, "_MOST_TEXTS", block)
    texts, names = ["cat", "cat", "dog", "dog"], ["b", "a", "c", "d"]
    assert run(texts, [Query("q", "cat")], names)["q"] == ("a", "b")
    assert run(texts, [Query("q", "cat")], names, depth=1)["q"] == ("a",)


def test_a_word_that_a_text_has_many_times_counts_each_time():
    texts = ["cat " * 70_000 + "dog", "cat " * 300 + "dog", "cat dog", "ant bee", "ant"]
    query = Query("q", "cat ant")
    scores, is_hit = judge(texts, query)
    expected = sorted(np.flatnonzero(is_hit), key=lambda row: (-scores[row], row))
    assert run(texts, [query])["q"] == tuple(f"d{row:02}" for row in expected)
