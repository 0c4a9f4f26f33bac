"""LangChain's vector store and retriever over a `LiveSearcher`: what an app opens in the place of its old index.

    store = LiveVectorStore("new-store", "openai:text-embedding-3-small")
    retriever = store.as_retriever(search_kwargs={"k": 5})

It is read alone: documents are added where they always were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document as LangchainDocument
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict

from migrate.errors import UsageError
from migrate.live.searcher import LiveSearcher, Models
from migrate.vectors import Document, Vectors

_K = 4
"""LangChain's own number of documents."""


class LiveVectorStore(VectorStore):
    """A `VectorStore` whose answers are those of a `LiveSearcher`.

    Scores are those of the store: inner products, or squared distances. `filter` is what the kind of store takes, see
    `migrate.stores.base.Store.search`.

    Parameters
    ----------
    searcher
        A searcher, which stays the caller's to close, or the location of a store.
    models, **options
        As `LiveSearcher` takes them, where a location is given.

    Raises
    ------
    LeadMigrateError
        As `LiveSearcher`, and its `search`.
    """

    def __init__(self, searcher: LiveSearcher | str | Path, models: Models = None, **options: Any) -> None:
        self.searcher = searcher if isinstance(searcher, LiveSearcher) else LiveSearcher(searcher, models, **options)

    def similarity_search_with_score(
        self,
        query: str,
        k: int = _K,
        filter: Any = None,  # noqa: A002 - LangChain's name
        **_: Any,
    ) -> list[tuple[LangchainDocument, float]]:
        """The `k` nearest documents with their scores."""
        return self._scored(query, k, filter)

    def similarity_search(self, query: str, k: int = _K, **options: Any) -> list[LangchainDocument]:
        """The `k` nearest documents."""
        return [document for document, _ in self._scored(query, k, options.get("filter"))]

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = _K, **options: Any
    ) -> list[LangchainDocument]:
        """The `k` documents nearest to a vector of the new model."""
        vector: Vectors = np.asarray(embedding, np.float32)
        return [document for document, _ in self._scored(vector, k, options.get("filter"))]

    def get_by_ids(self, ids: Sequence[str], /) -> list[LangchainDocument]:
        """The documents of those ids that are there."""
        return [as_langchain(document) for document in self.searcher.documents(ids)]

    def add_texts(self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None, **_: Any) -> NoReturn:
        """Refuse to write.

        Raises
        ------
        UsageError
            Always.
        """
        raise self._read_alone("added to")

    def delete(self, ids: list[str] | None = None, **_: Any) -> NoReturn:
        """Refuse to write, as `add_texts`."""
        raise self._read_alone("deleted from")

    @classmethod
    def from_texts(cls, *_: Any, **__: Any) -> NoReturn:
        """Refuse to make a store.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError("a live store is one that is there: translate one, and open it by its location")

    def max_marginal_relevance_search(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: it ranks by the vectors of documents, of which most are translated ones.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError(
            f'{self.searcher.location}: a live store has no search by maximal marginal relevance (search_type="mmr"), '
            'which needs the true vectors of all documents; use search_type="similarity"'
        )

    max_marginal_relevance_search_by_vector = max_marginal_relevance_search

    def _read_alone(self, done: str) -> UsageError:
        return UsageError(
            f"{self.searcher.location}: a live store is only searched, found it {done}; write to the store itself, "
            "with the new model, as its own client does: what is new there is found"
        )

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return self.searcher.nearness

    def _scored(self, query: str | Vectors, k: int, where: Any) -> list[tuple[LangchainDocument, float]]:
        return [(as_langchain(document), score) for document, score in self.searcher.scored_documents(query, k, where)]


class LiveRetriever(BaseRetriever):
    """The retriever of a chain, without a vector store around it: the `k` nearest documents of `searcher`."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    searcher: LiveSearcher
    k: int = _K
    filter: Any = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[LangchainDocument]:
        found = self.searcher.scored_documents(query, k or self.k, self.filter)
        return [as_langchain(document) for document, _ in found]


def as_langchain(document: Document) -> LangchainDocument:
    """A document as LangChain has it."""
    return LangchainDocument(page_content=document.text, metadata=dict(document.metadata), id=document.id)
