"""`TranslatedEmbeddings` with LangChain's own store: the old folder, opened and asked by the new model."""

import asyncio
import subprocess
import sys

import numpy as np
import pytest
from langchain_core.embeddings import Embeddings
from langchain_tools import FAISS

import migrate
from migrate.embedders import load_embedder
from migrate.errors import ManifestError, StitchError, VectorError
from migrate.langchain import TranslatedEmbeddings
from migrate.stores import open_store
from migrate.stores.base import read_all
from migrate.vectors import Document, Query

pytestmark = pytest.mark.slow


class Model(Embeddings):
    """A model of ours as LangChain wants it; remembers how it was called."""

    def __init__(self, embedder):
        self.embedder = embedder
        self.calls = []

    def embed_documents(self, texts):
        self.calls.append("documents")
        return self.embedder.embed_documents([Document(str(n), text) for n, text in enumerate(texts)]).tolist()

    def embed_query(self, text):
        self.calls.append("query")
        return self.embedder.embed_queries([Query("q", text)])[0].tolist()

    async def aembed_documents(self, texts):
        self.calls.append("async")
        return self.embed_documents(texts)

    async def aembed_query(self, text):
        self.calls.append("async")
        return self.embed_query(text)


@pytest.fixture(scope="module")
def new_model(corpus):
    embedder = load_embedder("tfidf:48")
    embedder.fit(corpus.documents)
    return embedder


@pytest.fixture(scope="module")
def folder(corpus, tmp_path_factory):
    """A LangChain app's folder, embedded by the old model."""
    old = load_embedder("tfidf:32")
    old.fit(corpus.documents)
    path = tmp_path_factory.mktemp("app") / "old"
    FAISS.from_texts([document.text for document in corpus.documents], Model(old)).save_local(str(path))
    return path


@pytest.fixture(scope="module")
def fitted(folder, new_model):
    return migrate.fit(open_store(folder), new_model, direction="query", sample=120)


@pytest.fixture
def model(new_model):
    return Model(new_model)


@pytest.fixture
def embeddings(model, fitted):
    return TranslatedEmbeddings(model, fitted)


@pytest.fixture
def app(folder, embeddings):
    """The app on its old folder, asked by the new model."""
    return FAISS.load_local(str(folder), embeddings, allow_dangerous_deserialization=True)


def test_the_old_folder_answers_the_new_model(app, folder, fitted, new_model, corpus, digest):
    before = digest(folder)
    old = read_all(open_store(folder).scan())
    hits = 0
    for query in corpus.queries[:40]:
        mapped = fitted.map_queries(new_model.embed_queries([query]))[0]
        nearest = np.argsort(np.square(old.vectors - mapped).sum(axis=1))[:3]
        found = app.similarity_search(query.text, k=3)
        assert [document.id for document in found] == [old.ids[row] for row in nearest]
        hits += any(corpus.documents[row].id in corpus.qrels[query.id] for row in nearest)
    assert hits > 20, "and the answers are right more often than not"
    assert digest(folder) == before


def test_documents_added_while_the_old_index_serves_are_found(app, model):
    text = "Parse a configuration file in the INI format and return its sections."
    app.add_texts([text], ids=["fresh"])
    assert app.index.ntotal == 151
    assert app.similarity_search(text, k=1)[0].id == "fresh"
    assert model.calls == ["documents", "query"]


def test_the_async_methods_await_the_model_and_give_the_same(app, model, embeddings):
    texts = ["open a file", "close a socket"]

    async def ask():
        return await embeddings.aembed_query(texts[0]), await embeddings.aembed_documents(texts)

    assert asyncio.run(ask()) == (embeddings.embed_query(texts[0]), embeddings.embed_documents(texts))
    assert model.calls == ["async", "query", "async", "documents", "query", "documents"]
    found = asyncio.run(app.asimilarity_search("open a file", k=3))
    assert found == app.similarity_search("open a file", k=3)


def test_they_are_what_langchain_calls_embeddings_and_give_lists_of_floats(app, embeddings):
    """LangChain's FAISS takes anything else for a function that embeds, and says so."""
    assert isinstance(embeddings, Embeddings) and app.embeddings is embeddings
    vector = embeddings.embed_query("open a file")
    assert type(vector) is list and type(vector[0]) is float and len(vector) == 32
    assert [len(row) for row in embeddings.embed_documents(["one", "two"])] == [32, 32]
    assert embeddings.embed_documents([]) == []


def test_a_folder_will_do_for_the_stitch(embeddings, model, fitted, tmp_path):
    fitted.save(tmp_path / "bridge")
    expected = embeddings.embed_query("open a file")
    for path in (tmp_path / "bridge", str(tmp_path / "bridge")):
        assert TranslatedEmbeddings(model, path).embed_query("open a file") == expected
    with pytest.raises(ManifestError, match="no stitch here"):
        TranslatedEmbeddings(model, tmp_path)


def test_a_stitch_for_documents_is_refused_at_once(folder, new_model):
    forth = migrate.fit(open_store(folder), new_model, kind="ridge", sample=60)
    with pytest.raises(StitchError, match=r"^TranslatedEmbeddings: .*--direction query$"):
        TranslatedEmbeddings(Model(new_model), forth)


def test_another_model_is_refused_by_its_dimension(folder, fitted, corpus):
    other = load_embedder("tfidf:40")
    other.fit(corpus.documents)
    with pytest.raises(VectorError, match=r"the new model: .* dimension 40, not 48"):
        TranslatedEmbeddings(Model(other), fitted).embed_query("open a file")


def test_the_module_stands_in_nobodys_way():
    """`migrate.langchain` is not `langchain`, and asking for one does not import the other."""
    code = """
import importlib.util, sys
before = importlib.util.find_spec("langchain")
import migrate.langchain
assert "langchain" not in sys.modules and "langchain_community" not in sys.modules
after = importlib.util.find_spec("langchain")
assert (before and before.origin) == (after and after.origin) != migrate.langchain.__file__
"""
    subprocess.run([sys.executable, "-c", code], check=True)
