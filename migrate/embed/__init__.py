"""Embedding whole corpora for real: a new store from documents, or a full re-embed of a store.

Both go on where a run broke off: what was embedded is not embedded again.
"""

from migrate.embed.corpus import Embedding, embed_corpus
from migrate.embed.reference import is_reembedded, reembed_store

__all__ = [
    "Embedding",
    "embed_corpus",
    "is_reembedded",
    "reembed_store",
]
