"""LangChain's vector store over a `LiveSearcher`: what an app opens in the place of its old index.

    store = LiveVectorStore(LiveSearcher("new-store", "openai:text-embedding-3-small"))
    retriever = store.as_retriever(search_kwargs={"k": 5})

It is read alone: documents are added where they always were.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from langchain_core.documents import Document as LangchainDocument
from langchain_core.vectorstores import VectorStore

from migrate.errors import UsageError
from migrate.live.searcher import LiveSearcher, found_documents, nearness

_K = 4
"""LangChain's own number of documents."""


class LiveVectorStore(VectorStore):
    """A `VectorStore` whose answers are those of a `LiveSearcher`; raises `LeadMigrateError` as it does.

    Scores are those of the store: inner products, or squared distances. `filter` is what the kind of store takes, see
    `migrate.stores.base.Store.search`.

    Parameters
    ----------
    searcher
        A searcher, which stays the caller's to close.
    """

    def __init__(self, searcher: LiveSearcher) -> None:
        self.searcher = searcher

    def similarity_search_with_score(
        self,
        query: str,
        k: int = _K,
        filter: Any = None,  # noqa: A002 - LangChain's name
        **_: Any,
    ) -> list[tuple[LangchainDocument, float]]:
        """Return the `k` nearest documents with their scores."""
        return [
            (LangchainDocument(page_content=document.text, metadata=dict(document.metadata), id=document.id), score)
            for document, score in found_documents(self.searcher, query, k, filter)
        ]

    def similarity_search(self, query: str, k: int = _K, **options: Any) -> list[LangchainDocument]:
        """Return the `k` nearest documents."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **options)]

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

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda score: nearness(self.searcher, score)
