import faiss
import pytest

from migrate.cost.count import count_texts
from migrate.cost.plans import store_bytes
from migrate.cost.rates import Rate, tier_rate
from migrate.embed import embed_corpus
from migrate.embedders import load_embedder
from migrate.errors import UsageError
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.vectors import Document


@pytest.fixture(scope="module")
def target():
    return load_embedder("packaged:all-MiniLM-L6-v2").profile


def documents(*texts):
    return [Document(f"d{number}", text) for number, text in enumerate(texts)]


def test_what_is_counted_is_paid_for_once_read_to_the_limit_and_left_out_where_it_is_in_the_cache(target):
    found = count_texts(documents("green tea", "  \n", "green tea", "black tea leaves"), target)
    assert (found.documents, found.blank, found.duplicates, found.distinct) == (4, 1, 1, 2)
    assert found.tokens == (2 + 2) + (3 + 2)  # a word piece each, and [CLS] and [SEP]
    assert found.text_bytes == 9 + 3 + 9 + 16
    long = count_texts(documents("tea " * 300, "tea"), target)
    assert (long.over_limit, long.longest) == (1, 302)
    assert (long.tokens, long.tokens_read) == (302 + 3, 256 + 3)
    kept = count_texts(documents("a", "b", "c"), target, lookup=lambda texts: [text.id == "d1" for text in texts])
    assert (kept.to_embed, kept.tokens_to_embed, kept.cached_tokens) == (2, 6, 3)
    broken, whole = (count_texts(documents(f"broken {letter} text"), target) for letter in ("\ud800", "?"))
    assert broken.tokens == whole.tokens, "half a surrogate pair is counted like any letter"


@pytest.mark.parametrize(
    ("text", "requests", "tokens"),
    [("3000/min", 3000, None), ("0.5/s", 30, None), ("36 / h", 0.6, None), ("1000000tok/min, 5/s", 300, 1e6)],
)
def test_rates_are_read(text, requests, tokens):
    rate = Rate.parse(text)
    assert rate.requests_per_min == (None if requests is None else pytest.approx(requests))
    assert rate.tokens_per_min == tokens


@pytest.mark.parametrize("text", ["", "3000", "fast", "0/s", "5/day", "5/s,6/s", "-1/s", "1e3/s", "9" * 400 + "/s"])
def test_rates_that_mean_nothing_are_told(text):
    with pytest.raises(UsageError, match="is not a rate of requests or tokens"):
        Rate.parse(text)


def test_the_limit_that_is_reached_first_sets_the_time():
    rate = tier_rate("1")
    assert rate.minutes(3_000, 10) == pytest.approx(1)
    assert rate.minutes(1, 2_000_000) == pytest.approx(2)


@pytest.mark.parametrize("store_format", ["faiss", "langchain"])
def test_bytes_of_a_flat_store_are_told_to_the_byte(corpus, tmp_path, store_format):
    """Held against the same documents, embedded by a model of that dimension."""
    for dim in (16, 24):
        embedder, output = load_embedder(f"tfidf:{dim}"), tmp_path / str(dim)
        embed_corpus(lambda: corpus.documents, embedder, output, store_format=store_format)
    told, real = store_bytes(open_store(tmp_path / "16"), 24), store_bytes(open_store(tmp_path / "24"), 24)
    assert told.is_exact and (told.index_after, told.total_after) == (real.index_now, real.now)


def test_the_bytes_of_an_index_are_those_of_its_file_and_of_no_other(corpus, tmp_path):
    """A coded index is far smaller than its vectors would be."""
    embed_corpus(lambda: corpus.documents, load_embedder("tfidf:16"), tmp_path / "store", store_format="faiss")
    folder, vectors = tmp_path / "store", read_all(open_store(tmp_path / "store").scan()).vectors
    (folder / "lead-migrate.json").unlink()
    faiss.write_index(coded(vectors), str(folder / "index.faiss"))
    assert store_bytes(open_store(folder), 16).index_now == (folder / "index.faiss").stat().st_size


def coded(vectors):
    index = faiss.index_factory(vectors.shape[1], "SQ4")
    index.train(vectors)
    index.add(vectors)
    return index
