"""The retrievers of LangChain and LlamaIndex, by the frameworks' own suites where they have one."""

import asyncio

import numpy as np
import pytest
from langchain_core.documents import Document as LangchainDocument
from live_tools import DIM, make_store, noisy_vectors, texts, true_vectors
from openai_server import KEY, OpenAIServer, vector_of

from migrate.embedders import load_embedder
from migrate.errors import UsageError
from migrate.live.langchain import LiveVectorStore
from migrate.live.options import LiveLimits
from migrate.live.searcher import LiveSearcher

pytestmark = pytest.mark.slow

QUESTION = "which topic is document 3 about?"


@pytest.fixture(scope="module")
def searcher(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, OpenAIServer() as server:
        patch.setenv("OPENAI_API_KEY", KEY)
        model = load_embedder("openai:tiny", base_url=server.url)
        folder = make_store(tmp_path_factory.mktemp("store") / "live", noisy_vectors(), model.identity)
        limits = LiveLimits(depth=30, max_documents=30, max_ms=20_000)
        cache = folder.parent / "cache.sqlite"
        with LiveSearcher(folder, model, limits=limits, cache=cache) as searcher:
            yield searcher


def best(k, rows=None):
    """The ids and scores of the first k of the store's first 30, by true vectors."""
    query = vector_of(QUESTION, DIM)
    rows = np.arange(len(texts())) if rows is None else rows
    pool = rows[np.argsort(-(noisy_vectors()[rows] @ query))][:30]
    scores = true_vectors()[pool] @ query
    order = np.argsort(-scores)[:k]
    return [f"d{pool[place]}" for place in order], scores[order]


def test_the_vector_store_of_langchain(searcher):
    store = LiveVectorStore(searcher)
    ids, scores = best(4)
    found = store.similarity_search(QUESTION)
    assert [document.id for document in found] == ids
    assert found[0].page_content == texts()[int(ids[0][1:])]
    assert found[0].metadata == {"topic": int(ids[0][1:]) % 7}
    scored = store.similarity_search_with_score(QUESTION, k=4)
    assert [document for document, _ in scored] == found
    np.testing.assert_allclose([score for _, score in scored], scores, rtol=1e-5)
    relevant = store.similarity_search_with_relevance_scores(QUESTION, k=4, score_threshold=float(scores[1]) - 1e-6)
    assert [document.id for document, _ in relevant] == ids[:2]


def test_it_takes_filters_and_is_awaited(searcher):
    store = LiveVectorStore(searcher)
    ids, _ = best(3, np.arange(2, len(texts()), 7))
    retriever = store.as_retriever(search_kwargs={"k": 3, "filter": {"topic": 2}})
    assert [document.id for document in retriever.invoke(QUESTION)] == ids

    async def ask():
        first = await retriever.ainvoke(QUESTION)
        second = await store.asimilarity_search_with_score(QUESTION, k=3, filter={"topic": 2})
        assert [document for document, _ in second] == first
        return await store.asimilarity_search(QUESTION, k=3, filter={"topic": 2})

    assert [document.id for document in asyncio.run(ask())] == ids


def test_writing_is_refused_and_says_where_to(searcher):
    store = LiveVectorStore(searcher)
    for write in (
        lambda: store.add_texts(["text"]),
        lambda: store.add_documents([LangchainDocument(page_content="text")]),
        lambda: store.delete(["d1"]),
        lambda: asyncio.run(store.aadd_texts(["text"])),
        lambda: asyncio.run(store.adelete(["d1"])),
    ):
        with pytest.raises(UsageError, match="write to the store itself"):
            write()
    with pytest.raises(UsageError, match="open it by its location"):
        LiveVectorStore.from_texts(["text"], None)


def test_a_search_that_is_not_there_is_refused_in_a_line(searcher):
    store = LiveVectorStore(searcher)
    retriever = store.as_retriever(search_type="mmr")
    with pytest.raises(UsageError, match='search_type="similarity"'):
        retriever.invoke(QUESTION)
    with pytest.raises(UsageError, match="maximal marginal relevance"):
        asyncio.run(retriever.ainvoke(QUESTION))


try:
    from langchain_tests.integration_tests import RetrieversIntegrationTests
except ImportError:
    RetrieversIntegrationTests = None


@pytest.mark.skipif(RetrieversIntegrationTests is None, reason="langchain-tests is not installed")
class TestLangchainsOwnSuite(RetrieversIntegrationTests or object):
    @pytest.fixture(autouse=True)
    def _searcher(self, searcher):
        type(self).shared = searcher

    retriever_query_example = QUESTION

    @staticmethod
    def retriever_constructor(searcher, k=4):
        return LiveVectorStore(searcher).as_retriever(search_kwargs={"k": k})

    @property
    def retriever_constructor_params(self):
        return {"searcher": self.shared}


@pytest.fixture
def nodes(searcher):
    pytest.importorskip("llama_index.core")
    from migrate.live.llamaindex import LiveRetriever

    return LiveRetriever(searcher, similarity_top_k=3)


def test_the_retriever_of_llamaindex(nodes):
    ids, scores = best(3)
    found = nodes.retrieve(QUESTION)
    assert [one.node.node_id for one in found] == ids
    np.testing.assert_allclose([one.score for one in found], scores, rtol=1e-5)
    assert found[0].node.get_content() == texts()[int(ids[0][1:])]
    assert found[0].node.metadata == {"topic": int(ids[0][1:]) % 7}
    assert [one.node.node_id for one in asyncio.run(nodes.aretrieve(QUESTION))] == ids
