"""LlamaIndex's retriever over a `LiveSearcher`: what a query engine asks in the place of its old index.

retriever = LiveRetriever("new-store", "openai:text-embedding-3-small", similarity_top_k=5)
engine = RetrieverQueryEngine.from_args(retriever)
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from migrate.live.searcher import LiveSearcher, Models
from migrate.vectors import Vectors


class LiveRetriever(BaseRetriever):
    """A `BaseRetriever` whose nodes are those that a `LiveSearcher` finds; raises `LeadMigrateError` as it does.

    The score of a node grows with nearness: the inner product, or 1 - d/2 of a squared distance d, which is the
    inner product of vectors of unit length.

    Parameters
    ----------
    searcher
        A searcher, which stays the caller's to close, or the location of a store.
    models, **options
        Arguments of the `LiveSearcher`, where a location is given.
    similarity_top_k
        Number of nodes.
    where
        Filter of the nodes, see `migrate.stores.base.Store.search`.
    """

    def __init__(
        self,
        searcher: LiveSearcher | str | Path,
        models: Models = None,
        *,
        similarity_top_k: int = 2,  # LlamaIndex's own number
        where: Any = None,
        **options: Any,
    ) -> None:
        self.searcher = LiveSearcher.of(searcher, models, **options)
        self.similarity_top_k = similarity_top_k
        self.where = where
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        query: str | Vectors = query_bundle.query_str
        if query_bundle.embedding is not None:  # another part of the app has embedded it
            query = np.asarray(query_bundle.embedding, np.float32)
        return [
            NodeWithScore(
                node=TextNode(id_=document.id, text=document.text, metadata=dict(document.metadata)),
                score=self.searcher.nearness(score),
            )
            for document, score in self.searcher.scored_documents(query, self.similarity_top_k, self.where)
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)
