from pathlib import Path

import numpy as np
import pytest

from migrate.cost import Tally, tally_of
from migrate.cost.count import count_texts
from migrate.embedders import load_embedder
from migrate.embedders.base import Embedder
from migrate.embedders.weights import packaged_model_path
from migrate.manifest import ModelIdentity
from migrate.vectors import Document

ODD = ["", " \n", "half \ud800 pair", "word " * 9_000]


class Own(Embedder):
    @property
    def identity(self):
        return ModelIdentity("my own", 8, True, document_prefix="doc: ")

    def embed(self, texts, role, *, progress=None):
        raise AssertionError("asked for vectors")


@pytest.mark.parametrize(
    "spec", ["openai:text-embedding-3-small", pytest.param("packaged:all-MiniLM-L6-v2", marks=pytest.mark.slow)]
)
def test_a_tally_counts_as_the_line_before_a_command_does(spec, corpus):
    documents = [*corpus.documents, *(Document(f"o{number}", text) for number, text in enumerate(ODD))]
    found = count_texts(documents, load_embedder(spec).profile)
    tally = Tally(load_embedder(spec).profile)
    assert tally.cost([*documents, *documents]).tokens == found.tokens_read < found.tokens
    assert tally.tokens(documents).sum() == found.tokens_read
    assert tally.tokens(documents[-4:])[:2].tolist() == [0, 0], "blank texts are not embedded"


def test_a_text_is_counted_once(corpus):
    target = load_embedder("openai:text-embedding-3-small").profile
    tally, asked = Tally(target), []
    count = target.counter.count
    target.counter.count = lambda texts: asked.append(len(texts)) or count(texts)
    first = tally.cost(corpus.documents)
    assert tally.cost(corpus.documents) == first and sum(asked) == len(corpus.documents)
    assert first.usd == pytest.approx(first.tokens * 0.02 / 1e6)


def test_a_model_at_hand_is_counted_as_its_spec_is(tmp_path):
    texts = [Document("a", "Some words, and unlikelihood."), Document("b", "word " * 400)]
    specs = ("openai:text-embedding-3-small", "packaged:all-MiniLM-L6-v2", "tfidf:8")
    for spec in (*specs, f"sentence-transformers:{packaged_model_path()}"):
        asked, at_hand = load_embedder(spec).profile, load_embedder(spec, cache=tmp_path / "cache").profile
        assert at_hand.read(texts).tolist() == asked.read(texts).tolist(), spec
        assert (at_hand.price_usd_per_mtok, at_hand.counter.exact) == (asked.price_usd_per_mtok, asked.counter.exact)
    assert not Path(tmp_path / "cache").exists(), "nothing was asked of it"


def test_a_model_of_a_callers_own_is_estimated():
    tally = tally_of(Own(), 3.0)
    assert tally.price == 3.0 and not tally.target.counter.exact
    text = [Document("a", "word")]
    with_prefix, without = tally.tokens(text), load_embedder("tfidf:8").profile.read(text)
    assert np.all(with_prefix > without)
