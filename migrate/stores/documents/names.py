"""Names that programs give to the fields of documents, the likeliest first: the one table that every format consults.

A name that is not here is never taken for one of a role without being named in the location, but for ids, see
`is_id_name`, and a text that is the only one. What a framework writes in files of its own layout is no guess, and
stands with the reader of that layout.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from types import MappingProxyType
from typing import Final

TEXTS: Final = (
    "text",  # docs.jsonl, BEIR, Pinecone, Milvus and Elasticsearch of LangChain
    "content",  # PGVector of LangChain, Azure AI Search, Supabase
    "contents",  # Pyserini
    "document",  # Chroma, langchain_pg_embedding
    "page_content",  # LangChain, and its Qdrant
    "body",  # mail and pages
    "chunk",  # what splitters write
    "chunk_text",  # integrated records of Pinecone
    "pageContent",  # LangChain.js
    "sentence",  # examples of sentence-transformers
)
"""A text; only these are taken without being named."""

TITLE: Final = "title"
"""What stands before a text in the corpora of BEIR."""

IDS: Final = (
    "id",  # docs.jsonl, Chroma, Pinecone, Milvus, LanceDB
    "_id",  # BEIR, MongoDB, Elasticsearch
    "doc_id",  # LlamaIndex
)
"""An id, of which a file has one for each document."""

KEYS: Final = (
    "uuid",  # Weaviate, langchain_pg_embedding
    "key",  # Redis
)
"""An id in tables that have none of `IDS`."""

LIKELY_IDS: Final = (
    *IDS,
    "docid",  # MS MARCO, Pyserini
    "document_id",  # programs with a table of documents
    "chunk_id",  # what splitters write
    *KEYS,
)
"""An id where each value is another; after these come the names of `is_id_name`."""

METADATA: Final = (
    "metadata",  # docs.jsonl, LangChain, Chroma, Pinecone
    "cmetadata",  # langchain_pg_embedding
    "langchain_metadata",  # PGVectorStore of LangChain
)
"""All the metadata of a document in one field."""

VECTORS: Final = (
    "vector",  # LanceDB, Weaviate, Milvus
    "vectors",
    "embedding",  # Chroma, PGVector
    "embeddings",  # the `get` of Chroma, Hugging Face
    "values",  # Pinecone
)
"""A vector."""

LABEL: Final = "faiss_id"
"""The label of a document's vector in a FAISS index."""

LISTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ids": "id",
        "doc_ids": "doc_id",
        "chunk_ids": "chunk_id",
        "keys": "key",
        "uuids": "uuid",
        "texts": "text",
        "titles": TITLE,
        "contents": "content",
        "documents": "document",
        "docs": "document",
        "page_contents": "page_content",
        "bodies": "body",
        "chunks": "chunk",
        "sentences": "sentence",
        "metadatas": METADATA[0],
        "metas": METADATA[0],
        "metadata_list": METADATA[0],
        "faiss_ids": LABEL,
    }
)
"""Names of lists that have one value a document, and the field that each of the values is."""

NOT_OF_DOCUMENTS: Final = ("included",)
"""Names of lists beside those of documents: what Chroma's `get` was asked for."""


def first_of(usual: Iterable[str], names: Container[str]) -> str | None:
    """Return the first of the usual names that is among those there are; None if none is.

    >>> first_of(TEXTS, ["title", "body", "content"])
    'content'
    """
    return next((name for name in usual if name in names), None)


def is_id_name(name: str) -> bool:
    """Return whether a name may be that of a field of ids, if each value is another.

    >>> [name for name in ("id", "pmid", "PMCID", "articleId", "page_id", "title", "idea") if is_id_name(name)]
    ['id', 'pmid', 'PMCID', 'articleId', 'page_id']
    """
    return re.fullmatch(r"id|key|.*[_\-. ](id|ID|Id)|.*[a-z]I[dD]|[a-z]{1,4}id|[A-Z]{1,4}ID", name) is not None


def field_of(name: str) -> str:
    """Return the field that a list of this name has the values of.

    >>> [field_of(name) for name in ("metadatas", "documents", "page")]
    ['metadata', 'document', 'page']
    """
    return LISTS.get(name, name)
