"""Documents by their first tokens: where they are cut, what is cached and counted, and what says so."""

from dataclasses import replace

import numpy as np
import pytest

from migrate.cost.meter import SpendingCap
from migrate.cost.spending import PlannedModel
from migrate.embedders import load_embedder, recorded_options
from migrate.embedders.base import Embedder
from migrate.embedders.cache import CachedEmbedder
from migrate.embedders.kinds import runs_code
from migrate.embedders.prefix import PrefixEmbedder, first_tokens, unit_of, whole_embedder
from migrate.embedders.tokens import WORD_PIECES, EstimateCounter
from migrate.errors import InputError, UsageError
from migrate.manifest import ModelIdentity
from migrate.vectors import Document, Query

WORDS = EstimateCounter(WORD_PIECES)
LONG = "Zinc fingers bind DNA, and unbelievably long words too. They do so in every cell.\n\nA second paragraph."


class Letters(Embedder):
    def __init__(self):
        self.given = []

    @property
    def identity(self):
        return ModelIdentity("letters", 3, normalized=False, query_prefix="query: ")

    def embed(self, texts, role, *, progress=None):
        self.given += [(role, text.text) for text in texts]
        return np.array([[len(text.text), text.text.count("a") + 1, 1] for text in texts], dtype=np.float32)


class PaidLetters(Letters):
    @property
    def profile(self):
        return replace(super().profile, is_paid=True)


@pytest.fixture(scope="module")
def minilm_counter(minilm):
    return minilm.profile.counter


@pytest.mark.parametrize(
    ("text", "words", "left"),
    [
        ("one two three", 2, "one two"),
        ("  one\n two three ", 2, "  one\n two"),
        ("one two ", 2, "one two "),
        ("one", 5, "one"),
        ("東京の天気", 2, "東京"),
        ("Naïve café 東京", 3, "Naïve café 東"),
    ],
)
def test_words_are_cut_where_there_is_no_tokenizer(text, words, left):
    assert first_tokens(WORDS, [text], words) == [left]
    assert unit_of(WORDS) == "words"


def test_tokens_are_those_of_the_model(minilm_counter):
    texts = [LONG, "Short.", "", "  \n Zinc fingers bind", "\ud800 broken but cut all the same"]
    for tokens in (1, 3, 8):
        cut = first_tokens(minilm_counter, texts, tokens)
        assert all(text.startswith(left) for text, left in zip(texts, cut, strict=True))
        assert cut[2] == "" and cut[3].strip().startswith("Zinc"[:1])
        counts = minilm_counter.count(cut[:2]) - minilm_counter.special
        whole = minilm_counter.count(texts[:2]) - minilm_counter.special
        assert counts.tolist() == np.minimum(whole, tokens).tolist()
    assert first_tokens(minilm_counter, [LONG], 10_000) == [LONG]
    assert unit_of(minilm_counter) == "tokens"


def test_a_word_may_be_cut_inside(minilm_counter):
    first, *others = minilm_counter.tokenizer.encode("unbelievably", add_special_tokens=False).tokens
    assert others, "otherwise nothing is tested"
    assert first_tokens(minilm_counter, ["unbelievably"], 1) == [first]


def test_queries_are_untouched_and_ids_are_kept():
    letters = Letters()
    embedder = PrefixEmbedder(letters, 2)
    embedder.embed_documents([Document("d", "one two three")])
    embedder.embed_queries([Query("q", "one two three")])
    assert letters.given == [("document", "one two"), ("query", "one two three")]
    with pytest.raises(InputError, match="'blank' has no text"):
        embedder.embed_documents([Document("d", "one"), Document("blank", "  ")])
    with pytest.raises(InputError, match="'half'"):
        embedder.embed_documents([Document("half", "one \ud800")])


def test_the_cache_inside_knows_what_was_left(tmp_path):
    letters = Letters()
    cached = CachedEmbedder(letters, tmp_path / "cache.sqlite")
    documents = [Document("a", "one two three"), Document("b", "one two four"), Document("c", "one two")]
    embedder = PrefixEmbedder(cached, 2)
    assert embedder.are_cached(documents, "document") == [False] * 3
    embedder.embed_documents(documents)
    assert letters.given == [("document", "one two")], "one text is left of all three"
    assert embedder.are_cached(documents, "document") == [True] * 3
    assert cached.are_cached(documents, "document") == [False, False, True], "a short text is the same either way"
    assert set(embedder.find(documents, "document")) == {0, 1, 2}


