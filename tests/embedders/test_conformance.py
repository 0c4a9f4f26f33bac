"""Every kind of embedder under the suite that third parties inherit."""

from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from provider_servers import provider_server

from migrate.cost.meter import put_meter
from migrate.embedders import Embedder, load_embedder
from migrate.embedders.cache import CachedEmbedder
from migrate.embedders.kinds import BUILT_IN, LoadOptions
from migrate.embedders.tfidf import TfidfEmbedder
from migrate.embedders.tokens import WORD_PIECES, EstimateCounter
from migrate.testing.embedders import TEXTS, EmbedderTests
from migrate.vectors import Document


class TestTfidf(EmbedderTests):
    spec = "tfidf:4"
    tolerance = 0.0

    @pytest.fixture
    def make(self):
        def make():
            embedder = load_embedder(self.spec)
            embedder.fit(self.documents())
            return embedder

        return make


class TestKindOfTheDocs(EmbedderTests):
    """The whole kind that docs/developers/adding.md shows."""

    @pytest.fixture
    def make(self):
        page = (Path(__file__).parents[2] / "docs" / "developers" / "adding.md").read_text()
        module = {}
        exec(page.split("```python\n")[2].split("```")[0], module)
        return lambda: module["KIND"].load("16", LoadOptions())


class TestFile(EmbedderTests):
    @pytest.fixture
    def make(self, tmp_path):
        vectors = np.random.default_rng(0).standard_normal((len(TEXTS), 8)).astype(np.float32)
        path = tmp_path / "vectors.npz"
        ids = {"doc_ids": [f"d{n}" for n in range(len(TEXTS))], "query_ids": [f"q{n}" for n in range(len(TEXTS))]}
        np.savez(path, docs=vectors, doc_texts=list(TEXTS), queries=vectors[::-1], query_texts=list(TEXTS), **ids)
        return lambda: load_embedder(f"file:{path}")


class FewWrappersTests(EmbedderTests):
    """The suite with a cache and a meter at once, or neither: each by itself is tested on the quick kinds above."""

    @pytest.fixture(params=["plain", "both"])
    def wrapped(self, request, make, tmp_path):
        if request.param == "plain":
            return make()
        return put_meter(CachedEmbedder(make(), tmp_path / "cache.sqlite"), EstimateCounter(WORD_PIECES), 1.0)[0]


@pytest.mark.slow
class TestPackaged(FewWrappersTests):
    tolerance = 1e-4

    @pytest.fixture
    def make(self, minilm):
        return lambda: copy(minilm)


class TestOpenAI(EmbedderTests):
    @pytest.fixture
    def make(self, server):
        return lambda: load_embedder("openai:tiny", base_url=server.url)


class TestProviders(FewWrappersTests):
    @pytest.fixture(params=["voyage:voyage-4", "cohere:embed-v4.0", "gemini:gemini-embedding-001"])
    def make(self, request, monkeypatch):
        kind = request.param.partition(":")[0]
        with provider_server(kind) as running:
            monkeypatch.setenv(f"{kind.upper()}_BASE_URL", running.url)
            yield lambda: load_embedder(request.param)


class TestLangChain(EmbedderTests):
    @pytest.fixture
    def make(self, models):
        return lambda: load_embedder("langchain:langchain_models:make_fake")


def test_every_kind_is_held_to_the_suite():
    names = {"tfidf": TestTfidf, "file": TestFile, "packaged": TestPackaged, "sentence-transformers": TestPackaged,
             "openai": TestOpenAI, "langchain": TestLangChain,
             "voyage": TestProviders, "cohere": TestProviders, "gemini": TestProviders}  # fmt: skip
    assert names.keys() == BUILT_IN.keys()


class Wrong(TfidfEmbedder):
    """Breaks the contract in one way."""

    def __init__(self, fault):
        super().__init__(4)
        self.fault, self.asked = fault, 0
        self.fit([Document(str(number), text) for number, text in enumerate(TEXTS)])

    def embed(self, texts, role, **more):
        vectors = super().embed(texts, role, **more)
        if self.fault == "order":
            return np.ascontiguousarray(vectors[::-1])
        if self.fault == "constant":
            return np.ones_like(vectors)
        return vectors.astype(np.float64) if self.fault == "dtype" else vectors

    @property
    def identity(self):
        if self.fault != "identity":
            return super().identity
        self.asked += 1
        return replace(super().identity, revision=str(self.asked))


@pytest.mark.parametrize(
    ("fault", "check", "more"),
    [
        ("order", EmbedderTests.test_order_and_company_do_not_matter, ["document"]),
        ("dtype", EmbedderTests.test_vectors_are_float32_contiguous_and_finite, ["document"]),
        (
            "identity",
            EmbedderTests.test_the_identity_is_stable_and_the_same_after_a_reload,
            [lambda: Wrong("identity")],
        ),
        ("constant", EmbedderTests.test_vectors_tell_texts_apart, []),
    ],
)
def test_the_suite_finds_what_is_wrong(fault, check, more):
    with pytest.raises(AssertionError):
        check(EmbedderTests(), Wrong(fault), *more)


def test_the_contract_fits_on_a_page():
    assert len([name for name in vars(Embedder) if not name.startswith("_")]) <= 14
