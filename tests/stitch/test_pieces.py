import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from migrate.embedders.abilities import TokenTable
from migrate.stitch.text_reader import Pieces, split_words

HARD = [
    "Don't panic: the naïve café's 3.14 (or 22/7) isn't E=mc^2, is it?!",
    "ALL CAPS, snake_case and http://example.org/a?b=c#d -- under_scored__twice",
    "数据库 is Chinese, Ünïcödé is not; \u00abguillemets\u00bb \U0001f600 done",
    "antidisestablishmentarianism\nnew\tline",
]


def train_bytes(texts, add_prefix_space):
    """As RoBERTa and GPT-2 have it: the space belongs to the word behind it, and the first word has none."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.normalizer = normalizers.NFC()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


@pytest.fixture(scope="module")
def byte_level(texts):
    return train_bytes(texts, add_prefix_space=False)


@pytest.fixture(scope="module")
def byte_level_with_prefix(texts):
    return train_bytes(texts, add_prefix_space=True)


@pytest.fixture(scope="module")
def unigram(texts):
    """As XLM-R and multilingual E5 have it: every word gets the mark, the first too."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer.normalizer = normalizers.NFC()
    unknown = {"unk_token": "<unk>", "special_tokens": ["<unk>"]}
    trainer = trainers.UnigramTrainer(vocab_size=500, **unknown, show_progress=False)
    tokenizer.train_from_iterator(texts[:40], trainer)
    return tokenizer


def pieces_of(tokenizer, limit=None, width=3):
    size = tokenizer.get_vocab_size()
    table = np.random.default_rng(0).normal(size=(size, width)).astype(np.float32)
    return Pieces.of(TokenTable(tokenizer.to_str(), table, limit))


def through_words(pieces, text):
    words = split_words([text])
    counts, lengths = pieces.counts(words.words)
    times = np.bincount(words.flat, minlength=len(words.words))
    return times @ counts.toarray(), int(times @ lengths)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lead", "added"),
    [("minilm", "", ""), ("byte_level", " ", " "), ("byte_level_with_prefix", "", ""), ("unigram", "", "")],
)
def test_tokens_through_words_are_those_of_the_tokenizer(name, lead, added, texts, request):
    """But for the first word of a byte-level one, which has no space before it: here all texts get one."""
    tokenizer = request.getfixturevalue(name)
    pieces = pieces_of(tokenizer)
    assert pieces.cutter.lead == lead, "only a tokenizer that keeps spaces gets one"
    for text in [*texts[:50], *HARD]:
        ids = tokenizer.encode(added + " ".join(text.split()), add_special_tokens=False).ids
        found, length = through_words(pieces, text)
        np.testing.assert_array_equal(found, np.bincount(ids, minlength=len(pieces.kept)))
        assert length == len(ids)


def test_remembered_words_are_cut_as_at_first(minilm, monkeypatch):
    monkeypatch.setattr("migrate.stitch.text_reader.REMEMBERED", 2)
    pieces, words = pieces_of(minilm), ["dogcat", "zebras", "Cells,", "naïve"]
    first, lengths = pieces.counts(words)
    assert list(pieces.cutter.remembered) == words[:2]
    again, others = pieces.counts([*words[::-1], "new"])
    assert others[:4].tolist() == lengths[::-1].tolist()
    np.testing.assert_array_equal(again[[3, 2, 1, 0]].toarray(), first.toarray())
