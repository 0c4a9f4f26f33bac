"""Models of LangChain's, as a user's own module has them."""

import functools

from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings

from migrate.embedders import load_embedder
from migrate.vectors import Document, Query


def make_fake():
    return DeterministicFakeEmbedding(size=24)


ready = DeterministicFakeEmbedding(size=24)


@functools.cache
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
