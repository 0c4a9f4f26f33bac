"""LangChain's vector store over a `LiveSearcher`: what an app opens in the place of its old index.

    store = LiveVectorStore("new-store", "openai:text-embedding-3-small")
    retriever = store.as_retriever(search_kwargs={"k": 5})

It is read alone: documents are added where they always were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from langchain_core.documents import Document as LangchainDocument
from langchain_core.vectorstores import VectorStore

from migrate.errors import UsageError
from migrate.live.searcher import LiveSearcher, Models
from migrate.vectors import Document, Vectors

_K = 4
"""LangChain's own number of documents."""


class LiveVectorStore(VectorStore):
    """A `VectorStore` whose answers are those of a `LiveSearcher`; raises `LeadMigrateError` as it does.

    Scores are those of the store: inner products, or squared distances. `filter` is what the kind of store takes, see
    `migrate.stores.base.Store.search`.

    Parameters
    ----------
    searcher
        A searcher, which stays the caller's to close, or the location of a store.
    models, **options
        Arguments of the `LiveSearcher`, where a location is given.
    """

    def __init__(self, searcher: LiveSearcher | str | Path, models: Models = None, **options: Any) -> None:
        self.searcher = LiveSearcher.of(searcher, models, **options)

    def similarity_search_with_score(
        self,
        query: str | Vectors,
        k: int = _K,
        filter: Any = None,  # noqa: A002 - LangChain's name
        **_: Any,
    ) -> list[tuple[LangchainDocument, float]]:
        """Return the `k` nearest documents with their scores."""
        return [(as_langchain(document), score) for document, score in self.searcher.scored_documents(query, k, filter)]

    def similarity_search(self, query: str | Vectors, k: int = _K, **options: Any) -> list[LangchainDocument]:
        """Return the `k` nearest documents."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **options)]

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = _K, **options: Any
    ) -> list[LangchainDocument]:
        """Return the `k` documents nearest to a vector of the new model."""
        return self.similarity_search(np.asarray(embedding, np.float32), k, **options)

    def get_by_ids(self, ids: Sequence[str], /) -> list[LangchainDocument]:
        """Return the documents of those ids that are there."""
        return [as_langchain(document) for document in self.searcher.documents(ids)]

    def add_texts(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to write: `UsageError`."""
        raise UsageError(
            f"{self.searcher.location}: a live store is only searched; write to the store itself, with the new model, "
            "as its own client does: what is new there is found"
        )

    delete = add_texts

    @classmethod
    def from_texts(cls, *_: Any, **__: Any) -> NoReturn:
        """Refuse to make a store: `UsageError`."""
        raise UsageError("a live store is one that is there: translate one, and open it by its location")

    def max_marginal_relevance_search(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse to rank by the vectors of documents, of which most are translated ones: `UsageError`."""
        raise UsageError(
            f'{self.searcher.location}: a live store has no search by maximal marginal relevance (search_type="mmr"), '
            'which needs the true vectors of all documents; use search_type="similarity"'
        )

    max_marginal_relevance_search_by_vector = max_marginal_relevance_search

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return self.searcher.nearness


def as_langchain(document: Document) -> LangchainDocument:
    """Return a document as LangChain has it."""
    return LangchainDocument(page_content=document.text, metadata=dict(document.metadata), id=document.id)
