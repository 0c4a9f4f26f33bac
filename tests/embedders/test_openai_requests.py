import hashlib
import itertools
import sys
import types

import pytest

from migrate.embedders import openai_tokens
from migrate.embedders.openai import fair_share, split_requests
from migrate.embedders.openai_tokens import estimate_tokens, token_counter


def test_requests_hold_as_much_as_both_limits_allow():
    tokens = [1_000] * 700 + [1] * 5_000
    requests = list(split_requests(tokens))
    assert [position for request in requests for position in request] == list(range(len(tokens)))
    sums = [sum(tokens[position] for position in request) for request in requests]
    assert all(len(request) <= 2_048 for request in requests) and max(sums) <= 300_000
    for request, following in itertools.pairwise(requests):
        assert len(request) == 2_048 or sum(tokens[p] for p in request) + tokens[following.start] > 300_000


def test_a_text_larger_than_a_request_travels_alone():
    assert list(split_requests([3, 400_000, 3])) == [range(1), range(1, 2), range(2, 3)]
    assert list(split_requests([])) == []


@pytest.mark.parametrize("concurrency", [1, 3, 8, 256])
@pytest.mark.parametrize("count", [1, 15, 100, 1_000, 1_024, 8_192, 100_000])
def test_a_share_keeps_every_place_busy_and_no_request_tiny(count, concurrency):
    share = fair_share(count, concurrency, 2_048)
    assert 16 <= share <= 2_048
    if share > 16:
        assert -(-count // share) >= min(concurrency, count // 128)


# As cl100k_base of tiktoken 0.14 has them
COUNTED = {
    "The quick brown fox jumps over the lazy dog.": 10,
    "def wait_s(self, tokens: int, now: float) -> float:": 16,
    "人工智能是计算机科学的一个分支": 15,
    "3.14159,2.71828,1.41421": 14,
    "😀🎉🚀": 8,
    "aGVsbG8gd29ybGQ=": 11,
    "x y z": 3,
}


@pytest.mark.parametrize("text", COUNTED)
def test_tokens_are_estimated_high_but_not_much(text):
    assert COUNTED[text] <= estimate_tokens(text) <= 2.1 * COUNTED[text]


@pytest.fixture
def encoding_cache(tmp_path, monkeypatch):
    """tiktoken, and a cache that holds its encoding; both stand-ins, as neither is required here."""
    content = b"IQ== 0\n"
    name = hashlib.sha1(openai_tokens._ENCODING_URL.encode()).hexdigest()
    (tmp_path / name).write_bytes(content)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(openai_tokens, "_ENCODING_SHA256", hashlib.sha256(content).hexdigest())
    encoding = types.SimpleNamespace(encode_ordinary=str.split)
    monkeypatch.setitem(sys.modules, "tiktoken", types.SimpleNamespace(get_encoding=lambda _name: encoding))
    openai_tokens._tiktoken_counter.cache_clear()
    yield tmp_path / name
    openai_tokens._tiktoken_counter.cache_clear()


def test_tokens_are_counted_where_the_encoding_is_here(encoding_cache):
    count = token_counter("text-embedding-3-small")
    assert count("one two three") == 3
    assert count("x" * 300_000) == 100_000  # estimated: too long to be worth counting
    assert token_counter("another-model") is estimate_tokens


@pytest.mark.parametrize("spoil", ["missing", "damaged", "no cache", "no tiktoken"])
def test_tokens_are_estimated_where_tiktoken_would_have_to_download(spoil, encoding_cache, monkeypatch):
    if spoil == "missing":
        encoding_cache.unlink()
    elif spoil == "damaged":
        encoding_cache.write_bytes(b"IQ== 1\n")
    elif spoil == "no cache":
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    else:
        monkeypatch.setitem(sys.modules, "tiktoken", None)
    assert token_counter("text-embedding-3-small") is estimate_tokens
