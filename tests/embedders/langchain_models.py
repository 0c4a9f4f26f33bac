"""Models of LangChain's, as a user's own module has them."""

import functools  # noqa: F401 - a module is no model

from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings


def make_fake():
    return DeterministicFakeEmbedding(size=24)


ready = DeterministicFakeEmbedding(size=24)


class Named(Embeddings):
    model_name = "their-model"
    embed_documents = embed_query = None


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
