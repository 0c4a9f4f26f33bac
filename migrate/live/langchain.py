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
from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document as LangchainDocument
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict

from migrate.errors import UsageError
from migrate.live.searcher import LiveAnswer, LiveSearcher, Models
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

    def similarity_search(self, query: str, k: int = _K, filter: Any = None, **_: Any) -> list[LangchainDocument]:  # noqa: A002 - LangChain's name
        """The `k` nearest documents."""
        return self._documents(self.searcher.search(query, k, filter))

    async def asimilarity_search(
        self,
        query: str,
        k: int = _K,
        filter: Any = None,  # noqa: A002
        **_: Any,
    ) -> list[LangchainDocument]:
        """As `similarity_search`."""
        return self._documents(await self.searcher.asearch(query, k, filter))

    def similarity_search_with_score(
        self,
        query: str,
        k: int = _K,
        filter: Any = None,  # noqa: A002
        **_: Any,
    ) -> list[tuple[LangchainDocument, float]]:
        """The `k` nearest documents with their scores."""
        return self._scored(self.searcher.search(query, k, filter))

    async def asimilarity_search_with_score(
        self,
        query: str,
        k: int = _K,
        filter: Any = None,  # noqa: A002
        **_: Any,
    ) -> list[tuple[LangchainDocument, float]]:
        """As `similarity_search_with_score`."""
        return self._scored(await self.searcher.asearch(query, k, filter))

    def similarity_search_by_vector(
        self,
        embedding: list[float],
        k: int = _K,
        filter: Any = None,  # noqa: A002
        **_: Any,
    ) -> list[LangchainDocument]:
        """The `k` documents nearest to a vector of the new model."""
        vector: Vectors = np.asarray(embedding, np.float32)
        return self._documents(self.searcher.search(vector, k, filter))

    def get_by_ids(self, ids: Sequence[str], /) -> list[LangchainDocument]:
        """The documents of those ids that are there."""
        return [as_langchain(document) for document in self.searcher.documents(ids)]

    def add_texts(self, texts: Iterable[str], metadatas: list[dict[str, Any]] | None = None, **_: Any) -> NoReturn:
        """Refused.

        Raises
        ------
        UsageError
            Always.
        """
        raise self._read_alone("added to")

    def add_documents(self, documents: list[LangchainDocument], **_: Any) -> NoReturn:
        """Refused, as `add_texts`."""
        raise self._read_alone("added to")

    def delete(self, ids: list[str] | None = None, **_: Any) -> NoReturn:
        """Refused, as `add_texts`."""
        raise self._read_alone("deleted from")

    @classmethod
    def from_texts(
        cls,
        texts: list[str],  # noqa: ARG003
        embedding: Embeddings,  # noqa: ARG003
        metadatas: list[dict[str, Any]] | None = None,  # noqa: ARG003
        **_: Any,
    ) -> NoReturn:
        """Refused.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError("a live store is one that is there: translate one, and open it by its location")

    def max_marginal_relevance_search(self, query: str, *_: Any, **__: Any) -> NoReturn:
        """Refused: it ranks by the vectors of documents, of which most are translated ones.

        Raises
        ------
        UsageError
            Always.
        """
        raise self._no_mmr()

    def max_marginal_relevance_search_by_vector(self, embedding: list[float], *_: Any, **__: Any) -> NoReturn:
        """Refused, as `max_marginal_relevance_search`."""
        raise self._no_mmr()

    async def amax_marginal_relevance_search(self, query: str, *_: Any, **__: Any) -> NoReturn:
        """Refused, as `max_marginal_relevance_search`."""
        raise self._no_mmr()

    async def amax_marginal_relevance_search_by_vector(self, embedding: list[float], *_: Any, **__: Any) -> NoReturn:
        """Refused, as `max_marginal_relevance_search`."""
        raise self._no_mmr()

    def _no_mmr(self) -> UsageError:
        return UsageError(
            f'{self.searcher.location}: a live store has no search by maximal marginal relevance (search_type="mmr"), '
            'which needs the true vectors of all documents; use search_type="similarity"'
        )

    def _read_alone(self, what: str) -> UsageError:
        return UsageError(
            f"{self.searcher.location}: a live store is only searched, found it {what}; write to the store itself, "
            "with the new model, as its own client does: what is new there is found"
        )

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        is_distance = self.searcher.generation.store.info.metric == "l2"
        return lambda score: 1 - score / 2 if is_distance else score

    def _documents(self, answer: LiveAnswer) -> list[LangchainDocument]:
        return self.get_by_ids(answer.ids)

    def _scored(self, answer: LiveAnswer) -> list[tuple[LangchainDocument, float]]:
        scores = dict(zip(answer.ids, answer.scores.tolist(), strict=True))
        return [(document, scores[str(document.id)]) for document in self.get_by_ids(answer.ids)]


class LiveRetriever(BaseRetriever):
    """The retriever of a chain, without a vector store around it: the `k` nearest documents of `searcher`."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    searcher: LiveSearcher
    k: int = _K
    filter: Any = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[LangchainDocument]:
        answer = self.searcher.search(query, k or self.k, self.filter)
        return [as_langchain(document) for document in self.searcher.documents(answer.ids)]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[LangchainDocument]:
        answer = await self.searcher.asearch(query, k or self.k, self.filter)
        return [as_langchain(document) for document in self.searcher.documents(answer.ids)]


def as_langchain(document: Document) -> LangchainDocument:
    """A document as LangChain has it."""
    return LangchainDocument(page_content=document.text, metadata=dict(document.metadata), id=document.id)
