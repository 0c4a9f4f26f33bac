from dataclasses import replace

import pytest

from migrate.embedders import load_embedder
from migrate.embedders.tokens import BYTE_PAIRS, EstimateCounter, TokenizerCounter
from migrate.lab.embed.sizes import chunk_size, cut_documents, room
from migrate.vectors import Document

pytestmark = pytest.mark.slow

MINILM = "packaged:all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def long(corpus):
    whole = " ".join(document.text for document in corpus.documents)
    return [Document("long", whole), Document("cjk", "漢字かな、" * 300)]


@pytest.mark.parametrize("prefix", ["", "passage: ", "word " * 200])
def test_prefix_and_special_tokens_have_their_place(prefix, long):
    target = replace(load_embedder(MINILM).profile, document_prefix=prefix)
    size = chunk_size(target)
    assert size.tokens == room(target) and size.overlap == size.tokens // 10
    counts = target.count(list(cut_documents(long, target, size)))
    assert 250 < max(counts) <= 256


def test_the_longest_chunk_is_capped_and_can_be_chosen(long):
    target = load_embedder("openai:text-embedding-3-small").profile
    assert (chunk_size(target).tokens, chunk_size(target).overlap) == (256, 25)
    assert chunk_size(load_embedder("tfidf:8").profile).tokens == 256
    size = chunk_size(target, 100, 0)
    assert (size.tokens, size.overlap) == (100, 0)
    assert max(target.count(list(cut_documents(long, target, size)))) <= 100


@pytest.mark.parametrize("kind", ["whole texts", "estimate"])
def test_chunks_fit_whoever_counts(kind, long):
    target = load_embedder(MINILM).profile
    counters = {
        "whole texts": TokenizerCounter(target.counter.tokenizer),
        "estimate": EstimateCounter(BYTE_PAIRS, special=2),
    }
    target = replace(target, counter=counters[kind])
    counts = target.count(list(cut_documents(long, target, chunk_size(target))))
    assert max(counts) <= 256 and sorted(counts)[len(counts) // 2] > 150
