import pytest

from migrate.cost.count import count_texts
from migrate.cost.rates import Rate, tier_rate
from migrate.embedders import load_embedder
from migrate.errors import UsageError
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
