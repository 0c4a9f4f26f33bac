import hashlib
import sys
import types

import pytest

from migrate.embedders import tokens as counters
from migrate.embedders.tokens import find_api_counter


@pytest.fixture
def encoding_cache(tmp_path, monkeypatch):
    """tiktoken, and a cache that holds its encoding; both stand-ins, as neither is required here."""
    content = b"IQ== 0\n"
    name = hashlib.sha1(b"https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken").hexdigest()
    (tmp_path / name).write_bytes(content)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(counters, "CL100K_SHA256", hashlib.sha256(content).hexdigest())
    encoding = types.SimpleNamespace(encode_ordinary=str.split)
    monkeypatch.setitem(sys.modules, "tiktoken", types.SimpleNamespace(get_encoding=lambda _name: encoding))
    find_api_counter.cache_clear()
    yield tmp_path / name
    find_api_counter.cache_clear()


def test_tokens_are_counted_where_the_encoding_is_here(encoding_cache):
    counter = find_api_counter("text-embedding-3-small")
    assert counter.count(["one two three", "x " * 300_000]).tolist() == [3, 50_000], "no model reads as much as that"
    assert find_api_counter("another-model") is None


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
    assert find_api_counter("text-embedding-3-small") is None
