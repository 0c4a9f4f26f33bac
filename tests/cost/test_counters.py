import json

import numpy as np
import pytest

from migrate.embedders import load_embedder
from migrate.embedders.tokens import (
    BYTE_PAIRS,
    WORD_PIECES,
    EstimateCounter,
    TokenizerCounter,
    WordCounter,
    features,
    is_wordwise,
    read_tokenizer,
)
from migrate.embedders.weights import packaged_model_path
from migrate.errors import InputError

ODD = [
    "a\x1cb", "[SEP] x[MASK] [CLS]", "cafe\u0301", "中文 x", "a\u3000b\u2028c", "\x00\ufffd", "x" * 300 + " y",
    "\t \r\n", "don\u2019t [SE P]", "\u00ad a\u200bb", "", " ", "İstanbul ẞ ﬁ", "1,234.5e-6\n\n\nx",
]  # fmt: skip


@pytest.fixture(scope="module")
def path():
    return packaged_model_path() / "tokenizer.json"


@pytest.fixture(scope="module")
def own(path):
    """The tokenizer as transformers loads it for the model."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(path.parent), local_files_only=True)


@pytest.mark.slow
def test_counts_are_those_of_the_models_own_tokenizer(path, own, corpus):
    counter = read_tokenizer(path)
    texts = [document.text for document in corpus.documents] + ODD
    expected = [len(own(text, truncation=False)["input_ids"]) for text in texts]
    assert isinstance(counter, WordCounter) and counter.exact
    assert counter.count(texts).tolist() == expected
    assert counter.count(texts).tolist() == expected, "words that are remembered count the same"
    assert TokenizerCounter(counter.tokenizer).count(texts).tolist() == expected, "whole texts do too"


def test_only_tokenizers_that_end_words_at_blanks_are_taken_word_by_word(path):
    facts = json.loads(path.read_text())
    assert is_wordwise(facts)
    assert not is_wordwise({**facts, "pre_tokenizer": {"type": "ByteLevel"}})
    assert not is_wordwise({**facts, "pre_tokenizer": None})
    assert not is_wordwise({**facts, "added_tokens": [{"content": "two words"}]})
    assert not is_wordwise([])


def test_a_file_that_is_no_tokenizer_is_told(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(InputError, match="not a tokenizer of the tokenizers library"):
        read_tokenizer(path)


def test_a_tokenizer_is_read_again_only_where_its_file_changed(path, tmp_path):
    own = tmp_path / "tokenizer.json"
    own.write_bytes(path.read_bytes())
    counter = read_tokenizer(own)
    assert read_tokenizer(own) is counter
    facts = json.loads(own.read_text())
    own.write_text(json.dumps({**facts, "pre_tokenizer": {"type": "Whitespace"}}))
    assert type(read_tokenizer(own)) is TokenizerCounter


def test_features_are_counted_in_each_text_alone():
    found = features(["Hello world 12", "", "é a  b\n中!"])
    assert found.tolist() == [
        [2, 10, 1, 2, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0, 0, 0],
        [2, 2, 0, 0, 1, 1, 1, 1, 1],
    ]
    assert features([]).shape == (0, 9)


def test_the_estimate_is_as_near_as_it_says(path, corpus):
    """On whole texts, as totals; docstrings are among what the weights were learned from, reversed order is not."""
    texts = [document.text for document in corpus.documents]
    counter = EstimateCounter(WORD_PIECES, special=2)
    total = read_tokenizer(path).count(texts).sum()
    assert abs(counter.count(texts).sum() / total - 1) < counter.error


def test_the_estimate_admits_more_error_in_other_scripts():
    counter = EstimateCounter(BYTE_PAIRS)
    assert counter.count(["", "a"]).tolist() == [1, 1], "no text is estimated at nothing"
    counter.count(["plain English text"])
    assert counter.error == BYTE_PAIRS.error and "11 % off" in counter.sentence
    counter.count(["これは日本語の文章です。" * 5])
    assert counter.error == BYTE_PAIRS.foreign_error


def test_a_model_that_is_here_is_counted_by_its_own_tokenizer():
    for spec in ("packaged:all-MiniLM-L6-v2", "all-MiniLM-L6-v2"):
        target = load_embedder(spec).profile
        assert target.counter.exact and (target.dim, target.max_tokens, target.price_usd_per_mtok) == (384, 256, None)


def test_a_folder_tells_dimension_limit_and_prefix(tmp_path, path):
    (tmp_path / "config.json").write_text('{"hidden_size": 48}')
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 99}')
    (tmp_path / "config_sentence_transformers.json").write_text('{"prompts": {"passage": "doc: "}}')
    (tmp_path / "tokenizer.json").write_bytes(path.read_bytes())
    target = load_embedder(f"sentence-transformers:{tmp_path}").profile
    assert (target.dim, target.max_tokens, target.document_prefix, target.counter.exact) == (48, 99, "doc: ", True)
    (tmp_path / "2_Dense").mkdir()
    (tmp_path / "2_Dense" / "config.json").write_text('{"out_features": 24}')
    assert load_embedder(f"sentence-transformers:{tmp_path}").profile.dim == 24


def test_a_model_elsewhere_is_estimated_without_the_network(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    for spec, price in (("intfloat/e5-base-v2", None), ("openai:text-embedding-3-small", 0.02), ("openai:tiny", None)):
        target = load_embedder(spec).profile
        assert not target.counter.exact and target.price_usd_per_mtok == price
        assert np.all(target.counter.count(["some words"]) > 0)
