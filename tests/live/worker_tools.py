"""A translated store, as a folder or in a database, and a model that counts what it is asked for."""

import hashlib

import numpy as np

from migrate.embedders.base import Embedder
from migrate.errors import InputError, RemoteError
from migrate.fit import fit_stitch
from migrate.manifest import ModelIdentity
from migrate.stores import open_store
from migrate.translate import translate_store


class Hashed(Embedder):
    """A vector for each text, at random but always the same. Refuses some texts, and fails `fails` times."""

    def __init__(self, dim=12):
        self.dim, self.asked, self.fails, self.refuses = dim, [], 0, ""

    @property
    def identity(self):
        return ModelIdentity("hashed", self.dim, True)

    def embed(self, texts, role, *, progress=None):
        if self.fails:
            self.fails -= 1
            raise RemoteError("the model does not answer")
        for text in texts:
            if text.text in ("", self.refuses):
                raise InputError(f"{text.id}: the model does not take this text")
        self.asked += [text.id for text in texts]
        return np.array([self.one(text.text) for text in texts], dtype=np.float32).reshape(-1, self.dim)

    def one(self, text):
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        row = np.random.default_rng(seed).normal(size=self.dim)
        return (row / np.linalg.norm(row)).astype(np.float32)


def translate(source_folder, embedder, place, size=40):
    """150 documents, 40 of them with true vectors."""
    source = open_store(source_folder)
    fitted = fit_stitch(source, embedder, stitch="ridge", size=size)
    translate_store(source, fitted, place)
    return open_store(str(place))