def test_identity_and_cache_key_say_how_much_was_read():
    scopes = {PrefixEmbedder(Letters(), tokens).cache_scope("document") for tokens in (1, 2)}
    assert len(scopes | {Letters().cache_scope("document")}) == 3
    embedder = PrefixEmbedder(Letters(), 24)
    assert embedder.cache_scope("query") == Letters().cache_scope("query")
    assert embedder.identity == replace(Letters().identity, spec="prefix:24:letters")
    assert embedder.profile.spec == "prefix:24:letters"


def test_what_is_left_is_counted_metered_and_priced():
    documents = [Document(str(row), "one two three four " * 50) for row in range(3)]
    queries = [Query("q", "one two three four " * 50)]
    plain, embedder = Letters(), PrefixEmbedder(PaidLetters(), 4)
    cut = [Document(document.id, "one two three four") for document in documents]
    profile = embedder.profile.at_price(10.0)
    assert profile.count(documents).tolist() == plain.profile.count(cut).tolist()
    assert profile.for_queries().count(queries).tolist() == plain.profile.for_queries().count(queries).tolist()
    cap = SpendingCap()
    metered, meter = cap.meter(embedder, 10.0), cap.meter_of(embedder)
    estimate = PlannedModel(metered, cap, documents=lambda: documents, queries=queries).estimate()
    metered.embed_documents(documents)
    metered.embed_queries(queries)
    assert meter.tokens == estimate.tokens
    assert estimate.usd == pytest.approx(meter.usd)


def test_a_spec_loads_it_around_the_cache(tmp_path):
    embedder = load_embedder("prefix:24:tfidf:4", cache=tmp_path / "cache.sqlite")
    assert isinstance(embedder, PrefixEmbedder) and embedder.tokens == 24
    assert embedder.profile.spec == "prefix:24:tfidf:4"
    openai = load_embedder("prefix:24:openai:text-embedding-3-small", cache=tmp_path / "cache.sqlite")
    assert isinstance(openai, PrefixEmbedder) and isinstance(openai.embedder, CachedEmbedder)
    assert openai.profile.price_usd_per_mtok, "priced as the model"
    assert load_embedder("prefix:8:all-MiniLM-L6-v2").profile.max_tokens


def test_a_manifest_runs_no_code_behind_it_and_has_the_options_of_the_model(tmp_path):
    assert runs_code("prefix:24:langchain:os:system") and runs_code("prefix:1:prefix:2:langchain:os:system")
    assert not runs_code("prefix:24:tfidf:4")
    identity = ModelIdentity("prefix:24:openai:text-embedding-3-small", 512, True, document_prefix="d: ")
    bare = replace(identity, spec="openai:text-embedding-3-small")
    assert recorded_options(identity) == recorded_options(bare) != {}
    np.savez(tmp_path / "v.npz", doc_ids=["a"], docs=np.ones((1, 4), dtype=np.float32))
    with pytest.raises(UsageError, match="vectors of whole documents"):
        load_embedder(f"prefix:24:file:{tmp_path / 'v.npz'}")


def test_the_whole_model_is_inside_even_behind_a_cache(tmp_path):
    behind = whole_embedder(CachedEmbedder(PrefixEmbedder(Letters(), 2), tmp_path / "cache.sqlite"))
    assert behind.identity == Letters().identity and isinstance(behind, CachedEmbedder)


@pytest.mark.slow
def test_a_real_model_embeds_what_it_would_of_the_beginning(minilm):
    embedder, documents = PrefixEmbedder(minilm, 6), [Document("d", LONG)]
    (left,) = first_tokens(minilm.profile.counter, [LONG], 6)
    mine = embedder.embed_documents(documents)
    np.testing.assert_allclose(mine, minilm.embed_documents([Document("d", left)]), atol=1e-6)
    assert np.abs(mine - minilm.embed_documents(documents)).max() > 0.01
    assert embedder.identity.spec == "prefix:6:sentence-transformers:sentence-transformers/all-MiniLM-L6-v2"
    assert load_embedder(embedder.identity.spec, device="cpu").identity == embedder.identity
    assert all(variant.embedder.embed_documents(documents).shape == (1, 384) for variant in embedder.variants())
