import importlib
import sys

import pytest
from openai_server import OpenAIServer

from migrate.embedders import load_embedder
from migrate.vectors import Document


@pytest.fixture
def server():
    with OpenAIServer() as running:
        yield running


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def minilm():
    """The packaged model; nobody changes it."""
    return load_embedder("packaged:all-MiniLM-L6-v2", device="cpu")


@pytest.fixture
def documents():
    """Make documents d0, d1, ... of some texts."""

    def make(*texts):
        return [Document(f"d{number}", text) for number, text in enumerate(texts)]

    return make


_MODELS = '''
from functools import cache
import numpy as np
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from migrate.embedders import load_embedder
from migrate.vectors import Document, Query


def make_fake():
    return DeterministicFakeEmbedding(size=24)

ready = DeterministicFakeEmbedding(size=24)


@cache
def _model():
    return load_embedder("packaged:all-MiniLM-L6-v2", device="cpu")


class MiniLM(Embeddings):
    model_name = "all-MiniLM-L6-v2"

    def embed_documents(self, texts):
        return _model().embed_documents([Document(str(n), text) for n, text in enumerate(texts)]).tolist()

    def embed_query(self, text):
        return _model().embed_queries([Query("q", text)])[0].tolist()


class Spoiled(Embeddings):
    """Answers with whatever `change` makes of good vectors."""

    change = staticmethod(lambda rows: rows)

    def embed_documents(self, texts):
        return self.change(ready.embed_documents(texts))

    def embed_query(self, text):
        return self.change([ready.embed_query(text)])[0]


class NeedsSize(Embeddings):
    def __init__(self, size):
        self.size = size

    embed_documents = embed_query = None


def not_embeddings():
    return [1, 2]
'''


@pytest.fixture
def models(tmp_path_factory, monkeypatch):
    """The module `langchain_models`, a user's own, on the path."""
    folder = tmp_path_factory.mktemp("app")
    (folder / "langchain_models.py").write_text(_MODELS)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "langchain_models", raising=False)
    return importlib.import_module("langchain_models")
