"""The packaged model's vectors of a demo's documents, which come along with the demo, in a cache."""

import numpy as np

from migrate.embedders import load_embedder
from migrate.embedders.base import WrappedEmbedder
from migrate.embedders.cache import CachedEmbedder
from migrate.stores import open_store
from migrate.vectors import no_progress

MODEL = "all-MiniLM-L6-v2"


class OfDemo(WrappedEmbedder):
    """The packaged model, whose vectors of the demo's documents come out of the demo's file."""

    def __init__(self, embedder, path):
        super().__init__(embedder)
        self.file = load_embedder(f"file:{path}")

    def around(self, embedder):
        raise NotImplementedError

    def embed(self, texts, role, *, progress=no_progress):
        return self.file.embed(texts, role, progress=progress)


def cache_packaged(demo, cache):
    """What the packaged model makes of the demo's documents is in the cache of what comes next.

    That prints the same as if it embedded them itself, which takes longer than all else; what is embedded again, to
    prove that the model is that of the cache, is real.
    """
    store = open_store(demo / "source")
    documents = list(store.documents(np.arange(store.info.count)))
    embedder = OfDemo(load_embedder(f"packaged:{MODEL}"), demo / f"{MODEL}.npz")
    CachedEmbedder(embedder, cache).embed_documents(documents)
