"""LlamaIndex's retriever over a `LiveSearcher`: what a query engine asks in the place of its old index.

searcher = LiveSearcher("new-store", "openai:text-embedding-3-small")
engine = RetrieverQueryEngine.from_args(LiveRetriever(searcher, similarity_top_k=5))
"""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from migrate.live.searcher import LiveSearcher, found_documents, nearness


class LiveRetriever(BaseRetriever):
    """A `BaseRetriever` whose nodes are those that a `LiveSearcher` finds; raises `LeadMigrateError` as it does.

    The score of a node grows with nearness: the inner product, or 1 - d/2 of a squared distance d, which is the
    inner product of vectors of unit length.

    Parameters
    ----------
    searcher
        A searcher, which stays the caller's to close.
    similarity_top_k
        Number of nodes.
    where
        Filter of the nodes, see `migrate.stores.base.Store.search`.
    """

    def __init__(
        self,
        searcher: LiveSearcher,
        *,
        similarity_top_k: int = 2,  # LlamaIndex's own number
        where: Any = None,
    ) -> None:
        self.searcher = searcher
        self.similarity_top_k = similarity_top_k
        self.where = where
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [
            NodeWithScore(
                node=TextNode(id_=document.id, text=document.text, metadata=dict(document.metadata)),
                score=nearness(self.searcher, score),
            )
            for document, score in found_documents(
                self.searcher, query_bundle.query_str, self.similarity_top_k, self.where
            )
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)
