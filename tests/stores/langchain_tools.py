"""Stores made and opened by LangChain itself."""

import warnings

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

with warnings.catch_warnings():
    # langchain-community announces its end when it is imported
    warnings.simplefilter("ignore")
    from langchain_community.docstore.in_memory import InMemoryDocstore
    from langchain_community.vectorstores import FAISS
    from langchain_community.vectorstores.utils import DistanceStrategy

__all__ = ["FAISS", "DistanceStrategy", "Document", "InMemoryDocstore", "TextVectors", "load", "save_texts"]


class TextVectors(Embeddings):
    """A vector that depends on the text alone."""

    def __init__(self, dim):
        self.dim = dim

    def embed_query(self, text):
        return np.random.default_rng(list(text.encode()) or [0]).normal(size=self.dim).tolist()

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]


def load(folder, dim, name="index"):
    return FAISS.load_local(str(folder), TextVectors(dim), name, allow_dangerous_deserialization=True)


def save_texts(folder, texts, dim, *, name="index", metadatas=None, ids=None, **options):
    store = FAISS.from_texts(texts, TextVectors(dim), metadatas=metadatas, ids=ids, **options)
    store.save_local(str(folder), name)
    return store
